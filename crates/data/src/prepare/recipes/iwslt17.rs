//! IWSLT17: TED talks of one pair of languages.

use std::path::{Path, PathBuf};

use super::{file_pairs, gather};
use crate::bpe::LearnOptions;
use crate::error::Result;
use crate::moses::{CjkWords, CleanOptions, Dashes, Lang};
use crate::prepare::{CleanWhen, Corpus, Markup, Pieces, PrepareOptions, Progress, TextRules};

/// Test sets, from the longest list that an archive has: those of a pair, then the one of the multilingual task.
const TESTS: [&[&str]; 2] =
    [&["tst2010", "tst2011", "tst2012", "tst2013", "tst2014", "tst2015"], &["tst2010"]];

/// IWSLT17: tokens with their case, 16,384 joint merges, lengths from 1 to 250 pieces, dev2010 to validate on, tst2010
/// to tst2015 to test on. Chinese, Japanese and Korean characters are tokens.
pub fn iwslt17(src: &str, tgt: &str, out: &Path) -> Result<PrepareOptions> {
    let cjk = [src.parse::<Lang>()?, tgt.parse::<Lang>()?]
        .into_iter()
        .any(|lang| matches!(lang, Lang::Zh | Lang::Yue | Lang::Ja));
    let rules = TextRules {
        tokenize: Some(Dashes::Keep),
        cjk_words: if cjk { CjkWords::Characters } else { CjkWords::Whole },
        ..TextRules::default()
    };
    Ok(PrepareOptions {
        eval_rules: TextRules { straighten: true, ..rules.clone() },
        train_rules: rules,
        clean: Some((CleanOptions::new(1, 250), CleanWhen::AfterPieces)),
        pieces: Pieces::Joint(LearnOptions { merges: 16_384, ..LearnOptions::default() }),
        ..PrepareOptions::new(src, tgt, out)
    })
}

/// IWSLT17's files, from `de-en.tgz` (of any pair, in either order), an archive around it, or a folder.
pub fn iwslt17_corpus(
    places: &[PathBuf],
    options: &PrepareOptions,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Corpus> {
    let (src, tgt) = (&options.source_lang, &options.target_lang);
    let pairs = [format!("{src}-{tgt}"), format!("{tgt}-{src}")];
    let mut sets: Vec<Vec<String>> = Vec::new();
    for tests in TESTS {
        for pair in &pairs {
            let sides = [src, tgt].map(|lang| {
                let evaluations = ["dev2010"].iter().chain(tests);
                let evaluations = evaluations.map(move |set| format!("IWSLT17.TED.{set}.{pair}.{lang}.xml"));
                [format!("train.tags.{pair}.{lang}")].into_iter().chain(evaluations)
            });
            sets.push(sides.into_iter().flatten().collect());
        }
    }
    let orig = options.out.join("orig");
    let files = gather(places, &sets, &pairs, &orig, |name| progress(Progress::Unpacking(name)))?;
    let text = file_pairs(&files);
    Ok(Corpus {
        train: vec![text(0, Markup::Talks)],
        valid: vec![text(1, Markup::Segments)],
        test: (2..files.len() / 2).map(|i| text(i, Markup::Segments)).collect(),
    })
}
