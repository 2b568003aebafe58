//! The paper's tables as studies: systems × seeds on one corpus, trained, measured and compared; and its transfer study.
//!
//! A study is a TOML file. Its folder holds one folder per run, and a run with a `result.json` is done; everything else is
//! made again or resumed. The crate prints nothing: an [`Observer`] sees its events.
//!
//! | room | contents |
//! |---|---|
//! | [`mod@study`], [`transfer`] | plans in TOML: systems and seeds; methods and parts of the data |
//! | [`keys`] | names and keys of plans, and the keys that a plan decides itself |
//! | [`protocol`] | how models are measured |
//! | [`corpus`] | corpora that the program makes itself |
//! | [`job`] | a run that is wanted |
//! | [`session`] | some runs, one after the other, until they are done or stopped |
//! | [`runner`], `clock` | one run: locked, trained or resumed, averaged, measured; its time over sessions |
//! | `measure`, `references` | scores of a trained model: BLEU, one expert, perplexity, gates |
//! | [`outputs`] | files that runs leave for comparisons |
//! | [`result`] | everything that is known about a finished run, as `result.json` |
//! | [`origins`], [`agreement`] | fingerprints of data and parent; whether runs belong together |
//! | [`score`], [`compare`], `significance` | means and deviations over seeds, differences to the baseline, p-values |
//! | [`figures`] | scores and curves as SVG |
//! | [`folder`], [`points`] | runs in a study's folder; the points of a transfer study |
//! | [`quickstart`] | the whole story on a made-up corpus |
//! | [`observer`], [`error`] | events for the program around a study; errors |

#![deny(unsafe_code)]

pub mod agreement;
mod clock;
pub mod compare;
pub mod corpus;
pub mod error;
pub mod figures;
pub mod folder;
pub mod job;
pub mod keys;
mod measure;
pub mod observer;
pub mod origins;
pub mod outputs;
pub mod points;
pub mod protocol;
pub mod quickstart;
mod references;
pub mod result;
pub mod runner;
pub mod score;
pub mod session;
mod significance;
pub mod study;
pub mod transfer;

pub use error::{Error, Result};
pub use job::{Job, Work};
pub use observer::{Event, Observer};
pub use result::RunResult;
pub use session::Session;
pub use study::Study;
