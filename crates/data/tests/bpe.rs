//! BPE against golden files of subword-nmt (`tools/bpe_golden.py`), and properties.

use std::fs;
use std::path::PathBuf;

use mae_data::bpe::{
    Bpe, Codes, Dropout, Glossaries, LearnOptions, PieceSet, TokenCounts, Version, WordCounts, join, learn,
};
use mae_data::error::Error;
use mae_data::lines::BadUtf8;

use crate::common::{Folder, Random};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bpe").join(name)
}

/// Lines with their margins: `str::lines` would do, but for a lone `\r`.
fn golden_lines(name: &str) -> Vec<String> {
    let text = fs::read_to_string(golden(name)).unwrap();
    text.trim_end_matches('\n').split('\n').map(str::to_owned).collect()
}

fn codes(merges: &[(&str, &str)], version: Version) -> Codes {
    let merges = merges.iter().map(|&(left, right)| (left.into(), right.into())).collect();
    Codes { version, merges }
}

#[test]
fn learns_the_golden_codes() {
    let folder = Folder::new();
    let counts = WordCounts::from_files([golden("corpus.en"), golden("corpus.de")], BadUtf8::Error).unwrap();
    let mut told = 0;
    let learned = learn(&counts, LearnOptions { merges: 300, min_frequency: 2 }, |done| told = done).unwrap();
    learned.save(folder.path("codes")).unwrap();
    assert_eq!(folder.read("codes"), fs::read_to_string(golden("codes")).unwrap());
    assert_eq!(learned, Codes::load(golden("codes")).unwrap());
    assert_eq!(told, learned.len());
}

#[test]
fn segments_the_golden_texts() {
    let bpe = Bpe::new(&Codes::load(golden("codes")).unwrap());
    for name in ["corpus.en", "corpus.de", "unseen"] {
        assert_eq!(bpe.segment_lines(&golden_lines(name)), golden_lines(&format!("{name}.bpe")), "{name}");
    }
    let rare = bpe.with_pieces(PieceSet::load(golden("pieces"), 8).unwrap());
    for name in ["corpus.de", "unseen"] {
        let expected = golden_lines(&format!("{name}.bpe.threshold8"));
        assert_eq!(rare.segment_lines(&golden_lines(name)), expected, "{name}");
    }
}

#[test]
fn glossaries_and_counts_equal_subword_nmt() {
    let mut glossaries = Glossaries::default();
    for pattern in ["sieben", r"<\w+>", "Mäuse|Häuser", "z"] {
        glossaries.add(pattern).unwrap();
    }
    let plain = Bpe::new(&Codes::load(golden("codes")).unwrap());
    let bpe = Bpe::new(&Codes::load(golden("codes")).unwrap()).with_glossaries(glossaries);
    let lines = golden_lines("glossaries");
    for (line, expected) in lines.iter().zip(golden_lines("glossaries.bpe")) {
        assert_eq!(bpe.segment_line(line), expected);
        // The same where every merge could be skipped and none is.
        assert_eq!(bpe.segment_line_dropping(line, Dropout::new(1e-300, 1).unwrap(), 0), expected);
    }
    let mut counts = TokenCounts::default();
    plain.segment_lines(&golden_lines("corpus.de")).iter().for_each(|line| counts.add_line(line));
    let found = counts.into_sorted().into_iter().map(|(token, n)| format!("{token} {n}"));
    assert_eq!(found.collect::<Vec<_>>(), golden_lines("corpus.de.vocab"));
}

#[test]
fn joining_undoes_segmenting() {
    let bpe = Bpe::new(&Codes::load(golden("codes")).unwrap());
    let letters = ['a', 'b', 'e', 'n', 's', 'ü', '漢', '<', '-'];
    let mut random = Random(11);
    for _ in 0..500 {
        let line = random.line(&letters, 12);
        assert_eq!(join(&bpe.segment_line(&line)), line);
        for word in line.split(' ') {
            assert_eq!(bpe.encode_word(word).concat(), word);
        }
    }
    assert_eq!(join("a@@ b@@"), "ab");
    assert_eq!(join("x@@y @@ z  "), "x@@y z");
}

/// The definition, as slow as it is plain: find the earliest merge that fits, apply it everywhere, repeat.
fn segment_plainly(codes: &Codes, word: &str) -> Vec<String> {
    let mut symbols: Vec<String> = word.chars().map(String::from).collect();
    symbols.last_mut().unwrap().push_str("</w>");
    loop {
        let fits = |(left, right): &&(Box<str>, Box<str>)| {
            symbols.windows(2).any(|pair| *pair[0] == **left && *pair[1] == **right)
        };
        let Some((left, right)) = codes.merges.iter().find(fits) else { break };
        let mut i = 0;
        while i + 1 < symbols.len() {
            if *symbols[i] == **left && *symbols[i + 1] == **right {
                let right = symbols.remove(i + 1);
                symbols[i].push_str(&right);
            }
            i += 1;
        }
    }
    let last = symbols.last_mut().unwrap();
    last.truncate(last.len() - 4);
    symbols
}

#[test]
fn segments_by_definition() {
    let mut random = Random(5);
    let letters = ['a', 'b', 'c'];
    for _ in 0..200 {
        // Any list of merges, even one that no learner would give, in any order, with repetitions.
        let merges: Vec<_> = (0..30)
            .map(|_| {
                let mut right = random.word(&letters, 3);
                right.push_str(if random.below(3) == 0 { "</w>" } else { "" });
                (random.word(&letters, 3), right)
            })
            .collect();
        let merges: Vec<_> = merges.iter().map(|(left, right)| (left.as_str(), right.as_str())).collect();
        let codes = codes(&merges, Version::V0_2);
        let bpe = Bpe::new(&codes);
        for _ in 0..30 {
            let word = random.word(&letters, 20);
            if word.len() > 1 {
                assert_eq!(bpe.encode_word(&word), segment_plainly(&codes, &word), "{word} by {merges:?}");
            }
        }
    }
}

#[test]
fn old_codes_keep_the_end_of_word_apart() {
    let bpe = Bpe::new(&codes(&[("a", "b"), ("b", "</w>"), ("ab", "</w>"), ("ab", "b</w>")], Version::V0_1));
    assert_eq!(bpe.segment_line("ab abb cb"), "ab abb c@@ b");
}

#[test]
fn a_megabyte_word_takes_no_quadratic_time() {
    let bpe = Bpe::new(&Codes::load(golden("codes")).unwrap());
    let word = "siebenundsiebzig".repeat(1 << 16);
    assert_eq!(bpe.encode_word(&word).concat(), word);
}

#[test]
fn ties_go_to_the_last_pair() {
    let mut counts = WordCounts::default();
    counts.add_line("ab cd ab cd é1 é1");
    let learned = learn(&counts, LearnOptions { merges: 9, min_frequency: 2 }, |_| ()).unwrap();
    assert_eq!(learned, codes(&[("é", "1</w>"), ("c", "d</w>"), ("a", "b</w>")], Version::V0_2));
    assert!(matches!(learn(&WordCounts::default(), LearnOptions::default(), |_| ()), Err(Error::NoWords)));
}

#[test]
fn codes_files_are_checked() {
    let folder = Folder::new();
    let load = |text: &str| Codes::load(folder.write("codes", text));
    assert_eq!(load("#version: 0.2.0\r\na b\r\n\n\n").unwrap(), codes(&[("a", "b")], Version::V0_2));
    assert_eq!(load("a b</w>\n").unwrap(), codes(&[("a", "b</w>")], Version::V0_1));
    assert!(load("#version: 0.2\n").unwrap().is_empty());
    let cases = [
        ("#version: 0.3\na b\n", "line 1: `#version: 0.3` is not supported"),
        ("#version: 0.2\na b\nabc\n", "line 3: expected two symbols"),
        ("#version: 0.2\na b\n\nb c\n", "line 3: an empty line"),
        ("a b 17\n", "fastBPE"),
        ("a  b\n", "line 1: expected two symbols"),
    ];
    for (text, expected) in cases {
        let said = load(text).unwrap_err().to_string();
        assert!(said.contains(expected), "{text:?}: {said}");
    }
    let said = PieceSet::load(folder.write("pieces", "a@@ 3\nb\n"), 1).unwrap_err().to_string();
    assert!(said.contains("line 2: expected `piece count`"), "{said}");
}

#[test]
fn dropout_depends_on_seed_and_place_alone() {
    let bpe = Bpe::new(&Codes::load(golden("codes")).unwrap());
    let lines = golden_lines("corpus.de");
    let cut = |probability: f64, seed: u64| -> Vec<String> {
        let dropout = Dropout::new(probability, seed).unwrap();
        (0..).zip(&lines).map(|(place, line)| bpe.segment_line_dropping(line, dropout, place)).collect()
    };
    assert_eq!(cut(0.0, 1), golden_lines("corpus.de.bpe"));
    assert_eq!(cut(0.2, 1), cut(0.2, 1));
    assert_ne!(cut(0.2, 1), cut(0.2, 2));
    for (found, line) in cut(0.3, 4).iter().zip(&lines) {
        assert_eq!(join(found).trim_end(), join(&bpe.segment_line(line)).trim_end());
    }
    let pieces = |cut: &[String]| cut.iter().map(|line| line.split(' ').count()).sum::<usize>();
    let counts = [0.0, 0.1, 0.5, 1.0].map(|probability| pieces(&cut(probability, 3)));
    assert!(counts.is_sorted_by(|a, b| a < b), "{counts:?}");
    // Where every merge is skipped, characters are left.
    assert_eq!(cut(1.0, 1)[0].replace("@@ ", ""), lines[0]);
    assert!(bpe.segment_line_dropping("abc", Dropout::new(1.0, 1).unwrap(), 0) == "a@@ b@@ c");
    assert!(Dropout::new(1.5, 0).unwrap_err().to_string().contains("1.5"));
}

/// One merge, one place: each draw is seen, so the share of words that stay cut is the probability.
#[test]
fn dropout_skips_as_often_as_it_says() {
    let bpe = Bpe::new(&codes(&[("a", "b</w>")], Version::V0_2));
    let dropout = Dropout::new(0.25, 9).unwrap();
    let line = vec!["ab"; 40_000].join(" ");
    let cut = bpe.segment_line_dropping(&line, dropout, 0).matches("@@").count();
    // Four standard deviations of a binomial count are 346.
    assert!((9_654..=10_346).contains(&cut), "{cut}");
}
