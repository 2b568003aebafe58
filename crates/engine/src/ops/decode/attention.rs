//! One new row per hypothesis against keys and values that are already there.

use super::ancestors::RowStore;
use super::lineage::{Lineage, Room};
use super::{attend, cuda, kept};
use crate::cuda::memory::Ptr;
use crate::device::{Backend, Buffer};
use crate::{Device, Ids, Tape, Tensor, Var};

/// Keys and values of one attention, of all steps of the hypotheses.
pub struct KvCache(Cache);

enum Cache {
    /// Rows of 2D values.
    Host(RowStore),
    /// `[ring, rows, 2D]`.
    Gpu(Buffer),
}

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
}

impl Heads {
    fn weighted(self, weights: Option<&Tensor>) -> Weighted<'_> {
        Weighted { count: self.count, width: self.width, weights }
    }
}

/// Keys and values of sources, 2D columns of `kv`, and the source of each row.
pub(super) struct Memory<'a> {
    pub(super) kv: &'a Tensor,
    pub(super) first_column: usize,
    pub(super) spans: &'a Spans,
    pub(super) sentences: &'a Ids,
}

impl KvCache {
    /// Nothing yet, for rows of D = `width` values.
    pub fn new(device: &Device, room: Room, width: usize) -> Self {
        Self(match device.gpu() {
            None => Cache::Host(RowStore::new(kept::dtype(device), 2 * width)),
            Some(_) => Cache::Gpu(device.scratch(room.ring() * room.rows * 2 * width)),
        })
    }

    /// Address of the cache in device memory.
    pub(crate) fn on_gpu(&self) -> Ptr {
        match &self.0 {
            Cache::Host(_) => unreachable!("an op of the GPU was given a cache of the CPU"),
            Cache::Gpu(kv) => kv.ptr(),
        }
    }
}

/// Rows of the memory that belong to each sentence of a search, by the sentence's number.
pub struct Spans {
    /// First row and row after the last, in pairs.
    pairs: Ids,
    host: Vec<u32>,
}

impl Spans {
    /// Room for so many sentences, all without rows.
    pub fn new(device: &Device, sentences: usize) -> Self {
        Self { pairs: Ids::with_room(device, 2 * sentences), host: vec![0; 2 * sentences] }
    }

    /// Changes the rows of some sentences: (sentence, first row, row after the last).
    pub fn set(&mut self, changes: impl IntoIterator<Item = (u32, u32, u32)>) {
        for (sentence, first, end) in changes {
            self.host[2 * sentence as usize..][..2].copy_from_slice(&[first, end]);
        }
        self.pairs.load(&self.host);
    }

    /// First row of a sentence and the row after its last.
    pub fn of(&self, sentence: u32) -> [usize; 2] {
        [0, 1].map(|which| self.host[2 * sentence as usize + which] as usize)
    }

    pub(super) fn pairs(&self) -> &Ids {
        &self.pairs
    }
}

impl Tape<'_> {
    /// Adds keys and values of this step to the cache: the rows of qkv begin with queries, keys and values, of D = `width`
    /// columns each.
    pub fn store_kv(&mut self, qkv: &Var, width: usize, cache: &mut KvCache, lineage: &Lineage) {
        assert!(3 * width <= qkv.cols(), "store_kv: {} columns for three times {width}", qkv.cols());
        match &mut cache.0 {
            Cache::Host(kv) => {
                let newest = qkv.tensor().values().chunks_exact(qkv.cols()).map(|row| &row[width..3 * width]);
                kv.put(self.device(), lineage.on_host(), newest);
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

    /// The queries, with which the rows of q begin, each against the rows of `kv` that `spans` gives to sentence
    /// `sentences[row]`. `kv` is a matrix `[Nk, P·2D]` of keys and values of P attentions side by side, and the number
    /// of this one. Gives `[R, D]`.
    pub fn attention_memory(
        &mut self,
        q: &Var,
        heads: Heads,
        (kv, part): (&Tensor, usize),
        spans: &Spans,
        sentences: &Ids,
        weights: Option<&Tensor>,
    ) -> Var {
        assert_eq!(q.rows(), sentences.len(), "attention_memory: rows and sentences disagree");
        let shape @ [_, width] = [q.rows(), heads.count * heads.width];
        let first_column = part * 2 * width;
        assert!(first_column + 2 * width <= kv.cols(), "attention_memory: no part {part}");
        let (heads, memory) = (heads.weighted(weights), Memory { kv, first_column, spans, sentences });
        let mut out = self.device().scratch(shape[0] * width);
        match self.backend() {
            Backend::Cpu => attend::attention_memory(q.tensor(), &heads, &memory, &mut out),
            Backend::Gpu(gpu) => cuda::attention_memory(gpu, q, &heads, &memory, &out),
        }
        Var::constant(Tensor::new(shape, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::{Attention, HeadWeights, Inputs};
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
