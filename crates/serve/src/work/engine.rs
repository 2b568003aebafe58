//! The interface of what computes.

/// Number of a job, unique within a worker.
pub type Ticket = u64;

/// A model that works on several jobs at once, one step at a time. It runs on the thread of its worker.
pub trait Engine: Send {
    /// Something to compute.
    type Job: Send;
    /// A result, or a part of one.
    type Event: Send;

    /// Returns true if a job may enter now. An engine without jobs has room for any.
    fn has_room(&self, job: &Self::Job) -> bool;

    /// Adds a job; it takes part from the next step on.
    fn submit(&mut self, ticket: Ticket, job: Self::Job);

    /// One step of every job; returns what happened.
    fn step(&mut self) -> Vec<Happened<Self::Event>>;

    /// Forgets a job. Its events may still come from a step that has begun.
    fn cancel(&mut self, ticket: Ticket);

    /// Jobs and tokens in work.
    fn load(&self) -> Load;
}

/// An event of a job.
#[derive(Debug)]
pub struct Happened<E> {
    /// The job.
    pub ticket: Ticket,
    /// The event.
    pub event: E,
    /// Whether others follow.
    pub stage: Stage,
}

/// Place of an event in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Others follow.
    Running,
    /// It is the last.
    Finished,
}

/// Jobs and tokens in work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sentences or texts.
    pub jobs: usize,
    /// Their tokens, or an estimate of them.
    pub tokens: usize,
}
