//! Keys and values that the rows of a step attend to.

use super::ancestors::RowStore;
use super::attention::{Heads, Weighted};
use super::lineage::{Lineage, Room};
use super::{attend, kept};
use crate::cuda::memory::Ptr;
use crate::device::Buffer;
use crate::{Device, Ids, Tensor};

/// Keys and values of one attention, of all steps of the hypotheses.
pub struct KvCache(pub(super) Cache);

pub(super) enum Cache {
    /// Rows of 2D values.
    Host(RowStore),
    /// `[ring, rows, 2D]`.
    Gpu(Buffer),
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

/// Keys and values of sources, and the source of each row that attends to them.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    /// Keys and values of P attentions side by side, `[Nk, P·2D]`.
    pub kv: &'a Tensor,
    /// The number of this attention among them.
    pub part: usize,
    /// The rows of each sentence.
    pub spans: &'a Spans,
    /// The sentence of each row.
    pub sentences: &'a Ids,
}

impl Memory<'_> {
    /// The first of the 2D columns of this attention.
    ///
    /// # Panics
    ///
    /// If there are no such columns.
    pub(super) fn first_column(&self, heads: &Weighted<'_>) -> usize {
        let columns = 2 * heads.count * heads.width;
        let first = self.part * columns;
        assert!(first + columns <= self.kv.cols(), "attention to a memory: no part {}", self.part);
        first
    }
}

/// What the rows of a step attend to.
pub enum Keys<'a> {
    /// The steps of their hypotheses so far, and this one: projections make queries, keys and values.
    Steps(&'a mut KvCache),
    /// Sources: projections make queries.
    Memory(Memory<'a>),
}

impl Keys<'_> {
    /// Adds keys and values of this step, as [`Tape::store_kv`] does on the CPU; nothing is added to sources.
    pub(crate) fn store(&mut self, device: &Device, projected: &Tensor, heads: Heads, lineage: &Lineage) {
        if let Self::Steps(KvCache(Cache::Host(kv))) = self {
            kv.put(device, lineage.on_host(), newest(projected, heads.count * heads.width));
        }
    }

    /// Attention on the CPU without weights of heads, as of [`Tape::attention_cached`] and [`Tape::attention_memory`].
    pub(crate) fn attend(&self, queries: &Tensor, heads: Heads, lineage: &Lineage, out: &mut [f32]) {
        let heads = Weighted { beside_gate: true, ..heads.weighted(None) };
        match self {
            Self::Steps(KvCache(Cache::Host(kv))) => {
                attend::attention_cached(queries, &heads, kv, lineage.on_host(), out);
            }
            Self::Steps(_) => unreachable!("an op of the CPU was given a cache of the GPU"),
            Self::Memory(memory) => attend::attention_memory(queries, &heads, memory, out),
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

/// Keys and values of rows that begin with queries, keys and values, of `width` each.
pub(super) fn newest(qkv: &Tensor, width: usize) -> impl Iterator<Item = &[f32]> {
    qkv.values().chunks_exact(qkv.cols()).map(move |row| &row[width..3 * width])
}
