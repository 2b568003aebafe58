//! One new row per hypothesis against keys and values that are already there.

use rayon::prelude::*;

use super::lineage::{Lineage, Room};
use crate::cpu::{math, vectorised};
use crate::cuda::ops::decode as gpu_ops;
use crate::device::Buffer;
use crate::{Device, Ids, Segments, Tape, Tensor, Var};

/// Keys and values of one attention, of all steps so far.
pub struct KvCache(Cache);

enum Cache {
    /// One matrix `[rows, 2D]` per step.
    Host(Vec<Tensor>),
    /// `[steps, rows, 2D]`.
    Gpu(Buffer),
}

impl KvCache {
    /// Nothing yet, for rows of D = `width` values.
    pub fn new(device: &Device, room: Room, width: usize) -> Self {
        Self(match device.gpu() {
            None => Cache::Host(Vec::new()),
            Some(_) => Cache::Gpu(device.scratch(room.steps * room.rows * 2 * width)),
        })
    }

    /// Forgets all steps.
    pub fn clear(&mut self) {
        if let Cache::Host(steps) = &mut self.0 {
            steps.clear();
        }
    }
}

impl Tape<'_> {
    /// Adds keys and values of this step to the cache; then the queries attend to all steps of their rows' lineages.
    /// qkv `[R, 3D]`; `weights` `[R, H]` if heads are weighted; gives `[R, D]`.
    pub fn attention_cached(
        &mut self,
        qkv: &Var,
        heads: usize,
        cache: &mut KvCache,
        lineage: &Lineage,
        weights: Option<&Tensor>,
    ) -> Var {
        let width = qkv.cols() / 3;
        match &mut cache.0 {
            Cache::Gpu(kv) => gpu_ops::attention_cached(self, qkv, heads, kv, lineage, weights),
            Cache::Host(steps) => {
                steps.push(self.columns(qkv.tensor(), width..3 * width));
                let q = self.columns(qkv.tensor(), 0..width);
                let steps = &steps[..];
                self.attend_rows(&q, heads, weights, |row| {
                    let past = lineage.past(row);
                    (past.len(), move |step: usize| steps[step].row(past[step] as usize))
                })
            }
        }
    }

    /// q `[R, D]`, each row against the keys and values (`[Nk, 2D]`) of sentence `sentences[row]`.
    pub fn attention_memory(
        &mut self,
        q: &Var,
        heads: usize,
        kv: &Tensor,
        keys: &Segments,
        sentences: &Ids,
        weights: Option<&Tensor>,
    ) -> Var {
        assert_eq!(q.rows(), sentences.len(), "attention_memory: rows and sentences disagree");
        if let Some(gpu) = self.gpu() {
            return gpu_ops::attention_memory(self, &gpu, q, heads, kv, keys, sentences, weights);
        }
        self.attend_rows(q.tensor(), heads, weights, |row| {
            let range = keys.range(sentences.values()[row] as usize);
            (range.len(), move |j: usize| kv.row(range.start + j))
        })
    }

    /// Each row of q against `count` rows of keys and values, which `source(row)` tells and lends.
    fn attend_rows<'a, K: Fn(usize) -> &'a [f32]>(
        &mut self,
        q: &Tensor,
        heads: usize,
        weights: Option<&Tensor>,
        source: impl Fn(usize) -> (usize, K) + Sync,
    ) -> Var {
        let width = q.cols();
        let k = width / heads;
        let scale = 1.0 / (k as f32).sqrt();
        let mut out = self.device().scratch(q.values().len());
        out.par_chunks_exact_mut(width).enumerate().with_min_len(4).for_each(|(row, out)| {
            vectorised(
                #[inline(always)]
                || {
                    let (count, kv) = source(row);
                    let mut p = vec![0.0; count];
                    for head in 0..heads {
                        let at = head * k..(head + 1) * k;
                        let out = &mut out[at.clone()];
                        out.fill(0.0);
                        let weight = weights.map_or(1.0, |w| w.row(row)[head]);
                        if weight == 0.0 {
                            continue;
                        }
                        let query = &q.row(row)[at.clone()];
                        for (j, p) in p.iter_mut().enumerate() {
                            *p = scale * math::dot(query, &kv(j)[at.clone()]);
                        }
                        math::softmax(&mut p);
                        for (j, p) in p.iter().enumerate() {
                            let value = &kv(j)[width + at.start..width + at.end];
                            out.iter_mut().zip(value).for_each(|(o, v)| *o = v.mul_add(p * weight, *o));
                        }
                    }
                },
            );
        });
        Var::constant(Tensor::new([q.rows(), width], out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::{Attention, HeadWeights, Inputs};
    use crate::{Device, ParamsBuilder, Rng};

    fn random(seed: u64, rows: usize, cols: usize) -> Tensor {
        let stream = Rng::new(seed, 0).stream(0);
        let values: Vec<f32> = (0..rows * cols).map(|i| stream.normal(i as u32, 0)).collect();
        Tensor::from_host(&Device::cpu(), [rows, cols], &values)
    }

    /// Steps over a cache, with a reordering in between, give what the full causal pass gives.
    #[test]
    fn cached_rows_equal_the_full_pass() {
        let (heads, width, len) = (3, 12, 5);
        let device = Device::cpu();
        let params = ParamsBuilder::default().finish(&device);
        let mut tape = Tape::evaluation(&params);
        let qkv = random(1, len, 3 * width);
        let w = random(2, len, heads);
        let whole = Segments::from_host(&device, &[0, len as u32]);
        let attention = Attention {
            heads,
            causal: true,
            dropout: 0.0,
            queries: whole.clone(),
            keys: whole,
            weights: HeadWeights::PerRow(Var::constant(w.clone())),
        };
        let full = tape.attention(&Inputs::Packed(Var::constant(qkv.clone())), attention);
        // Hypothesis 1 carries the sentence at first, then moves to place 0.
        let room = Room { rows: 2, steps: len };
        let (mut cache, mut lineage) = (KvCache::new(&device, room, width), Lineage::new(&device, room, 2));
        let mut place = 1;
        for step in 0..len {
            if step == 3 {
                lineage.reorder(&[1, 0]);
                place = 0;
            }
            let mut rows = random(10 + step as u64, 2, 3 * width).to_host();
            rows[place * 3 * width..][..3 * width].copy_from_slice(qkv.row(step));
            let new = Var::constant(Tensor::from_host(&device, [2, 3 * width], &rows));
            tape.advance(&mut lineage, 2);
            let weights = Tensor::from_host(&device, [2, heads], &w.row(step).repeat(2));
            let out = tape.attention_cached(&new, heads, &mut cache, &lineage, Some(&weights));
            lineage.count_step();
            for (got, want) in out.tensor().row(place).iter().zip(full.tensor().row(step)) {
                assert!((got - want).abs() < 1e-5, "step {step}: {got} for {want}");
            }
        }
    }
}
