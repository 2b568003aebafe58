//! Token embeddings with positions: `Y[n] = dropout(scale·E[id[n]] + P[2 + place of n in its sentence])`.

use rayon::prelude::*;

use crate::cpu::for_rows;
use crate::ops::decode::Lineage;
use crate::ops::{RowFactors, drop_out, drop_out_row};
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

/// What an embedding is made of.
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

impl Tape<'_> {
    /// Embeds packed ids `[N]`; the place in the sentence comes from `segments`, in search moved by the steps before.
    pub fn embed(
        &mut self,
        e: Embedding<'_>,
        ids: &Ids,
        segments: &Segments,
        after: Option<&Lineage>,
    ) -> Var {
        let offset = after.map_or(0, Lineage::steps);
        let width = self.params.block(e.table).cols;
        assert_eq!(ids.len(), segments.rows(), "embed: ids and segments disagree");
        assert!(
            (ids.max() as usize) < self.params.block(e.table).rows,
            "embed: id {} is outside the table",
            ids.max()
        );
        let dropout = self.next_dropout(e.dropout);
        if let Some(gpu) = self.gpu() {
            return crate::cuda::ops::embed::embed(self, &gpu, e, ids, segments, after, dropout);
        }
        let mut y = self.device().scratch(ids.len() * width);
        let places = places(segments, offset);
        let (table, positions) = (self.params.values(e.table), e.positions);
        for_rows(
            &mut y,
            width,
            #[inline(always)]
            |first, rows| {
                let mut factors = RowFactors::new(width);
                for (i, row) in rows.chunks_exact_mut(width).enumerate() {
                    let id = ids.values()[first + i] as usize;
                    let word = &table[id * width..(id + 1) * width];
                    let place = positions.row(places[first + i]);
                    for ((y, w), p) in row.iter_mut().zip(word).zip(place) {
                        *y = w.mul_add(e.scale, *p);
                    }
                    drop_out_row(row, &dropout, &mut factors, first + i);
                }
            },
        );
        let tracked = self.is_free(e.table);
        let y = self.output([ids.len(), width], y, tracked);
        let (ids, table, scale) = (ids.clone(), e.table, e.scale);
        self.record(&y, move |backward, mut dy| {
            drop_out(&mut dy, width, &dropout);
            backward.param(table, |gradient, held| scatter(gradient, held, ids.values(), &dy, width, scale));
        });
        y
    }
}

/// The row of the position table for each token.
pub(crate) fn places(segments: &Segments, offset: usize) -> Vec<usize> {
    segments
        .ranges()
        .flat_map(|range| (0..range.len()).map(|place| FIRST_POSITION + offset + place))
        .collect()
}

/// dE[id] += scale·dy. Each task owns a range of the vocabulary and adds in token order: no races, fixed sums.
pub(crate) fn scatter(gradient: &mut [f32], held: bool, ids: &[u32], dy: &[f32], width: usize, scale: f32) {
    const WORDS_PER_TASK: usize = 512;
    gradient.par_chunks_mut(WORDS_PER_TASK * width).enumerate().for_each(|(task, words)| {
        if !held {
            words.fill(0.0);
        }
        let first = (task * WORDS_PER_TASK) as u32;
        let own = first..first + (words.len() / width) as u32;
        for (&id, d) in ids.iter().zip(dy.chunks_exact(width)).filter(|(id, _)| own.contains(id)) {
            let word = &mut words[(id - first) as usize * width..][..width];
            word.iter_mut().zip(d).for_each(|(g, d)| *g = d.mul_add(scale, *g));
        }
    });
}

#[cfg(test)]
mod tests {
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
