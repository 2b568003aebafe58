//! One parallel region around many small ops.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::Yield;

/// Polls without work after which a thread offers its core to others.
const PATIENCE: u32 = 1 << 12;
/// Pauses between two polls.
const PAUSES: usize = 8;

/// True while some region runs: one is enough to keep the threads awake.
static GATHERED: AtomicBool = AtomicBool::new(false);

/// Runs `work` while the other threads of the pool stay awake. Waking a thread takes longer than many a product of a
/// decoding step; threads that look for work all the time join in at once.
pub fn together<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    if rayon::current_num_threads() == 1 || GATHERED.swap(true, Ordering::Relaxed) {
        return work();
    }
    let over = AtomicBool::new(false);
    rayon::scope(|scope| {
        let _end = End { over: &over };
        let (owner, over) = (rayon::current_thread_index(), &over);
        for _ in 1..rayon::current_num_threads() {
            // A region's own thread may take the task up while it waits for others: it has better things to do.
            scope.spawn(move |_| {
                if rayon::current_thread_index() != owner {
                    help(over);
                }
            });
        }
        work()
    })
}

/// Does what there is to do until the region is over.
fn help(over: &AtomicBool) {
    let mut idle = 0;
    while !over.load(Ordering::Relaxed) {
        match rayon::yield_now() {
            Some(Yield::Executed) => idle = 0,
            _ if idle < PATIENCE => {
                idle += 1;
                (0..PAUSES).for_each(|_| spin_loop());
            }
            _ => std::thread::yield_now(),
        }
    }
}

/// Ends a region, also where `work` panics.
struct End<'a> {
    over: &'a AtomicBool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        GATHERED.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn regions_end_nested_from_many_threads_and_after_a_panic() {
        let sum = || (0..1000usize).into_par_iter().with_max_len(7).map(|i| i * i).sum::<usize>();
        let want = sum();
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| together(|| together(sum))), want);
            std::thread::scope(|scope| {
                let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| pool.install(|| together(sum)))).collect();
                runs.into_iter().for_each(|run| assert_eq!(run.join().unwrap(), want));
            });
            let panics = std::panic::AssertUnwindSafe(|| pool.install(|| together(|| panic!("on purpose"))));
            assert!(std::panic::catch_unwind(panics).is_err());
            assert_eq!(pool.install(|| together(sum)), want);
        }
        assert_eq!(together(sum), want);
    }
}
