//! `mae tokenize`, `detokenize`, `normalize` and `clean-corpus` as a user runs them.

use crate::common::{Sandbox, gzip};

#[test]
fn lines_go_through_in_order() {
    let sandbox = Sandbox::new();
    let text: String = (0..20_000).map(|i| format!("It's line {i}, (not {}).\n", i + 1)).collect();
    let tokens: String =
        (0..20_000).map(|i| format!("It &apos;s line {i} , ( not {} ) .\n", i + 1)).collect();
    sandbox.write("text", &text);
    assert!(sandbox.mae(&["tokenize", "-l", "en", "text"], &[]).succeeded() == tokens);
    sandbox.write("tokens", &tokens);
    assert!(sandbox.mae(&["detokenize", "-l", "en", "tokens"], &[]).succeeded() == text);
}

#[test]
fn flags_and_files_are_heeded() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "Nord-Süd, \"x\".\n\n");
    sandbox.write("b.gz", gzip("@du www.x.de/y AB-1\n"));
    let tokenize = ["tokenize", "-l", "de", "a", "b.gz"];
    let plain = "Nord-Süd , &quot; x &quot; .\n\n@ du www.x.de / y AB-1\n";
    assert_eq!(sandbox.mae(&tokenize, &[]).succeeded(), plain);
    let split = "Nord @-@ Süd , \" x \" .\n\n@du www.x.de/y AB-1\n";
    let flags = ["-a", "--no-escape", "--protect-web", "--protect", "ab-\\d", "-o", "out", "--line-buffered"];
    assert_eq!(sandbox.mae(&tokenize, &flags).succeeded(), "");
    assert_eq!(std::fs::read_to_string(sandbox.path("out")).unwrap(), split);
    assert!(!sandbox.path("out.tmp").exists());

    let normalize = ["normalize", "-l", "en"];
    assert_eq!(sandbox.mae_reading("“a”, b\u{200b}c\n", &normalize, &[]).succeeded(), "\"a,\" b\u{200b}c\n");
    let flags = ["--non-printing", "blank", "--no-quote-commas"];
    assert_eq!(sandbox.mae_reading("“a”, b\u{200b}c\n", &normalize, &flags).succeeded(), "\"a\", b c\n");
}

#[test]
fn wrong_languages_patterns_and_bytes_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("bad", b"good\nb\xffd\n");
    sandbox.write("many", format!("fine\n{}\n", "a ".repeat(1001)));
    for (args, words) in [
        (vec!["tokenize", "-l", "xx"], vec!["`xx`", "as, bn, ca"]),
        (vec!["tokenize"], vec!["--lang"]),
        (vec!["detokenize", "-l", "en", "nowhere"], vec!["nowhere"]),
        (vec!["tokenize", "-l", "en", "--protect", "(a"], vec!["`(a`", "unclosed"]),
        (vec!["tokenize", "-l", "en", "bad", "-o", "out"], vec!["bad, line 2", "UTF-8"]),
        (vec!["tokenize", "-l", "en", "--protect", "a", "many"], vec!["many, line 2", "1001 times"]),
        (vec!["normalize", "-l", "en", "--non-printing", "drop"], vec!["keep, remove or blank"]),
        (vec!["clean-corpus", "no", "de", "en", "out", "1", "9"], vec!["no.de", "no.de.gz"]),
    ] {
        let run = sandbox.mae(&args, &[]);
        let said = run.failed();
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
    assert!(!sandbox.path("out").exists() && !sandbox.path("out.tmp").exists());
    let run = sandbox.mae(&["tokenize", "-l", "en", "bad", "--replace-bad-utf8"], &[]);
    assert_eq!(run.succeeded(), "good\nb \u{fffd} d\n");
    assert!(run.stderr.contains("invalid UTF-8 replaced: 1 (line 2)"), "{}", run.stderr);
}

#[test]
fn corpora_are_cleaned() {
    let sandbox = Sandbox::new();
    sandbox.write("in.de", "a b\n\nc d e f\ng\n");
    sandbox.write("in.en.gz", gzip("A  B\nx\ny\nz z z\n"));
    let clean = ["clean-corpus", "in", "de", "en", "out", "1", "3"];
    let said = "pairs read: 4, kept: 2\ndropped, empty side: 1 (line 2)\ndropped, too long: 1 (line 3)\n";
    assert_eq!(sandbox.mae(&clean, &[]).succeeded(), said);
    assert_eq!(std::fs::read_to_string(sandbox.path("out.en")).unwrap(), "A B\nz z z\n");
    let json = sandbox.mae(&clean, &["--ratio", "2", "--json"]);
    assert!(json.succeeded().contains("\"kept\":1") && json.stdout.contains("\"ratio\":{\"count\":1"));

    let over = sandbox.mae(&["clean-corpus", "in", "de", "en", "in", "1", "3"], &[]);
    assert!(over.failed().contains("overwritten"));
    let swapped = sandbox.mae(&["clean-corpus", "in", "de", "en", "out", "3", "1"], &[]);
    assert!(swapped.failed().contains("at least 3 and at most 1"));
    // What is odd in the files is told, as the other commands tell it.
    sandbox.write("odd.de", "\u{feff}a b\r\nc\0\n");
    sandbox.write("odd.en", b"A B\nC\xff\n");
    let odd = ["clean-corpus", "odd", "de", "en", "out", "1", "3"];
    assert!(sandbox.mae(&odd, &[]).failed().contains("--replace-bad-utf8"));
    let odd = sandbox.mae(&odd, &["--replace-bad-utf8"]);
    odd.succeeded();
    for words in
        ["carriage returns dropped: 1", "byte-order mark dropped", "NUL characters kept: 1", "replaced: 1"]
    {
        assert!(odd.stderr.contains(words), "{words}: {}", odd.stderr);
    }
    sandbox.write("in.de", "a\n");
    let uneven = sandbox.mae(&clean, &[]);
    assert!(uneven.failed().contains("in.de has 1") && uneven.stderr.contains("in.en.gz has 4"));
}
