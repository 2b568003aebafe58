//! Token embeddings with positions: `Y[n] = dropout(scale·E[id[n]] + P[place of n in its sentence])`.

pub(crate) mod cpu;
pub(crate) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::Backend;
use crate::ops::decode::Lineage;
use crate::params::Params;
use crate::rng::Dropout;
use crate::{Device, Ids, ParamId, Segments, Tape, Tensor, Var};

/// fairseq counts positions from the padding symbol (id 1): a sentence's first token has position 2.
const FAIRSEQ_FIRST: usize = 2;

/// fairseq's sinusoidal position vectors `[positions, D]`, beginning with position 2: the row of position p is sin(p·w)
/// then cos(p·w), halves and not interleaved, with `w_i = exp(−i·ln 10000/(D/2 − 1))`.
pub fn sinusoids(device: &Device, positions: usize, width: usize) -> Tensor {
    let steps = (width / 2).max(2) - 1;
    waves(device, FAIRSEQ_FIRST, [positions, width], steps)
}

/// The same of Hugging Face's Marian, beginning with position 0 and with `w_i = exp(−i·ln 10000/(D/2))`.
pub fn marian_sinusoids(device: &Device, positions: usize, width: usize) -> Tensor {
    waves(device, 0, [positions, width], width / 2)
}

/// Sines and cosines whose frequencies fall to 1/10000 in so many steps.
fn waves(device: &Device, first: usize, [positions, width]: [usize; 2], steps: usize) -> Tensor {
    let half = width / 2;
    let step = 10_000f64.ln() / steps as f64;
    let mut table = vec![0.0f32; positions * width];
    for (p, row) in table.chunks_exact_mut(width).enumerate() {
        for i in 0..half {
            let angle = (first + p) as f64 * (-(i as f64) * step).exp();
            row[i] = angle.sin() as f32;
            row[half + i] = angle.cos() as f32;
        }
    }
    Tensor::from_host(device, [positions, width], &table)
}

/// Position vectors `[positions, D]`: row p belongs to the p-th token of a sentence, from 0.
#[derive(Clone, Copy, Debug)]
pub enum Positions<'a> {
    /// Values, from [`sinusoids`] for example.
    Fixed(&'a Tensor),
    /// A parameter that is not trained.
    Stored(ParamId),
}

impl Positions<'_> {
    /// Values per row.
    fn cols(self, params: &Params) -> usize {
        match self {
            Self::Fixed(table) => table.cols(),
            Self::Stored(id) => params.block(id).cols,
        }
    }
}

/// Table, positions, scale and dropout of an embedding.
#[derive(Clone, Copy, Debug)]
pub struct Embedding<'a> {
    /// E, `[V, D]`.
    pub table: ParamId,
    /// P.
    pub positions: Positions<'a>,
    /// Factor of the embedding (√D).
    pub scale: f32,
    /// Dropout of the sum.
    pub dropout: f32,
}

/// Inputs of the op that the backward pass needs.
struct Op {
    table: ParamId,
    ids: Ids,
    segments: Segments,
    scale: f32,
    dropout: Option<Dropout>,
}

impl Tape<'_> {
    /// Embeds packed ids `[N]`; the place in the sentence comes from `segments`, in search from the steps that each
    /// hypothesis has taken.
    pub fn embed(
        &mut self,
        e: Embedding<'_>,
        ids: &Ids,
        segments: &Segments,
        after: Option<&Lineage>,
    ) -> Var {
        let (params, block) = (self.params, self.params.block(e.table));
        let (rows, width) = (ids.len(), block.cols);
        assert_eq!(rows, segments.rows(), "embed: ids and segments disagree");
        assert_eq!(e.positions.cols(params), width, "embed: positions are not as wide as the table");
        assert!((ids.max() as usize) < block.rows, "embed: id {} is outside the table", ids.max());
        let dropout = self.next_dropout(e.dropout);
        let op = Op { table: e.table, ids: ids.clone(), segments: segments.clone(), scale: e.scale, dropout };
        let mut y = self.device().scratch(rows * width);
        match self.backend() {
            Backend::Cpu => cpu::forward(params, &op, e.positions, after, &mut y),
            Backend::Gpu(gpu) => cuda::forward(gpu, params, &op, e.positions, after, &y),
        }
        let y = self.output([rows, width], y, self.uses([e.table]));
        self.record(&y, move |backward, mut dy| match backward.backend() {
            Backend::Cpu => cpu::backward(backward, &op, &mut dy),
            Backend::Gpu(gpu) => cuda::backward(gpu, backward, &op, &dy),
        });
        y
    }
}

#[cfg(test)]
mod tests {
    use super::cpu::places;
    use super::*;
    use crate::gradcheck::Check;
    use crate::{GroupId, ParamsBuilder};

    #[test]
    fn gradients_match_finite_differences() {
        for dropout in [0.0, 0.4] {
            let device = Device::cpu();
            let positions = sinusoids(&device, 8, 6);
            let (ids, segments) =
                (Ids::from_host(&device, &[3, 1, 4, 1, 0]), Segments::from_host(&device, &[0, 2, 2, 5]));
            let mut check = Check::new();
            let table = check.param("table", [5 + 2, 6]);
            // Words 2, 5 and 6 do not occur; their gradient must be zero, not missing.
            check.run(move |tape| {
                tape.embed(
                    Embedding { table, positions: Positions::Fixed(&positions), scale: 2.5, dropout },
                    &ids,
                    &segments,
                    None,
                )
            });
        }
    }

    #[test]
    fn sinusoids_begin_at_two_or_at_zero() {
        let device = Device::cpu();
        let fairseq = sinusoids(&device, 4, 8);
        assert!((fairseq.row(0)[0] - 2f32.sin()).abs() < 1e-7);
        assert!((fairseq.row(0)[4] - 2f32.cos()).abs() < 1e-7);
        assert!((fairseq.row(1)[3] - 3e-4f32.sin()).abs() < 1e-9);
        let marian = marian_sinusoids(&device, 4, 8);
        assert_eq!(marian.row(0), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
        assert!((marian.row(3)[1] - 0.3f32.sin()).abs() < 1e-7);
        assert_eq!(places(&Segments::from_host(&device, &[0, 3, 4]), None), [0, 1, 2, 0]);
    }

    #[test]
    fn a_stored_table_gives_what_the_same_fixed_one_gives() {
        let device = Device::cpu();
        let fixed = sinusoids(&device, 4, 6);
        let mut params = ParamsBuilder::default();
        let table = params.matrix("table".into(), [5, 6], GroupId(0));
        let stored = params.matrix("positions".into(), [4, 6], GroupId(1));
        let mut params = params.finish(&device);
        params.set("table", &(0..30).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        params.set("positions", &fixed.to_host()).unwrap();
        let (ids, segments) =
            (Ids::from_host(&device, &[3, 1, 4, 1, 0]), Segments::from_host(&device, &[0, 2, 2, 5]));
        let [fixed, stored] = [Positions::Fixed(&fixed), Positions::Stored(stored)].map(|positions| {
            let e = Embedding { table, positions, scale: 2.5, dropout: 0.0 };
            Tape::evaluation(&params).embed(e, &ids, &segments, None).tensor().to_host()
        });
        assert_eq!(fixed, stored);
    }
}
