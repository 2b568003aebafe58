//! A slow search that is written down from fairseq's rules, one full pass per hypothesis and step.

use mae_data::{EOS, PAD, UNK};
use mae_model::{ExpertMode, Translator};
use mae_translate::{Choice, Hypothesis, SearchOptions};

use super::{full_pass_with, log_softmax};

const NEVER: f64 = f64::NEG_INFINITY;

pub struct Found {
    pub tokens: Vec<u32>,
    pub positional: Vec<f64>,
    pub score: f64,
}

/// fairseq v0.9's `SequenceGenerator._generate` for one sentence, step by step as it is written there.
pub struct SlowSearch<'a> {
    pub models: Vec<&'a Translator>,
    pub options: SearchOptions,
    pub prefix: Vec<u32>,
    pub mode: ExpertMode,
}

/// A hypothesis: its tokens after the end mark at the front, and its score after each.
type Beam = (Vec<u32>, Vec<f64>);
/// A continuation: score, beam, token.
type Next = (f64, usize, u32);

impl<'a> SlowSearch<'a> {
    pub fn new(models: &[&'a Translator], options: &SearchOptions) -> Self {
        let (models, options) = (models.to_vec(), options.clone());
        Self { models, options, prefix: Vec::new(), mode: ExpertMode::Mix }
    }

    pub fn run(&self, source: &[u32]) -> Vec<Found> {
        let options = &self.options;
        let limit = ((options.max_len_a * source.len() as f32) as usize + options.max_len_b)
            .min(self.models[0].config().max_positions - 1);
        let mut beams: Vec<Beam> = vec![(vec![EOS], vec![])];
        let mut finalised: Vec<Found> = Vec::new();
        for step in 0..=limit {
            let each: Vec<Vec<f64>> =
                beams.iter().map(|(tokens, _)| self.lprobs(source, tokens, step, limit)).collect();
            let candidates = match options.choice {
                Choice::Diverse { groups, strength } => {
                    diverse(&beams, &each, groups, f64::from(strength), options.beam)
                }
                _ => top(&beams, &each, &(0..beams.len()).collect::<Vec<_>>(), 2 * options.beam, |_| 0.0),
            };
            let extend = |&(score, b, token): &Next| {
                let (mut tokens, mut cumulative) = beams[b].clone();
                tokens.push(token);
                cumulative.push(score);
                (tokens, cumulative)
            };
            for candidate in candidates.iter().take(options.beam).filter(|c| c.2 == EOS) {
                let (tokens, cumulative) = extend(candidate);
                if finalised.len() < options.beam {
                    let length = (tokens.len() - 1) as f64;
                    let norm = if options.normalise { length.powf(f64::from(options.lenpen)) } else { 1.0 };
                    let mut positional = cumulative.clone();
                    (1..positional.len()).rev().for_each(|i| positional[i] -= cumulative[i - 1]);
                    let score = candidate.0 / norm;
                    finalised.push(Found { tokens: tokens[1..].to_vec(), positional, score });
                }
            }
            if finalised.len() == options.beam || step == limit {
                break;
            }
            beams = candidates.iter().filter(|c| c.2 != EOS).take(options.beam).map(extend).collect();
        }
        finalised.sort_by(|a, b| b.score.total_cmp(&a.score));
        finalised.truncate(options.nbest);
        finalised
    }

    /// What may follow: the mean of the models' probabilities, with everything forbidden at −∞.
    fn lprobs(&self, source: &[u32], tokens: &[u32], step: usize, limit: usize) -> Vec<f64> {
        let options = &self.options;
        let of_model = |model: &&Translator| {
            let logits = full_pass_with(model, source, tokens, &self.mode);
            let tempered: Vec<f32> =
                logits.last().unwrap().iter().map(|logit| logit / options.temperature).collect();
            log_softmax(&tempered)
        };
        let all: Vec<Vec<f64>> = self.models.iter().map(of_model).collect();
        let mean = |token: usize| {
            (all.iter().map(|lprobs| lprobs[token].exp()).sum::<f64>() / all.len() as f64).ln()
        };
        let mut lprobs: Vec<f64> = (0..all[0].len()).map(mean).collect();
        lprobs[PAD as usize] = NEVER;
        lprobs[UNK as usize] -= f64::from(options.unkpen);
        let only = |lprobs: &mut Vec<f64>, kept: u32| {
            for (token, lprob) in lprobs.iter_mut().enumerate() {
                if token as u32 != kept {
                    *lprob = NEVER;
                }
            }
        };
        if step >= limit {
            only(&mut lprobs, EOS);
        } else if step < self.prefix.len() {
            only(&mut lprobs, self.prefix[step]);
        } else {
            if step < options.min_len {
                lprobs[EOS as usize] = NEVER;
            }
            let (n, words) = (options.no_repeat_ngram_size, &tokens[1..]);
            for token in 0..lprobs.len() as u32 {
                let mut longer = words.to_vec();
                longer.push(token);
                let repeats = n > 0
                    && token != EOS
                    && longer.len() >= n
                    && words.windows(n).any(|seen| *seen == longer[longer.len() - n..]);
                if repeats {
                    lprobs[token as usize] = NEVER;
                }
            }
        }
        lprobs
    }
}

/// The best continuations of some beams.
fn top(
    beams: &[Beam],
    lprobs: &[Vec<f64>],
    of: &[usize],
    count: usize,
    cost: impl Fn(u32) -> f64,
) -> Vec<Next> {
    let mut all = Vec::new();
    for &b in of {
        let before = beams[b].1.last().copied().unwrap_or(0.0);
        let scored = lprobs[b].iter().enumerate();
        all.extend(scored.map(|(token, p)| (before + p - cost(token as u32), b, token as u32)));
    }
    all.retain(|(score, _, _)| score.is_finite());
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.truncate(count);
    all
}

/// `DiverseBeamSearch.step`: beams g, g + groups, … are group g; its results are interleaved with the others'.
fn diverse(beams: &[Beam], lprobs: &[Vec<f64>], groups: usize, strength: f64, beam: usize) -> Vec<Next> {
    let mut diversity = vec![0.0; lprobs[0].len()];
    let mut results: Vec<Vec<Next>> = Vec::new();
    for g in 0..groups {
        // At the first step all beams are the same.
        let members: Vec<usize> =
            if beams.len() == 1 { vec![0] } else { (g..beams.len()).step_by(groups).collect() };
        let found =
            top(beams, lprobs, &members, 2 * beam / groups, |token| strength * diversity[token as usize]);
        found.iter().for_each(|next| diversity[next.2 as usize] += 1.0);
        results.push(found);
    }
    (0..2 * beam / groups)
        .flat_map(|rank| results.iter().filter_map(move |found| found.get(rank).copied()))
        .collect()
}

pub fn assert_same(what: &str, got: &[Hypothesis], want: &[Found]) {
    assert_eq!(got.len(), want.len(), "{what}: number of hypotheses");
    for (rank, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.tokens, want.tokens, "{what}: tokens of hypothesis {rank}");
        let close = |a: f32, b: f64| (f64::from(a) - b).abs() < 1e-4;
        assert!(close(got.score, want.score), "{what}: score {rank} is {}, not {}", got.score, want.score);
        assert_eq!(got.positional.len(), want.positional.len());
        for (a, b) in got.positional.iter().zip(&want.positional) {
            assert!(close(*a, *b), "{what}: positional score {a}, not {b}");
        }
    }
}
