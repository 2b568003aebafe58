//! Training runs on the command line, for `mae train` and the studies.
//!
//! | room | contents |
//! |---|---|
//! | `display` | progress of a run for people or as JSON lines |
//! | `stop` | signals and time limits that end a run early |
//! | `faults` | errors of training with the flags that help |

pub mod display;
pub mod faults;
pub mod stop;
