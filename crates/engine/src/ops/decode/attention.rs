//! One new row per hypothesis against keys and values that are already there.

use super::keys::{Cache, KvCache, Memory, newest};
use super::lineage::Lineage;
use super::{attend, cuda};
use crate::device::Backend;
use crate::{Tape, Tensor, Var};

/// Number and width of the heads of an attention.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// H.
    pub count: usize,
    /// K; D = H·K.
    pub width: usize,
}

/// Heads and their weights `[R, H]`, if they are weighted.
pub(super) struct Weighted<'a> {
    pub(super) count: usize,
    pub(super) width: usize,
    pub(super) weights: Option<&'a Tensor>,
    /// True if a gate that computes the weights runs at the same time.
    pub(super) beside_gate: bool,
}

impl Heads {
    pub(super) fn weighted(self, weights: Option<&Tensor>) -> Weighted<'_> {
        Weighted { count: self.count, width: self.width, weights, beside_gate: false }
    }
}

impl Tape<'_> {
    /// Adds keys and values of this step to the cache: the rows of qkv begin with queries, keys and values, of D = `width`
    /// columns each.
    pub fn store_kv(&mut self, qkv: &Var, width: usize, cache: &mut KvCache, lineage: &Lineage) {
        assert!(3 * width <= qkv.cols(), "store_kv: {} columns for three times {width}", qkv.cols());
        match &mut cache.0 {
            Cache::Host(kv) => {
                kv.put(self.device(), lineage.on_host(), newest(qkv.tensor(), width));
            }
            Cache::Gpu(kv) => cuda::store_kv(qkv, width, kv, lineage.on_gpu()),
        }
    }

    /// The queries, with which the rows of qkv begin, attend to all steps of their rows' lineages, the newest one included.
    /// `weights` `[R, H]` if heads are weighted; gives `[R, D]`.
    pub fn attention_cached(
        &mut self,
        qkv: &Var,
        heads: Heads,
        cache: &KvCache,
        lineage: &Lineage,
        weights: Option<&Tensor>,
    ) -> Var {
        let shape = [qkv.rows(), heads.count * heads.width];
        let heads = heads.weighted(weights);
        let mut out = self.device().scratch(shape[0] * shape[1]);
        match &cache.0 {
            Cache::Host(kv) => {
                attend::attention_cached(qkv.tensor(), &heads, kv, lineage.on_host(), &mut out);
            }
            Cache::Gpu(kv) => cuda::attention_cached(qkv, &heads, kv, lineage.on_gpu(), &out),
        }
        Var::constant(Tensor::new(shape, out))
    }

    /// The queries, with which the rows of q begin, each against the keys and values of its source. Gives `[R, D]`.
    pub fn attention_memory(
        &mut self,
        q: &Var,
        heads: Heads,
        memory: &Memory<'_>,
        weights: Option<&Tensor>,
    ) -> Var {
        assert_eq!(q.rows(), memory.sentences.len(), "attention_memory: rows and sentences disagree");
        let shape = [q.rows(), heads.count * heads.width];
        let heads = heads.weighted(weights);
        let mut out = self.device().scratch(shape[0] * shape[1]);
        match self.backend() {
            Backend::Cpu => attend::attention_memory(q.tensor(), &heads, memory, &mut out),
            Backend::Gpu(gpu) => cuda::attention_memory(gpu, q, &heads, memory, &out),
        }
        Var::constant(Tensor::new(shape, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::{Attention, HeadWeights, Inputs};
    use crate::ops::decode::Room;
    use crate::{Device, ParamsBuilder, Rng, Segments};

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
        let (mut cache, mut lineage) = (KvCache::new(&device, room, width), Lineage::new(&device, room));
        lineage.begin(2);
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
            tape.store_kv(&new, width, &mut cache, &lineage);
            let of_heads = Heads { count: heads, width: width / heads };
            let out = tape.attention_cached(&new, of_heads, &cache, &lineage, Some(&weights));
            lineage.count_step();
            for (got, want) in out.tensor().row(place).iter().zip(full.tensor().row(step)) {
                assert!((got - want).abs() < 1e-5, "step {step}: {got} for {want}");
            }
        }
    }
}
