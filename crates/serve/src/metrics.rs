//! Metrics in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Upper bounds of the buckets of durations, in seconds.
const BOUNDS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Durations in buckets.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    /// In microseconds.
    sum: AtomicU64,
}

impl Histogram {
    /// Adds a duration in seconds.
    pub fn observe(&self, seconds: f64) {
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((1e6 * seconds) as u64, Ordering::Relaxed);
    }

    fn write(&self, name: &str, labels: &str, text: &mut String) {
        let mut total = 0;
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, count) in bounds.zip(&self.counts) {
            total += count.load(Ordering::Relaxed);
            line(text, format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}"));
        }
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let sum = self.sum.load(Ordering::Relaxed) as f64 / 1e6;
        line(text, format_args!("{name}_sum{braces} {sum}"));
        line(text, format_args!("{name}_count{braces} {total}"));
    }
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Strings take any text.
    writeln!(text, "{content}").ok();
}

/// Metrics of one model's worker.
#[derive(Debug, Default)]
pub struct WorkMetrics {
    /// Sentences that wait.
    pub waiting: AtomicU64,
    /// Sentences in work.
    pub running: AtomicU64,
    /// Their tokens.
    pub running_tokens: AtomicU64,
    /// Steps of the engine.
    pub steps: AtomicU64,
    /// Sentences that were finished.
    pub finished: AtomicU64,
    /// Sentences that nobody waited for any more.
    pub dropped: AtomicU64,
    /// Panics of the engine.
    pub failures: AtomicU64,
    /// Source tokens.
    pub source_tokens: AtomicU64,
    /// Target tokens.
    pub target_tokens: AtomicU64,
    /// Sentences that were cut.
    pub cut: AtomicU64,
    /// Time in the queue.
    pub queue_seconds: Histogram,
    /// Time in work.
    pub search_seconds: Histogram,
}

/// Metrics of the server.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests by endpoint and status code.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    duration: Histogram,
    /// Connections that are open.
    pub connections: AtomicU64,
    /// Connections for which there was no place.
    pub connections_refused: AtomicU64,
    /// Lines of the log that could not be written.
    pub log_lines_lost: AtomicU64,
    /// Times that models were loaded again.
    pub reloads: AtomicU64,
    workers: Mutex<BTreeMap<String, Arc<WorkMetrics>>>,
}

impl Metrics {
    /// Counts a request.
    pub fn request(&self, endpoint: &'static str, code: u16, seconds: f64) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((endpoint, code)).or_default() += 1;
        self.duration.observe(seconds);
    }

    /// The metrics of a model of this name; they go on when a model is loaded again.
    pub fn worker(&self, model: &str) -> Arc<WorkMetrics> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.entry(model.to_owned()).or_default().clone()
    }

    /// All metrics as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        head(&mut text, "mae_build_info", "gauge", "Version of the program.");
        line(&mut text, format_args!("mae_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")));
        head(&mut text, "mae_requests_total", "counter", "Requests by endpoint and status code.");
        for ((endpoint, code), count) in &*self.requests.lock().unwrap_or_else(PoisonError::into_inner) {
            line(
                &mut text,
                format_args!("mae_requests_total{{endpoint=\"{endpoint}\",code=\"{code}\"}} {count}"),
            );
        }
        head(&mut text, "mae_request_duration_seconds", "histogram", "Time from request to answer.");
        self.duration.write("mae_request_duration_seconds", "", &mut text);
        let of_server: [Row<Self>; 4] = [
            ("mae_connections", "gauge", "Open connections.", |m| &m.connections),
            ("mae_connections_refused_total", "counter", "Connections beyond the limit.", |m| {
                &m.connections_refused
            }),
            ("mae_log_lines_lost_total", "counter", "Lines of the log that could not be written.", |m| {
                &m.log_lines_lost
            }),
            ("mae_reloads_total", "counter", "Times that models were loaded again.", |m| &m.reloads),
        ];
        for (name, kind, help, value) in of_server {
            head(&mut text, name, kind, help);
            line(&mut text, format_args!("{name} {}", value(self).load(Ordering::Relaxed)));
        }
        self.write_workers(&mut text);
        text
    }

    fn write_workers(&self, text: &mut String) {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let label = |model: &str| {
            let escaped = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("model=\"{escaped}\"")
        };
        for (name, kind, help, value) in WORK {
            head(text, name, kind, help);
            for (model, metrics) in &*workers {
                let value = value(metrics).load(Ordering::Relaxed);
                line(text, format_args!("{name}{{{}}} {value}", label(model)));
            }
        }
        type Of = fn(&WorkMetrics) -> &Histogram;
        let histograms: [(&str, &str, Of); 2] = [
            ("mae_queue_seconds", "Time of sentences in the queue.", |m| &m.queue_seconds),
            ("mae_search_seconds", "Time of sentences in work.", |m| &m.search_seconds),
        ];
        for (name, help, value) in histograms {
            head(text, name, "histogram", help);
            for (model, metrics) in &*workers {
                value(metrics).write(name, &label(model), text);
            }
        }
    }
}

/// Name, kind, help and value of a metric.
type Row<M> = (&'static str, &'static str, &'static str, fn(&M) -> &AtomicU64);

/// Metrics of workers.
const WORK: [Row<WorkMetrics>; 10] = [
    ("mae_queue_sentences", "gauge", "Sentences that wait.", |m| &m.waiting),
    ("mae_batch_sentences", "gauge", "Sentences in work.", |m| &m.running),
    ("mae_batch_tokens", "gauge", "Source tokens in work.", |m| &m.running_tokens),
    ("mae_steps_total", "counter", "Steps of the engine.", |m| &m.steps),
    ("mae_sentences_total", "counter", "Sentences that were finished.", |m| &m.finished),
    ("mae_sentences_dropped_total", "counter", "Sentences whose client went away.", |m| &m.dropped),
    ("mae_sentences_cut_total", "counter", "Sentences that were longer than the model reads.", |m| &m.cut),
    ("mae_source_tokens_total", "counter", "Source tokens that were read.", |m| &m.source_tokens),
    ("mae_target_tokens_total", "counter", "Target tokens that were written.", |m| &m.target_tokens),
    ("mae_engine_failures_total", "counter", "Engines that had to be made again.", |m| &m.failures),
];

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    line(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_cumulative() {
        let metrics = Metrics::default();
        metrics.request("/translate", 200, 0.03);
        metrics.request("/translate", 200, 0.7);
        metrics.worker("a\"b").queue_seconds.observe(100.0);
        let text = metrics.text();
        for part in [
            "mae_requests_total{endpoint=\"/translate\",code=\"200\"} 2\n",
            "mae_request_duration_seconds_bucket{le=\"0.05\"} 1\n",
            "mae_request_duration_seconds_bucket{le=\"1\"} 2\n",
            "mae_request_duration_seconds_sum 0.73\n",
            "mae_queue_seconds_bucket{model=\"a\\\"b\",le=\"60\"} 0\n",
            "mae_queue_seconds_count{model=\"a\\\"b\"} 1\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
