//! Language models: scores of texts, and texts that are continued.

use std::path::Path;
use std::sync::Arc;

use mae_data::{BlockOptions, Blocks, BreakMode, EOS, Segmentation, Segmenter, TextDataset};
use mae_eval::perplexity::log_probs;
use mae_model::LmConfig;
use mae_model::folder::{Task, for_inference, task};
use mae_model::lm::LmFolder;
use mae_translate::{
    ContinueOptions, ExpertChoice, ExpertFault, Prompt, PromptRoom, continue_texts, lm_text,
};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::translation::Token;

/// A language model with what it needs to read and write text. It can be shared between threads as a
/// [`Translator`](crate::Translator) can.
///
/// ```
/// use mae::{ContinueOptions, Device, LanguageModel, ScoreOptions};
/// # let place = tempfile::tempdir().unwrap();
/// # let folder = place.path();
/// # let dictionary = std::sync::Arc::new(mae::data::Vocab::from_counts([("the", 2), ("history", 1)], Default::default()));
/// # let mut config = mae::model::LmConfig::arch("transformer_lm_tiny")?;
/// # (config.adaptive_softmax_cutoff, config.max_positions) = (vec![], 9);
/// # let model = mae::model::LanguageModel::new(&config, dictionary.len(), Device::cpu().engine(), 1)?;
/// # mae::model::lm::LmFolder { model, dictionary, codes: None }.save(folder)?;
///
/// let model = LanguageModel::load(folder, &Device::cpu())?;
/// let found = model.continue_text("the history", &ContinueOptions::default())?;
/// assert!(found.text.starts_with("the history"));
/// let scores = model.score(&["the history"], &ScoreOptions::default())?;
/// assert!(scores[0].log_prob() < 0.0);
/// # Ok::<(), mae::Error>(())
/// ```
pub struct LanguageModel {
    folder: LmFolder,
    segmenter: Option<Arc<Segmenter>>,
    device: Device,
}

/// Options of [`LanguageModel::score`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScoreOptions {
    /// Context that a line is read in (none).
    pub context: Context,
    /// Experts of a mixture that compute (all, weighted by the gates).
    pub experts: ExpertChoice,
    /// Seed of random experts (0).
    pub seed: u64,
}

/// Context in which the tokens of a line are scored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Context {
    /// The line alone; it must not be longer than the model's positions.
    #[default]
    Line,
    /// All lines as one text, in blocks of the model's positions. A block begins with this many tokens that
    /// were scored before.
    Text {
        /// Tokens that are read again; fewer than the model has positions.
        window: usize,
    },
}

/// A line that was scored.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredLine {
    /// Tokens with their log-probabilities, the end mark last.
    pub tokens: Vec<Token>,
    /// Tokens that the dictionary does not have.
    pub unknown: usize,
}

impl ScoredLine {
    /// Natural-log probability of the whole line.
    pub fn log_prob(&self) -> f64 {
        self.tokens.iter().map(|token| f64::from(token.log_prob)).sum()
    }
}

/// A text that a model continued.
#[derive(Clone, Debug, PartialEq)]
pub struct ContinuedText {
    /// The prompt and its continuation.
    pub text: String,
    /// The continuation alone.
    pub continuation: String,
    /// New tokens with their log-probabilities; the end mark, if the line ended, is the last.
    pub tokens: Vec<Token>,
    /// Reason of its end.
    pub end: End,
    /// Tokens of the prompt that the dictionary does not have.
    pub unknown: usize,
    /// Tokens at the prompt's beginning that were not read, because the model has no positions for them.
    pub cut: usize,
}

/// Reason why a continuation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended the line.
    Line,
    /// The continuation has as many tokens as allowed.
    Length,
}

impl LanguageModel {
    /// Loads a model folder.
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        let (path, _turn) = (path.as_ref(), device.turn());
        if task(path)? == Task::Translation {
            return Err(mae_translate::Error::TranslationModel { path: path.to_owned() }.into());
        }
        let engine = for_inference(device.engine(), path)?;
        let folder = LmFolder::load(path, &engine)
            .map_err(|source| mae_translate::Error::Load { path: path.to_owned(), source })?;
        Ok(Self::from_model(folder, device))
    }

    /// Takes a model that is in memory and lives on `device`.
    pub fn from_model(folder: LmFolder, device: &Device) -> Self {
        let segmenter = folder.codes.as_ref().map(Segmentation::segmenters).map(|[segmenter, _]| segmenter);
        Self { folder, segmenter, device: device.clone() }
    }

    /// Scores lines: the natural-log probabilities of their tokens.
    pub fn score<S: AsRef<str> + Sync>(
        &self,
        lines: &[S],
        options: &ScoreOptions,
    ) -> Result<Vec<ScoredLine>> {
        let LmFolder { model, dictionary, codes } = &self.folder;
        let named = |fault: ExpertFault| mae_translate::Error::Experts { model: "the model".into(), fault };
        options.experts.check(model.config()).map_err(named)?;
        let data = TextDataset::from_lines(lines, dictionary.clone(), codes.as_ref());
        let positions = model.config().max_positions;
        let (break_mode, context_window) = match options.context {
            Context::Line => (BreakMode::Eos, 0),
            Context::Text { window } => (BreakMode::None, window),
        };
        if break_mode == BreakMode::Eos
            && let Some(line) = (0..lines.len()).find(|&i| data.lines.size(i) > positions)
        {
            return Err(Error::LineTooLong { line, tokens: data.lines.size(line), positions });
        }
        let block = BlockOptions { tokens_per_sample: positions, context_window, break_mode };
        let blocks = Blocks::new(data.lines.clone(), block)?;
        let _turn = self.device.turn();
        let mode = options.experts.mode(options.seed);
        let found = log_probs(model, &blocks, MAX_TOKENS, &mode, |_| {})?;
        let mut rest = &found[..];
        let scored = |i: usize| {
            let ids = data.lines.get(i);
            let (own, after) = rest.split_at(ids.len());
            rest = after;
            let unknown = ids.iter().filter(|&&id| id == mae_data::UNK).count();
            ScoredLine { tokens: self.tokens(&ids, own), unknown }
        };
        Ok((0..lines.len()).map(scored).collect())
    }

    /// Continues a text until the model ends the line or it has `max_len` new tokens.
    pub fn continue_text(&self, prompt: &str, options: &ContinueOptions) -> Result<ContinuedText> {
        let mut found = self.continue_texts(&[prompt], 1, options)?;
        Ok(found.remove(0).remove(0))
    }

    /// Continues several texts, each `count` times; several continuations differ only where tokens are drawn.
    pub fn continue_texts<S: AsRef<str>>(
        &self,
        prompts: &[S],
        count: usize,
        options: &ContinueOptions,
    ) -> Result<Vec<Vec<ContinuedText>>> {
        let LmFolder { model, dictionary, codes } = &self.folder;
        let (side, positions) = ((&**dictionary, self.segmenter.as_deref()), model.config().max_positions);
        let readings = PromptRoom::Rest(options.max_len).read(prompts, side, positions);
        let several = |prompt: &Prompt| (0..count).map(|rank| Prompt { rank, ..prompt.clone() }).collect();
        let all: Vec<Prompt> =
            readings.iter().flat_map(|reading| -> Vec<_> { several(&reading.prompt) }).collect();
        let _turn = self.device.turn();
        let mut found = Vec::with_capacity(all.len());
        for together in all.chunks(TOGETHER) {
            found.extend(continue_texts(model, together, options, &ExpertChoice::Mix.mode(options.seed))?);
        }
        let join = |tokens: &[u32]| lm_text(dictionary, codes.as_ref(), tokens);
        let mut found = found.into_iter();
        let of_prompt = |reading: &mae_translate::Reading| {
            let read = [&reading.before[..], &reading.prompt.tokens].concat();
            let before = join(&read);
            let continued = |found: mae_translate::Continuation| {
                let text = join(&[&read[..], &found.tokens].concat());
                let continuation =
                    text.strip_prefix(&before).map_or_else(|| join(&found.tokens), str::to_owned);
                let end = if found.tokens.last() == Some(&EOS) { End::Line } else { End::Length };
                ContinuedText {
                    text,
                    continuation,
                    tokens: self.tokens(&found.tokens, &found.log_probs),
                    end,
                    unknown: reading.unknown,
                    cut: reading.before.len(),
                }
            };
            found.by_ref().take(count).map(continued).collect()
        };
        Ok(readings.iter().map(of_prompt).collect())
    }

    /// Sizes and choices of the model.
    pub fn config(&self) -> &LmConfig {
        self.folder.model.config()
    }

    /// The device it computes on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn folder(&self) -> &LmFolder {
        &self.folder
    }

    pub(crate) fn segmenter(&self) -> Option<&Segmenter> {
        self.segmenter.as_deref()
    }

    fn tokens(&self, ids: &[u32], log_probs: &[f32]) -> Vec<Token> {
        let piece = |id: u32| self.folder.dictionary.symbol(id).to_owned();
        ids.iter().zip(log_probs).map(|(&id, &log_prob)| Token { piece: piece(id), log_prob }).collect()
    }
}

/// Tokens at most in a batch of scored text.
const MAX_TOKENS: u32 = 4096;

/// Texts that are continued together.
const TOGETHER: usize = 32;
