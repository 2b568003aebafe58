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

/// A text being written.
struct Text<'a> {
    /// Number of the prompt.
    index: usize,
    prompt: &'a Prompt,
    found: Continuation,
}

impl Text<'_> {
    /// The token that is read at step `at`: first the end of the line before, then the prompt, then what was
    /// written.
    fn token(&self, at: usize) -> u32 {
        match at.checked_sub(1) {
            None => EOS,
            Some(i) => match self.prompt.tokens.get(i) {
                Some(&token) => token,
                None => self.found.tokens[i - self.prompt.tokens.len()],
            },
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
    let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
    if prompts.is_empty() || options.max_len == 0 {
        return Ok(found);
    }
    let positions = model.config().max_positions;
    if longest >= positions {
        return Err(Error::Prompt { tokens: longest, positions });
    }
    let room = Room { rows: prompts.len(), steps: positions.min(longest + options.max_len) };
    let mut state: LmState = model.state(room);
    model.start(&mut state, prompts.len());
    let begin = |(index, prompt)| Text { index, prompt, found: Continuation::default() };
    let mut texts: Vec<Text<'_>> = prompts.iter().enumerate().map(begin).collect();
    while !texts.is_empty() {
        let at = state.steps();
        let tokens: Vec<u32> = texts.iter().map(|text| text.token(at)).collect();
        let logits = model.step(&mut state, &tokens, mode)?;
        if texts.iter().all(|text| at < text.prompt.tokens.len()) {
            continue;
        }
        let (all, types) = (logits.to_host(), logits.cols());
        let (mut alive, mut going_on) = (Vec::new(), Vec::new());
        for (row, mut text) in texts.into_iter().enumerate() {
            let mut ended = false;
            if at >= text.prompt.tokens.len() {
                let logits = &all[row * types..(row + 1) * types];
                let step = text.found.tokens.len();
                let (token, log_prob) = choose(logits, text.prompt, step, options);
                if log_prob.is_nan() {
                    return Err(Error::NotFinite { unit: "prompt", number: text.prompt.place as usize });
                }
                text.found.tokens.push(token);
                text.found.log_probs.push(log_prob);
                let full = text.found.tokens.len() == options.max_len || at + 1 == room.steps;
                ended = token == EOS || full;
            }
            if ended {
                found[text.index] = text.found;
            } else {
                alive.push(row as u32);
                going_on.push(text);
            }
        }
        if going_on.len() < tokens.len() && !going_on.is_empty() {
            model.reorder(&mut state, &alive);
        }
        texts = going_on;
    }
    Ok(found)
}

/// The next token and its ln p.
fn choose(logits: &[f32], prompt: &Prompt, step: usize, options: &ContinueOptions) -> (u32, f32) {
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
    (token, scores[token as usize])
}
