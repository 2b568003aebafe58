//! Options of preprocessing, and which of them go together.

use std::path::PathBuf;

use super::policy::{LinePolicy, Policies};
use crate::bpe::{Dropout, LearnOptions};
use crate::error::Result;
use crate::lines::BadUtf8;
use crate::options::OptionFault;
use crate::pairs::pairs_in;
use crate::segmentation::{self, Segmentation};
use crate::text::TextDataset;
use crate::text_record::TEXT;

/// Source of the merges that cut text into pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BpeSource {
    /// The text is taken as it is.
    #[default]
    None,
    /// A codes file of subword-nmt.
    Codes(PathBuf),
    /// A codes file for each side, source and target.
    SeparateCodes(PathBuf, PathBuf),
    /// Learned from both sides of the training text together.
    Learn(LearnOptions),
    /// Learned from each side of the training text for itself.
    LearnSeparately(LearnOptions),
    /// A `tokenizer.json`.
    Tokenizer(PathBuf),
    /// A SentencePiece model.
    SentencePiece(PathBuf),
    /// A SentencePiece model for each side, source and target.
    SentencePieces(PathBuf, PathBuf),
    /// The text is in pieces already; this made them, and is stored with the ids.
    Applied(Segmentation),
}

/// Options of [`preprocess`](super::preprocess), with fairseq's names.
#[derive(Clone, Debug)]
pub struct PreprocessOptions {
    /// Source language: the ending of its files.
    pub source_lang: String,
    /// Target language: the ending of its files.
    pub target_lang: String,
    /// Training text: `{trainpref}.{lang}`, with `.gz` or `.zst` after it if need be.
    pub trainpref: Option<String>,
    /// Validation texts, separated by commas: they become `valid`, `valid1`, ….
    pub validpref: Option<String>,
    /// Test texts, separated by commas: they become `test`, `test1`, ….
    pub testpref: Option<String>,
    /// One text instead of two, for language models: the source alone. Its files are `{trainpref}` themselves
    /// where the source language is empty.
    pub only_source: bool,
    /// The folder to write to.
    pub destdir: PathBuf,
    /// One vocabulary for both languages, cut by `nwordssrc` and `thresholdsrc`.
    pub joined_dictionary: bool,
    /// Use this source vocabulary.
    pub srcdict: Option<PathBuf>,
    /// Use this target vocabulary.
    pub tgtdict: Option<PathBuf>,
    /// Size at most of the source vocabulary, specials counted.
    pub nwordssrc: Option<usize>,
    /// Size at most of the target vocabulary, specials counted.
    pub nwordstgt: Option<usize>,
    /// Source tokens seen less often become unknown.
    pub thresholdsrc: u64,
    /// Target tokens seen less often become unknown.
    pub thresholdtgt: u64,
    /// Vocabulary sizes are padded to a multiple of this.
    pub padding_factor: usize,
    /// Byte-pair encoding.
    pub bpe: BpeSource,
    /// Merges skipped at random in the training text.
    pub dropout: Option<Dropout>,
    /// Policy for bytes that are not UTF-8.
    pub bad_utf8: BadUtf8,
    /// Pairs with an empty side. fairseq keeps them all; a model learns nothing from them, so in training we
    /// skip them.
    pub empty: Policies,
    /// Lines with more tokens than this (after BPE, end of sentence not counted) are over-long.
    pub max_line_tokens: usize,
    /// Pairs with an over-long side: kept, but counted in the report.
    pub too_long: Policies,
}

impl PreprocessOptions {
    /// The defaults for a language pair and a folder to write to.
    pub fn new(source_lang: &str, target_lang: &str, destdir: impl Into<PathBuf>) -> Self {
        Self {
            source_lang: source_lang.into(),
            target_lang: target_lang.into(),
            trainpref: None,
            validpref: None,
            testpref: None,
            only_source: false,
            destdir: destdir.into(),
            joined_dictionary: false,
            srcdict: None,
            tgtdict: None,
            nwordssrc: None,
            nwordstgt: None,
            thresholdsrc: 0,
            thresholdtgt: 0,
            padding_factor: 8,
            bpe: BpeSource::None,
            dropout: None,
            bad_utf8: BadUtf8::Error,
            empty: Policies { train: LinePolicy::Skip, eval: LinePolicy::Keep },
            max_line_tokens: 1023,
            too_long: Policies { train: LinePolicy::Keep, eval: LinePolicy::Keep },
        }
    }

    /// The defaults for one text. Empty lines are kept: they are part of it.
    pub fn only_source(destdir: impl Into<PathBuf>) -> Self {
        let keep = Policies { train: LinePolicy::Keep, eval: LinePolicy::Keep };
        Self { only_source: true, empty: keep, ..Self::new("", "", destdir) }
    }

    /// (split, prefix) for all texts, in fairseq's naming.
    pub(super) fn splits(&self) -> Vec<(String, &str)> {
        let train = self.trainpref.iter().map(|prefix| ("train".to_owned(), prefix.as_str()));
        train.chain(several("valid", &self.validpref)).chain(several("test", &self.testpref)).collect()
    }

    /// Returns whether a run writes a file of this name.
    pub(super) fn writes(&self, name: &str) -> bool {
        let (src, tgt) = (&self.source_lang, &self.target_lang);
        let side = |lang: &str| {
            name == format!("dict.{lang}.txt")
                || ["bin", "idx"].iter().any(|end| name.ends_with(&format!(".{src}-{tgt}.{lang}.{end}")))
        };
        side(src) || side(tgt) || name == TEXT || segmentation::FILES.contains(&name)
    }

    /// Refuses options that cannot be carried out.
    pub(super) fn check(&self) -> Result<(), OptionFault> {
        let separate = matches!(
            self.bpe,
            BpeSource::LearnSeparately(_) | BpeSource::SeparateCodes(..) | BpeSource::SentencePieces(..)
        );
        if self.only_source {
            if self.tgtdict.is_some() || self.joined_dictionary || separate {
                return Err(OptionFault::TargetOfOneText);
            }
        } else {
            if self.source_lang == self.target_lang {
                return Err(OptionFault::SameLanguage(self.source_lang.clone()));
            }
            let is_wrong = |lang: &&&String| lang.is_empty() || lang.contains(['/', '.']);
            if let Some(lang) = [&self.source_lang, &self.target_lang].iter().find(is_wrong) {
                return Err(OptionFault::Language((*lang).clone()));
            }
            if self.joined_dictionary && self.srcdict.is_some() && self.tgtdict.is_some() {
                return Err(OptionFault::TwoJoinedDictionaries);
            }
        }
        self.check_texts()
    }

    /// Refuses a folder that holds another text or pair of texts: it has one set of codes, and that of the
    /// first would be lost.
    pub(super) fn check_destination(&self) -> Result<()> {
        if !self.destdir.exists() {
            return Ok(());
        }
        let mut found: Vec<String> =
            pairs_in(&self.destdir)?.into_iter().map(|(src, tgt)| format!("{src}-{tgt}")).collect();
        if !self.only_source {
            found.retain(|pair| *pair != format!("{}-{}", self.source_lang, self.target_lang));
            if TextDataset::is_in(&self.destdir) {
                found.push("one text".into());
            }
        }
        match found.into_iter().next() {
            None => Ok(()),
            Some(holds) => Err(OptionFault::AnotherDataSet { folder: self.destdir.clone(), holds }.into()),
        }
    }

    /// Refuses to begin without the texts and dictionaries that are needed.
    fn check_texts(&self) -> Result<(), OptionFault> {
        let dictionaries = match (&self.srcdict, &self.tgtdict) {
            (Some(_), Some(_)) => true,
            (None, None) => false,
            // One is enough where there is only one.
            _ => self.only_source || self.joined_dictionary,
        };
        if self.trainpref.is_none() {
            if !dictionaries {
                let only_source = self.only_source;
                return Err(if only_source {
                    OptionFault::NoDictionary
                } else {
                    OptionFault::NoDictionaries
                });
            }
            if matches!(self.bpe, BpeSource::Learn(_) | BpeSource::LearnSeparately(_)) {
                return Err(OptionFault::NothingToLearnFrom);
            }
        }
        use BpeSource::{Codes, Learn, LearnSeparately, SeparateCodes};
        let has_merges = matches!(self.bpe, Codes(_) | SeparateCodes(..) | Learn(_) | LearnSeparately(_));
        if self.dropout.is_some() && !has_merges {
            return Err(OptionFault::DropoutWithoutMerges);
        }
        if self.splits().is_empty() { Err(OptionFault::NoTexts) } else { Ok(()) }
    }
}

/// `a,b,c` → (`name`, a), (`name1`, b), (`name2`, c).
fn several<'a>(name: &'a str, prefixes: &'a Option<String>) -> impl Iterator<Item = (String, &'a str)> {
    let prefixes = prefixes.as_deref().unwrap_or_default().split(',').filter(|prefix| !prefix.is_empty());
    prefixes.enumerate().map(move |(k, prefix)| match k {
        0 => (name.to_owned(), prefix),
        _ => (format!("{name}{k}"), prefix),
    })
}
