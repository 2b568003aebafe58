//! Waiting jobs. Clients take turns, and so do the requests of a client: a request of 10,000 sentences delays one of
//! a single sentence by one turn.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// A client as limits and turns know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// By its API key.
    Key(Arc<str>),
    /// By its address.
    Address(IpAddr),
}

/// Number of a request, unique within a worker.
pub type RequestId = u64;

/// Jobs of requests of clients.
#[derive(Debug)]
pub struct Queue<J> {
    clients: VecDeque<Lane<J>>,
    waiting: usize,
}

#[derive(Debug)]
struct Lane<J> {
    client: Client,
    requests: VecDeque<(RequestId, VecDeque<J>)>,
}

impl<J> Default for Queue<J> {
    fn default() -> Self {
        Self { clients: VecDeque::new(), waiting: 0 }
    }
}

impl<J> Queue<J> {
    /// Number of waiting jobs.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Adds the jobs of a request; its client has its turn after all others that wait.
    pub fn push(&mut self, client: Client, request: RequestId, jobs: impl IntoIterator<Item = J>) {
        let jobs: VecDeque<J> = jobs.into_iter().collect();
        if jobs.is_empty() {
            return;
        }
        self.waiting += jobs.len();
        match self.clients.iter_mut().find(|lane| lane.client == client) {
            Some(lane) => lane.requests.push_back((request, jobs)),
            None => self.clients.push_back(Lane { client, requests: VecDeque::from([(request, jobs)]) }),
        }
    }

    /// The job whose turn it is.
    pub fn peek(&self) -> Option<&J> {
        self.clients.front()?.requests.front()?.1.front()
    }

    /// Takes the job whose turn it is.
    pub fn pop(&mut self) -> Option<J> {
        let mut lane = self.clients.pop_front()?;
        let (request, mut jobs) = lane.requests.pop_front()?;
        let job = jobs.pop_front();
        self.waiting -= usize::from(job.is_some());
        if !jobs.is_empty() {
            lane.requests.push_back((request, jobs));
        }
        if !lane.requests.is_empty() {
            self.clients.push_back(lane);
        }
        job
    }

    /// Removes the jobs of a request; returns how many waited.
    pub fn remove(&mut self, request: RequestId) -> usize {
        let mut removed = 0;
        for lane in &mut self.clients {
            lane.requests.retain(|(id, jobs)| {
                let kept = *id != request;
                removed += if kept { 0 } else { jobs.len() };
                kept
            });
        }
        self.clients.retain(|lane| !lane.requests.is_empty());
        self.waiting -= removed;
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str) -> Client {
        Client::Key(name.into())
    }

    #[test]
    fn a_book_does_not_starve_a_sentence() {
        let mut queue = Queue::default();
        queue.push(client("reader"), 1, (0..10_000).map(|i| format!("book {i}")));
        queue.push(client("reader"), 2, ["note".to_owned()]);
        queue.push(client("other"), 3, ["letter".to_owned(), "letter 2".to_owned()]);
        assert_eq!(queue.waiting(), 10_003);
        let first: Vec<String> = (0..6).filter_map(|_| queue.pop()).collect();
        assert_eq!(first, ["book 0", "letter", "note", "letter 2", "book 1", "book 2"]);
        assert_eq!(queue.peek().unwrap(), "book 3");
    }

    #[test]
    fn requests_are_removed_whole() {
        let mut queue = Queue::default();
        queue.push(client("a"), 1, [1, 2, 3]);
        queue.push(client("b"), 2, [4]);
        queue.push(client("b"), 3, []);
        assert_eq!(queue.pop(), Some(1));
        assert_eq!((queue.remove(1), queue.remove(1)), (2, 0));
        assert_eq!((queue.pop(), queue.pop(), queue.waiting()), (Some(4), None, 0));
    }
}
