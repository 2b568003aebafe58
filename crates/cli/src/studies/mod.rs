//! The paper's tables as studies: systems × seeds on one corpus, trained, measured and compared.
//!
//! | room | what |
//! |---|---|
//! | `study` | a study in TOML: systems, seeds, budget, test, the paper's numbers; those that come with the program |
//! | `keys` | names and keys of studies, and which ones a study decides itself |
//! | `protocol` | how models are measured |
//! | `runner`, `clock` | one run: locked, trained or gone on with, averaged, measured, its result kept; its time over sittings |
//! | `sitting` | some runs, one after the other, until they are done or time is up |
//! | `lock` | a run is worked on by one process at a time |
//! | `measure`, `references` | what a trained model is worth: BLEU, one expert, perplexity, gates |
//! | `result` | what is known about a finished run, as `result.json` |
//! | `origins`, `agreement` | what data and parent runs are made from; whether runs belong together |
//! | `compare`, `significance` | means and deviations over seeds, differences to the baseline and how far to trust them |
//! | `table`, `page` | the comparison for people: on a terminal, and as a page with figures |
//! | `transfer`, `folder`, `curves` | the transfer study: methods × parts of the data; what its folder holds; its table and figure |

pub mod agreement;
mod clock;
pub mod compare;
pub mod curves;
pub mod folder;
pub mod keys;
pub mod lock;
mod measure;
mod origins;
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
