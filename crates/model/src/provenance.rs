//! The program that writes model folders and records of runs, as they name it.

use std::sync::OnceLock;

static PROGRAM: OnceLock<String> = OnceLock::new();

/// Sets the name of the program, with its version and commit if it has one; only the first call counts.
pub fn set_program(name: &str) {
    PROGRAM.get_or_init(|| name.to_owned());
}

/// Returns the name of the program; without one, that of this library with its version.
pub fn program() -> &'static str {
    PROGRAM.get().map_or(concat!("mae ", env!("CARGO_PKG_VERSION")), String::as_str)
}
