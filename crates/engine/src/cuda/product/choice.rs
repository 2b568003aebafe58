//! Which of the library's algorithms computes a product: the quickest by the device's clock.
//!
//! All that are asked add the terms of a sum in the same order, whatever their tiles, and so give the same bits: the
//! clock decides how long a product takes and nothing else. The suite's case `product` looks at these bits.

use std::collections::HashMap;

use cudarc::cublaslt::result::CublasError;

use super::plan::{Algorithm, Key, Plan, Traits};
use crate::Result;
use crate::cuda::Gpu;
use crate::cuda::transfer::Event;

/// Choices so far. Products of nearly the same size share one: batches have many sizes.
#[derive(Default)]
pub(super) struct Choices(HashMap<Key, Traits>);

/// Operations from which on a product is worth measuring.
const WORTHWHILE: usize = 2_000_000_000;
/// Operations of the launches that are timed together, and the most of such launches.
const TIMED: usize = 20_000_000_000;
const MOST_LAUNCHES: usize = 8;
/// Times that the algorithms take turns; of each the best time counts.
const ROUNDS: usize = 3;
/// Another algorithm than the library's first choice must take less than this share of its time.
const QUICKER: f32 = 0.98;

impl Gpu {
    /// Chooses one of the algorithms of a plan, if the product is large and neither captured nor profiled: their results
    /// go where that of the product will be. `launch` computes the product.
    pub(super) fn choose(
        &self,
        choices: &mut Choices,
        key: &Key,
        plan: &mut Plan,
        launch: impl Fn(&Plan, &Algorithm) -> std::result::Result<(), CublasError>,
    ) {
        let operations = 2 * key.size.iter().product::<usize>();
        if operations < WORTHWHILE || self.is_capturing() || self.is_profiling() {
            return;
        }
        let relatives = relatives(key);
        let chosen = choices.0.get(&relatives).copied().unwrap_or_else(|| {
            let launches = (TIMED / operations).clamp(1, MOST_LAUNCHES);
            let times = plan.algorithms().map(|_| f32::INFINITY).collect();
            let times = (0..ROUNDS).fold(times, |times, _| self.round(times, plan, launches, &launch));
            plan.algorithms().nth(quickest(&times)).unwrap_or(&plan.algorithm).traits
        });
        choices.0.insert(relatives, chosen);
        plan.take(chosen);
    }

    /// Lets the algorithms take turns, and gives the shorter of their time now and the one before.
    fn round(
        &self,
        times: Vec<f32>,
        plan: &Plan,
        launches: usize,
        launch: impl Fn(&Plan, &Algorithm) -> std::result::Result<(), CublasError>,
    ) -> Vec<f32> {
        let time = |(before, algorithm): (f32, &Algorithm)| {
            // One that cannot be launched is not chosen; what is wrong with the device, its next op reports.
            let warm = launch(plan, algorithm);
            let timed = self.milliseconds(|| (0..launches).try_for_each(|_| launch(plan, algorithm)));
            match (warm, timed) {
                (Ok(()), Ok((milliseconds, Ok(())))) => before.min(milliseconds),
                _ => before,
            }
        };
        times.into_iter().zip(plan.algorithms()).map(time).collect()
    }

    /// What `work` gives, and how long the device takes for it.
    fn milliseconds<R>(&self, work: impl FnOnce() -> R) -> Result<(f32, R)> {
        let (begin, end) = (Event::new()?, Event::new()?);
        begin.record(self.stream())?;
        let done = work();
        end.record(self.stream())?;
        end.wait()?;
        Ok((begin.milliseconds_to(&end), done))
    }
}

/// The number of the shortest time; the first, unless another is clearly shorter.
fn quickest(times: &[f32]) -> usize {
    let best = (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b])).unwrap_or(0);
    if times[best] < QUICKER * times[0] { best } else { 0 }
}

/// What products share that share a choice: sizes are the same in their three leading bits.
fn relatives(key: &Key) -> Key {
    let rough = |n: usize| {
        let rest = n.checked_ilog2().unwrap_or(0).saturating_sub(2);
        n >> rest << rest
    };
    Key { size: key.size.map(rough), cols: key.cols.map(rough), ..*key }
}

impl Plan {
    /// Those that give the same bits, the library's first choice first.
    pub(super) fn algorithms(&self) -> impl Iterator<Item = &Algorithm> {
        std::iter::once(&self.algorithm).chain(&self.others)
    }

    /// Takes the algorithm with these traits, if there is one, for good.
    fn take(&mut self, traits: Traits) {
        let chosen = self.others.iter().find(|other| other.traits == traits).copied();
        self.algorithm = chosen.unwrap_or(self.algorithm);
        self.others.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::memory::Dtype;
    use crate::cuda::product::Epilogue;

    #[test]
    fn another_algorithm_is_taken_if_it_is_clearly_quicker() {
        assert_eq!(quickest(&[10.0, 9.9, 12.0]), 0);
        assert_eq!(quickest(&[10.0, 9.0, 8.0]), 2);
        assert_eq!(quickest(&[10.0]), 0);
    }

    #[test]
    fn products_of_nearly_the_same_size_share_a_choice() {
        let of = |rows: usize| {
            let (dtype, epilogue) = (Dtype::Bf16, Epilogue::Nothing);
            let (size, cols) = ([rows, 512, 0], [512; 3]);
            relatives(&Key {
                size,
                transposed: [false; 2],
                cols,
                input: dtype,
                out: dtype,
                epilogue,
                count: 1,
            })
        };
        assert_eq!(of(24_832), of(25_088));
        assert_ne!(of(3_328), of(3_840));
        assert_ne!(of(3_328), of(6_656));
    }
}
