//! Models that translate together: one folder, or several that agree on their dictionaries.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mae_data::segmentation::Segmenter;
use mae_data::{EOS, Segmentation, TextRecord, TextTools, Vocab};
use mae_engine::Device;
use mae_model::folder::{self, ModelFolder, Task};
use mae_model::{ExpertMode, Translator};
use rayon::prelude::*;

use crate::error::{Error, Result, dictionary_difference};
use crate::experts::check_modes;
use crate::text::{Fitted, TextForm, text};

/// One model or more with the same dictionaries, and what cuts and joins their text.
pub struct Models {
    /// The first, whose dictionaries and codes serve all.
    first: ModelFolder,
    others: Vec<ModelFolder>,
    /// Of source and target; `None` where text comes in pieces.
    segmenters: Option<[Arc<Segmenter>; 2]>,
    /// Rules for plain text; `None` where it is taken as it is.
    tools: Option<TextTools>,
    paths: Vec<PathBuf>,
}

/// A side of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Text to translate.
    Source,
    /// Translations.
    Target,
}

impl Models {
    /// Loads a model folder, or several as an ensemble.
    pub fn load<P: AsRef<Path>>(paths: &[P], device: &Device) -> Result<Self> {
        let load = |path: &P| -> Result<_> {
            let path = path.as_ref().to_owned();
            Ok((load_folder(&path, device)?, path))
        };
        let loaded = paths.iter().map(load).collect::<Result<Vec<_>>>()?;
        let (mut folders, paths): (Vec<_>, Vec<_>) = loaded.into_iter().unzip();
        if folders.is_empty() {
            return Err(Error::NoModels);
        }
        let first = folders.remove(0);
        for (path, other) in paths[1..].iter().zip(&folders) {
            for (side, file, found, wanted) in [
                ("source", folder::SOURCE_DICT, &other.source, &first.source),
                ("target", folder::TARGET_DICT, &other.target, &first.target),
            ] {
                if let Some(difference) = dictionary_difference(found, wanted) {
                    let (first, path) = (paths[0].clone(), path.clone());
                    return Err(Error::Ensemble { first, path, side, file, difference });
                }
            }
        }
        let mut models = Self::from_folder(first, "")?;
        (models.others, models.paths) = (folders, paths);
        Ok(models)
    }

    /// A model that is in memory; `name` stands for its folder in messages.
    pub fn from_folder(first: ModelFolder, name: impl Into<PathBuf>) -> Result<Self> {
        let segmenters = first.codes.as_ref().map(Segmentation::segmenters);
        let tools = first.text.tools()?;
        Ok(Self { first, others: Vec::new(), segmenters, tools, paths: vec![name.into()] })
    }

    /// The models with their folders.
    pub fn named(&self) -> impl Iterator<Item = (&Path, &Translator)> {
        let folders = std::iter::once(&self.first).chain(&self.others);
        self.paths.iter().map(PathBuf::as_path).zip(folders.map(|folder| &folder.model))
    }

    /// The models.
    pub fn all(&self) -> Vec<&Translator> {
        self.named().map(|(_, model)| model).collect()
    }

    /// The first model.
    pub fn first(&self) -> &Translator {
        &self.first.model
    }

    /// The dictionary of a side.
    pub fn dictionary(&self, side: Side) -> &Arc<Vocab> {
        match side {
            Side::Source => &self.first.source,
            Side::Target => &self.first.target,
        }
    }

    /// Codes or tokeniser; `None` where text comes in pieces.
    pub fn codes(&self) -> Option<&Segmentation> {
        self.first.codes.as_ref()
    }

    /// Languages, and rules that plain text goes through first.
    pub fn record(&self) -> &TextRecord {
        &self.first.text
    }

    /// The rules for plain text, ready for use; `None` where it is taken as it is.
    pub fn tools(&self) -> Option<&TextTools> {
        self.tools.as_ref()
    }

    /// Tokens of the longest sentence that all models can read, end mark counted.
    pub fn positions(&self) -> usize {
        self.named().map(|(_, model)| model.config().max_positions).min().unwrap_or(0)
    }

    /// Checks that all models have the experts of a mode.
    pub fn check_experts(&self, mode: &ExpertMode) -> Result<()> {
        check_modes(mode, self.named().map(|(path, model)| (path.display().to_string(), model.config())))
    }

    /// Takes plain lines through the rules of the model folder; others stay as they are.
    pub fn tokens<S: AsRef<str> + Sync>(&self, side: Side, lines: &[S], form: TextForm) -> Vec<String> {
        let apply = |line: &S| match (self.tools.as_ref().filter(|_| form == TextForm::Lines), side) {
            (None, _) => line.as_ref().to_owned(),
            (Some(tools), Side::Source) => tools.source(line.as_ref()),
            (Some(tools), Side::Target) => tools.target(line.as_ref()),
        };
        lines.par_iter().with_min_len(64).map(apply).collect()
    }

    /// Cuts lines into pieces as the model folder says; pieces stay as they are.
    pub fn segment<S: AsRef<str> + Sync>(&self, side: Side, lines: &[S], form: TextForm) -> Vec<String> {
        let cut = |lines: &[S], segmenter: &Segmenter| match (&self.tools, form) {
            (Some(_), TextForm::Lines) => segmenter.segment_lines(&self.tokens(side, lines, form)),
            _ => segmenter.segment_lines(lines),
        };
        match &self.segmenters {
            Some(segmenters) if form != TextForm::Pieces => cut(lines, &segmenters[side as usize]),
            _ => self.tokens(side, lines, form),
        }
    }

    /// Encodes lines of a side, cut to the models' positions.
    pub fn encode<S: AsRef<str> + Sync>(&self, side: Side, lines: &[S], form: TextForm) -> Fitted {
        Fitted::encode(self.dictionary(side), &self.segment(side, lines, form), self.positions())
    }

    /// Encodes the beginnings of translations, without end marks. The counts are those of the lines.
    pub fn encode_prefixes<S: AsRef<str> + Sync>(
        &self,
        lines: &[S],
        form: TextForm,
    ) -> (Vec<Vec<u32>>, Fitted) {
        let fitted = self.encode(Side::Target, lines, form);
        let words = |i: usize| fitted.sentences.get(i).iter().copied().filter(|&id| id != EOS).collect();
        ((0..fitted.sentences.len()).map(words).collect(), fitted)
    }

    /// The text of a translation's token ids, in the form of its source: pieces are joined, and for plain lines tokens
    /// too.
    pub fn text(&self, ids: &[u32], form: TextForm) -> String {
        let tokens = text(&self.first.target, self.codes(), ids);
        match &self.tools {
            Some(tools) if form == TextForm::Lines => tools.plain(&tokens),
            _ => tokens,
        }
    }
}

fn load_folder(path: &Path, device: &Device) -> Result<ModelFolder> {
    let failed = |source| Error::Load { path: path.to_owned(), source };
    if folder::task(path)? == Task::LanguageModeling {
        return Err(Error::LanguageModel { path: path.to_owned() });
    }
    let device = folder::for_inference(device, path)?;
    ModelFolder::load(path, &device).map_err(failed)
}
