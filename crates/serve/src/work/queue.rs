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
    waiting: usize,
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
        let waiting = jobs.len();
        self.waiting += waiting;
        match self.clients.iter_mut().find(|lane| lane.client == client) {
            Some(lane) => {
                lane.requests.push_back((request, jobs));
                lane.waiting += waiting;
            }
            None => {
                let requests = VecDeque::from([(request, jobs)]);
                self.clients.push_back(Lane { client, requests, waiting });
            }
        }
    }

    /// Number of jobs of other requests whose turns come before that of the last of `jobs` new ones of a client.
    pub fn ahead(&self, client: &Client, jobs: usize) -> usize {
        let own = self.clients.iter().find(|lane| lane.client == *client);
        let of_client: usize =
            own.map_or(0, |lane| lane.requests.iter().map(|(_, left)| left.len().min(jobs)).sum());
        let turns = of_client + jobs;
        let others = self.clients.iter().filter(|lane| lane.client != *client);
        of_client + others.map(|lane| lane.waiting.min(turns)).sum::<usize>()
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
        let taken = usize::from(job.is_some());
        self.waiting -= taken;
        lane.waiting -= taken;
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
            let mut of_lane = 0;
            lane.requests.retain(|(id, jobs)| {
                let kept = *id != request;
                of_lane += if kept { 0 } else { jobs.len() };
                kept
            });
            lane.waiting -= of_lane;
            removed += of_lane;
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
    fn turns_tell_how_many_are_ahead() {
        let mut queue = Queue::default();
        let mine = client("mine");
        assert_eq!(queue.ahead(&mine, 5), 0);
        queue.push(mine.clone(), 1, 0..100);
        queue.push(mine.clone(), 2, [0; 3]);
        queue.push(client("other"), 3, [0; 4]);
        // One of each request of the client, and a turn of the other client for each of the three.
        assert_eq!(queue.ahead(&mine, 1), 2 + 3);
        assert_eq!(queue.ahead(&mine, 50), 50 + 3 + 4);
        assert_eq!(queue.ahead(&client("third"), 2), 2 + 2);
        for jobs in [1, 2, 7] {
            let ahead = queue.ahead(&mine, jobs);
            let mut queue = Queue::default();
            queue.push(mine.clone(), 1, [1; 100]);
            queue.push(mine.clone(), 2, [2; 3]);
            queue.push(client("other"), 3, [3; 4]);
            queue.push(mine.clone(), 4, vec![4; jobs]);
            let order: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
            let last = order.iter().rposition(|job| *job == 4).unwrap();
            assert!((last + 1 - jobs).abs_diff(ahead) <= 1, "{jobs}: {ahead} {order:?}");
        }
        queue.remove(1);
        assert_eq!(queue.ahead(&mine, 50), 3 + 4);
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
