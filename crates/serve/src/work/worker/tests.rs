//! The thread with an engine that can fail.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::work::engine::Happened;

/// Gives a job back in the next step; the job 13 makes it panic.
#[derive(Default)]
struct Echo {
    jobs: Vec<(Ticket, u32)>,
}

impl Engine for Echo {
    type Job = u32;
    type Event = u32;

    fn has_room(&self, _: &u32) -> bool {
        self.jobs.len() < 4
    }

    fn submit(&mut self, ticket: Ticket, job: u32) {
        self.jobs.push((ticket, job));
    }

    fn step(&mut self) -> Vec<Happened<u32>> {
        assert!(self.jobs.iter().all(|(_, job)| *job != 13), "job 13");
        let finished = |(ticket, event)| Happened { ticket, event, stage: Stage::Finished };
        self.jobs.drain(..).map(finished).collect()
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.jobs.retain(|(own, _)| *own != ticket);
    }

    fn load(&self) -> Load {
        Load { jobs: self.jobs.len(), tokens: 0 }
    }
}

const BOUNDS: Bounds = Bounds { jobs: 10, wait: Duration::from_secs(1) };

fn client(number: u8) -> Client {
    Client::Address(IpAddr::V4(Ipv4Addr::new(127, 0, 0, number)))
}

fn all(mut answers: Answers<u32, u32>) -> Vec<(usize, u32)> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut found = Vec::new();
    runtime.block_on(async {
        while let Some(event) = answers.next().await {
            found.push(event);
        }
    });
    found.sort_unstable();
    found
}

#[test]
fn an_engine_that_panics_is_made_again() {
    let metrics = Arc::new(WorkMetrics::default());
    let worker = Worker::start("test", BOUNDS, metrics.clone(), |shared| shared.run(Echo::default)).unwrap();
    assert_eq!(all(worker.submit(client(1), vec![7, 8]).unwrap()), [(0, 7), (1, 8)]);
    // No answer comes to the request that the engine failed on.
    assert_eq!(all(worker.submit(client(1), vec![13]).unwrap()), []);
    assert_eq!(all(worker.submit(client(1), vec![9]).unwrap()), [(0, 9)]);
    assert_eq!(metrics.failures.load(Ordering::Relaxed), 1);
    assert_eq!(metrics.finished.load(Ordering::Relaxed), 3);
}

#[test]
fn what_cannot_wait_is_refused() {
    let mut state = State::<u32, u32> {
        queue: Queue::default(),
        dropped: Vec::new(),
        pace: Pace::default(),
        closing: false,
    };
    let (reply, _events) = mpsc::unbounded_channel();
    let waiting = |job| {
        let origin = Origin { request: 1, index: 0, reply: reply.clone(), since: Instant::now() };
        Waiting { job, origin }
    };
    // A request larger than the queue enters an empty one.
    assert_eq!(state.check(&client(1), 50, BOUNDS), Ok(()));
    state.queue.push(client(1), 1, (0..8).map(waiting));
    assert_eq!(state.check(&client(2), 2, BOUNDS), Ok(()), "the pace is not known yet");
    let full = state.check(&client(2), 3, BOUNDS).unwrap_err();
    assert_eq!(full, Overload { cause: Cause::Jobs(8), retry: Duration::from_secs(5) });
    // Two jobs per second: eight take four seconds, a single turn half of one.
    state.pace.step(Duration::from_secs(1), 2, Pressure::Full);
    assert_eq!(state.check(&client(2), 1, BOUNDS), Ok(()));
    let late = state.check(&client(1), 2, Bounds { wait: Duration::from_millis(500), ..BOUNDS }).unwrap_err();
    assert_eq!(late.cause, Cause::Wait(Duration::from_secs(1)));
    assert_eq!(late.retry, Duration::from_secs(1));
}
