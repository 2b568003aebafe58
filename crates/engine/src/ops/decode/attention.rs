//! One new row per hypothesis against keys and values that are already there.

use rayon::prelude::*;

use crate::cpu::{math, vectorised};
use crate::{Ids, Segments, Tape, Tensor, Var};

/// Keys and values of one attention, one matrix `[rows, 2D]` per step so far.
#[derive(Clone, Default)]
pub struct KvCache {
    steps: Vec<Tensor>,
}

impl KvCache {
    /// Adds the keys and values of the newest step.
    pub fn push(&mut self, kv: Tensor) {
        self.steps.push(kv);
    }
}

/// For each hypothesis, the row it descends from at every step. Reordering hypotheses, or letting some leave,
/// moves these short lists; keys and values stay where they are. One lineage serves all layers.
#[derive(Clone, Default)]
pub struct Lineage {
    rows: Vec<Vec<u32>>,
}

impl Lineage {
    /// `count` hypotheses without a past.
    pub fn new(count: usize) -> Self {
        Self { rows: vec![Vec::new(); count] }
    }

    /// Number of hypotheses.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Each hypothesis takes a step: its row in the newest matrix is its own index.
    pub fn advance(&mut self) {
        self.rows.iter_mut().enumerate().for_each(|(i, rows)| rows.push(i as u32));
    }

    /// New hypothesis i descends from old hypothesis `parents[i]`.
    pub fn reorder(&mut self, parents: &[u32]) {
        self.rows = parents.iter().map(|&parent| self.rows[parent as usize].clone()).collect();
    }
}

impl Tape<'_> {
    /// q `[R, D]` against the cached steps of each row's lineage; `weights` `[R, H]` if heads are weighted.
    pub fn attention_cached(
        &mut self,
        q: &Var,
        heads: usize,
        cache: &KvCache,
        lineage: &Lineage,
        weights: Option<&Tensor>,
    ) -> Var {
        assert_eq!(q.rows(), lineage.len(), "attention_cached: rows and lineage disagree");
        self.attend_rows(q, heads, weights, |row| {
            let past = &lineage.rows[row];
            (past.len(), move |step: usize| cache.steps[step].row(past[step] as usize))
        })
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
        self.attend_rows(q, heads, weights, |row| {
            let range = keys.range(sentences.values()[row] as usize);
            (range.len(), move |j: usize| kv.row(range.start + j))
        })
    }

    /// Each row of q against `count` rows of keys and values, which `source(row)` tells and lends.
    fn attend_rows<'a, K: Fn(usize) -> &'a [f32]>(
        &mut self,
        q: &Var,
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
                        let query = &q.tensor().row(row)[at.clone()];
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
        let (mut cache, mut lineage) = (KvCache::default(), Lineage::new(2));
        let mut place = 1;
        for step in 0..len {
            if step == 3 {
                lineage.reorder(&[1, 0]);
                place = 0;
            }
            let noise = random(10 + step as u64, 2, 3 * width).to_host();
            let mut rows = noise;
            rows[place * 3 * width..][..3 * width].copy_from_slice(qkv.row(step));
            let part = |from: usize, to: usize| -> Vec<f32> {
                rows.chunks_exact(3 * width).flat_map(|r| r[from..to].to_vec()).collect()
            };
            let q = Var::constant(Tensor::from_host(&device, [2, width], &part(0, width)));
            cache.push(Tensor::from_host(&device, [2, 2 * width], &part(width, 3 * width)));
            lineage.advance();
            let weights = Tensor::from_host(&device, [2, heads], &w.row(step).repeat(2));
            let out = tape.attention_cached(&q, heads, &cache, &lineage, Some(&weights));
            for (got, want) in out.tensor().row(place).iter().zip(full.tensor().row(step)) {
                assert!((got - want).abs() < 1e-5, "step {step}: {got} for {want}");
            }
        }
    }
}
