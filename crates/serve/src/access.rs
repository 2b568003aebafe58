//! Clients: API keys, and requests per minute.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::work::queue::Client;

/// API keys of a file: one per line, with a limit of requests per minute after a blank if it has one of its own.
/// Lines that begin with `#` are comments.
#[derive(Debug, Default)]
pub struct Keys {
    keys: HashMap<Arc<str>, Option<u32>>,
}

impl Keys {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self> {
        let fault = |message: String| Error::Keys { path: path.to_owned(), message };
        let text =
            std::fs::read_to_string(path).map_err(|error| fault(format!("cannot read the keys: {error}")))?;
        let mut keys = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
            let Some(key) = words.next() else { continue };
            let at = |message: String| fault(format!("line {}: {message}", number + 1));
            let no_number = |word| at(format!("`{word}` is not a number of requests per minute"));
            let limit = words.next().map(|word| word.parse().map_err(|_| no_number(word))).transpose()?;
            if let Some(word) = words.next() {
                return Err(at(format!("`{word}` comes after a key and its number; write one key per line")));
            }
            if keys.insert(key.into(), limit).is_some() {
                return Err(at("this key is in the file already".into()));
            }
        }
        if keys.is_empty() {
            return Err(fault("the file holds no key, so nobody could be served".into()));
        }
        Ok(Self { keys })
    }

    /// A key as the file has it, with its limit. All keys are compared in full: the time tells nothing about them.
    pub fn find(&self, key: &str) -> Option<(Arc<str>, Option<u32>)> {
        let same = |own: &str| {
            own.len() == key.len() && own.bytes().zip(key.bytes()).fold(0, |seen, (a, b)| seen | (a ^ b)) == 0
        };
        let mut found = None;
        for (own, limit) in &self.keys {
            if same(own) {
                found = Some((own.clone(), *limit));
            }
        }
        found
    }
}

/// Requests of the last minute, by client.
#[derive(Debug, Default)]
pub struct Limiter {
    windows: Mutex<HashMap<Client, VecDeque<(Instant, u32)>>>,
}

const MINUTE: Duration = Duration::from_secs(60);

/// Clients that are remembered; beyond, those of more than a minute ago are forgotten.
const MOST_CLIENTS: usize = 10_000;

impl Limiter {
    /// Counts a request of this cost, or returns the time until it may be tried again.
    pub fn admit(
        &self,
        client: &Client,
        cost: u32,
        limit: u32,
        now: Instant,
    ) -> std::result::Result<(), Duration> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let old = |at: &Instant| now.duration_since(*at) >= MINUTE;
        if windows.len() > MOST_CLIENTS {
            windows.retain(|_, window| window.back().is_some_and(|(at, _)| !old(at)));
        }
        let window = windows.entry(client.clone()).or_default();
        while window.front().is_some_and(|(at, _)| old(at)) {
            window.pop_front();
        }
        let used: u64 = window.iter().map(|(_, cost)| u64::from(*cost)).sum();
        // A batch larger than the limit takes a whole minute's share. A limit of 0 admits nothing.
        let cost = cost.min(limit).max(1);
        if used + u64::from(cost) > u64::from(limit) {
            let first = window.front().map_or(now, |(at, _)| *at);
            return Err(MINUTE.saturating_sub(now.duration_since(first)));
        }
        window.push_back((now, cost));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_limits_of_their_own() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("keys");
        std::fs::write(&path, "# keys\nsecret\n  other 5 # slow\n\n").unwrap();
        let keys = Keys::load(&path).unwrap();
        assert_eq!(keys.find("secret"), Some(("secret".into(), None)));
        assert_eq!(keys.find("other"), Some(("other".into(), Some(5))));
        assert_eq!((keys.find("sec"), keys.find("# keys"), keys.find("")), (None, None, None));
        for (text, fault) in [
            ("a b\n", "line 1: `b` is not a number"),
            ("a 5\nb 6 7\n", "line 2: `7` comes after a key and its number"),
            ("a 5\nb\na\n", "line 3: this key is in the file already"),
            ("# none\n", "no key"),
        ] {
            std::fs::write(&path, text).unwrap();
            let message = Keys::load(&path).unwrap_err().to_string();
            assert!(message.contains(fault), "{message}");
        }
    }

    #[test]
    fn the_window_moves() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let [one, two] = ["1", "2"].map(|name| Client::Key(name.into()));
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(limiter.admit(&one, 2, 3, at(0)).is_ok());
        assert!(limiter.admit(&one, 1, 3, at(10)).is_ok());
        assert_eq!(limiter.admit(&one, 1, 3, at(20)), Err(Duration::from_secs(40)));
        assert!(limiter.admit(&two, 100, 3, at(20)).is_ok());
        assert!(limiter.admit(&one, 2, 3, at(60)).is_ok());
        assert!(limiter.admit(&one, 1, 3, at(61)).is_err());
        let barred = Client::Key("0".into());
        assert!(limiter.admit(&barred, 1, 0, at(61)).is_err());
    }
}
