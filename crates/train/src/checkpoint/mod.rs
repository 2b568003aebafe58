//! Checkpoints. A checkpoint is a model folder (see `docs/formats.md`); `checkpoint_last` also holds the optimiser's
//! moments and the state of the run, so that a resumed run continues bit for bit.
//!
//! | room | contents |
//! |---|---|
//! | `state` | position of a run; parts of it that a resumed run may reset |
//! | `snapshot` | a model at some moment, written while training continues |
//! | `resume` | reading a checkpoint back |

mod format_1;
mod resume;
mod snapshot;
mod state;

pub use self::resume::{check_dictionaries, load_last, state};
pub use self::snapshot::{Snapshot, Writer};
pub use self::state::{Resets, RunState, TextSide};
