//! Names of the files and folders in a run's folder.
//!
//! | name | contents |
//! |---|---|
//! | [`LAST`] | the newest checkpoint: a model folder with [`MOMENTS`] and [`STATE`], from which the run resumes |
//! | [`BEST`] | the best checkpoint: a model folder |
//! | [`NOT_FINITE`] | the checkpoint before an update that failed, with a [`DIAGNOSIS`] |
//! | [`LOG`] | events as JSON lines |
//! | [`RECORD`] | the whole configuration, and the data that the run is trained on; older ones are `run.1.toml`, … |
//!
//! A model folder has a [`CONFIG`], [`WEIGHTS`] and dictionaries: [`SOURCE_DICT`] and [`TARGET_DICT`] of a translation
//! model, [`DICT`] of a language model. Names of other kept checkpoints are in [`crate::kept`].

pub use mae_model::folder::{CONFIG, SOURCE_DICT, TARGET_DICT, WEIGHTS};
pub use mae_model::lm::folder::DICT;

/// Folder of the newest checkpoint.
pub const LAST: &str = "checkpoint_last";
/// Folder of the best checkpoint.
pub const BEST: &str = "checkpoint_best";
/// Folder of the checkpoint before an update whose loss or gradient was not finite.
pub const NOT_FINITE: &str = "checkpoint_nonfinite";
/// Report about an update that was not finite, in [`NOT_FINITE`].
pub const DIAGNOSIS: &str = "diagnosis.json";
/// Memory of the optimiser, in [`LAST`].
pub const MOMENTS: &str = "optimizer.safetensors";
/// Position of the run, in [`LAST`].
pub const STATE: &str = "state.json";
/// Events of the run as JSON lines.
pub const LOG: &str = "log.jsonl";
/// Configuration of the run as TOML.
pub const RECORD: &str = "run.toml";
