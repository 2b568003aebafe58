//! Studies on the command line, for `mae reproduce` and `mae transfer`.
//!
//! | room | contents |
//! |---|---|
//! | `session` | flags, progress and end of a session |
//! | `faults` | errors of studies with the flags that help |
//! | `record` | the program's part of a study's record |
//! | `table`, `page`, `figures` | a comparison on a terminal, as a page, and its figures as files |
//! | `transfer_table` | table and costs of a transfer study |

pub mod faults;
pub mod figures;
pub mod page;
pub mod record;
pub mod session;
pub mod table;
pub mod transfer_table;
