//! Adaptive input: `Y[n] = dropout(scale·E_b[id − c_b]·W_bᵀ + P[place of n in its sentence])`.

use super::rows::Placing;
use super::{BandedIds, Bands};
use crate::ops::decode::Lineage;
use crate::ops::project::Orientation;
use crate::{ParamId, Segments, Tape, Tensor, Var};

/// One band of the vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct InputBand {
    /// E_b, `[V_b, D_b]`; rows behind the band's ids are not looked at.
    pub table: ParamId,
    /// W_b, `[D, D_b]`.
    pub projection: ParamId,
}

/// Parts of an adaptive embedding.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveEmbedding<'a> {
    /// All bands, in order.
    pub bands: &'a [InputBand],
    /// P, `[positions, D]`, from [`sinusoids`](crate::ops::embed::sinusoids).
    pub positions: &'a Tensor,
    /// Factor of the embedding (√D).
    pub scale: f32,
    /// Dropout of the sum.
    pub dropout: f32,
}

impl Tape<'_> {
    /// Embeds packed ids `[N]`; the place in the sentence comes from `segments`, in search moved by the steps before.
    pub fn adaptive_embed(
        &mut self,
        e: AdaptiveEmbedding<'_>,
        ids: &BandedIds,
        segments: &Segments,
        after: Option<&Lineage>,
    ) -> Var {
        assert_eq!(ids.len(), segments.rows(), "adaptive_embed: ids and segments disagree");
        self.check_tables(e.bands, ids.bands());
        let mut parts = Vec::with_capacity(e.bands.len());
        for (index, band) in e.bands.iter().enumerate() {
            let words = self.lookup(band.table, ids.ids(index));
            parts.push(self.project(&words, band.projection, Orientation::Straight, 0.0));
        }
        let placing = Placing { positions: e.positions, scale: e.scale, dropout: e.dropout };
        self.embed_bands(parts, ids, &placing, segments, after)
    }

    fn check_tables(&self, bands: &[InputBand], cuts: &Bands) {
        assert_eq!(bands.len(), cuts.count(), "adaptive_embed: one table per band");
        for (index, band) in bands.iter().enumerate() {
            let (table, size) = (self.params.block(band.table).rows, cuts.range(index).len());
            assert!(table >= size, "adaptive_embed: band {index} has {size} types, its table {table} rows");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;
    use crate::ops::embed::sinusoids;
    use crate::{Device, ParamsBuilder};

    #[test]
    fn gradients_match_finite_differences() {
        let device = Device::cpu();
        // All bands, one band without words, one word.
        for (dropout, ids) in [(0.0, &[0u32, 6, 3, 1, 6, 9, 4][..]), (0.4, &[1, 0, 7, 1, 8]), (0.0, &[9])] {
            let bands = Bands::new(&[3, 5], 10);
            let banded = BandedIds::from_host(&device, &bands, ids);
            let segments = Segments::from_host(&device, &[0, ids.len() as u32 / 2, ids.len() as u32]);
            let positions = sinusoids(&device, 8, 6);
            let mut check = Check::new();
            // The first table has rows that no id names.
            let own = [
                InputBand { table: check.param("e0", [3 + 2, 6]), projection: check.param("w0", [6, 6]) },
                InputBand { table: check.param("e1", [2, 3]), projection: check.param("w1", [6, 3]) },
                InputBand { table: check.param("e2", [5, 1]), projection: check.param("w2", [6, 1]) },
            ];
            check.run(move |tape| {
                let e = AdaptiveEmbedding { bands: &own, positions: &positions, scale: 1.5, dropout };
                tape.adaptive_embed(e, &banded, &segments, None)
            });
        }
    }

    #[test]
    fn words_find_their_band_and_rows_keep_their_order() {
        let device = Device::cpu();
        let mut builder = ParamsBuilder::default();
        let group = crate::GroupId(0);
        let wide = InputBand {
            table: builder.matrix("e0".into(), [2, 2], group),
            projection: builder.matrix("w0".into(), [2, 2], group),
        };
        let narrow = InputBand {
            table: builder.matrix("e1".into(), [3, 1], group),
            projection: builder.matrix("w1".into(), [2, 1], group),
        };
        let mut params = builder.finish(&device);
        for (name, values) in [
            ("e0", &[1.0, 2.0, 3.0, 4.0][..]),
            ("w0", &[0.0, 1.0, 1.0, 0.0]),
            ("e1", &[5.0, 6.0, 7.0]),
            ("w1", &[1.0, -1.0]),
        ] {
            params.set(name, values).unwrap();
        }
        let ids = BandedIds::from_host(&device, &Bands::new(&[2], 5), &[4, 0, 2, 1]);
        let positions = Tensor::from_host(&device, [6, 2], &[0.0; 12]);
        let bands = [wide, narrow];
        let e = AdaptiveEmbedding { bands: &bands, positions: &positions, scale: 2.0, dropout: 0.0 };
        let segments = Segments::from_host(&device, &[0, 4]);
        let y = Tape::evaluation(&params).adaptive_embed(e, &ids, &segments, None);
        assert_eq!(y.tensor().to_host(), [14.0, -14.0, 4.0, 2.0, 10.0, -10.0, 8.0, 6.0]);
    }
}
