//! Continuations that need more than the device's best ones: forced prefixes, no repetitions, groups of
//! beams, sampling. All of it works on rows of log-probabilities on the host.

use std::collections::HashMap;

use mae_data::{EOS, PAD, UNK};
use mae_engine::ops::decode::Candidate;
use rayon::prelude::*;

use crate::hypothesis::Live;
use crate::options::{Choice, SearchOptions};
use crate::sampling::{Sampling, number_for};
use crate::sentence::Sentence;

/// The candidates of each sentence, in the order in which they count. A sentence comes with the row of its first
/// hypothesis in the batch; `rows` are the log-probabilities of all their hypotheses, `[R, types]`.
pub(crate) fn choose(
    mut rows: Vec<f32>,
    types: usize,
    sentences: &[(&Sentence, usize)],
) -> Vec<Vec<Candidate>> {
    let mut rest = &mut rows[..];
    let mut each = Vec::with_capacity(sentences.len());
    for &(sentence, first_row) in sentences {
        let (own, others) = rest.split_at_mut(sentence.live.len() * types);
        each.push((sentence, first_row, own));
        rest = others;
    }
    let chosen = each.into_par_iter().map(|(sentence, first_row, rows)| {
        for (live, row) in sentence.live.iter().zip(rows.chunks_exact_mut(types)) {
            constrain(row, live, sentence);
        }
        let (options, rows) = (&sentence.options, SentenceRows { sentence, first_row, rows, types });
        match options.choice {
            Choice::Best => best(&rows.all(), 2 * options.beam, |_| 0.0),
            Choice::Diverse { groups, strength } => rows.by_groups(groups, strength, options.beam),
            Choice::Sample(sampling) => rows.sampled(sampling, options),
        }
    });
    chosen.collect()
}

/// Makes tokens that must not follow a hypothesis impossible.
fn constrain(row: &mut [f32], live: &Live, sentence: &Sentence) {
    let (step, options) = (sentence.step, &sentence.options);
    row[UNK as usize] -= options.unkpen;
    if step >= sentence.max_len {
        return keep_only(row, EOS);
    }
    if let Some(&forced) = sentence.prefix.get(step) {
        return keep_only(row, forced);
    }
    let end = row[EOS as usize];
    row[PAD as usize] = f32::NEG_INFINITY;
    if step < options.min_len {
        row[EOS as usize] = f32::NEG_INFINITY;
    }
    let (mut repeats, n) = (false, options.no_repeat_ngram_size);
    let tokens = if n > 0 { sentence.history.tokens(live) } else { Vec::new() };
    for token in repeating(&tokens, n) {
        row[token as usize] = f32::NEG_INFINITY;
        repeats = true;
    }
    // Too short to end, but everything else is forbidden: better an end than nothing.
    if repeats && !row.iter().any(|p| p.is_finite()) {
        row[EOS as usize] = end;
    }
}

fn keep_only(row: &mut [f32], token: u32) {
    let kept = row[token as usize];
    row.fill(f32::NEG_INFINITY);
    row[token as usize] = kept;
}

/// The tokens that would repeat a sequence of `n` tokens.
fn repeating(tokens: &[u32], n: usize) -> impl Iterator<Item = u32> {
    // Where nothing can be repeated yet, there are no windows to look at.
    let context = if n > 0 { tokens.len().checked_sub(n - 1) } else { None };
    let (known, context) = context.map_or((&[][..], &[][..]), |at| (tokens, &tokens[at..]));
    known.windows(n.max(1)).filter(move |seen| seen[..n - 1] == *context).map(move |seen| seen[n - 1])
}

/// A sentence's hypotheses with what may follow them.
struct SentenceRows<'a> {
    sentence: &'a Sentence,
    /// The row of its first hypothesis in the batch.
    first_row: usize,
    rows: &'a [f32],
    types: usize,
}

/// A hypothesis: its row in the batch, its cumulative log-probability, the log-probabilities of what may
/// follow.
type Row<'a> = (u32, f32, &'a [f32]);

impl<'a> SentenceRows<'a> {
    fn row(&self, index: usize) -> Row<'a> {
        let row = (self.first_row + index) as u32;
        (row, self.sentence.live[index].cumulative, &self.rows[index * self.types..(index + 1) * self.types])
    }

    fn all(&self) -> Vec<Row<'a>> {
        (0..self.sentence.live.len()).map(|index| self.row(index)).collect()
    }

    /// Returns true at the first free choice: there is one hypothesis, which the whole beam comes from.
    fn is_first(&self) -> bool {
        self.sentence.step == self.sentence.forced()
    }

    /// fairseq's `DiverseBeamSearch`: hypothesis i is in group i modulo `groups`; candidates of the groups
    /// take turns.
    fn by_groups(&self, groups: usize, strength: f32, beam: usize) -> Vec<Candidate> {
        if self.sentence.step < self.sentence.forced() {
            return best(&self.all(), 1, |_| 0.0);
        }
        let mut taken: HashMap<u32, f32> = HashMap::new();
        let mut found = Vec::with_capacity(groups);
        for group in 0..groups {
            let members = (0..self.sentence.live.len()).skip(group).step_by(groups);
            let rows =
                if self.is_first() { self.all() } else { members.map(|index| self.row(index)).collect() };
            let candidates =
                best(&rows, 2 * beam / groups, |token| strength * taken.get(&token).copied().unwrap_or(0.0));
            candidates.iter().for_each(|candidate| *taken.entry(candidate.token).or_default() += 1.0);
            found.push(candidates);
        }
        let in_turn = |rank: usize| found.iter().filter_map(move |candidates| candidates.get(rank).copied());
        (0..2 * beam / groups).flat_map(in_turn).collect()
    }

    /// One continuation per hypothesis; at first as many as the beam is wide. A draw depends on the seed, the
    /// sentence's place in the input, the step and the hypothesis' rank.
    fn sampled(&self, sampling: Sampling, options: &SearchOptions) -> Vec<Candidate> {
        let draws = if self.is_first() { options.beam } else { self.sentence.live.len() };
        let draw = |i: usize| {
            let (row, score, log_probs) = self.row(if self.is_first() { 0 } else { i });
            let number = number_for(options.seed, self.sentence.line, self.sentence.step, i);
            let token = sampling.draw(log_probs, number)?;
            Some(Candidate { score: score + log_probs[token as usize], row, token })
        };
        (0..draws).filter_map(draw).collect()
    }
}

/// The `count` best continuations of `rows`, after `cost` is taken off; possible ones only.
fn best(rows: &[Row<'_>], count: usize, cost: impl Fn(u32) -> f32) -> Vec<Candidate> {
    let mut best: Vec<Candidate> = Vec::with_capacity(count + 1);
    for &(row, score, log_probs) in rows {
        let mut bar = if best.len() < count { f32::NEG_INFINITY } else { best[count - 1].score };
        for (token, log_prob) in log_probs.iter().enumerate() {
            // Costs only lower a score, so most tokens need one comparison.
            let value = score + log_prob;
            if !value.is_finite() || value < bar {
                continue;
            }
            let token = token as u32;
            let candidate = Candidate { score: value - cost(token), row, token };
            let at = best.partition_point(|other| other.order(&candidate).is_lt());
            best.insert(at, candidate);
            best.truncate(count);
            if best.len() == count {
                bar = best[count - 1].score;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use mae_engine::Rng;

    use super::*;

    fn repeats(tokens: &[u32], n: usize) -> Vec<u32> {
        repeating(tokens, n).collect()
    }

    #[test]
    fn tokens_that_complete_a_known_sequence_repeat_it() {
        let tokens = [7, 8, 9, 7, 8];
        assert!(repeats(&tokens, 0).is_empty());
        assert_eq!(repeats(&tokens, 1), tokens);
        assert_eq!(repeats(&tokens, 2), [9]);
        assert_eq!(repeats(&tokens, 3), [9]);
        assert!(repeats(&tokens, 4).is_empty());
        assert_eq!(repeats(&[5, 5, 5], 3), [5]);
        for n in 0..5 {
            assert!(repeats(&[], n).is_empty());
            assert!(n == 1 || repeats(&[5], n).is_empty());
        }
    }

    #[test]
    fn the_best_after_costs_are_those_of_a_sort() {
        let stream = Rng::new(4, 0).stream(0);
        let values: Vec<f32> = (0..3 * 50).map(|i| stream.normal(i, 0)).collect();
        let rows: Vec<Row<'_>> =
            values.chunks_exact(50).enumerate().map(|(i, row)| (i as u32, -(i as f32) / 2.0, row)).collect();
        let cost = |token: u32| if token.is_multiple_of(3) { 0.8 } else { 0.0 };
        let mut all: Vec<Candidate> = Vec::new();
        for (row, score, values) in &rows {
            all.extend(values.iter().enumerate().map(|(token, value)| Candidate {
                score: score + value - cost(token as u32),
                row: *row,
                token: token as u32,
            }));
        }
        all.sort_by(Candidate::order);
        assert_eq!(best(&rows, 9, cost), all[..9]);
    }
}
