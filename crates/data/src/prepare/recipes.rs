//! The files and choices of fairseq's `prepare-iwslt14.sh` and `prepare-wmt14en2de.sh`, and of IWSLT17 and WMT16.

mod iwslt17;
mod wmt16;

use std::path::{Path, PathBuf};

use super::archive::gather;
use super::{CleanWhen, Corpus, HoldOut, Markup, Pieces, PrepareOptions, Progress, Text, TextRules};
use crate::bpe::LearnOptions;
use crate::error::Result;
use crate::moses::{CleanOptions, Dashes};
use crate::options::OptionFault;

pub use iwslt17::{iwslt17, iwslt17_corpus};
pub use wmt16::{wmt16, wmt16_corpus};

/// The test sets of IWSLT14 in the order of the script; together 6,750 lines.
const TED_SETS: [&str; 5] = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"];

/// Version of News Commentary in WMT14's training text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewsCommentary {
    /// Version 12 of 2017, the script's choice, or version 9 where only that is there.
    #[default]
    Newest,
    /// Version 9 of 2014, the script's choice with `--icml17`.
    V9,
}

/// IWSLT14: tokens, lengths from 1 to 175 with a ratio of 1.5, lower case, every 23rd pair held out, 10,000
/// joint merges.
pub fn iwslt14(src: &str, tgt: &str, out: &Path) -> Result<PrepareOptions> {
    english_and_german(src, tgt)?;
    let rules = TextRules {
        tokenize: Some(Dashes::Keep),
        split_last_period: true,
        lowercase: true,
        ..TextRules::default()
    };
    Ok(PrepareOptions {
        eval_rules: TextRules { straighten: true, ..rules.clone() },
        train_rules: rules,
        clean: Some((clean(175), CleanWhen::BeforePieces)),
        hold_out: HoldOut::EveryNth(23),
        pieces: Pieces::Joint(LearnOptions { merges: 10_000, ..LearnOptions::default() }),
        ..PrepareOptions::new(src, tgt, out)
    })
}

/// IWSLT14's files, from `de-en.tgz`, an archive around it, or a folder.
pub fn iwslt14_corpus(
    places: &[PathBuf],
    options: &PrepareOptions,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Corpus> {
    let (src, tgt) = (&options.source_lang, &options.target_lang);
    let pairs = ["de-en".to_owned(), "en-de".to_owned()];
    let sets = pairs.iter().map(|pair| {
        let sides = [src, tgt].map(|lang| {
            let tests = TED_SETS.iter().map(move |set| format!("IWSLT14.{set}.{pair}.{lang}.xml"));
            [format!("train.tags.{pair}.{lang}")].into_iter().chain(tests)
        });
        sides.into_iter().flatten().collect()
    });
    let sets: Vec<Vec<String>> = sets.collect();
    let orig = options.out.join("orig");
    let files = gather(places, &sets, &pairs, &orig, |name| progress(Progress::Unpacking(name)))?;
    let text = file_pairs(&files);
    Ok(Corpus {
        train: vec![text(0, Markup::Tags)],
        valid: Vec::new(),
        test: (1..files.len() / 2).map(|i| text(i, Markup::Segments)).collect(),
    })
}

/// WMT14: punctuation normalised, tokens with dashes split, every 100th pair held out, 40,000 joint merges,
/// lengths from 1 to 250 pieces with a ratio of 1.5. One dictionary, because the recipes share embeddings.
pub fn wmt14(src: &str, tgt: &str, out: &Path) -> Result<PrepareOptions> {
    english_and_german(src, tgt)?;
    let rules = TextRules { tokenize: Some(Dashes::Split), split_last_period: true, ..TextRules::default() };
    Ok(PrepareOptions {
        train_rules: TextRules { normalize: true, ..rules.clone() },
        eval_rules: TextRules { straighten: true, ..rules },
        clean: Some((clean(250), CleanWhen::AfterPieces)),
        hold_out: HoldOut::EveryNth(100),
        pieces: Pieces::Joint(LearnOptions { merges: 40_000, ..LearnOptions::default() }),
        joined_dictionary: true,
        ..PrepareOptions::new(src, tgt, out)
    })
}

/// WMT14's files, from the archives of Europarl, Common Crawl, News Commentary and the test sets, or folders.
pub fn wmt14_corpus(
    places: &[PathBuf],
    options: &PrepareOptions,
    news: NewsCommentary,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Corpus> {
    let versions: &[&str] = match news {
        NewsCommentary::Newest => &["v12", "v9"],
        NewsCommentary::V9 => &["v9"],
    };
    let sides = [(&options.source_lang, "src"), (&options.target_lang, "ref")];
    let sets = versions.iter().map(|version| {
        let names = sides.map(|(lang, role)| {
            [
                format!("europarl-v7.de-en.{lang}"),
                format!("commoncrawl.de-en.{lang}"),
                format!("news-commentary-{version}.de-en.{lang}"),
                format!("newstest2014-deen-{role}.{lang}.sgm"),
            ]
        });
        names.into_iter().flatten().collect()
    });
    let sets: Vec<Vec<String>> = sets.collect();
    let orig = options.out.join("orig");
    let files = gather(places, &sets, &[], &orig, |name| progress(Progress::Unpacking(name)))?;
    let text = file_pairs(&files);
    let train = (0..3).map(|i| text(i, Markup::None)).collect();
    Ok(Corpus { train, valid: Vec::new(), test: vec![text(3, Markup::Segments)] })
}

fn clean(longest: usize) -> CleanOptions {
    CleanOptions { ratio: Some(1.5), ..CleanOptions::new(1, longest) }
}

/// The texts of a list of files, first those of the source, then those of the target in the same order.
fn file_pairs(files: &[PathBuf]) -> impl Fn(usize, Markup) -> Text {
    let (src, tgt) = files.split_at(files.len() / 2);
    move |i, markup| Text { src: src[i].clone(), tgt: tgt[i].clone(), markup }
}

fn english_and_german(src: &str, tgt: &str) -> Result<()> {
    match (src, tgt) {
        ("de", "en") | ("en", "de") => Ok(()),
        _ => {
            let (src, tgt) = (src.into(), tgt.into());
            Err(OptionFault::CorpusLanguages { known: "German and English", src, tgt }.into())
        }
    }
}
