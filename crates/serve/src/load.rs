//! An open-loop load generator: requests arrive at random times (a Poisson process) whether or not earlier ones are
//! answered, as those of many clients do. The time of an answer counts from the moment its request was due.

mod connections;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mae::engine::Rng;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::connections::{Connections, Outcome};
use crate::error::{Error, Result};

/// A load test of `/translate`.
#[derive(Clone, Debug)]
pub struct LoadTest {
    /// The server.
    pub address: SocketAddr,
    /// Source and target language.
    pub languages: (String, String),
    /// Name of the model, if the pair has several.
    pub model: Option<String>,
    /// Texts, taken in an order that the seed decides.
    pub texts: Vec<String>,
    /// Texts of each request: one as a string, several as a list.
    pub batch: usize,
    /// Requests per second.
    pub rate: f64,
    /// Connections at once; a request that is due waits for one.
    pub connections: usize,
    /// Time in which requests arrive; all of them are waited for.
    pub duration: Duration,
    /// Time that a request waits for a connection at most, and then for its answer.
    pub patience: Duration,
    /// Seed of times and texts.
    pub seed: u64,
}

/// Results of a load test. Every request is counted once: as answered, refused, failed, lost or unsent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Requests that were due.
    pub due: usize,
    /// Answers with status 200.
    pub answered: usize,
    /// Answers with status 429 or 503 that say when to try again.
    pub refused: usize,
    /// Other answers.
    pub failed: usize,
    /// Requests that were sent and not answered in time: the connection broke, or patience ended.
    pub lost: usize,
    /// Requests that were never sent: no connection was free in time, or nobody listened.
    pub unsent: usize,
    /// Answers that nobody asked for: bytes after an answer, or another answer than the same texts had before.
    pub surplus: usize,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// Seconds of each answer with status 200, rising.
    pub latencies: Vec<f64>,
}

impl LoadReport {
    /// The time within which a share of the answers came, in seconds.
    pub fn percentile(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((share * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
    }

    /// Answers per second.
    pub fn throughput(&self) -> f64 {
        self.answered as f64 / self.seconds
    }

    /// Counts what became of a request; `known` holds the answers of texts so far.
    fn count(&mut self, ended: Ended, known: &mut HashMap<usize, u64>) {
        let Ended { texts, seconds, outcome, surplus } = ended;
        self.surplus += surplus;
        match outcome {
            Outcome::Answered(answer) => {
                self.answered += 1;
                self.latencies.push(seconds);
                let first = *known.entry(texts).or_insert(answer);
                self.surplus += usize::from(first != answer);
            }
            Outcome::Refused => self.refused += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Lost => self.lost += 1,
            Outcome::Unsent => self.unsent += 1,
        }
    }
}

/// A request at its end.
struct Ended {
    /// Number of its first text.
    texts: usize,
    /// Seconds since it was due.
    seconds: f64,
    outcome: Outcome,
    /// Answers that came on its connection before it was sent.
    surplus: usize,
}

impl LoadTest {
    /// Runs the test.
    pub fn run(&self) -> Result<LoadReport> {
        let has_work = !self.texts.is_empty() && self.batch > 0 && self.connections > 0;
        if !(has_work && self.rate > 0.0 && self.rate.is_finite()) {
            return Err(Error::Load("a load test needs texts, a connection and a rate above 0".into()));
        }
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
        runtime.block_on(self.drive())
    }

    async fn drive(&self) -> Result<LoadReport> {
        let probe = TcpStream::connect(self.address).await;
        probe.map_err(|error| Error::Load(format!("no server answers at {}: {error}", self.address)))?;
        let connections = Arc::new(Connections::new(self.address, self.connections, self.patience));
        let stream = Rng::new(self.seed, 0).stream(0);
        let uniform = |request: u32, which: u32| f64::from(stream.uniform(request, which));
        let (start, mut due, mut requests) = (Instant::now(), 0.0, JoinSet::new());
        let (mut report, mut known) = (LoadReport::default(), HashMap::new());
        for request in 0.. {
            due += -(1.0 - uniform(request, 0)).ln() / self.rate;
            if due > self.duration.as_secs_f64() {
                break;
            }
            let texts = (uniform(request, 1) * self.texts.len() as f64) as usize % self.texts.len();
            let bytes = self.request(texts);
            let at = start + Duration::from_secs_f64(due);
            sleep_until(at).await;
            let connections = connections.clone();
            requests.spawn(async move {
                let (outcome, surplus) = connections.exchange(&bytes).await;
                Ended { texts, seconds: at.elapsed().as_secs_f64(), outcome, surplus }
            });
            report.due += 1;
            // A finished task keeps its memory until it is joined.
            while let Some(ended) = requests.try_join_next() {
                report.count(ended.map_err(|error| Error::Load(error.to_string()))?, &mut known);
            }
        }
        while let Some(ended) = requests.join_next().await {
            report.count(ended.map_err(|error| Error::Load(error.to_string()))?, &mut known);
        }
        report.seconds = start.elapsed().as_secs_f64();
        report.latencies.sort_unstable_by(f64::total_cmp);
        Ok(report)
    }

    /// A request for the texts from number `first` on.
    fn request(&self, first: usize) -> Vec<u8> {
        let (source, target) = &self.languages;
        let texts: Vec<&String> = self.texts.iter().cycle().skip(first).take(self.batch).collect();
        let q = if let [text] = texts[..] { json!(text) } else { json!(texts) };
        let mut body = json!({"q": q, "source": source, "target": target});
        if let Some(model) = &self.model {
            body["model"] = json!(model);
        }
        let body = body.to_string();
        let head = format!(
            "POST /translate HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        (head + &body).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_answers() {
        let latencies = (1..=101).map(f64::from).collect();
        let report = LoadReport { answered: 101, seconds: 10.0, latencies, ..LoadReport::default() };
        assert_eq!((report.percentile(0.5), report.percentile(0.99)), (51.0, 100.0));
        assert_eq!(report.throughput(), 10.1);
        assert!(LoadReport::default().percentile(0.5).is_nan());
    }

    /// A server that answers each request of a connection with the next of these texts.
    fn answering(answers: Vec<String>) -> SocketAddr {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, answers) = (stream.unwrap(), answers.clone());
                std::thread::spawn(move || {
                    for answer in answers.iter().cycle() {
                        // Requests are small and come one by one.
                        if stream.read(&mut [0; 4096]).unwrap_or(0) == 0 {
                            return;
                        }
                        stream.write_all(answer.as_bytes()).ok();
                    }
                });
            }
        });
        address
    }

    fn run(address: SocketAddr, connections: usize) -> LoadReport {
        let test = LoadTest {
            address,
            languages: ("de".into(), "en".into()),
            model: None,
            texts: vec!["a".into()],
            batch: 1,
            rate: 200.0,
            connections,
            duration: Duration::from_millis(200),
            patience: Duration::from_millis(300),
            seed: 1,
        };
        let report = test.run().unwrap();
        let LoadReport { due, answered, refused, failed, lost, unsent, .. } = report;
        assert!(due > 10);
        assert_eq!(due, answered + refused + failed + lost + unsent);
        report
    }

    #[test]
    fn every_request_is_counted_once() {
        let answer = |status: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        };
        let ok = || answer("200 OK", "x");
        let later = answer("503 Service Unavailable\r\nRetry-After: 1", "");
        let report = run(answering(vec![ok(), later, answer("503 Service Unavailable", ""), ok()]), 1);
        assert!(report.answered > 2 && report.refused > 1 && report.failed > 1, "{report:?}");
        assert_eq!((report.lost, report.surplus), (0, 0), "{report:?}");
        // Another answer to the same text, bytes after an answer, an answer that breaks off.
        let report = run(answering(vec![ok(), answer("200 OK", "y")]), 1);
        assert!(report.surplus > 0, "{report:?}");
        let report = run(answering(vec![ok() + &ok()]), 1);
        assert!(report.surplus > 0 && report.lost == 0, "{report:?}");
        let report = run(answering(vec!["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx".into()]), 50);
        assert_eq!(report.lost, report.due, "{report:?}");
        // No answer: the first waits for it, the others for the connection.
        let report = run(answering(vec![String::new(), String::new()]), 1);
        assert!(report.lost >= 1 && report.unsent > 1, "{report:?}");
    }
}
