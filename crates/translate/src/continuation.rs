//! A language model goes on writing: several texts at once, a token at a time, with cached keys.

use mae_data::{BOS, EOS, PAD, UNK};
use mae_engine::Result;
use mae_engine::ops::decode::Room;
use mae_model::lm::LmState;
use mae_model::{ExpertMode, LanguageModel};

use crate::sampling::{Sampling, number_for};

/// How texts go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContinueOptions {
    /// New tokens at most.
    pub max_len: usize,
    /// Tokens are drawn within these bounds; without it each is the likeliest.
    pub sampling: Option<Sampling>,
    /// Log-probabilities are divided by this before a token is drawn.
    pub temperature: f32,
    /// Seed of the draws. What is drawn depends on it, on the prompt's place, and on the number of the continuation.
    pub seed: u64,
    /// Whether `<unk>` may be written.
    pub unknown: bool,
}

/// Where a text begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its tokens, without an end mark; may be empty.
    pub tokens: Vec<u32>,
    /// Its place in the input, for draws.
    pub place: u32,
    /// Which of several continuations of the prompt this is.
    pub rank: usize,
}

/// What a model wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Continuation {
    /// New tokens; the end mark, if the line ended, is the last.
    pub tokens: Vec<u32>,
    /// ln p of each, at temperature 1.
    pub log_probs: Vec<f32>,
}

/// A text being written.
struct Text<'a> {
    /// Which prompt.
    index: usize,
    prompt: &'a Prompt,
    found: Continuation,
}

impl Text<'_> {
    /// The token that is read at step `at`: first the end of the line before, then the prompt, then what was written.
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

/// Continues every prompt until its line ends, it has as many new tokens as wanted, or the model has no more positions. All
/// of them are computed together.
///
/// # Panics
///
/// If a prompt has as many tokens as the model has positions, so that there is none for a new token.
pub fn continue_texts(
    model: &LanguageModel,
    prompts: &[Prompt],
    options: &ContinueOptions,
    mode: &ExpertMode,
) -> Result<Vec<Continuation>> {
    let mut found = vec![Continuation::default(); prompts.len()];
    let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
    if prompts.is_empty() || options.max_len == 0 {
        return Ok(found);
    }
    let positions = model.config().max_positions;
    assert!(longest < positions, "a prompt of {longest} tokens, the model has {positions} positions");
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
                let (token, log_prob) = choose(
                    &all[row * types..(row + 1) * types],
                    text.prompt,
                    text.found.tokens.len(),
                    options,
                );
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
