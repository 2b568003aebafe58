//! Texts that a language model continues token by token.

use mae_data::EOS;
use mae_model::ExpertMode;
use mae_model::lm::LmFolder;
use mae_translate::{ContinueOptions, Continuing, Prompt, PromptRoom, Reading, Task, lm_text};

use crate::error::Result;
use crate::language_model::{End, LanguageModel};
use crate::translation::Token;

/// A text to continue, with options of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Beginning {
    /// The prompt.
    pub prompt: String,
    /// Options.
    pub options: ContinueOptions,
    /// Number of this continuation among several of the prompt; decides draws with the seed.
    pub rank: usize,
    /// Number of the likeliest tokens to report with each token.
    pub likeliest: usize,
}

/// Texts being written: one token each per step. The result for a text does not depend on the others.
///
/// ```
/// use mae::{Beginning, ContinueOptions, Device, LanguageModel};
/// # let place = tempfile::tempdir().unwrap();
/// # let folder = place.path();
/// # let dictionary = std::sync::Arc::new(mae::data::Vocab::from_counts([("the", 2), ("history", 1)], Default::default()));
/// # let mut config = mae::model::LmConfig::arch("transformer_lm_tiny")?;
/// # (config.adaptive_softmax_cutoff, config.max_positions) = (vec![], 9);
/// # let model = mae::model::LanguageModel::new(&config, dictionary.len(), Device::cpu().engine(), 1)?;
/// # mae::model::lm::LmFolder { model, dictionary, codes: None }.save(folder)?;
///
/// let model = LanguageModel::load(folder, &Device::cpu())?;
/// let options = ContinueOptions::default();
/// let beginning = Beginning { prompt: "the history".into(), options, rank: 0, likeliest: 0 };
/// let mut writing = model.begin(vec![beginning])?;
/// while !writing.is_done() {
///     for written in writing.step(&model)? {
///         println!("{}", written.text);
///     }
/// }
/// # Ok::<(), mae::Error>(())
/// ```
pub struct Writing {
    texts: Continuing,
    readings: Vec<Reading>,
    /// Tokens that were written, for each text.
    tokens: Vec<Vec<u32>>,
}

/// A token that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenToken {
    /// Number of the text.
    pub index: usize,
    /// The token.
    pub token: Token,
    /// The likeliest tokens at this place, falling; as many as were asked for.
    pub likeliest: Vec<Token>,
    /// The whole continuation so far. The end of one that goes on may change with the next token.
    pub text: String,
    /// Reason of the end, with the last token.
    pub end: Option<End>,
}

/// Counts of a prompt's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptCounts {
    /// Tokens that are read.
    pub read: usize,
    /// Tokens at its beginning that are not read, because the model has no positions for them.
    pub cut: usize,
    /// Tokens that the dictionary does not have.
    pub unknown: usize,
}

impl LanguageModel {
    /// Begins texts that are continued together.
    pub fn begin(&self, texts: Vec<Beginning>) -> Result<Writing> {
        let LmFolder { model, dictionary, .. } = self.folder();
        let positions = model.config().max_positions;
        let side = (&**dictionary, self.segmenter());
        let (mut readings, mut tasks) = (Vec::new(), Vec::new());
        for text in texts {
            let reading =
                PromptRoom::Rest(text.options.max_len).read(&[&text.prompt], side, positions).remove(0);
            let prompt = Prompt { rank: text.rank, ..reading.prompt.clone() };
            tasks.push(Task { prompt, options: text.options, likeliest: text.likeliest });
            readings.push(reading);
        }
        let tokens = vec![Vec::new(); readings.len()];
        let _turn = self.device().turn();
        Ok(Writing { texts: Continuing::new(model, tasks, &ExpertMode::Mix)?, readings, tokens })
    }
}

impl Writing {
    /// Returns true if no text goes on.
    pub fn is_done(&self) -> bool {
        self.texts.is_done()
    }

    /// Reads one token of every text with the model that began them; returns the tokens that were written. While a
    /// prompt is read, nothing is written to its text.
    pub fn step(&mut self, model: &LanguageModel) -> Result<Vec<WrittenToken>> {
        let _turn = model.device().turn();
        let LmFolder { model: network, dictionary, codes } = model.folder();
        let named = |(id, log_prob): (u32, f32)| Token { piece: dictionary.symbol(id).to_owned(), log_prob };
        let join = |tokens: &[u32]| lm_text(dictionary, codes.as_ref(), tokens);
        let written = |written: mae_translate::Written| {
            let (reading, own) = (&self.readings[written.index], &mut self.tokens[written.index]);
            own.push(written.token);
            let read = [&reading.before[..], &reading.prompt.tokens].concat();
            let text = join(&[&read[..], own].concat());
            let end = if written.token == EOS { End::Line } else { End::Length };
            WrittenToken {
                index: written.index,
                token: named((written.token, written.log_prob)),
                likeliest: written.likeliest.into_iter().map(named).collect(),
                text: text.strip_prefix(&join(&read)).map_or_else(|| join(own), str::to_owned),
                end: (!written.going_on).then_some(end),
            }
        };
        Ok(self.texts.step(network)?.into_iter().map(written).collect())
    }

    /// Ends a text.
    pub fn remove(&mut self, model: &LanguageModel, index: usize) {
        let _turn = model.device().turn();
        self.texts.remove(&model.folder().model, &[index]);
    }

    /// Counts of a text's prompt.
    pub fn counts(&self, index: usize) -> PromptCounts {
        let reading = &self.readings[index];
        PromptCounts {
            read: reading.prompt.tokens.len(),
            cut: reading.before.len(),
            unknown: reading.unknown,
        }
    }
}
