//! Long work in a thread of its own, while the caller's thread hears of it and of Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::Error;

/// Pause between two looks at Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

/// Takes the events of the work.
pub struct Events(Sender<serde_json::Value>);

impl Events {
    /// Passes an event on.
    pub fn send(&self, event: &impl Serialize) {
        // Events are structs of numbers and texts. Nobody listens any more after a fault of the callback.
        if let Ok(event) = serde_json::to_value(event) {
            let _ = self.0.send(event);
        }
    }
}

/// Does the work and calls `callback` with every event, as a dict. A fault of the callback and Ctrl-C tell the work to
/// stop, and are raised when it has.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    callback: Option<&Py<PyAny>>,
    work: impl FnOnce(&AtomicBool, &Events) -> T + Send + 'static,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (send, events) = channel();
    let worker = std::thread::spawn({
        let stop = stop.clone();
        move || work(&stop, &Events(send))
    });
    // Only this thread listens; the lock lets the GIL go meanwhile.
    let events = Mutex::new(events);
    let next = || events.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK);
    let mut raised: Option<PyErr> = None;
    loop {
        match py.detach(next) {
            Ok(event) => {
                if let (Some(callback), None) = (callback, &raised)
                    && let Err(error) = call(py, callback, &event)
                {
                    raised = Some(error);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if raised.is_none() {
            raised = py.check_signals().err();
        }
        if raised.is_some() {
            stop.store(true, Ordering::Relaxed);
        }
    }
    let ended = py.detach(|| worker.join());
    match raised {
        Some(error) => Err(error),
        None => ended.map_err(|_| Error::new_err("the work ended with an internal fault")),
    }
}

fn call(py: Python<'_>, callback: &Py<PyAny>, event: &serde_json::Value) -> PyResult<()> {
    let event = py.import("json")?.call_method1("loads", (event.to_string(),))?;
    callback.call1(py, (event,)).map(|_| ())
}
