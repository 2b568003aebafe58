//! What belongs to the program as a whole: its version, completions and manual pages.

use crate::common::Sandbox;

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

#[test]
fn man_writes_a_page_for_every_command() {
    let sandbox = Sandbox::new();
    let run = sandbox.mae(&["man", "share/man1"], &[]);
    assert!(run.succeeded().ends_with("pages in share/man1\n"), "{}", run.stdout);
    let page = |name: &str| std::fs::read_to_string(sandbox.path("share/man1").join(name)).expect(name);
    assert!(page("mae.1").contains("mae\\-train(1)"));
    assert!(page("mae-train.1").contains("\\-\\-finetune\\-from\\-model"));
    assert!(page("mae-train.1").contains(".SH EXAMPLES\n  Train"));
    assert!(page("mae-prepare-iwslt14.1").contains("mae prepare iwslt14"));
    // A second run replaces the pages of the first.
    assert_eq!(sandbox.mae(&["man", "share/man1"], &[]).succeeded(), run.stdout);
}

#[test]
fn man_replaces_no_file_of_others() {
    let sandbox = Sandbox::new();
    sandbox.write("mae-train.1", "notes");
    let run = sandbox.mae(&["man", "."], &[]);
    assert!(run.failed().contains("mae-train.1 exists and was not written by `mae man`"), "{}", run.stderr);
    assert_eq!(std::fs::read_to_string(sandbox.path("mae-train.1")).expect("it stays"), "notes");
    assert!(!sandbox.path("mae.1").exists(), "nothing is written");
    sandbox.write("file", "");
    assert!(sandbox.mae(&["man", "file"], &[]).failed().contains("cannot create file: "));
}
