//! The paper's tables as studies: systems × seeds on one corpus, trained, measured and compared.
//!
//! | room | what |
//! |---|---|
//! | `study` | a study in TOML: systems, seeds, budget, test, the paper's numbers; those that come with the program |
//! | `protocol` | how models are measured |
//! | `runner`, `clock` | one run: locked, trained or gone on with, averaged, measured, its result kept; its time over sittings |
//! | `sitting` | some runs, one after the other, until they are done or time is up |
//! | `lock` | a run is worked on by one process at a time |
//! | `measure`, `references` | what a trained model is worth: BLEU, one expert, perplexity, gates |
//! | `result` | what is known about a finished run, as `result.json` |
//! | `compare`, `significance` | means and deviations over seeds, differences to the baseline and how far to trust them |
//! | `table`, `page` | the comparison for people: on a terminal, and as a page with figures |
//! | `transfer`, `curves` | the transfer study: methods × parts of the data; its table and figure |

mod clock;
pub mod compare;
pub mod curves;
pub mod lock;
mod measure;
pub mod page;
pub mod protocol;
mod references;
pub mod result;
pub mod runner;
mod significance;
pub mod sitting;
pub mod study;
pub mod table;
pub mod transfer;
