//! An open-loop load generator: requests arrive at random times (a Poisson process) whether or not earlier ones are
//! answered, as those of many clients do. The time of an answer counts from the moment its request was due.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mae::engine::Rng;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

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
    /// Texts, one per request, taken in an order that the seed decides.
    pub texts: Vec<String>,
    /// Requests per second.
    pub rate: f64,
    /// Connections at once; a request that is due waits for one.
    pub connections: usize,
    /// Time in which requests arrive; all of them are waited for.
    pub duration: Duration,
    /// Time after which a request counts as failed.
    pub patience: Duration,
    /// Seed of times and texts.
    pub seed: u64,
}

/// Results of a load test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Requests.
    pub sent: usize,
    /// Answers with status 200.
    pub answered: usize,
    /// Answers with status 429 or 503.
    pub refused: usize,
    /// Other answers, and requests without one.
    pub failed: usize,
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
}

enum Outcome {
    Answered(f64),
    Refused,
    Failed,
}

/// Connections that wait for the next request.
type Pool = Arc<Mutex<Vec<TcpStream>>>;

impl LoadTest {
    /// Runs the test.
    pub fn run(&self) -> Result<LoadReport> {
        if self.texts.is_empty() || self.connections == 0 || !(self.rate > 0.0 && self.rate.is_finite()) {
            return Err(Error::Load("a load test needs texts, a connection and a rate above 0".into()));
        }
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
        runtime.block_on(self.drive())
    }

    async fn drive(&self) -> Result<LoadReport> {
        let probe = TcpStream::connect(self.address).await;
        probe.map_err(|error| Error::Load(format!("no server answers at {}: {error}", self.address)))?;
        let stream = Rng::new(self.seed, 0).stream(0);
        let uniform = |request: u32, which: u32| f64::from(stream.uniform(request, which));
        let (start, pool) = (Instant::now(), Pool::default());
        let places = Arc::new(Semaphore::new(self.connections));
        let (mut due, mut requests, mut report) = (0.0, JoinSet::new(), LoadReport::default());
        for request in 0.. {
            due += -(1.0 - uniform(request, 0)).ln() / self.rate;
            if due > self.duration.as_secs_f64() {
                break;
            }
            let text =
                &self.texts[(uniform(request, 1) * self.texts.len() as f64) as usize % self.texts.len()];
            let bytes = self.request(text);
            let at = start + Duration::from_secs_f64(due);
            sleep_until(at).await;
            let (address, patience, places, pool) =
                (self.address, self.patience, places.clone(), pool.clone());
            requests.spawn(async move {
                let exchange = async {
                    let _place = places.acquire().await;
                    one(address, &bytes, &pool).await
                };
                match timeout(patience, exchange).await {
                    Ok(Ok(200)) => Outcome::Answered(at.elapsed().as_secs_f64()),
                    Ok(Ok(429 | 503)) => Outcome::Refused,
                    _ => Outcome::Failed,
                }
            });
            report.sent += 1;
        }
        while let Some(outcome) = requests.join_next().await {
            match outcome {
                Ok(Outcome::Answered(seconds)) => report.latencies.push(seconds),
                Ok(Outcome::Refused) => report.refused += 1,
                Ok(Outcome::Failed) | Err(_) => report.failed += 1,
            }
        }
        report.answered = report.latencies.len();
        report.seconds = start.elapsed().as_secs_f64();
        report.latencies.sort_unstable_by(f64::total_cmp);
        Ok(report)
    }

    fn request(&self, text: &str) -> Vec<u8> {
        let (source, target) = &self.languages;
        let mut body = json!({"q": text, "source": source, "target": target});
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

/// One request on a connection of the pool, or on a new one; the status of its answer.
async fn one(address: SocketAddr, bytes: &[u8], pool: &Pool) -> std::io::Result<u16> {
    let waiting = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut stream = match waiting {
        Some(stream) => stream,
        None => TcpStream::connect(address).await?,
    };
    stream.write_all(bytes).await?;
    let status = answer(&mut stream).await?;
    pool.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    Ok(status)
}

/// Reads an answer; its status.
async fn answer(stream: &mut TcpStream) -> std::io::Result<u16> {
    let broken = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(broken());
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let length: usize = length.ok_or_else(broken)?;
    while bytes.len() < head + length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(broken());
        }
    }
    text.split_whitespace().nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)
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
}
