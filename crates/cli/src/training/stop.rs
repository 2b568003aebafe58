//! Signals and time limits that end work early. The current update is finished and saved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::exit::ExitCode;

/// A flag that SIGINT, SIGTERM, SIGHUP, a closed pipe and a time limit set.
pub struct Stop {
    flag: Arc<AtomicBool>,
    /// Number of the last signal; 0 before.
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Listens to signals, of which a second one ends the process at once; and sets the flag after so many minutes.
    pub fn new(minutes: Option<f64>) -> Result<Self> {
        let (flag, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        match minutes.map(|minutes| (minutes, Duration::try_from_secs_f64(60.0 * minutes))) {
            None => {}
            Some((minutes, Err(_))) => bail!("--stop-after {minutes}: this is no number of minutes"),
            Some((_, Ok(Duration::ZERO))) => bail!("--stop-after must be above 0 minutes"),
            Some((_, Ok(time))) => {
                let flag = flag.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(time);
                    flag.store(true, Ordering::Relaxed);
                });
            }
        }
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
            signal_hook::flag::register_usize(signal, last.clone(), signal as usize)?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Self { flag, signal: last })
    }

    /// Stops because nobody reads standard output any more (`mae train … | head`), like the signal for it.
    pub fn on_closed_pipe(&self) -> ClosedPipe {
        ClosedPipe { flag: self.flag.clone(), signal: self.signal.clone() }
    }

    /// The flag, for libraries.
    pub fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Returns whether it is time to stop.
    pub fn is_due(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Exit code of a process that was stopped: 128 and the signal's number, as of programs that it ends; 0 where time
    /// was up.
    pub fn exit_code(&self) -> ExitCode {
        match u8::try_from(self.signal.load(Ordering::Relaxed)) {
            Ok(signal @ 1..) => ExitCode::from(128 + signal),
            _ => ExitCode::SUCCESS,
        }
    }

    /// Answers a signal at once with what the process is `busy` with, for work that is not stopped halfway, as long as the
    /// returned value lives.
    pub fn answer(&self, busy: String) -> Answering {
        let ((done, over), signal) = (channel::<()>(), self.signal.clone());
        std::thread::spawn(move || {
            while over.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                if signal.load(Ordering::Relaxed) > 0 {
                    // The terminal has printed ^C, perhaps behind a progress bar.
                    eprintln!("\nmae: {busy}; Ctrl-C again to stop now");
                    return;
                }
            }
        });
        Answering { _done: done }
    }
}

/// Stops work when standard output was closed.
#[derive(Clone)]
pub struct ClosedPipe {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl ClosedPipe {
    /// Stops.
    pub fn stop(&self) {
        self.signal.store(signal_hook::consts::SIGPIPE as usize, Ordering::Relaxed);
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// Work that is not stopped halfway.
pub struct Answering {
    _done: Sender<()>,
}
