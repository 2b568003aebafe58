//! Moses' tools against golden tables of sacremoses (`tools/moses_golden.py`), and the corpus cleaner.

use mae_data::moses::clean::clean_corpus;
use mae_data::moses::normalize::blank_non_printing;
use mae_data::moses::{
    CjkWords, CleanOptions, CleanPair, Cleaner, Dashes, Detokenizer, Dropped, Escapes, Lang, NonPrinting,
    NormalizeOptions, Normalizer, Protected, TokenizeOptions, Tokenizer,
};
use mae_data::{BadUtf8, ParallelLines};

use crate::common::Folder;

/// Undoes the escapes of a field.
fn plain(field: &str) -> String {
    let mut out = String::new();
    let mut chars = field.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next().expect("an escape has two characters") {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                other => other,
            },
            _ => c,
        });
    }
    out
}

/// Every row of a table must come out as `apply` says: language, options, input.
fn compare(table: &str, apply: impl Fn(Lang, &[&str], &str) -> String) {
    let rows: Vec<_> = table.split_terminator('\n').collect();
    assert!(rows.len() > 400, "{}", rows.len());
    for row in rows {
        let fields: Vec<_> = row.split('\t').map(plain).collect();
        let [lang, options, input, expected] = fields.as_slice() else {
            panic!("a row of the wrong width: {row:?}")
        };
        let chosen: Vec<_> = options.split('+').collect();
        assert_eq!(&apply(lang.parse().unwrap(), &chosen, input), expected, "{lang} {options} {input:?}");
    }
}

#[test]
fn every_language_equals_sacremoses() {
    let tokens = |lang, dashes, text: &str| {
        Tokenizer::new(lang, TokenizeOptions { dashes, ..Default::default() }).tokenize(text).unwrap()
    };
    compare(include_str!("../../../fixtures/moses/languages.tsv"), |lang, chosen, input| match chosen {
        ["tokenize"] => tokens(lang, Dashes::Keep, input),
        ["tokenize", "a"] => tokens(lang, Dashes::Split, input),
        ["detokenize"] => Detokenizer::new(lang, Escapes::Entities).detokenize(input),
        ["normalize"] => Normalizer::new(lang, NormalizeOptions::default()).normalize(input),
        _ => panic!("{chosen:?}"),
    });
}

#[test]
fn tokens_equal_sacremoses() {
    // Patterns take long to compile and are cheap to clone.
    let [mut basic, mut web] = [Protected::default(), Protected::default()];
    basic.add_basic();
    web.add_web();
    compare(include_str!("../../../fixtures/moses/tokenize.tsv"), |lang, chosen, input| {
        let protected = if chosen.contains(&"basic") {
            basic.clone()
        } else if chosen.contains(&"web") {
            web.clone()
        } else {
            Protected::default()
        };
        let dashes = if chosen.contains(&"a") { Dashes::Split } else { Dashes::Keep };
        let escapes = if chosen.contains(&"plain") { Escapes::Plain } else { Escapes::Entities };
        Tokenizer::new(lang, TokenizeOptions { dashes, escapes, protected, ..Default::default() })
            .tokenize(input)
            .unwrap()
    });
}

#[test]
fn text_equals_sacremoses() {
    compare(include_str!("../../../fixtures/moses/detokenize.tsv"), |lang, chosen, input| {
        let escapes = if chosen.contains(&"plain") { Escapes::Plain } else { Escapes::Entities };
        Detokenizer::new(lang, escapes).detokenize(input)
    });
}

#[test]
fn punctuation_equals_sacremoses() {
    compare(include_str!("../../../fixtures/moses/normalize.tsv"), |lang, chosen, input| {
        let remove = chosen.contains(&"control");
        let options = NormalizeOptions {
            replace_unicode_punct: chosen.contains(&"punct"),
            penn: !chosen.contains(&"no-penn"),
            quote_commas: !chosen.contains(&"no-quotes"),
            numbers: !chosen.contains(&"no-numbers"),
            non_printing: if remove { NonPrinting::Remove } else { NonPrinting::Keep },
        };
        Normalizer::new(lang, options).normalize(input)
    });
}

#[test]
fn non_printing_characters_become_blanks() {
    assert_eq!(blank_non_printing(" a\u{200b}b\x01\x7f\u{ad}c\td "), " a b   c d ");
    let options = NormalizeOptions { non_printing: NonPrinting::Blank, ..Default::default() };
    assert_eq!(Normalizer::new(Lang::En, options).normalize("\x01a\x02b\x03"), "a b");
}

#[test]
fn users_patterns_are_kept_whole() {
    let mut protected = Protected::default();
    protected.add(r"\b[a-z]+_\d+\b").unwrap();
    let options = TokenizeOptions { protected, ..Default::default() };
    let tokens = Tokenizer::new(Lang::En, options).tokenize("see ABC_12, not ab_c.").unwrap();
    assert_eq!(tokens, "see ABC_12 , not ab _ c .");
}

#[test]
fn characters_are_tokens_and_join_again() {
    let options = TokenizeOptions { cjk_words: CjkWords::Characters, ..Default::default() };
    for (lang, text, tokens) in [
        (Lang::Zh, "我爱你，Mae 2.0！", "我 爱 你 ， Mae 2.0 ！"),
        (Lang::Ja, "東京へ行くよ。", "東 京 へ 行 く よ 。"),
        (Lang::Ko, "안녕 world", "안 녕 world"),
        (Lang::De, "Das Zeichen 漢字.", "Das Zeichen 漢 字 ."),
    ] {
        assert_eq!(Tokenizer::new(lang, options.clone()).tokenize(text).unwrap(), tokens);
    }
    let joined = Detokenizer::new(Lang::Ja, Escapes::Entities).detokenize("東 京 へ 行 く よ 。");
    assert_eq!(joined, "東京へ行くよ。");
}

#[test]
fn unknown_languages_are_named() {
    let error = "xx".parse::<Lang>().unwrap_err().to_string();
    assert!(error.contains("`xx`") && error.contains("rules for as, bn,"), "{error}");
    assert_eq!(Lang::ALL.len(), 40);
    assert!(Lang::ALL.is_sorted_by_key(|lang| lang.code()));
}

#[test]
fn pairs_are_dropped_for_the_first_reason() {
    let mut cleaner = Cleaner::new(CleanOptions { max_word: 5, ..CleanOptions::new(2, 20) }).unwrap();
    let long = "x ".repeat(19);
    for (src, tgt, expected) in [
        ("a b", "c d", Ok(("a b", "c d"))),
        ("a b", " c\u{a0}|d  e ", Ok(("a b", "c d e"))),
        ("a b", " | ", Err(Dropped::Empty)),
        ("a b", &format!("{long} y z"), Err(Dropped::TooLong)),
        ("a", "b c", Err(Dropped::TooShort)),
        ("a b", &long, Err(Dropped::Ratio)),
        ("a b", "abcde f", Ok(("a b", "abcde f"))),
        ("a b", "abcdef f", Err(Dropped::LongWord)),
        ("ä ö", "äöüßé f", Ok(("ä ö", "äöüßé f"))),
    ] {
        let expected =
            expected.map(|(src, tgt): (&str, &str)| CleanPair { src: src.into(), tgt: tgt.into() });
        assert_eq!(cleaner.clean(src, tgt), expected, "{src:?} {tgt:?}");
    }
}

#[test]
fn factors_stay_if_the_first_pair_has_them() {
    let mut cleaner = Cleaner::new(CleanOptions::new(1, 20)).unwrap();
    let kept = |src: &str, tgt: &str| Ok(CleanPair { src: src.into(), tgt: tgt.into() });
    assert_eq!(cleaner.clean("a|DT b|NN", "c"), kept("a|DT b|NN", "c"));
    assert_eq!(cleaner.clean("a||x", "c"), Err(Dropped::BlankFactor));
    assert_eq!(cleaner.clean("a |x", "c"), Err(Dropped::BlankFactor));
}

#[test]
fn corpora_are_cleaned_with_counts() {
    let folder = Folder::new();
    let (src, tgt) =
        (folder.write("in.de", "A b\n\nc\nd e f\n"), folder.write("in.en", "a  B\nx\ny z\n1 2 3 4\n"));
    let lines = || ParallelLines::open(&src, &tgt, BadUtf8::Error).unwrap();
    let out = [folder.path("out.de"), folder.path("out.en")];
    let options = CleanOptions { ratio: Some(1.5), lowercase: true, ..CleanOptions::new(1, 3) };
    let tallies = clean_corpus(&mut lines(), [&out[0], &out[1]], options, |_| ()).unwrap();
    assert_eq!((folder.read("out.de").as_str(), folder.read("out.en").as_str()), ("a b\n", "a b\n"));
    assert_eq!((tallies.pairs, tallies.kept), (4, 1));
    assert_eq!(tallies.empty.examples, [2]);
    assert_eq!(tallies.ratio.examples, [3]);
    assert_eq!(tallies.too_long.examples, [4]);

    // Nothing is left behind where the sides do not match, and contradictions are refused.
    let short = folder.write("short.en", "a\n");
    let mut uneven = ParallelLines::open(&src, &short, BadUtf8::Error).unwrap();
    let out = [folder.path("no.de"), folder.path("no.en")];
    assert!(clean_corpus(&mut uneven, [&out[0], &out[1]], CleanOptions::new(1, 9), |_| ()).is_err());
    assert!(!folder.names().iter().any(|name| name.starts_with("no")));
    let error = Cleaner::new(CleanOptions::new(5, 4)).unwrap_err().to_string();
    assert!(error.contains("at least 5 and at most 4"), "{error}");
    assert!(Cleaner::new(CleanOptions { ratio: Some(0.5), ..CleanOptions::new(1, 4) }).is_err());
}
