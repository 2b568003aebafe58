//! Training runs on the command line, for `mae train` and the studies.
//!
//! | room | contents |
//! |---|---|
//! | `display` | progress of a run for people or as JSON lines |
//! | `pace` | the time that an epoch takes, and signs of life before the first line of the log |
//! | `stop` | signals and time limits that end a run early |
//! | `ranks` | processes that train together: flags, threads, errors |
//! | `faults` | errors of training with the flags that help |

pub mod display;
pub mod faults;
mod pace;
pub mod ranks;
pub mod stop;
