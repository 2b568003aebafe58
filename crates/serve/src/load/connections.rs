//! Connections of a load test: requests are sent on those that are idle, and their answers are read.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// What became of a request.
pub(super) enum Outcome {
    /// With a hash of the answer.
    Answered(u64),
    Refused,
    Failed,
    Lost,
    Unsent,
}

/// Connections of a test.
pub(super) struct Connections {
    address: SocketAddr,
    patience: Duration,
    places: Semaphore,
    /// Those that wait for the next request.
    idle: Mutex<Vec<TcpStream>>,
}

impl Connections {
    /// At most `count` connections to a server.
    pub(super) fn new(address: SocketAddr, count: usize, patience: Duration) -> Self {
        Self { address, patience, places: Semaphore::new(count), idle: Mutex::default() }
    }

    /// Sends a request and reads its answer; also returns the number of surplus answers on its connection.
    pub(super) async fn exchange(&self, bytes: &[u8]) -> (Outcome, usize) {
        let mut surplus = 0;
        let Ok(Ok(_place)) = timeout(self.patience, self.places.acquire()).await else {
            return (Outcome::Unsent, surplus);
        };
        let Some(mut stream) = self.open(&mut surplus).await else { return (Outcome::Unsent, surplus) };
        let talk = async {
            stream.write_all(bytes).await?;
            Answer::read(&mut stream).await
        };
        let Ok(Ok(answer)) = timeout(self.patience, talk).await else { return (Outcome::Lost, surplus) };
        surplus += usize::from(answer.has_rest);
        if !answer.has_rest {
            self.lock().push(stream);
        }
        let outcome = match answer.status {
            200 => Outcome::Answered(answer.hash),
            429 | 503 if answer.retries => Outcome::Refused,
            _ => Outcome::Failed,
        };
        (outcome, surplus)
    }

    /// A connection that waits, or a new one.
    async fn open(&self, surplus: &mut usize) -> Option<TcpStream> {
        loop {
            let Some(stream) = self.lock().pop() else { break };
            // The server may have closed it meanwhile; anything that can be read is too much.
            match stream.try_read(&mut [0; 1]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(stream),
                Ok(1..) => *surplus += 1,
                Ok(0) | Err(_) => {}
            }
        }
        timeout(self.patience, TcpStream::connect(self.address)).await.ok()?.ok()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer of the server.
struct Answer {
    status: u16,
    /// True if it says when to try again.
    retries: bool,
    /// Hash of its body.
    hash: u64,
    /// True if more came than its length says.
    has_rest: bool,
}

impl Answer {
    async fn read(stream: &mut TcpStream) -> std::io::Result<Self> {
        let broken = || std::io::Error::from(ErrorKind::InvalidData);
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
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let length: usize =
            field("content-length: ").and_then(|length| length.trim().parse().ok()).ok_or_else(broken)?;
        while bytes.len() < head + length {
            if stream.read_buf(&mut bytes).await? == 0 {
                return Err(broken());
            }
        }
        let mut hasher = DefaultHasher::new();
        bytes[head..head + length].hash(&mut hasher);
        let status = text.split_whitespace().nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)?;
        Ok(Self {
            status,
            retries: field("retry-after: ").is_some(),
            hash: hasher.finish(),
            has_rest: bytes.len() > head + length,
        })
    }
}
