//! Training and development sets of one kind of model: pairs of sentences, or blocks of a text.

use std::fmt;
use std::path::Path;

use mae_data::pairs::{detect_languages, side_path};
use mae_data::{
    BlockOptions, Blocks, Corpus, IndexedDataset, ParallelDataset, Redraw, Segmentation, TextDataset,
    TextRecord,
};
use mae_engine::Device;
use mae_model::{LanguageModel, LmConfig, Model, ModelConfig, Translator, folder};

use crate::checkpoint::TextSide;
use crate::validate::Validator;
use crate::{Error, Result, TrainConfig};

/// Development set of a run that names none; only this one may be missing.
pub const VALID: &str = "valid";

/// Makes what scores BLEU from a development set, its codes and a beam.
pub type MakeBleu =
    for<'a> fn(&'a ParallelDataset, Option<&'a Segmentation>, usize) -> Box<dyn Validator + 'a>;

/// Sets of a binarised folder.
#[derive(Clone, Copy, Debug)]
pub struct Sets<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// Source and target language; found from the file names where not given.
    pub languages: Option<(&'a str, &'a str)>,
    /// Name of the development set.
    pub valid: &'a str,
}

impl Sets<'_> {
    /// Returns source and target language.
    pub fn languages(&self) -> Result<(String, String)> {
        let Some((source, target)) = self.languages else { return Ok(detect_languages(self.folder)?) };
        let exists = |a: &str, b: &str| IndexedDataset::exists(side_path(self.folder, "train", [a, b], a));
        if !exists(source, target) && exists(target, source) {
            return Err(Error::OtherDirection {
                folder: self.folder.to_owned(),
                source_language: source.to_owned(),
                target: target.to_owned(),
            });
        }
        Ok((source.to_owned(), target.to_owned()))
    }

    /// Opens a set of sentence pairs.
    pub fn pairs(&self, split: &str) -> Result<ParallelDataset> {
        let (source, target) = self.languages()?;
        Ok(ParallelDataset::open(self.folder, split, &source, &target)?)
    }
}

/// Size of dictionaries and training set.
#[derive(Clone, Debug, PartialEq)]
pub enum DataSize {
    /// Of pairs of sentences.
    Pairs {
        /// Types of the source dictionary.
        source_types: usize,
        /// Types of the target dictionary.
        target_types: usize,
        /// Sentence pairs.
        pairs: usize,
        /// Part of them that is used, up to 1.
        part: f64,
    },
    /// Of a text.
    Text {
        /// Types of the dictionary.
        types: usize,
        /// Blocks of the text.
        blocks: usize,
        /// Tokens of the text.
        tokens: u64,
        /// Part of the blocks that is used, up to 1.
        part: f64,
    },
}

impl fmt::Display for DataSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: f64| if part == 1.0 { String::new() } else { format!("{} % of ", 100.0 * part) };
        match self {
            Self::Pairs { source_types, target_types, pairs, part } => {
                let part = percent(*part);
                write!(f, "{source_types} + {target_types} types, {part}{pairs} training pairs")
            }
            Self::Text { types, blocks, tokens, part } => {
                let part = percent(*part);
                write!(f, "{types} types, {part}{blocks} training blocks ({tokens} tokens)")
            }
        }
    }
}

/// Training and development sets of one kind of model.
pub trait Material: Sized {
    /// The kind of model.
    type Model: Model;

    /// Opens the sets.
    fn open(sets: Sets<'_>, config: &TrainConfig) -> Result<Self>;
    /// Builds a model with initial values.
    fn model(
        &self,
        config: &<Self::Model as Model>::Config,
        device: &Device,
        seed: u64,
    ) -> Result<Self::Model>;
    /// Returns the training set and the development set.
    fn corpora(&self) -> (&dyn Corpus, Option<&dyn Corpus>);
    /// Returns dictionaries and codes, to store with the model.
    fn text(&self) -> TextSide;
    /// Makes what scores BLEU, where the configuration asks for it.
    fn validator(
        &self,
        config: &TrainConfig,
        bleu: Option<MakeBleu>,
    ) -> Result<Option<Box<dyn Validator<Self::Model> + '_>>>;
    /// Returns the size of the data, of which this part is used.
    fn size(&self, part: f64) -> DataSize;
}

/// Pairs of sentences, for translation.
pub struct Pairs {
    /// Training set.
    pub train: ParallelDataset,
    /// Development set.
    pub valid: Option<ParallelDataset>,
    /// Codes that cut words into pieces.
    pub codes: Option<Segmentation>,
    /// Languages, and rules that the text went through first.
    pub record: TextRecord,
}

impl Material for Pairs {
    type Model = Translator;

    fn open(sets: Sets<'_>, config: &TrainConfig) -> Result<Self> {
        let (folder, split) = (sets.folder, sets.valid);
        let (source, target) = sets.languages()?;
        let train = ParallelDataset::open(folder, "train", &source, &target)?;
        let exists = IndexedDataset::exists(side_path(folder, split, [&source, &target], &source));
        let valid = (exists || split != VALID).then(|| sets.pairs(split)).transpose()?;
        let codes = Segmentation::load(folder)?;
        if config.bpe_dropout > 0.0 {
            Redraw::new(codes.as_ref(), config.bpe_dropout, config.seed, usize::MAX)?;
        }
        // Folders of others do not tell their languages, but the names of their files do.
        let languages = Some([source, target]);
        let record = TextRecord { languages, rules: TextRecord::load(folder)?.rules };
        Ok(Self { train, valid, codes, record })
    }

    fn model(&self, config: &ModelConfig, device: &Device, seed: u64) -> Result<Translator> {
        let (source, target) = (&self.train.src_vocab, &self.train.tgt_vocab);
        folder::check_sharing(config, source, target)?;
        Ok(Translator::new(config, [source.len(), target.len()], device, seed)?)
    }

    fn corpora(&self) -> (&dyn Corpus, Option<&dyn Corpus>) {
        (&self.train, self.valid.as_ref().map(|valid| valid as &dyn Corpus))
    }

    fn text(&self) -> TextSide {
        TextSide::of_pairs(&self.train, self.codes.as_ref(), &self.record)
    }

    fn validator(
        &self,
        config: &TrainConfig,
        bleu: Option<MakeBleu>,
    ) -> Result<Option<Box<dyn Validator + '_>>> {
        let (Some(valid), beam @ 1..) = (&self.valid, config.eval_bleu_beam) else { return Ok(None) };
        let make = bleu.ok_or_else(|| {
            Error::Config(vec![format!("train.eval_bleu_beam = {beam} needs something that scores BLEU")])
        })?;
        Ok(Some(make(valid, self.codes.as_ref(), beam)))
    }

    fn size(&self, part: f64) -> DataSize {
        let train = &self.train;
        let (source_types, target_types) = (train.src_vocab.len(), train.tgt_vocab.len());
        DataSize::Pairs { source_types, target_types, pairs: train.len(), part }
    }
}

/// Blocks of a text, for language models.
pub struct Text {
    lines: TextDataset,
    train: Blocks,
    valid: Option<Blocks>,
    codes: Option<Segmentation>,
}

impl Material for Text {
    type Model = LanguageModel;

    fn open(sets: Sets<'_>, config: &TrainConfig) -> Result<Self> {
        let (folder, split) = (sets.folder, sets.valid);
        let options = BlockOptions {
            tokens_per_sample: config.tokens_per_sample,
            context_window: 0,
            break_mode: config.sample_break_mode,
        };
        let lines = TextDataset::open(folder, "train")?;
        let train = Blocks::new(lines.lines.clone(), options)?;
        let valid = if IndexedDataset::exists(folder.join(split)) || split != VALID {
            Some(Blocks::new(TextDataset::open(folder, split)?.lines, options)?)
        } else {
            None
        };
        Ok(Self { lines, train, valid, codes: Segmentation::load(folder)? })
    }

    fn model(&self, config: &LmConfig, device: &Device, seed: u64) -> Result<LanguageModel> {
        Ok(LanguageModel::new(config, self.lines.vocab.len(), device, seed)?)
    }

    fn corpora(&self) -> (&dyn Corpus, Option<&dyn Corpus>) {
        (&self.train, self.valid.as_ref().map(|valid| valid as &dyn Corpus))
    }

    fn text(&self) -> TextSide {
        TextSide::of_text(&self.lines, self.codes.as_ref())
    }

    fn validator(
        &self,
        _: &TrainConfig,
        _: Option<MakeBleu>,
    ) -> Result<Option<Box<dyn Validator<LanguageModel> + '_>>> {
        Ok(None)
    }

    fn size(&self, part: f64) -> DataSize {
        let (blocks, tokens) = (self.train.len(), self.train.tokens());
        DataSize::Text { types: self.lines.vocab.len(), blocks, tokens, part }
    }
}
