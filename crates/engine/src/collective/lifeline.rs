//! Connections that tell when a rank has ended: every rank is connected to rank 0, which tells all others.
//!
//! Both ends send a byte each second. A connection that closes without a farewell, or is silent for [`PATIENCE`], is the
//! end of a rank; the first one is kept, and is what all errors name. Messages are a letter each: `h` alive, `b` farewell,
//! `f` an error with its text, `d` the end of a rank, with its number and a text.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::{Ending, Place};
use crate::{Error, Result};

/// Time between two signs of life.
const BEAT: Duration = Duration::from_secs(1);
/// Beats without one after which a rank has ended.
const PATIENCE: u32 = 7;
/// Time within which the lifeline tells which rank has ended, once a connection is broken.
const VERDICT: Duration = Duration::from_secs(3);
/// Bytes of a text at most.
const LONGEST: usize = 1 << 16;

/// Called with the error that names the rank which has ended.
pub type OnLoss = Box<dyn Fn(&Error) + Send + Sync>;

/// The connections of a rank.
pub(super) struct Lifeline(Arc<Shared>);

struct Shared {
    place: Place,
    /// Host and process of each rank.
    names: Vec<String>,
    /// To all others of rank 0, to rank 0 of the others.
    links: Vec<(usize, TcpStream)>,
    /// Connections that are closed when a rank has ended, so that nobody waits for it.
    cut: Mutex<Vec<TcpStream>>,
    state: Mutex<State>,
    changed: Condvar,
    on_loss: Mutex<Option<OnLoss>>,
}

#[derive(Default)]
struct State {
    loss: Option<Error>,
    farewells: Vec<usize>,
    has_left: bool,
}

impl Lifeline {
    /// Watches the links.
    pub(super) fn new(place: Place, names: Vec<String>, links: Vec<(usize, TcpStream)>) -> Result<Self> {
        let shared = Arc::new(Shared {
            place,
            names,
            links,
            cut: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            on_loss: Mutex::new(None),
        });
        let fault = |error: io::Error| Error::Launch(format!("a thread that watches the ranks: {error}"));
        for (rank, link) in &shared.links {
            let (rank, link) = (*rank, link.try_clone().map_err(fault)?);
            link.set_read_timeout(Some(BEAT)).map_err(fault)?;
            link.set_write_timeout(Some(BEAT)).map_err(fault)?;
            let shared = shared.clone();
            Builder::new().spawn(move || shared.listen(rank, link)).map_err(fault)?;
        }
        let beating = shared.clone();
        Builder::new().spawn(move || beating.beat()).map_err(fault)?;
        Ok(Self(shared))
    }

    /// These connections are closed when a rank has ended; fails if one has already.
    pub(super) fn cut(&self, connections: Vec<TcpStream>) -> Result<()> {
        *self.0.cut.lock().expect("nobody panics while it is set") = connections;
        self.check()
    }

    pub(super) fn on_loss(&self, ended: OnLoss) {
        *self.0.on_loss.lock().expect("nobody panics while it is set") = Some(ended);
    }

    /// The error that names the rank which has ended; if none has, that `rank` cannot be reached, and `why`.
    pub(super) fn verdict(&self, rank: usize, why: &str) -> Error {
        let deadline = Instant::now() + VERDICT;
        let mut state = self.0.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match &state.loss {
                Some(loss) => return loss.clone(),
                None if left.is_zero() => return self.0.error(rank, why.to_owned()),
                None => state = self.0.changed.wait_timeout(state, left).expect("nobody panics with it").0,
            }
        }
    }

    /// Returns the error of the rank that has ended, if one has.
    pub(super) fn check(&self) -> Result<()> {
        self.0.lock().loss.clone().map_or(Ok(()), Err)
    }

    pub(super) fn leave(&self, ending: Ending<'_>) {
        let shared = &self.0;
        let message = match ending {
            Ending::Finished => vec![b'b'],
            Ending::Failed(text) => {
                // The others end because of this rank, which reports its own error.
                shared.lock().has_left = true;
                with_text(b"f", text)
            }
        };
        shared.links.iter().for_each(|(_, link)| drop((&mut &*link).write_all(&message)));
        // Connections that close before the others have read a message may lose it.
        let deadline = Instant::now() + if ending == Ending::Finished { BEAT } else { BEAT / 4 };
        let mut state = shared.lock();
        while state.farewells.len() < shared.links.len() && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            state = shared.changed.wait_timeout(state, left).expect("nobody panics with it").0;
        }
        state.has_left = true;
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.0.lock().has_left = true;
        for (_, link) in &self.0.links {
            link.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    fn error(&self, rank: usize, why: String) -> Error {
        let name = self.names.get(rank).cloned().unwrap_or_default();
        Error::Peer { rank, name, why }
    }

    /// Sends signs of life until this rank has left.
    fn beat(&self) {
        while !self.lock().has_left {
            self.links.iter().for_each(|(_, link)| drop((&mut &*link).write_all(b"h")));
            std::thread::sleep(BEAT);
        }
    }

    /// Reads the messages of a rank until it ends.
    fn listen(&self, rank: usize, mut link: TcpStream) {
        let mut silent = 0;
        loop {
            let mut letter = [0];
            let heard = link.read(&mut letter);
            if self.lock().has_left {
                return;
            }
            match heard {
                Ok(0) => return self.closed(rank, "its process has ended".to_owned()),
                Ok(_) => silent = 0,
                Err(error) if is_timeout(&error) => {
                    silent += 1;
                    if silent >= PATIENCE {
                        return self.closed(rank, format!("no sign of life for {PATIENCE} seconds"));
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return self.closed(rank, "its process has ended".to_owned()),
            }
            match letter[0] {
                b'b' => {
                    self.lock().farewells.push(rank);
                    self.changed.notify_all();
                }
                b'f' => {
                    let text = read_text(&mut link).unwrap_or_default();
                    return self.lose(rank, format!("it ended with an error: {text}"));
                }
                b'd' => {
                    let mut number = [0; 4];
                    let ended = link.read_exact(&mut number).map(|()| u32::from_le_bytes(number) as usize);
                    let text = read_text(&mut link).unwrap_or_default();
                    return self.lose(ended.unwrap_or(rank), text);
                }
                _ => {}
            }
        }
    }

    /// The connection to a rank is closed, which is as it should be after a farewell.
    fn closed(&self, rank: usize, why: String) {
        if !self.lock().farewells.contains(&rank) {
            self.lose(rank, why);
        }
    }

    /// Keeps the first loss, tells the others, and ends what waits.
    fn lose(&self, rank: usize, why: String) {
        let error = self.error(rank, why.clone());
        {
            let mut state = self.lock();
            if state.loss.is_some() || state.has_left {
                return;
            }
            state.loss = Some(error.clone());
        }
        if self.place.is_first() {
            let message = with_text(&[&b"d"[..], &(rank as u32).to_le_bytes()].concat(), &why);
            for (_, link) in self.links.iter().filter(|(other, _)| *other != rank) {
                (&mut &*link).write_all(&message).ok();
            }
        }
        // First: a thread that waits in vain for the rank would otherwise report it, too.
        if let Some(ended) = &*self.on_loss.lock().expect("nobody panics while it is set") {
            ended(&error);
        }
        self.changed.notify_all();
        for connection in &*self.cut.lock().expect("nobody panics while it is set") {
            connection.shutdown(Shutdown::Both).ok();
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A message with a text behind it.
fn with_text(head: &[u8], text: &str) -> Vec<u8> {
    let text = &text.as_bytes()[..text.len().min(LONGEST)];
    [head, &(text.len() as u32).to_le_bytes(), text].concat()
}

fn read_text(link: &mut TcpStream) -> io::Result<String> {
    let mut length = [0; 4];
    link.read_exact(&mut length)?;
    let mut text = vec![0; (u32::from_le_bytes(length) as usize).min(LONGEST)];
    link.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
