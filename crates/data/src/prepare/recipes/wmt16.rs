//! WMT16, English and Romanian.

use std::path::{Path, PathBuf};

use super::{file_pairs, gather};
use crate::bpe::LearnOptions;
use crate::error::Result;
use crate::moses::{CleanOptions, Dashes};
use crate::options::OptionFault;
use crate::prepare::{CleanWhen, Corpus, Markup, Pieces, PrepareOptions, Progress, TextRules};

/// WMT16: punctuation normalised, Romanian ş and ţ written with commas, tokens with dashes split, lengths from 1 to 80
/// tokens, 40,000 joint merges, one dictionary, newsdev2016 to validate on and newstest2016 to test on.
pub fn wmt16(src: &str, tgt: &str, out: &Path) -> Result<PrepareOptions> {
    if !matches!((src, tgt), ("en", "ro") | ("ro", "en")) {
        let (src, tgt) = (src.into(), tgt.into());
        return Err(OptionFault::CorpusLanguages { known: "English and Romanian", src, tgt }.into());
    }
    let rules = TextRules {
        normalize: true,
        comma_below: true,
        tokenize: Some(Dashes::Split),
        ..TextRules::default()
    };
    Ok(PrepareOptions {
        train_rules: rules.clone(),
        eval_rules: rules,
        clean: Some((CleanOptions::new(1, 80), CleanWhen::BeforePieces)),
        pieces: Pieces::Joint(LearnOptions { merges: 40_000, ..LearnOptions::default() }),
        joined_dictionary: true,
        ..PrepareOptions::new(src, tgt, out)
    })
}

/// WMT16's files: Europarl (version 8, or 7 where only that is there), SETIMES2, and the sets of 2016, from archives or
/// folders.
pub fn wmt16_corpus(
    places: &[PathBuf],
    options: &PrepareOptions,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Corpus> {
    let (src, tgt) = (&options.source_lang, &options.target_lang);
    let direction = format!("{src}{tgt}");
    let mut sets: Vec<Vec<String>> = Vec::new();
    for europarl in ["europarl-v8", "europarl-v7"] {
        for times in ["SETIMES", "SETIMES2"] {
            let sides = [(src, "src"), (tgt, "ref")].map(|(lang, role)| {
                [
                    format!("{europarl}.ro-en.{lang}"),
                    format!("{times}.en-ro.{lang}"),
                    format!("newsdev2016-{direction}-{role}.{lang}.sgm"),
                    format!("newstest2016-{direction}-{role}.{lang}.sgm"),
                ]
            });
            sets.push(sides.into_iter().flatten().collect());
        }
    }
    let orig = options.out.join("orig");
    let files = gather(places, &sets, &[], &orig, |name| progress(Progress::Unpacking(name)))?;
    let text = file_pairs(&files);
    Ok(Corpus {
        train: vec![text(0, Markup::None), text(1, Markup::None)],
        valid: vec![text(2, Markup::Segments)],
        test: vec![text(3, Markup::Segments)],
    })
}
