//! `mae learn-bpe` and `mae apply-bpe` as a user runs them.

use crate::common::{Sandbox, lines};

fn corpus() -> Sandbox {
    let sandbox = Sandbox::new();
    let text: Vec<String> =
        (0..500).map(|i| format!("der {} Hund und der Mund {i}", ["alte", "arme"][i % 2])).collect();
    sandbox.write("de", lines(&text));
    sandbox.write("en", lines(&["the old dog", "the poor dog", "the dog"]));
    sandbox
}

#[test]
fn codes_are_learned_and_applied() {
    let sandbox = corpus();
    let vocabularies = ["--write-vocabulary", "v.de,v.en", "-o", "codes"];
    assert_eq!(sandbox.mae(&["learn-bpe", "-s", "12", "de", "en"], &vocabularies).succeeded(), "");
    let codes = std::fs::read_to_string(sandbox.path("codes")).unwrap();
    assert!(codes.starts_with("#version: 0.2\n") && codes.lines().count() == 13, "{codes}");
    let apply = ["apply-bpe", "-c", "codes"];
    let text = "der Hund  und the dog\n\n";
    let cut = sandbox.mae_reading(text, &apply, &[]);
    assert_eq!(cut.succeeded().replace("@@ ", ""), "der Hund und the dog\n\n");
    assert!(cut.stdout.starts_with("der "), "{}", cut.stdout);
    // `der` is a piece of German alone.
    let rare = sandbox.mae_reading(text, &apply, &["--vocabulary", "v.en", "--vocabulary-threshold", "1"]);
    assert!(rare.succeeded().starts_with("d@@ "), "{}", rare.stdout);
    // From a pipe to standard output, the same codes of one text.
    let german = std::fs::read_to_string(sandbox.path("de")).unwrap();
    let piped = sandbox.mae_reading(&german, &["learn-bpe", "-s", "3"], &[]);
    assert_eq!(piped.succeeded(), sandbox.mae(&["learn-bpe", "-s", "3", "de"], &[]).succeeded());
}

#[test]
fn dropout_does_not_depend_on_threads() {
    let sandbox = corpus();
    sandbox.mae(&["learn-bpe", "-s", "30", "de", "-o", "codes"], &[]).succeeded();
    let cut =
        |more: &[&str]| sandbox.mae(&["apply-bpe", "-c", "codes", "de", "de", "--dropout", "0.2"], more);
    let one = cut(&["--threads", "1", "--seed", "5"]);
    assert_eq!(one.succeeded(), cut(&["--threads", "3", "--seed", "5"]).succeeded());
    assert_ne!(one.stdout, cut(&["--seed", "6"]).stdout);
    let (first, second) = one.stdout.split_at(one.stdout.len() / 2);
    assert_ne!(first, second, "the second file's lines have numbers of their own");
}

#[test]
fn wrong_codes_texts_and_outputs_are_refused() {
    let sandbox = corpus();
    sandbox.write("empty", "\n");
    sandbox.write("nothing", "");
    sandbox.write("odd", "#version: 0.2\nabc\n");
    for (args, words) in [
        (vec!["learn-bpe", "empty"], "no words"),
        (vec!["learn-bpe", "nowhere"], "nowhere"),
        (vec!["learn-bpe", "de", "en", "--write-vocabulary", "v"], "1 file(s) for 2 text(s)"),
        (vec!["learn-bpe", "de", "en", "--write-vocabulary", "v,./v"], "./v is named for two outputs"),
        (vec!["learn-bpe", "de", "-o", "v", "--write-vocabulary", "v"], "v is named for two outputs"),
        (vec!["learn-bpe", "de", "--write-vocabulary", "de"], "de is an input"),
        (vec!["apply-bpe", "-c", "nothing", "de"], "nothing: there are no merges"),
        (vec!["apply-bpe", "de"], "--codes"),
        (vec!["apply-bpe", "-c", "odd", "de"], "odd, line 2"),
        (vec!["apply-bpe", "-c", "odd", "--dropout", "2", "de"], "from 0 to 1"),
        (vec!["apply-bpe", "-c", "odd", "--vocabulary-threshold", "2", "de"], "--vocabulary"),
    ] {
        let run = sandbox.mae(&args, &[]);
        assert!(run.failed().contains(words), "{args:?}: {}", run.stderr);
    }
}
