//! The program's part of a study's record.

use serde::Serialize;

/// Returns the commit that the environment names (`MAE_COMMIT`), else the one that the program was built from.
pub fn commit() -> Option<String> {
    let named = std::env::var("MAE_COMMIT").ok().filter(|commit| !commit.is_empty());
    named.or_else(|| option_env!("MAE_BUILD_COMMIT").map(str::to_owned))
}

/// The program and the command that made a record of several runs.
#[derive(Serialize)]
pub struct Origin {
    /// The command, as one would type it.
    command: String,
    /// The version of the program.
    version: &'static str,
    /// The commit that it was built from, if it is known.
    commit: Option<String>,
}

impl Origin {
    /// Describes this process.
    pub fn here() -> Self {
        let words = std::iter::once("mae".to_owned()).chain(std::env::args().skip(1));
        Self {
            command: words.collect::<Vec<_>>().join(" "),
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
        }
    }
}
