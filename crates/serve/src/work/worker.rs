//! The loop of a model. An idle engine takes what waits at once; while a busy one steps, requests gather, and they
//! enter at the next step boundary, as far as the engine has room.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::engine::{Engine, Load, Stage, Ticket};
use super::pace::{Pace, Pressure};
use super::queue::{Client, Queue, RequestId};
use crate::metrics::WorkMetrics;

/// A model's threads, for jobs `J` with events `V`; they end when this is dropped.
pub struct Worker<J, V> {
    shared: Arc<Shared<J, V>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and those who wait for it share; engines run in it.
pub struct Shared<J, V> {
    state: Mutex<State<J, V>>,
    wake: Condvar,
    bounds: Bounds,
    metrics: Arc<WorkMetrics>,
    numbers: AtomicU64,
    /// Number of calls that a thread without work must hear of.
    calls: AtomicU64,
}

struct State<J, V> {
    queue: Queue<Waiting<J, V>>,
    /// Requests that nobody waits for any more.
    dropped: Vec<RequestId>,
    pace: Pace,
    closing: bool,
}

/// Bounds of what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Jobs that may wait.
    pub jobs: usize,
    /// Time that the jobs of others may be expected to delay a request.
    pub wait: Duration,
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

/// A request that cannot wait with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// The bound that it does not keep.
    pub cause: Cause,
    /// Time after which there is probably room for it.
    pub retry: Duration,
}

/// The bound that a request does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// So many jobs wait that its own would be too many.
    Jobs(usize),
    /// It would probably wait this long.
    Wait(Duration),
}

/// Time that a thread stays awake after its last job. Waking it takes about a tenth of a millisecond; a client that waits
/// for its answer has the next request there sooner.
const LINGER: Duration = Duration::from_micros(300);

/// Least time after which a refused request is tried again, and the time if there is no estimate.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

impl<J: Send + 'static, V: Send + 'static> Worker<J, V> {
    /// Starts a pool of threads for the model, as large as the current one, and calls `run` on one of them, which calls
    /// [`Shared::run`]. The loop of a model stays on a thread of its pool: a step starts its parallel loops there, without
    /// waking another thread first, and a model without work keeps no thread from the others.
    pub fn start(
        name: &str,
        bounds: Bounds,
        metrics: Arc<WorkMetrics>,
        run: impl FnOnce(&Shared<J, V>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let state =
            State { queue: Queue::default(), dropped: Vec::new(), pace: Pace::default(), closing: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Condvar::new(),
            bounds,
            metrics,
            numbers: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        });
        let own = shared.clone();
        let label = format!("model {name}");
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(rayon::current_num_threads())
            .thread_name({
                let label = label.clone();
                move |number| format!("{label} {number}")
            })
            .spawn_handler(mae::engine::cpu::threads::start)
            .build()
            .map_err(std::io::Error::other)?;
        let thread = std::thread::Builder::new().name(label).spawn(move || pool.install(|| run(&own)))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Adds a request: its jobs wait for their turns. A request larger than the whole queue enters an empty one. One that
    /// would wait too long is refused at once, as its client would only leave later.
    pub fn submit(&self, client: Client, jobs: Vec<J>) -> Result<Answers<J, V>, Overload> {
        let (reply, events) = mpsc::unbounded_channel();
        let request = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let mut state = self.shared.lock();
        state.check(&client, jobs.len(), self.shared.bounds)?;
        let since = Instant::now();
        let origin = |index| Origin { request, index, reply: reply.clone(), since };
        let entry = |(index, job)| Waiting { job, origin: origin(index) };
        state.queue.push(client, request, jobs.into_iter().enumerate().map(entry));
        self.shared.metrics.waiting.store(state.queue.waiting() as u64, Ordering::Relaxed);
        self.shared.call(state);
        Ok(Answers { shared: self.shared.clone(), request, events })
    }
}

impl<J, V> State<J, V> {
    /// Fails if so many jobs of a client cannot wait now.
    fn check(&self, client: &Client, jobs: usize, bounds: Bounds) -> Result<(), Overload> {
        let waiting = self.queue.waiting();
        let (least, unknown) = RETRY;
        if waiting > 0 && waiting + jobs > bounds.jobs {
            let excess = self.pace.time_for(waiting.min(waiting + jobs - bounds.jobs));
            let retry = if excess.is_zero() { unknown } else { excess.max(least) };
            return Err(Overload { cause: Cause::Jobs(waiting), retry });
        }
        let wait = self.pace.time_for(self.queue.ahead(client, jobs));
        match wait.checked_sub(bounds.wait).filter(|excess| !excess.is_zero()) {
            None => Ok(()),
            Some(excess) => Err(Overload { cause: Cause::Wait(wait), retry: excess.max(least) }),
        }
    }
}

impl<J, V> Drop for Worker<J, V> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.call(state);
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
        self.shared.call(state);
    }
}

impl<J, V> Shared<J, V> {
    /// Tells the thread that the state has changed.
    fn call(&self, state: MutexGuard<'_, State<J, V>>) {
        self.calls.fetch_add(1, Ordering::Release);
        drop(state);
        self.wake.notify_one();
    }

    /// Stays awake for a moment, until there is another call than those that were heard; others may have the processor
    /// meanwhile.
    fn linger(&self, heard: u64) {
        let begun = Instant::now();
        while self.calls.load(Ordering::Acquire) == heard && begun.elapsed() < LINGER {
            std::thread::yield_now();
        }
    }

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
        while let Some((pressure, heard)) = self.admit(&mut engine, &mut running, &mut next) {
            let (begun, before) = (Instant::now(), running.len());
            match catch_unwind(AssertUnwindSafe(|| engine.step())) {
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
            self.lock().pace.step(begun.elapsed(), before - running.len(), pressure);
            if running.is_empty() {
                self.linger(heard);
            }
        }
    }

    /// Waits for work and lets jobs in; returns also the calls that were heard, or `None` when it is time to end.
    fn admit<E: Engine<Job = J, Event = V>>(
        &self,
        engine: &mut E,
        running: &mut HashMap<Ticket, Running<V>>,
        next: &mut Ticket,
    ) -> Option<(Pressure, u64)> {
        let mut state = self.lock();
        if running.is_empty() {
            self.report(Load::default());
        }
        while state.queue.waiting() == 0 && state.dropped.is_empty() && running.is_empty() && !state.closing {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closing {
            return None;
        }
        let heard = self.calls.load(Ordering::Acquire);
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
        self.report(engine.load());
        let pressure = if state.queue.waiting() > 0 { Pressure::Full } else { Pressure::Spare };
        Some((pressure, heard))
    }

    fn report(&self, load: Load) {
        self.metrics.running.store(load.jobs as u64, Ordering::Relaxed);
        self.metrics.running_tokens.store(load.tokens as u64, Ordering::Relaxed);
    }

    fn hand_over(&self, ticket: Ticket, event: V, stage: Stage, running: &mut HashMap<Ticket, Running<V>>) {
        // Nobody waits if the receiver is gone; `admit` hears of it too.
        match stage {
            Stage::Running => {
                if let Some(Running { origin, .. }) = running.get(&ticket) {
                    origin.reply.send((origin.index, event)).ok();
                }
            }
            Stage::Finished => {
                let Some(Running { origin: Origin { reply, index, .. }, since }) = running.remove(&ticket)
                else {
                    return;
                };
                self.metrics.search_seconds.observe(since.elapsed().as_secs_f64());
                self.metrics.finished.fetch_add(1, Ordering::Relaxed);
                reply.send((index, event)).ok();
            }
        }
    }
}

/// A job in the engine.
struct Running<V> {
    origin: Origin<V>,
    since: Instant,
}

#[cfg(test)]
mod tests;
