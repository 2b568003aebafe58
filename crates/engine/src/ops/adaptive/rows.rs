//! Rows of a table, rows of a value, rows of several values back in their order.

use rayon::prelude::*;

use super::BandedIds;
use crate::cpu::for_rows;
use crate::cuda::ops::adaptive as gpu_ops;
use crate::ops::decode::Lineage;
use crate::ops::embed::cpu::{places, scatter};
use crate::ops::{RowFactors, drop_out, drop_out_row};
use crate::{Ids, ParamId, Segments, Tape, Tensor, Var};

/// What [`Tape::embed_bands`] adds to the rows it collects.
pub(crate) struct Placing<'a> {
    /// P, `[positions + 2, D]`.
    pub positions: &'a Tensor,
    /// Factor of the rows.
    pub scale: f32,
    /// Dropout of the sum.
    pub dropout: f32,
}

impl Tape<'_> {
    /// E[id]: the rows of a table `[V, C]` named by `ids` `[n]`.
    pub(super) fn lookup(&mut self, table: ParamId, ids: &Ids) -> Var {
        if let Some(gpu) = self.gpu() {
            return gpu_ops::lookup(self, &gpu, table, ids);
        }
        let cols = self.params.block(table).cols;
        let values = self.params.values(table);
        let mut y = self.device().scratch(ids.len() * cols);
        for (y, &id) in y.chunks_exact_mut(cols).zip(ids.values()) {
            y.copy_from_slice(&values[id as usize * cols..][..cols]);
        }
        let tracked = self.is_free(table);
        let y = self.output([ids.len(), cols], y, tracked);
        let ids = ids.clone();
        self.record(&y, move |backward, dy| {
            backward.param(table, |gradient, held| scatter(gradient, held, ids.values(), &dy, cols, 1.0));
        });
        y
    }

    /// The rows of x `[N, D]` named by `rows` `[n]`, each at most once.
    pub fn take_rows(&mut self, x: &Var, rows: &Ids) -> Var {
        if let Some(gpu) = self.gpu() {
            return gpu_ops::take_rows(self, &gpu, x, rows);
        }
        let cols = x.cols();
        let mut y = self.device().scratch(rows.len() * cols);
        for (y, &row) in y.chunks_exact_mut(cols).zip(rows.values()) {
            y.copy_from_slice(x.tensor().row(row as usize));
        }
        let y = self.output([rows.len(), cols], y, x.tracked());
        let (x, rows) = (x.clone(), rows.clone());
        self.record(&y, move |backward, dy| {
            backward.input(&x, |dx, held| {
                if !held {
                    dx.fill(0.0);
                }
                for (dy, &row) in dy.chunks_exact(cols).zip(rows.values()) {
                    let dx = &mut dx[row as usize * cols..][..cols];
                    dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy);
                }
            });
        });
        y
    }

    /// `Y[n] = dropout(scale·Z[n] + position)`, Z `[N, D]` being the rows of all bands (`parts`, one value each) back in
    /// the order of `ids`.
    pub(super) fn embed_bands(
        &mut self,
        parts: &[Var],
        ids: &BandedIds,
        placing: &Placing<'_>,
        segments: &Segments,
        after: Option<&Lineage>,
    ) -> Var {
        let (rows, cols, scale) = (ids.len(), placing.positions.cols(), placing.scale);
        let dropout = self.next_dropout(placing.dropout);
        if let Some(gpu) = self.gpu() {
            return gpu_ops::embed_bands(self, &gpu, parts, ids, placing, segments, after, dropout);
        }
        let positions = places(segments, after.map_or(0, Lineage::steps));
        let row_of = |mut place: usize| {
            let found = parts.iter().find_map(|part| {
                let own = (place < part.rows()).then(|| part.tensor().row(place));
                place = place.saturating_sub(part.rows());
                own
            });
            found.expect("every place lies in a band")
        };
        let mut y = self.device().scratch(rows * cols);
        for_rows(
            &mut y,
            cols,
            #[inline(always)]
            |first, out| {
                let mut factors = RowFactors::new(cols);
                for (i, y) in out.chunks_exact_mut(cols).enumerate() {
                    let word = row_of(ids.places().values()[first + i] as usize);
                    let position = placing.positions.row(positions[first + i]);
                    for ((y, w), p) in y.iter_mut().zip(word).zip(position) {
                        *y = w.mul_add(scale, *p);
                    }
                    drop_out_row(y, &dropout, &mut factors, first + i);
                }
            },
        );
        let y = self.output([rows, cols], y, parts.iter().any(Var::tracked));
        let (parts, ids) = (parts.to_vec(), ids.clone());
        self.record(&y, move |backward, mut dy| {
            drop_out(&mut dy, cols, &dropout);
            for (band, part) in parts.iter().enumerate() {
                backward.input(part, |dz, held| {
                    let rows = ids.rows(band).values();
                    dz.par_chunks_exact_mut(cols).zip(rows).for_each(|(dz, &row)| {
                        let dy = &dy[row as usize * cols..][..cols];
                        dz.iter_mut()
                            .zip(dy)
                            .for_each(|(dz, dy)| *dz = dy.mul_add(scale, if held { *dz } else { 0.0 }));
                    });
                });
            }
        });
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::gradcheck::Check;

    #[test]
    fn gradients_match_finite_differences() {
        for ids in [&[3u32, 0, 4, 3, 3][..], &[2], &[]] {
            let ids = Ids::from_host(&Device::cpu(), ids);
            let mut check = Check::new();
            let table = check.param("table", [5, 3]);
            check.run(move |tape| tape.lookup(table, &ids));
        }
        let rows = Ids::from_host(&Device::cpu(), &[4, 0, 3]);
        let mut check = Check::new();
        let x = check.param("x", [7, 5]);
        check.run(move |tape| {
            let x = tape.parameter(x);
            tape.take_rows(&x, &rows)
        });
    }
}
