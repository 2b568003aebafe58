//! The thread of a model. An idle engine takes what waits at once; while a busy one steps, requests gather, and they
//! enter at the next step boundary, as far as the engine has room.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::mpsc;

use super::engine::{Engine, Stage, Ticket};
use super::queue::{Client, Queue, RequestId};
use crate::metrics::WorkMetrics;

/// A model's thread, for jobs `J` with events `V`; it ends when this is dropped.
pub struct Worker<J, V> {
    shared: Arc<Shared<J, V>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and those who wait for it share; engines run in it.
pub struct Shared<J, V> {
    state: Mutex<State<J, V>>,
    wake: Condvar,
    most_waiting: usize,
    metrics: Arc<WorkMetrics>,
    numbers: AtomicU64,
}

struct State<J, V> {
    queue: Queue<Waiting<J, V>>,
    /// Requests that nobody waits for any more.
    dropped: Vec<RequestId>,
    closing: bool,
}

/// A job before it enters the engine.
struct Waiting<J, V> {
    job: J,
    origin: Origin<V>,
}

/// The request that a job belongs to, and its place there.
struct Origin<V> {
    request: RequestId,
    index: usize,
    reply: mpsc::UnboundedSender<(usize, V)>,
    since: Instant,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Jobs that wait.
    pub waiting: usize,
}

impl<J: Send + 'static, V: Send + 'static> Worker<J, V> {
    /// Starts a thread, on which `run` calls [`Shared::run`].
    pub fn start(
        name: &str,
        most_waiting: usize,
        metrics: Arc<WorkMetrics>,
        run: impl FnOnce(&Shared<J, V>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let state = State { queue: Queue::default(), dropped: Vec::new(), closing: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Condvar::new(),
            most_waiting,
            metrics,
            numbers: AtomicU64::new(0),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name(format!("model {name}")).spawn(move || run(&own))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Adds a request: its jobs wait for their turns. A request larger than the whole queue enters an empty one.
    pub fn submit(&self, client: Client, jobs: Vec<J>) -> Result<Answers<J, V>, Full> {
        let (reply, events) = mpsc::unbounded_channel();
        let request = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let left = jobs.len();
        let mut state = self.shared.lock();
        let waiting = state.queue.waiting();
        if waiting > 0 && waiting + left > self.shared.most_waiting {
            return Err(Full { waiting });
        }
        let since = Instant::now();
        let origin = |index| Origin { request, index, reply: reply.clone(), since };
        let entry = |(index, job)| Waiting { job, origin: origin(index) };
        state.queue.push(client, request, jobs.into_iter().enumerate().map(entry));
        self.shared.metrics.waiting.store(state.queue.waiting() as u64, Ordering::Relaxed);
        drop(state);
        self.shared.wake.notify_one();
        Ok(Answers { shared: self.shared.clone(), request, events })
    }
}

impl<J, V> Drop for Worker<J, V> {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has nothing more to say.
            thread.join().ok();
        }
    }
}

/// Events of a request as they come. Dropping it drops what is left of the request.
pub struct Answers<J, V> {
    shared: Arc<Shared<J, V>>,
    request: RequestId,
    events: mpsc::UnboundedReceiver<(usize, V)>,
}

impl<J, V> Answers<J, V> {
    /// The next event with the place of its job in the request; `None` after the last, or if the engine has failed.
    pub async fn next(&mut self) -> Option<(usize, V)> {
        self.events.recv().await
    }

    /// The same for streams.
    pub fn poll_next(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Option<(usize, V)>> {
        self.events.poll_recv(context)
    }
}

impl<J, V> Drop for Answers<J, V> {
    fn drop(&mut self) {
        if self.events.is_closed() {
            return;
        }
        let mut state = self.shared.lock();
        let waited = state.queue.remove(self.request);
        state.dropped.push(self.request);
        self.shared.metrics.waiting.store(state.queue.waiting() as u64, Ordering::Relaxed);
        self.shared.metrics.dropped.fetch_add(waited as u64, Ordering::Relaxed);
        drop(state);
        self.shared.wake.notify_one();
    }
}

impl<J, V> Shared<J, V> {
    fn lock(&self) -> MutexGuard<'_, State<J, V>> {
        // Nothing under the lock is left half done by a panic: the queue's methods do not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until the worker is dropped. `make` makes the engine, and a new one if one has failed.
    pub fn run<E: Engine<Job = J, Event = V>>(&self, make: impl Fn() -> E)
    where
        V: Send,
    {
        let mut engine = make();
        let (mut running, mut next) = (HashMap::new(), 0);
        while self.admit(&mut engine, &mut running, &mut next) {
            // The pool's threads compute; one step is one errand to them.
            let step = AssertUnwindSafe(|| rayon::scope(|_| engine.step()));
            match catch_unwind(step) {
                Ok(events) => {
                    for happened in events {
                        self.hand_over(happened.ticket, happened.event, happened.stage, &mut running);
                    }
                }
                Err(_) => {
                    // Those who wait see that no answer comes; the others go on with a new engine.
                    self.metrics.failures.fetch_add(1, Ordering::Relaxed);
                    running.clear();
                    engine = make();
                }
            }
            self.metrics.steps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for work and lets jobs in; returns false when it is time to end.
    fn admit<E: Engine<Job = J, Event = V>>(
        &self,
        engine: &mut E,
        running: &mut HashMap<Ticket, Running<V>>,
        next: &mut Ticket,
    ) -> bool {
        let mut state = self.lock();
        while state.queue.waiting() == 0 && state.dropped.is_empty() && running.is_empty() && !state.closing {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closing {
            return false;
        }
        let dropped: HashSet<RequestId> = state.dropped.drain(..).collect();
        if !dropped.is_empty() {
            running.retain(|&ticket, job| {
                let kept = !dropped.contains(&job.origin.request);
                if !kept {
                    engine.cancel(ticket);
                    self.metrics.dropped.fetch_add(1, Ordering::Relaxed);
                }
                kept
            });
        }
        while let Some(waiting) = state.queue.peek()
            && (running.is_empty() || engine.has_room(&waiting.job))
            && let Some(Waiting { job, origin }) = state.queue.pop()
        {
            let ticket = *next;
            *next += 1;
            self.metrics.queue_seconds.observe(origin.since.elapsed().as_secs_f64());
            engine.submit(ticket, job);
            running.insert(ticket, Running { origin, since: Instant::now() });
        }
        self.metrics.waiting.store(state.queue.waiting() as u64, Ordering::Relaxed);
        let load = engine.load();
        self.metrics.running.store(load.jobs as u64, Ordering::Relaxed);
        self.metrics.running_tokens.store(load.tokens as u64, Ordering::Relaxed);
        true
    }

    fn hand_over(&self, ticket: Ticket, event: V, stage: Stage, running: &mut HashMap<Ticket, Running<V>>) {
        let Some(job) = running.get(&ticket) else { return };
        // Nobody waits if the receiver is gone; `admit` hears of it too.
        job.origin.reply.send((job.origin.index, event)).ok();
        if stage == Stage::Finished
            && let Some(job) = running.remove(&ticket)
        {
            self.metrics.search_seconds.observe(job.since.elapsed().as_secs_f64());
            self.metrics.finished.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A job in the engine.
struct Running<V> {
    origin: Origin<V>,
    since: Instant,
}
