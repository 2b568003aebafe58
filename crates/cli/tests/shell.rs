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

#[test]
fn every_shell_has_completions() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = sandbox.mae(&["completions", shell], &[]);
        let script = run.succeeded();
        for word in ["clean-corpus", "iwslt14", "finetune-from-model"] {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
    let run = sandbox.mae(&["completions", "tcsh"], &[]);
    assert!(run.stderr.contains("bash, elvish, fish, powershell, zsh"), "{}", run.stderr);
}
