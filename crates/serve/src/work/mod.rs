//! The work behind the server: a thread for each model, with a fair queue before it.
//!
//! | room | content |
//! |---|---|
//! | [`engine`] | the interface of what computes: jobs enter and leave at step boundaries |
//! | [`queue`] | waiting jobs, taken in turns from clients and their requests |
//! | [`pace`] | throughput of an engine, from which waiting times are estimated |
//! | [`worker`] | the thread: takes what waits, steps, hands results over, drops what nobody waits for |
//! | [`joining`] | translation in a running batch that sentences join and leave |
//! | [`batches`] | translation in batches that are searched to their end |
//! | [`continuations`] | texts that a language model continues |

pub mod batches;
pub mod continuations;
pub mod engine;
pub mod joining;
pub mod pace;
pub mod queue;
pub mod worker;
