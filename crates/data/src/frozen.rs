//! fairseq's batches, for people who reproduce its runs: made once from sentences sorted by length, then only
//! shuffled.
//!
//! The order and the batches equal those of fairseq v0.9 for the same seed, numpy's random numbers included. A
//! batch is full when its sentences, padded to the longest side of any of them, would pass the token budget. It
//! is then cut to a multiple of so many sentences, and the rest begins the next one.

use crate::mersenne::MersenneTwister;
use crate::sampler::SamplerOptions;

/// Batches of the sentences in `used`, out of a corpus with these (source, target) lengths.
pub(crate) fn batches(
    lengths: &[(u32, u32)],
    used: &[u32],
    options: &SamplerOptions,
    multiple: usize,
) -> Vec<Vec<u32>> {
    let mut is_used = vec![false; lengths.len()];
    used.iter().for_each(|&i| is_used[i as usize] = true);
    let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
    MersenneTwister::new(options.seed as u32).shuffle(&mut order);
    order.retain(|&i| is_used[i as usize]);
    // By source, then by target; ties as shuffled.
    order.sort_by_key(|&i| lengths[i as usize]);
    cut(&order, |i| lengths[i as usize].0.max(lengths[i as usize].1), options, multiple)
}

/// The batches of an epoch in its order.
pub(crate) fn epoch(batches: &[Vec<u32>], seed: u64, epoch: u64) -> Vec<Vec<u32>> {
    let mut batches = batches.to_vec();
    MersenneTwister::new(seed.wrapping_add(epoch) as u32).shuffle(&mut batches);
    batches
}

/// fairseq's `batch_by_size`.
fn cut(
    order: &[u32],
    length: impl Fn(u32) -> u32,
    options: &SamplerOptions,
    multiple: usize,
) -> Vec<Vec<u32>> {
    let most = options.max_sentences.map_or(usize::MAX, |n| n as usize);
    let (mut batches, mut batch, mut longest) = (Vec::new(), Vec::<u32>::new(), 0);
    for &i in order {
        longest = longest.max(length(i));
        let padded = (batch.len() as u64 + 1) * u64::from(longest);
        if !batch.is_empty() && (batch.len() == most || padded > u64::from(options.max_tokens)) {
            let whole = (multiple * (batch.len() / multiple)).max(batch.len() % multiple);
            let rest = batch.split_off(whole);
            batches.push(std::mem::replace(&mut batch, rest));
            longest = batch.iter().map(|&i| length(i)).fold(length(i), u32::max);
        }
        batch.push(i);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}
