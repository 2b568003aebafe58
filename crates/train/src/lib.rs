//! Training: block coordinate descent, optimisers, schedules, validation, checkpoints that resume bit for bit, and whole
//! runs from a folder of data and a recipe.
//!
//! | room | contents |
//! |---|---|
//! | [`run`] | a whole run: data, model, observer, result |
//! | [`recipe`] | run configurations by name; the paper's systems |
//! | [`config`] | every choice of a run as a key; unknown keys are refused with the nearest name |
//! | [`keys`] | configurations key by key, and what differs between them |
//! | [`schedule`] | the learning rate of an update |
//! | [`plan`] | the steps that a batch gets: Algorithm 3 of the paper |
//! | [`learner`] | one update: G step, F step or joint step (Algorithms 1 and 2), accumulation, clipping, optimisers |
//! | [`optimizer`], [`gate_optimizer`] | Adam or NAG with its memory; the optimiser of the gates |
//! | [`validate`] | development loss and gate entropy; other validators plug in |
//! | [`trainer`] | the loop over epochs |
//! | [`artifacts`] | names of files and folders in a run's folder |
//! | [`checkpoint`], [`kept`] | saving and resuming; checkpoints that are kept besides best and last |
//! | [`finetune`], [`dictionaries`] | weights of another model to start with; whether its dictionaries are the data's |
//! | [`memory`] | the largest batch, tried before training |
//! | [`diagnosis`] | report about a loss that is not finite |
//! | `ranks` | checks that the processes of a run belong together, and decisions that they take together |
//! | [`log`], [`tensorboard`] | events as JSON lines that survive restarts, and as TensorBoard's files |
//! | [`record`] | the configuration of a run, written when updates begin, and those before it |
//! | [`history`] | logs read back: curves, notes and main figures of a run |
//! | [`error`] | errors, with keys, values and paths |

pub mod artifacts;
pub mod checkpoint;
pub mod config;
pub mod diagnosis;
pub mod dictionaries;
pub mod error;
pub mod finetune;
pub mod gate_optimizer;
pub mod history;
pub mod kept;
pub mod keys;
pub mod learner;
pub mod log;
pub mod memory;
pub mod optimizer;
pub mod plan;
mod ranks;
pub mod recipe;
pub mod record;
pub mod run;
pub mod schedule;
pub mod tensorboard;
pub mod trainer;
pub mod validate;

pub use config::{RunConfig, TrainConfig};
pub use error::{Error, Result};
pub use learner::{Learner, Share};
pub use recipe::Recipe;
pub use run::{Observer, Run, RunSummary};
pub use trainer::{Outcome, Trainer};
