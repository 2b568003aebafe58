//! What models are trained on: pairs of sentences, or blocks of a text.

use std::path::Path;

use anyhow::{Result, ensure};
use mae_data::pairs::{detect_languages, side_path};
use mae_data::{BlockOptions, Blocks, Corpus, IndexedDataset, ParallelDataset, Segmentation, TextDataset};
use mae_engine::Device;
use mae_eval::validator::BleuValidator;
use mae_model::{LanguageModel, LmConfig, Model, ModelConfig, Translator, folder};
use mae_train::TrainConfig;
use mae_train::checkpoint::TextSide;
use mae_train::validate::Validator;

/// Where the sets are.
#[derive(Clone, Copy)]
pub struct Sets<'a> {
    /// A binarised folder.
    pub folder: &'a Path,
    /// Source and target language; found from the file names where not given.
    pub languages: Option<(&'a str, &'a str)>,
    /// The name of the development set.
    pub valid: &'a str,
}

impl Sets<'_> {
    /// Source and target language.
    pub fn languages(&self) -> Result<(String, String)> {
        match self.languages {
            Some((source, target)) => {
                let there =
                    |a: &str, b: &str| IndexedDataset::exists(side_path(self.folder, "train", [a, b], a));
                ensure!(
                    there(source, target) || !there(target, source),
                    "{0} is for {target}-{source}, not {source}-{target}: `mae preprocess -s {source} -t {target}` makes the other \
                     direction",
                    self.folder.display()
                );
                Ok((source.to_owned(), target.to_owned()))
            }
            None => Ok(detect_languages(self.folder)?),
        }
    }
}

/// Training and development sets of one kind of model.
pub trait Material: Sized {
    /// The kind of model.
    type Model: Model;

    /// Opens the sets.
    fn open(sets: Sets<'_>, config: &TrainConfig) -> Result<Self>;
    /// A model for them with initial values.
    fn model(
        &self,
        config: &<Self::Model as Model>::Config,
        device: &Device,
        seed: u64,
    ) -> Result<Self::Model>;
    /// Training set and development set.
    fn corpora(&self) -> (&dyn Corpus, Option<&dyn Corpus>);
    /// Dictionaries and codes, to store with the model.
    fn text(&self) -> TextSide;
    /// Scores BLEU, where it is asked for.
    fn validator(&self, config: &TrainConfig) -> Option<Box<dyn Validator<Self::Model> + '_>>;
    /// How much there is, in words; of the training set this part is used.
    fn size(&self, subset: f64) -> String;
}

/// `part` of what is there, in words.
fn part_of(part: f64, what: String) -> String {
    if part == 1.0 { what } else { format!("{} % of {what}", 100.0 * part) }
}

/// The development set that a run has if nothing else is asked for; only this one may be missing.
pub const VALID: &str = "valid";

fn without_validation(folder: &Path) {
    eprintln!("mae: {} has no `{VALID}` set: training without validation", folder.display());
}

/// Pairs of sentences, for translation.
pub struct Pairs {
    train: ParallelDataset,
    valid: Option<ParallelDataset>,
    codes: Option<Segmentation>,
}

impl Material for Pairs {
    type Model = Translator;

    fn open(sets: Sets<'_>, _: &TrainConfig) -> Result<Self> {
        let (folder, split) = (sets.folder, sets.valid);
        let (source, target) = sets.languages()?;
        let train = ParallelDataset::open(folder, "train", &source, &target)?;
        let there = IndexedDataset::exists(side_path(folder, split, [&source, &target], &source));
        let valid = if there || split != VALID {
            Some(ParallelDataset::open(folder, split, &source, &target)?)
        } else {
            without_validation(folder);
            None
        };
        Ok(Self { train, valid, codes: Segmentation::load(folder)? })
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
        TextSide::of_pairs(&self.train, self.codes.as_ref())
    }

    fn validator(&self, config: &TrainConfig) -> Option<Box<dyn Validator + '_>> {
        let (valid, beam) = (self.valid.as_ref()?, config.eval_bleu_beam);
        (beam > 0)
            .then(|| Box::new(BleuValidator::new(valid, self.codes.as_ref(), beam)) as Box<dyn Validator>)
    }

    fn size(&self, subset: f64) -> String {
        let train = &self.train;
        let pairs = part_of(subset, format!("{} training pairs", train.len()));
        format!("{} + {} types, {pairs}", train.src_vocab.len(), train.tgt_vocab.len())
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
            without_validation(folder);
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

    fn validator(&self, _: &TrainConfig) -> Option<Box<dyn Validator<LanguageModel> + '_>> {
        None
    }

    fn size(&self, subset: f64) -> String {
        let blocks = format!("{} training blocks ({} tokens)", self.train.len(), self.train.tokens());
        format!("{} types, {}", self.lines.vocab.len(), part_of(subset, blocks))
    }
}
