//! Shortlists as a user makes and uses them.

use crate::common::place::Place;

/// Text of two languages with a word for each word, and its binarised folder in `bin`.
fn corpus(place: &Place) {
    let words = [("a", "x"), ("b", "z"), ("c", "v"), ("d", "x")];
    let (mut source, mut target) = (String::new(), String::new());
    for i in 0..60usize {
        let line = |side: fn(&(&'static str, &'static str)) -> &'static str| {
            let chosen = (0..3).map(|j| side(&words[(i * (j + 1) + i / 7 + j) % 4]));
            chosen.collect::<Vec<_>>().join(" ") + "\n"
        };
        source += &line(|pair| pair.0);
        target += &line(|pair| pair.1);
    }
    place.write("train.src", &source);
    place.write("train.tgt", &target);
    let made = place.mae("preprocess -s src -t tgt --trainpref train --destdir bin", "");
    assert!(made.success, "{}", made.err);
}

#[test]
fn a_shortlist_is_learned_and_kept_to() {
    let place = Place::new(None);
    corpus(&place);
    let made = place.mae("make-shortlist bin -o list --best 1", "");
    assert!(made.success, "{}", made.err);
    assert!(made.err.contains("from 60 sentence pairs"), "{}", made.err);
    let list = std::fs::read_to_string(place.path("list")).unwrap();
    for pair in ["x a ", "z b ", "v c ", "x d "] {
        assert!(list.lines().any(|line| line.starts_with(pair)), "{pair}: {list}");
    }
    assert_eq!(place.mae("make-shortlist bin --best 1", "").out, list);
    // The dictionary is smaller than the words that a lexical table always allows, so a vmap shows that lists are kept to.
    place.write("vmap", "\tz\na\tx\n");
    let free = place.translate("--source src --plain --beam 2").out;
    let listed = place.translate("--source src --plain --beam 2 --shortlist vmap");
    assert!(listed.success, "{}", listed.err);
    assert_ne!(listed.out, free);
    let words = listed.out.split_whitespace();
    assert!(
        words.clone().count() > 0 && words.clone().all(|word| ["x", "z", "<unk>"].contains(&word)),
        "{}",
        listed.out
    );
    for batching in ["--batch-size 1", "--max-tokens 9 --threads 1"] {
        let again = place.translate(&format!("--source src --plain --beam 2 --shortlist vmap {batching}"));
        assert_eq!(again.out, listed.out, "{batching}");
    }
    assert!(place.translate("--source src --plain --shortlist list").success);
}

#[test]
fn faults_of_shortlists_are_told() {
    let place = Place::new(None);
    for (text, parts) in [
        ("", ["the file is empty", "Marian's lexical table"]),
        ("x a\n", ["line 1", "2 fields"]),
        ("x a 0.5\nx b maybe\n", ["line 2", "maybe is not a probability"]),
        ("maus\tmouse\n", ["none of which the dictionaries have", "another model"]),
    ] {
        place.write("list", text);
        let failed = place.mae("generate model --source src --plain --shortlist list", "");
        assert!(!failed.success && failed.out.is_empty(), "{}", failed.out);
        parts.iter().for_each(|part| assert!(failed.err.contains(part), "{part}: {}", failed.err));
    }
    let failed = place.mae("generate model --source src --plain --shortlist nowhere", "");
    assert!(!failed.success && failed.err.contains("nowhere"), "{}", failed.err);
    let failed = place.mae("make-shortlist nowhere", "");
    assert!(!failed.success && failed.err.contains("nowhere"), "{}", failed.err);
    let failed = place.mae("make-shortlist nowhere --best 0", "");
    assert!(!failed.success && failed.err.contains("at least 1"), "{}", failed.err);
}
