//! Against the answers of sacreBLEU, fairseq's formula and multi-bleu.perl (`tools/bleu_golden.py`).

use super::*;

const SEGMENTS: &str = include_str!("../../../../fixtures/bleu/segments.tsv");
const TOKENS: &str = include_str!("../../../../fixtures/bleu/tokens.tsv");
const SCORES: &str = include_str!("../../../../fixtures/bleu/scores.tsv");
const COMPOUNDS: &str = include_str!("../../../../fixtures/bleu/compounds.tsv");

/// The rows of a golden table, escapes undone.
fn table<const N: usize>(text: &str) -> Vec<[String; N]> {
    let fields = |row: &str| row.split('\t').map(unescape).collect::<Vec<_>>();
    text.split_terminator('\n').map(|row| fields(row).try_into().expect("a row of the right width")).collect()
}

fn unescape(field: &str) -> String {
    let mut chars = field.chars();
    let mut out = String::new();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                other => other.expect("an escape names a character"),
            },
            c => c,
        });
    }
    out
}

fn counted(config: BleuConfig, segments: &[[String; 3]], nrefs: &str) -> BleuStats {
    let mut stats = BleuStats::new(config);
    for (i, [hypothesis, references @ ..]) in segments.iter().enumerate() {
        let count = match nrefs {
            "var" => 2 - i % 2,
            fixed => fixed.parse().expect("a number of references"),
        };
        stats.add(hypothesis, &references[..count]).expect("references");
    }
    stats
}

#[test]
fn tokens_equal_sacrebleus() {
    for [line, expected] in table::<2>(TOKENS) {
        let prepared = Tokenizer::V13a.prepare(&line, false);
        let words: Vec<_> = Tokenizer::V13a.words(&prepared).collect();
        assert_eq!(words.join(" "), expected, "{line:?}");
    }
}

#[test]
fn compounds_are_split_as_by_perl() {
    for [line, expected] in table::<2>(COMPOUNDS) {
        assert_eq!(Compounds::Split.apply(&line), expected, "{line:?}");
        assert_eq!(Compounds::Whole.apply(&line), line);
    }
}

#[test]
fn a_wrong_part_spoils_a_compound_only_if_it_is_whole() {
    let score = |compounds| {
        let config = BleuConfig { compounds, ..BleuConfig::multi_bleu() };
        sentence_bleu(config, "a state-of-the-art tool here", &["a state-of-the-day tool here"]).unwrap()
    };
    assert_eq!(score(Compounds::Whole).counts, [3, 1, 0, 0]);
    // a state - of - the - (art | day) tool here: nine of ten words, and 7, 5 and 4 longer n-grams.
    assert_eq!(score(Compounds::Split).counts, [9, 7, 5, 4]);
    assert_eq!(score(Compounds::Split).sys_len, 10);
    assert!(score(Compounds::Split).signature.to_string().contains("|compounds:split|"));
}

#[test]
fn scores_equal_the_tools() {
    let segments = table::<3>(SEGMENTS);
    let scores = table::<10>(SCORES);
    assert!(scores.len() > 80);
    for [tool, tokenizer, case, smoothing, eff, nrefs, start, end, value, line] in scores {
        let config = BleuConfig {
            tokenizer: tokenizer.parse().expect("a tokeniser"),
            lowercase: case == "lc",
            smoothing: smoothing.parse().expect("a smoothing"),
            effective_order: eff == "eff",
            compounds: if tool == "compound-split" { Compounds::Split } else { Compounds::Whole },
        };
        let range = start.parse().expect("a start")..end.parse().expect("an end");
        let score = counted(config, &segments[range], &nrefs).score();
        match tool.as_str() {
            "sacrebleu" => {
                assert_eq!(score.sacrebleu_line(1), line);
                let value: f64 = value.parse().expect("a score");
                assert!((score.score - value).abs() <= 1e-12 * value, "{} {value}", score.score);
            }
            "fairseq" => assert_eq!(score.fairseq_line(), line),
            "compound-split" => assert_eq!(score.multi_bleu_line(), format!("compound-split {line}")),
            _ => assert_eq!(score.multi_bleu_line(), line),
        }
    }
}

#[test]
fn parts_add_up() {
    let segments = table::<3>(SEGMENTS);
    let whole = counted(BleuConfig::default(), &segments, "2");
    let mut parts = BleuStats::new(BleuConfig::default());
    for part in segments.chunks(7) {
        parts.merge(&counted(BleuConfig::default(), part, "2")).expect("the same settings");
    }
    assert_eq!(parts, whole);
    assert_eq!(parts.segments(), segments.len() as u64);
    parts.merge(&counted(BleuConfig::default(), &segments[..1], "1")).expect("the same settings");
    assert_eq!(parts.score().signature.references, References::Varying);
    assert_eq!(parts.merge(&BleuStats::new(BleuConfig::multi_bleu())), Err(BleuError::Mismatch));
}

#[test]
fn degenerate_corpora_score_zero() {
    let nothing = BleuStats::new(BleuConfig::multi_bleu());
    assert_eq!(nothing.score().multi_bleu_line(), "BLEU = 0, 0/0/0/0 (BP=0, ratio=0, hyp_len=0, ref_len=0)");
    assert_eq!(nothing.score().score, 0.0);

    let mut silent = BleuStats::new(BleuConfig::multi_bleu());
    silent.add("", &["a b c"]).expect("a reference");
    let line = "BLEU = 0.00, 0.0/0.0/0.0/0.0 (BP=0.000, ratio=0.000, hyp_len=0, ref_len=3)";
    assert_eq!(silent.score().multi_bleu_line(), line);

    let mut trigrams = BleuStats::new(BleuConfig::multi_bleu());
    trigrams.add("a b c x", &["a b c d"]).expect("a reference");
    let line = "BLEU = 0.00, 75.0/66.7/50.0/0.0 (BP=1.000, ratio=1.000, hyp_len=4, ref_len=4)";
    assert_eq!(trigrams.score().multi_bleu_line(), line);
    assert_eq!(trigrams.add::<&str>("a", &[]), Err(BleuError::NoReference));
}

#[test]
fn ties_round_to_even_as_in_c() {
    // 1/16 = 6.25 %, 3/16 = 18.75 %: both are exact doubles, half way between two printed digits.
    let mut stats = BleuStats::new(BleuConfig::multi_bleu());
    let filler = "x ".repeat(13);
    stats.add(&format!("a b c {filler}"), &[format!("a b c {}", "y ".repeat(13))]).expect("a reference");
    assert!(stats.score().multi_bleu_line().starts_with("BLEU = 0.00, 18.8/13.3/7.1/0.0"));
    stats = BleuStats::new(BleuConfig::multi_bleu());
    stats.add(&format!("a {filler} x x"), &["a"]).expect("a reference");
    assert!(stats.score().multi_bleu_line().starts_with("BLEU = 0.00, 6.2/0.0/0.0/0.0"));
}

#[test]
fn closest_reference_length_prefers_the_shorter() {
    assert_eq!(closest_length(5, [7, 3].into_iter()), 3);
    assert_eq!(closest_length(5, [3, 7, 6].into_iter()), 6);
    assert_eq!(closest_length(5, [9].into_iter()), 9);
}

#[test]
fn sentences_score_by_their_own_length() {
    let score = sentence_bleu(BleuConfig::sentence(), "a b", &["a b"]).expect("a reference");
    assert!((score.score - 100.0).abs() < 1e-9);
    assert_eq!(score.totals, [2, 1, 0, 0]);
}

#[test]
fn names_parse_and_display() {
    for name in ["13a", "none", "intl", "char", "multi-bleu"] {
        assert_eq!(name.parse::<Tokenizer>().expect("a tokeniser").to_string(), name);
    }
    assert_eq!("floor".parse(), Ok(Smoothing::Floor(0.1)));
    assert_eq!("add-k:2".parse(), Ok(Smoothing::AddK(2.0)));
    assert_eq!(Smoothing::AddK(1.0).to_string(), "add-k[1.00]");
    assert!("exp:1".parse::<Smoothing>().is_err());
    assert!("ja".parse::<Tokenizer>().is_err());
}

#[test]
fn exact_matches_are_shared_out() {
    assert_eq!(exact_match([("a b", "a b"), ("a", "b"), ("c ", "c"), ("", "")]), 0.75);
    assert_eq!(exact_match(Vec::<(&str, &str)>::new()), 0.0);
    let mut several = ExactMatch::default();
    several.add("a b", &["a", " a b"]);
    several.add("c", &["a", "b"]);
    assert_eq!(several, ExactMatch { equal: 1, lines: 2 });
}
