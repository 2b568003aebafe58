//! Passes that are captured once and replayed.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::{result, sys};

use super::Gpu;
use crate::{Device, Error, Result};

/// A captured sequence of kernels, with what it writes to.
struct Graph<R> {
    gpu: Arc<Gpu>,
    executable: sys::CUgraphExec,
    result: R,
}

// SAFETY: CUDA's graphs may be launched from any thread, one at a time, which `&mut` sees to.
unsafe impl<R: Send> Send for Graph<R> {}

impl<R> Drop for Graph<R> {
    fn drop(&mut self) {
        self.gpu.wait();
        // SAFETY: it is not running any more and not used after this.
        unsafe { result::graph::exec_destroy(self.executable) }.ok();
    }
}

enum State<R> {
    /// Was run once, op by op: kernels are compiled and products planned.
    Seen,
    Captured(Graph<R>),
}

/// Passes by what makes them alike. On a GPU the first pass of a kind runs op by op, the second is captured into a
/// graph, and from then on the graph is replayed. On the CPU every pass runs.
pub struct Replays<K, R> {
    states: HashMap<K, State<R>>,
}

impl<K, R> Default for Replays<K, R> {
    fn default() -> Self {
        Self { states: HashMap::new() }
    }
}

/// Graphs kept at most; beyond that, passes of new kinds run op by op.
const MOST_GRAPHS: usize = 256;

impl<K: Hash + Eq, R: Clone> Replays<K, R> {
    /// Runs the pass `body`, or replays what it did on the device when it last ran under the same `key`.
    ///
    /// A pass may be replayed if it reads and writes the same tensors each time. Numbers that change from pass to pass
    /// are loaded into device memory before: ids and segments by their `load`, the step of random numbers and the
    /// factor of the loss by [`Device::load_numbers`].
    ///
    /// A replay does nothing on the host. So `body` has no effects there that the caller relies on: what the host is to
    /// learn is part of the result, which a replay returns again. Handles to device memory in it must be read before
    /// another pass runs, for captured passes share their memory.
    pub fn run(&mut self, device: &Device, key: K, body: impl FnOnce() -> Result<R>) -> Result<R> {
        let Some(gpu) = device.gpu() else { return body() };
        if gpu.is_profiling() {
            return body();
        }
        match self.states.get_mut(&key) {
            Some(State::Captured(graph)) => {
                graph.replay();
                Ok(graph.result.clone())
            }
            None => {
                let done = body()?;
                if self.states.len() < MOST_GRAPHS {
                    self.states.insert(key, State::Seen);
                }
                Ok(done)
            }
            Some(State::Seen) => {
                let mut graph = capture(gpu, body)?;
                graph.replay();
                let done = graph.result.clone();
                self.states.insert(key, State::Captured(graph));
                Ok(done)
            }
        }
    }
}

impl<R> Graph<R> {
    fn replay(&mut self) {
        if self.gpu.ready() {
            // SAFETY: both are alive.
            let launched = unsafe { result::graph::launch(self.executable, self.gpu.stream()) };
            self.gpu.note(launched);
        }
    }
}

fn capture<R>(gpu: &Arc<Gpu>, body: impl FnOnce() -> Result<R>) -> Result<Graph<R>> {
    let fault = |error: result::DriverError| Error::Gpu(format!("capturing a graph: {error}"));
    gpu.check()?;
    gpu.ready();
    // Relaxed: memory may be allocated while ops are captured.
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive; every begin has its end below.
    unsafe { result::stream::begin_capture(gpu.stream(), mode) }.map_err(fault)?;
    gpu.capturing.store(true, Ordering::Relaxed);
    let done = body();
    gpu.capturing.store(false, Ordering::Relaxed);
    // SAFETY: begun above.
    let graph = unsafe { result::stream::end_capture(gpu.stream()) }.map_err(fault)?;
    let result = done?;
    gpu.check()?;
    // SAFETY: the graph is complete; the executable does not need it any more.
    let executable = unsafe {
        let made = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)).map_err(fault);
        result::graph::destroy(graph).map_err(fault)?;
        made?
    };
    Ok(Graph { gpu: gpu.clone(), executable, result })
}
