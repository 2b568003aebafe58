//! Studies on the command line, for `mae reproduce` and `mae transfer`.
//!
//! | room | contents |
//! |---|---|
//! | `session` | flags, progress and end of a session |
//! | `faults` | errors of studies with the flags that help |
//! | `record` | the program's part of a study's record |
//! | `table`, `page` | a comparison on a terminal, and as a page with figures |
//! | `transfer_table` | table and costs of a transfer study |

pub mod faults;
pub mod page;
pub mod record;
pub mod session;
pub mod table;
pub mod transfer_table;
