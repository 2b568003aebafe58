//! Threads of a pool, started so that a process without room for them says so.

use std::io::{Error, Result};
use std::sync::mpsc::sync_channel;

use memmap2::MmapMut;
use rayon::ThreadBuilder;

/// Bytes of a stack unless the pool says otherwise: those of the standard library.
const STACK: usize = 2 << 20;
/// Bytes that a thread takes beside its stack before it runs, and then some.
const BESIDE: usize = 1 << 20;

/// Starts a thread of a pool and waits until it runs: `ThreadPoolBuilder::spawn_handler(start)`.
///
/// A new thread takes some memory beside its stack, and the standard library ends the process where there is none. So this
/// looks first whether there is room for both, and starts one thread after the other.
pub fn start(thread: ThreadBuilder) -> Result<()> {
    let stack = thread.stack_size().unwrap_or(STACK);
    drop(MmapMut::map_anon(stack + BESIDE)?);
    let mut builder = std::thread::Builder::new();
    if let Some(name) = thread.name() {
        builder = builder.name(name.to_owned());
    }
    if let Some(stack) = thread.stack_size() {
        builder = builder.stack_size(stack);
    }
    let (runs, wait) = sync_channel(1);
    builder.spawn(move || {
        runs.send(()).ok();
        thread.run();
    })?;
    wait.recv().map_err(|_| Error::other("a thread ended before it ran"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_the_names_and_numbers_of_their_pool() {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(3)
            .thread_name(|number| format!("worker {number}"))
            .spawn_handler(start)
            .build()
            .unwrap();
        let names = pool.broadcast(|_| std::thread::current().name().map(str::to_owned));
        assert_eq!(names, ["worker 0", "worker 1", "worker 2"].map(|name| Some(name.to_owned())));
    }

    #[test]
    fn a_stack_without_room_is_an_error() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).stack_size(1 << 50).spawn_handler(start);
        assert!(pool.build().is_err());
    }
}
