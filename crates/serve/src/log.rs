//! The log: one JSON object per line, written by a thread of its own so that a full disk or a slow terminal never
//! delays an answer. Lines that cannot be written are counted.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::metrics::Metrics;

/// Lines that may wait for the thread.
const WAITING: usize = 4096;

/// A log that can be shared.
#[derive(Clone)]
pub struct Log {
    lines: SyncSender<String>,
    metrics: Arc<Metrics>,
}

/// Importance of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Normal operation.
    Info,
    /// Something an operator should know.
    Warning,
    /// Something that failed.
    Error,
}

impl Log {
    /// Starts the thread.
    pub fn start(output: Box<dyn Write + Send>, metrics: Arc<Metrics>) -> std::io::Result<Self> {
        let (lines, waiting) = sync_channel(WAITING);
        let own = metrics.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || write(output, &waiting, &own))?;
        Ok(Self { lines, metrics })
    }

    /// Adds an event; `fields` is an object.
    pub fn event(&self, level: Level, event: &str, fields: Value) {
        let mut line = Map::new();
        line.insert("time".into(), json!(timestamp(SystemTime::now())));
        let level = match level {
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        };
        line.insert("level".into(), json!(level));
        line.insert("event".into(), json!(event));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        if self.lines.try_send(Value::Object(line).to_string()).is_err() {
            self.metrics.log_lines_lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write(mut output: Box<dyn Write + Send>, lines: &Receiver<String>, metrics: &Metrics) {
    for line in lines {
        if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
            metrics.log_lines_lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A time as RFC 3339, in UTC with milliseconds.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = ((since.as_secs() / 86_400) as i64, since.as_secs() % 86_400);
    // Civil date from days, with years that begin in March (Hinnant).
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + 400 * era + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_utc() {
        let at = |seconds, millis| {
            timestamp(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(millis))
        };
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_827_696, 7), "2000-02-29T12:34:56.007Z");
        assert_eq!(at(1_798_761_599, 999), "2026-12-31T23:59:59.999Z");
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_loses_lines_and_nothing_else() {
        let metrics = Arc::new(Metrics::default());
        let log = Log::start(Box::new(Full), metrics.clone()).unwrap();
        log.event(Level::Info, "request", json!({"status": 200}));
        while metrics.log_lines_lost.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
    }
}
