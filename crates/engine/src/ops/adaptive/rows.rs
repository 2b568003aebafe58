//! Rows of a table, rows of a value, rows of several values back in their order.

use super::{BandedIds, cpu, cuda};
use crate::device::Backend;
use crate::ops::decode::Lineage;
use crate::rng::Dropout;
use crate::{Ids, ParamId, Segments, Tape, Tensor, Var};

/// Terms that [`Tape::embed_bands`] adds to the rows that it collects.
pub(super) struct Placing<'a> {
    /// P, `[positions, D]`.
    pub positions: &'a Tensor,
    /// Factor of the rows.
    pub scale: f32,
    /// Dropout of the sum.
    pub dropout: f32,
}

/// Rows of all bands, one value each, that go back to the order of their ids.
pub(super) struct EmbedBands {
    pub(super) parts: Vec<Var>,
    pub(super) ids: BandedIds,
    pub(super) scale: f32,
    pub(super) dropout: Option<Dropout>,
}

impl Tape<'_> {
    /// E[id]: the rows of a table `[V, C]` named by `ids` `[n]`.
    pub(super) fn lookup(&mut self, table: ParamId, ids: &Ids) -> Var {
        let (params, cols) = (self.params, self.params.block(table).cols);
        let mut y = self.device().scratch(ids.len() * cols);
        match self.backend() {
            Backend::Cpu => cpu::lookup(params.matrix(table), ids, cols, &mut y),
            Backend::Gpu(gpu) => cuda::take(gpu, params.weights(table), ids, cols, &y),
        }
        let y = self.output([ids.len(), cols], y, self.uses([table]));
        let ids = ids.clone();
        self.record(&y, move |backward, dy| match backward.backend() {
            Backend::Cpu => cpu::lookup_backward(backward, table, &ids, &dy),
            Backend::Gpu(gpu) => cuda::lookup_backward(gpu, backward, table, &ids, &dy),
        });
        y
    }

    /// The rows of x `[N, D]` named by `rows` `[n]`, each at most once.
    pub fn take_rows(&mut self, x: &Var, rows: &Ids) -> Var {
        let cols = x.cols();
        let mut y = self.device().scratch(rows.len() * cols);
        match self.backend() {
            Backend::Cpu => cpu::take(x.values(), rows, cols, &mut y),
            Backend::Gpu(gpu) => cuda::take(gpu, x.ptr(), rows, cols, &y),
        }
        let y = self.output([rows.len(), cols], y, x.tracked());
        let (x, rows) = (x.clone(), rows.clone());
        self.record(&y, move |backward, dy| match backward.backend() {
            Backend::Cpu => cpu::take_backward(backward, &x, &rows, &dy),
            Backend::Gpu(gpu) => cuda::take_backward(gpu, backward, &x, &rows, &dy),
        });
        y
    }

    /// `Y[n] = dropout(scale·Z[n] + position)`, Z `[N, D]` being the rows of all bands (`parts`, one value each) back in
    /// the order of `ids`.
    pub(super) fn embed_bands(
        &mut self,
        parts: Vec<Var>,
        ids: &BandedIds,
        placing: &Placing<'_>,
        segments: &Segments,
        after: Option<&Lineage>,
    ) -> Var {
        let shape = [ids.len(), placing.positions.cols()];
        let dropout = self.next_dropout(placing.dropout);
        let op = EmbedBands { parts, ids: ids.clone(), scale: placing.scale, dropout };
        let mut y = self.device().scratch(shape[0] * shape[1]);
        match self.backend() {
            Backend::Cpu => cpu::embed_bands(&op, placing.positions, segments, after, &mut y),
            Backend::Gpu(gpu) => cuda::embed_bands(gpu, &op, placing.positions, segments, after, &y),
        }
        let y = self.output(shape, y, op.parts.iter().any(Var::tracked));
        self.record(&y, move |backward, mut dy| match backward.backend() {
            Backend::Cpu => cpu::embed_bands_backward(backward, &op, &mut dy),
            Backend::Gpu(gpu) => cuda::embed_bands_backward(gpu, backward, &op, &dy),
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
