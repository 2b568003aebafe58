//! Token embeddings with positions: `Y[n] = dropout(scale·E[id[n]] + P[2 + place of n in its sentence])`.

pub(crate) mod cpu;
pub(crate) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::Backend;
use crate::ops::decode::Lineage;
use crate::rng::Dropout;
use crate::{Device, Ids, ParamId, Segments, Tape, Tensor, Var};

/// fairseq counts positions from the padding symbol (id 1): a sentence's first token has position 2.
pub const FIRST_POSITION: usize = 2;

/// Sinusoidal position vectors `[positions + 2, D]`: row p is sin(p·w) then cos(p·w), halves and not interleaved,
/// with `w_i = exp(−i·ln 10000/(D/2 − 1))`.
pub fn sinusoids(device: &Device, positions: usize, width: usize) -> Tensor {
    let half = width / 2;
    let step = 10_000f64.ln() / (half.max(2) - 1) as f64;
    let rows = positions + FIRST_POSITION;
    let mut table = vec![0.0f32; rows * width];
    for (p, row) in table.chunks_exact_mut(width).enumerate() {
        for i in 0..half {
            let angle = p as f64 * (-(i as f64) * step).exp();
            row[i] = angle.sin() as f32;
            row[half + i] = angle.cos() as f32;
        }
    }
    Tensor::from_host(device, [rows, width], &table)
}

/// Table, positions, scale and dropout of an embedding.
#[derive(Clone, Copy, Debug)]
pub struct Embedding<'a> {
    /// E, `[V, D]`.
    pub table: ParamId,
    /// P, `[positions + 2, D]`, from [`sinusoids`].
    pub positions: &'a Tensor,
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
    /// Embeds packed ids `[N]`; the place in the sentence comes from `segments`, in search moved by the steps before.
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
        assert_eq!(e.positions.cols(), width, "embed: positions are not as wide as the table");
        assert!((ids.max() as usize) < block.rows, "embed: id {} is outside the table", ids.max());
        let dropout = self.next_dropout(e.dropout);
        let op = Op { table: e.table, ids: ids.clone(), segments: segments.clone(), scale: e.scale, dropout };
        let mut y = self.device().scratch(rows * width);
        match self.backend() {
            Backend::Cpu => cpu::forward(params, &op, e.positions, after, &mut y),
            Backend::Gpu(gpu) => cuda::forward(gpu, params, &op, e.positions, after, &y),
        }
        let y = self.output([rows, width], y, self.is_free(e.table));
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
                    Embedding { table, positions: &positions, scale: 2.5, dropout },
                    &ids,
                    &segments,
                    None,
                )
            });
        }
    }

    #[test]
    fn positions_begin_at_two_in_each_sentence() {
        let device = Device::cpu();
        let table = sinusoids(&device, 4, 8);
        assert!((table.row(2)[0] - 2f32.sin()).abs() < 1e-7);
        assert!((table.row(2)[4] - 2f32.cos()).abs() < 1e-7);
        assert_eq!(places(&Segments::from_host(&device, &[0, 3, 4]), 0), [2, 3, 4, 2]);
    }
}
