//! What belongs to the program as a whole: its version, completions and manual pages.

mod common;

use common::Sandbox;

#[test]
fn the_version_has_the_commit_where_there_is_one() {
    let run = Sandbox::new().mae(&["--version"], &[]);
    let text = run.succeeded().trim_end();
    let rest =
        text.strip_prefix(concat!("mae ", env!("CARGO_PKG_VERSION"))).expect("the version of the crate");
    let is_commit = |text: &str| text.len() >= 7 && text.chars().all(|c| c.is_ascii_hexdigit());
    let commit = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
    assert!(rest.is_empty() || commit.is_some_and(is_commit), "{text}");
}
