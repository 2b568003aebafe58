//! Some rows of a vocabulary, for searches that need no others.

use super::matrix::{Matrix, Values};
use super::storage::Packed;
use super::{ParamId, Params};
use crate::cpu::for_rows;
use crate::cpu::gemm::Precision;
use crate::{Tape, Tensor, Var};

/// Some rows of a vocabulary `[V, D]` and of its bias, copied so that products read nothing else.
pub struct VocabularySubset {
    rows: usize,
    cols: usize,
    values: Stored,
    bias: Option<Vec<f32>>,
}

enum Stored {
    F32(Vec<f32>),
    Packed(Packed),
}

impl VocabularySubset {
    /// Number of rows.
    pub fn count(&self) -> usize {
        self.rows
    }
}

impl Params {
    /// Rows `rows` of a vocabulary and of its bias, of parameters on a CPU.
    ///
    /// # Panics
    ///
    /// On a GPU, and if there is no such row.
    pub fn vocabulary_subset(
        &self,
        vocabulary: ParamId,
        bias: Option<ParamId>,
        rows: &[u32],
    ) -> VocabularySubset {
        assert!(!self.device().is_gpu(), "subsets of a vocabulary are for CPUs");
        let matrix = self.matrix(vocabulary);
        let types = matrix.rows;
        assert!(rows.iter().all(|&row| (row as usize) < types), "a row beyond the {types} of the vocabulary");
        let values = match matrix.values {
            Values::Packed(packed) => Stored::Packed(packed.select(rows)),
            Values::F32(values) => {
                let row = |&row: &u32| &values[row as usize * matrix.cols..][..matrix.cols];
                Stored::F32(rows.iter().flat_map(row).copied().collect())
            }
        };
        let bias = bias.map(|bias| {
            let all = self.values(bias);
            rows.iter().map(|&row| all[row as usize]).collect()
        });
        VocabularySubset { rows: rows.len(), cols: matrix.cols, values, bias }
    }
}

impl Tape<'_> {
    /// Logits `[N, n]` of the n types of a subset; x `[N, D]`. Each is that of [`Tape::logits`].
    pub fn subset_logits(&mut self, x: &Var, subset: &VocabularySubset) -> Tensor {
        let VocabularySubset { rows: types, cols, values, bias } = subset;
        assert_eq!(x.cols(), *cols, "features are as wide as the vocabulary");
        let values = match values {
            Stored::F32(values) => Values::F32(values),
            Stored::Packed(packed) => Values::Packed(packed),
        };
        let mut logits = self.device().scratch(x.rows() * types);
        let matrix = Matrix { rows: *types, cols: *cols, values };
        matrix.product(x.rows(), x.values(), &mut logits, Precision::Full);
        if let Some(bias) = bias {
            for_rows(
                &mut logits,
                *types,
                #[inline(always)]
                |_, rows| {
                    for row in rows.chunks_exact_mut(*types) {
                        row.iter_mut().zip(bias).for_each(|(logit, b)| *logit += b);
                    }
                },
            );
        }
        Tensor::new([x.rows(), *types], logits)
    }
}

#[cfg(test)]
mod tests {
    use crate::params::{GroupId, ParamsBuilder};
    use crate::{ComputeType, Device, Rng, Tape, Tensor, Var};

    #[test]
    fn logits_of_a_subset_are_those_of_the_vocabulary() {
        let (types, width, rows, group) = (300, 64, 5, GroupId(0));
        let random = |seed: u64, len: usize| {
            let stream = Rng::new(seed, 0).stream(0);
            (0..len as u32).map(|i| stream.normal(i, 0)).collect::<Vec<f32>>()
        };
        for (compute, _) in ComputeType::NAMED {
            let device = Device::cpu().holding(compute).unwrap();
            let mut builder = ParamsBuilder::default();
            let vocabulary = builder.matrix("vocabulary".into(), [types, width], group);
            let bias = builder.vector("bias".into(), types, group);
            let mut params = builder.finish(&device);
            params.set("vocabulary", &random(1, types * width)).unwrap();
            params.set("bias", &random(2, types)).unwrap();
            let x = Var::constant(Tensor::from_host(&device, [rows, width], &random(3, rows * width)));
            let mut tape = Tape::evaluation(&params);
            let whole = tape.logits(&x, vocabulary, Some(bias)).to_host();
            for some in [vec![7], (0..types as u32).step_by(3).collect(), (0..types as u32).rev().collect()] {
                let subset = params.vocabulary_subset(vocabulary, Some(bias), &some);
                assert_eq!(subset.count(), some.len());
                let logits = tape.subset_logits(&x, &subset).to_host();
                for (i, logit) in logits.iter().enumerate() {
                    let of = whole[i / some.len() * types + some[i % some.len()] as usize];
                    assert_eq!(logit.to_bits(), of.to_bits(), "{compute}, {i}");
                }
            }
        }
    }
}
