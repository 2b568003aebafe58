//! Texts that a language model continues: several at once, a token at a time, with cached keys.

use mae_data::{BOS, EOS, PAD, UNK};
use mae_engine::ops::decode::Room;
use mae_model::lm::LmState;
use mae_model::{ExpertMode, LanguageModel};

use crate::error::{Error, Result};
use crate::options::InvalidOptions;
use crate::sampling::{Sampling, number_for};

/// Options of continuing texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContinueOptions {
    /// Greatest number of new tokens (50).
    pub max_len: usize,
    /// Tokens are drawn within these bounds; without it each is the likeliest (none).
    pub sampling: Option<Sampling>,
    /// Divisor of log-probabilities before a token is drawn (1).
    pub temperature: f32,
    /// Seed of the draws (1). A draw depends on it, on the prompt's place, and on the number of the
    /// continuation.
    pub seed: u64,
    /// Allows `<unk>` (true).
    pub unknown: bool,
}

impl Default for ContinueOptions {
    fn default() -> Self {
        Self { max_len: 50, sampling: None, temperature: 1.0, seed: 1, unknown: true }
    }
}

impl ContinueOptions {
    /// Checks the options; the error lists all faults.
    pub fn check(&self) -> std::result::Result<(), InvalidOptions> {
        let mut faults = Vec::new();
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            faults.push(format!("temperature = {} must be a finite number above 0", self.temperature));
        }
        if let Some(sampling) = self.sampling {
            faults.extend(sampling.faults());
        }
        InvalidOptions::none_of(faults)
    }
}

/// Beginning of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its tokens, without an end mark; may be empty.
    pub tokens: Vec<u32>,
    /// Its place in the input, for draws.
    pub place: u32,
    /// Number of this continuation among several of the prompt.
    pub rank: usize,
}

/// Text that a model wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Continuation {
    /// New tokens; the end mark, if the line ended, is the last.
    pub tokens: Vec<u32>,
    /// ln p of each, at temperature 1.
    pub log_probs: Vec<f32>,
}

/// A token that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Number of the prompt.
    pub index: usize,
    /// The token.
    pub token: u32,
    /// Its ln p at temperature 1.
    pub log_prob: f32,
    /// The likeliest tokens with their ln p, falling; as many as were asked for.
    pub likeliest: Vec<(u32, f32)>,
    /// Whether the text goes on.
    pub going_on: bool,
}

/// A prompt with options of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The prompt.
    pub prompt: Prompt,
    /// Options.
    pub options: ContinueOptions,
    /// Number of the likeliest tokens to report at each step (0).
    pub likeliest: usize,
}

/// Texts being continued: one token each per step, all of them computed together. A result does not depend on the
/// other texts.
pub struct Continuing {
    state: LmState,
    texts: Vec<Text>,
    steps: usize,
    mode: ExpertMode,
}

/// A text being written.
struct Text {
    /// Number of the prompt.
    index: usize,
    task: Task,
    tokens: Vec<u32>,
}

impl Text {
    /// The token that is read at step `at`: first the end of the line before, then the prompt, then what was
    /// written.
    fn token(&self, at: usize) -> u32 {
        match at.checked_sub(1) {
            None => EOS,
            Some(i) => match self.task.prompt.tokens.get(i) {
                Some(&token) => token,
                None => self.tokens[i - self.task.prompt.tokens.len()],
            },
        }
    }
}

impl Continuing {
    /// Begins texts.
    ///
    /// Fails for options that [`ContinueOptions::check`] refuses, and for a prompt that leaves no position for
    /// a new token.
    pub fn new(model: &LanguageModel, tasks: Vec<Task>, mode: &ExpertMode) -> Result<Self> {
        tasks.iter().try_for_each(|task| task.options.check())?;
        let positions = model.config().max_positions;
        let longest = tasks.iter().map(|task| task.prompt.tokens.len()).max().unwrap_or(0);
        if longest >= positions {
            return Err(Error::Prompt { tokens: longest, positions });
        }
        let need = |task: &Task| task.prompt.tokens.len() + task.options.max_len;
        let steps = positions.min(tasks.iter().map(need).max().unwrap_or(0));
        let mut state: LmState = model.state(Room { rows: tasks.len(), steps });
        let begin = |(index, task)| Text { index, task, tokens: Vec::new() };
        let texts: Vec<Text> = tasks.into_iter().enumerate().map(begin).collect();
        let texts: Vec<Text> = texts.into_iter().filter(|text| text.task.options.max_len > 0).collect();
        model.start(&mut state, texts.len());
        Ok(Self { state, texts, steps, mode: mode.clone() })
    }

    /// Returns true if no text goes on.
    pub fn is_done(&self) -> bool {
        self.texts.is_empty()
    }

    /// Reads one token of every text; returns the tokens that were written. While a prompt is read, nothing is
    /// written to its text.
    ///
    /// Fails where the model's outputs are not numbers.
    pub fn step(&mut self, model: &LanguageModel) -> Result<Vec<Written>> {
        if self.texts.is_empty() {
            return Ok(Vec::new());
        }
        let at = self.state.steps();
        let tokens: Vec<u32> = self.texts.iter().map(|text| text.token(at)).collect();
        let logits = model.step(&mut self.state, &tokens, &self.mode)?;
        if self.texts.iter().all(|text| at < text.task.prompt.tokens.len()) {
            return Ok(Vec::new());
        }
        let (all, types) = (logits.to_host(), logits.cols());
        let mut written = Vec::new();
        for (row, text) in self.texts.iter_mut().enumerate() {
            let Task { prompt, options, likeliest } = &text.task;
            if at < prompt.tokens.len() {
                continue;
            }
            let logits = &all[row * types..(row + 1) * types];
            let (token, scores) = choose(logits, prompt, text.tokens.len(), options);
            let log_prob = scores[token as usize];
            if log_prob.is_nan() {
                return Err(Error::NotFinite { unit: "prompt", number: prompt.place as usize });
            }
            text.tokens.push(token);
            let full = text.tokens.len() == options.max_len || at + 1 == self.steps;
            let likeliest = best(&scores, *likeliest);
            written.push(Written {
                index: text.index,
                token,
                log_prob,
                likeliest,
                going_on: token != EOS && !full,
            });
        }
        let ended: Vec<usize> = written.iter().filter(|w| !w.going_on).map(|w| w.index).collect();
        self.remove(model, &ended);
        Ok(written)
    }

    /// Ends the texts of these prompts.
    pub fn remove(&mut self, model: &LanguageModel, indices: &[usize]) {
        let before = self.texts.len();
        let rows = self.texts.iter().enumerate().filter(|(_, text)| !indices.contains(&text.index));
        let alive: Vec<u32> = rows.map(|(row, _)| row as u32).collect();
        self.texts.retain(|text| !indices.contains(&text.index));
        if !alive.is_empty() && alive.len() < before {
            model.reorder(&mut self.state, &alive);
        }
    }
}

/// Continues every prompt until its line ends, it has `max_len` new tokens, or the model has no more
/// positions. All of them are computed together.
///
/// Fails for options that [`ContinueOptions::check`] refuses, for a prompt that leaves no position for a new
/// token, and where the model's outputs are not numbers.
pub fn continue_texts(
    model: &LanguageModel,
    prompts: &[Prompt],
    options: &ContinueOptions,
    mode: &ExpertMode,
) -> Result<Vec<Continuation>> {
    options.check()?;
    let mut found = vec![Continuation::default(); prompts.len()];
    if prompts.is_empty() || options.max_len == 0 {
        return Ok(found);
    }
    let task = |prompt: &Prompt| Task { prompt: prompt.clone(), options: *options, likeliest: 0 };
    let mut texts = Continuing::new(model, prompts.iter().map(task).collect(), mode)?;
    while !texts.is_done() {
        for written in texts.step(model)? {
            let Continuation { tokens, log_probs } = &mut found[written.index];
            tokens.push(written.token);
            log_probs.push(written.log_prob);
        }
    }
    Ok(found)
}

/// The `count` likeliest tokens with their ln p, falling.
fn best(scores: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut best: Vec<(u32, f32)> = Vec::with_capacity(count + 1);
    for (token, &score) in scores.iter().enumerate().filter(|(_, score)| score.is_finite()) {
        if best.len() == count && best.last().is_none_or(|&(_, last)| score <= last) {
            continue;
        }
        let at = best.partition_point(|&(_, other)| other >= score);
        best.insert(at, (token as u32, score));
        best.truncate(count);
    }
    best
}

/// The next token, and ln p of all.
fn choose(logits: &[f32], prompt: &Prompt, step: usize, options: &ContinueOptions) -> (u32, Vec<f32>) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
    let log_sum = f64::from(most) + sum.ln();
    let may_come = |token: u32| token != PAD && token != BOS && (options.unknown || token != UNK);
    let mut scores: Vec<f32> = logits.iter().map(|&x| (f64::from(x) - log_sum) as f32).collect();
    for token in (0..scores.len().min(4) as u32).filter(|&token| !may_come(token)) {
        scores[token as usize] = f32::NEG_INFINITY;
    }
    let drawn = options.sampling.and_then(|sampling| {
        let tempered: Vec<f32> = scores.iter().map(|score| score / options.temperature).collect();
        sampling.draw(&tempered, number_for(options.seed, prompt.place, step, prompt.rank))
    });
    let likeliest = || {
        let better = |best: usize, token: usize| if scores[token] > scores[best] { token } else { best };
        (0..scores.len()).fold(EOS as usize, better) as u32
    };
    let token = drawn.unwrap_or_else(likeliest);
    (token, scores)
}
