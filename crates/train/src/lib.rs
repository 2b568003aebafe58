//! Training: block coordinate descent, optimisers, schedules, validation, checkpoints that continue bit for bit.
//!
//! | room | what is in it |
//! |---|---|
//! | [`config`] | every choice of a run as a key; recipes in layers; unknown keys are refused with the nearest name |
//! | [`schedule`] | the learning rate of an update |
//! | [`plan`] | which steps a batch gets: Algorithm 3 of the paper |
//! | [`learner`] | one update: G step, F step or joint step (Algorithms 1 and 2), accumulation, clipping, optimisers |
//! | [`optimizer`] | Adam or NAG with its memory |
//! | [`validate`] | development loss and gate entropy; other validators plug in |
//! | [`trainer`] | the loop over epochs |
//! | [`checkpoint`], [`kept`] | what is saved, and how it is read back; checkpoints that are kept besides best and last |
//! | [`finetune`] | weights of another model to begin with |
//! | [`memory`] | the largest batch, tried before training |
//! | [`diagnosis`] | what is known when a loss is not a number |
//! | [`log`], [`tensorboard`] | events as JSON lines that survive restarts, and as TensorBoard's files |

pub mod checkpoint;
pub mod config;
pub mod diagnosis;
pub mod error;
pub mod finetune;
pub mod kept;
pub mod learner;
pub mod log;
pub mod memory;
pub mod optimizer;
pub mod plan;
pub mod schedule;
pub mod tensorboard;
pub mod trainer;
pub mod validate;

pub use config::{RunConfig, TrainConfig};
pub use error::{Error, Result};
pub use learner::Learner;
pub use trainer::{Outcome, Trainer};
