//! Adaptive softmax: `x' = dropout(x)`; head: softmax over `x'·Hᵀ`, the words of band 0 and one class per tail; tail b:
//! softmax over `dropout(x'·P_b)·E_bᵀ`. The loss of a word in band 0 is the head's, of any other word the head's loss of
//! its tail plus the tail's own.

use super::{BandedIds, Bands, cpu, cuda};
use crate::device::Backend;
use crate::ops::cross_entropy::{CrossEntropy, LossSums};
pub use crate::ops::project::Orientation;
use crate::{ParamId, Tape, Tensor, Var};

/// One band but the first.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// P_b, the way from D to D_b.
    pub projection: ParamId,
    /// Orientation of the stored projection: a weight tied to the input's `[D, D_b]` is used transposed.
    pub orientation: Orientation,
    /// E_b, `[V_b, D_b]`.
    pub vocabulary: ParamId,
}

/// Parts of an adaptive softmax.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveSoftmax<'a> {
    /// H, `[V_0 + tails, D]`: the words of band 0, then one row per tail.
    pub head: ParamId,
    /// The other bands, in order.
    pub tails: &'a [Tail],
    /// Dropout of the features and of their projections.
    pub dropout: f32,
}

/// Features of one band, and the vocabulary they are multiplied with.
pub(super) struct BandFeatures {
    pub(super) x: Var,
    pub(super) vocabulary: ParamId,
}

impl Tape<'_> {
    /// The loss of features x `[N, D]`, summed over tokens, in nats; a root of the backward pass whose gradient (not the
    /// sums) is scaled by `weight`. Logits exist for a run of rows at a time, and of a tail for its own rows only.
    pub fn adaptive_loss(
        &mut self,
        x: &Var,
        softmax: AdaptiveSoftmax<'_>,
        targets: &BandedIds,
        weight: f32,
    ) -> LossSums {
        assert_eq!(x.rows(), targets.len(), "adaptive_loss: {} rows, {} targets", x.rows(), targets.len());
        self.check_softmax(&softmax, targets.bands());
        let x = self.dropout(x, softmax.dropout);
        let loss =
            |vocabulary, targets| CrossEntropy { vocabulary, bias: None, targets, smoothing: 0.0, weight };
        let mut sums = self.cross_entropy(&x, loss(softmax.head, targets.head()));
        for (index, tail) in softmax.tails.iter().enumerate() {
            let rows = targets.rows(index + 1);
            let own = self.take_rows(&x, rows);
            let own = self.project(&own, tail.projection, tail.orientation, softmax.dropout);
            let own = self.cross_entropy(&own, loss(tail.vocabulary, targets.ids(index + 1)));
            sums.add_tail(&own, rows);
        }
        sums
    }

    /// ln p of every word after features x `[N, D]`: `[N, V]`, for generation; no gradient.
    pub fn adaptive_log_probs(&mut self, x: &Var, softmax: AdaptiveSoftmax<'_>, bands: &Bands) -> Tensor {
        self.check_softmax(&softmax, bands);
        let x = x.detach();
        let mut features = vec![BandFeatures { x: x.clone(), vocabulary: softmax.head }];
        for tail in softmax.tails {
            let own = self.project(&x, tail.projection, tail.orientation, 0.0);
            features.push(BandFeatures { x: own, vocabulary: tail.vocabulary });
        }
        let shape = [x.rows(), bands.types()];
        let mut y = self.device().scratch(shape[0] * shape[1]);
        match self.backend() {
            Backend::Cpu => {
                let logits: Vec<Tensor> =
                    features.iter().map(|band| self.logits(&band.x, band.vocabulary, None)).collect();
                cpu::log_probs(&logits, bands, &mut y);
            }
            Backend::Gpu(gpu) => cuda::log_probs(gpu, self.params, &features, bands, &y),
        }
        Tensor::new(shape, y)
    }

    fn check_softmax(&self, softmax: &AdaptiveSoftmax<'_>, bands: &Bands) {
        let tails = softmax.tails.len();
        assert_eq!(tails + 1, bands.count(), "adaptive softmax: one tail for each band but the first");
        let head = self.params.block(softmax.head).rows;
        assert_eq!(head, bands.range(0).len() + tails, "adaptive softmax: the head has {head} rows");
        for (index, tail) in softmax.tails.iter().enumerate() {
            let rows = self.params.block(tail.vocabulary).rows;
            assert_eq!(rows, bands.range(index + 1).len(), "adaptive softmax: tail {index} has {rows} rows");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, GroupId, GroupSet, Params, ParamsBuilder, Rng};

    const WIDTH: usize = 4;

    struct Case {
        params: Params,
        features: ParamId,
        head: ParamId,
        tails: [Tail; 2],
        bands: Bands,
    }

    impl Case {
        fn new(rows: usize) -> Self {
            let group = GroupId(0);
            let mut builder = ParamsBuilder::default();
            let mut matrix = |name: &str, shape| builder.matrix(name.into(), shape, group);
            let features = matrix("features", [rows, WIDTH]);
            let head = matrix("head", [3 + 2, WIDTH]);
            let tails = [
                Tail {
                    projection: matrix("tied", [WIDTH, 2]),
                    orientation: Orientation::Transposed,
                    vocabulary: matrix("first", [4, 2]),
                },
                Tail {
                    projection: matrix("own", [1, WIDTH]),
                    orientation: Orientation::Straight,
                    vocabulary: matrix("second", [5, 1]),
                },
            ];
            let mut params = builder.finish(&Device::cpu());
            let named: Vec<_> =
                params.named().map(|p| (p.name.to_owned(), p.shape.iter().product())).collect();
            for (i, (name, count)) in named.into_iter().enumerate() {
                let stream = Rng::new(4, 0).stream(i as u32);
                params
                    .set(&name, &(0..count).map(|j: usize| stream.normal(j as u32, 0)).collect::<Vec<_>>())
                    .unwrap();
            }
            Self { params, features, head, tails, bands: Bands::new(&[3, 7], 12) }
        }

        fn softmax(&self, dropout: f32) -> AdaptiveSoftmax<'_> {
            AdaptiveSoftmax { head: self.head, tails: &self.tails, dropout }
        }
    }

    /// The loss is a root, so it is checked against its own differences and not through `gradcheck`.
    #[test]
    fn gradients_match_finite_differences() {
        // All bands, a band without words, one word.
        for (dropout, ids) in [(0.0, &[0u32, 11, 5, 2, 3, 5][..]), (0.0, &[1, 8]), (0.3, &[4, 0, 7, 7, 6])] {
            let mut case = Case::new(ids.len());
            let targets = BandedIds::from_host(&Device::cpu(), &case.bands, ids);
            let (group, rng, weight) = (GroupSet::of(&[GroupId(0)]), Rng::new(1, 1), 0.25);
            let value = |case: &Case| {
                let mut unused = case.params.gradients();
                let mut tape = Tape::training(&case.params, &mut unused, GroupSet::NONE, rng);
                let x = tape.parameter(case.features);
                tape.adaptive_loss(&x, case.softmax(dropout), &targets, weight).nll()
            };
            let mut gradients = case.params.gradients();
            let mut tape = Tape::training(&case.params, &mut gradients, group, rng);
            let x = tape.parameter(case.features);
            tape.adaptive_loss(&x, case.softmax(dropout), &targets, weight);
            tape.backward();
            gradients.check_complete(group).unwrap();
            for name in ["features", "head", "tied", "first", "own", "second"] {
                let gradient = gradients.get(&case.params, name).unwrap().unwrap();
                let original = case.params.get(name).unwrap();
                for i in 0..original.len() {
                    let mut at = |delta: f32| {
                        let mut moved = original.clone();
                        moved[i] += delta;
                        case.params.set(name, &moved).unwrap();
                        value(&case)
                    };
                    let (near, far) = (at(1e-2) - at(-1e-2), at(2e-2) - at(-2e-2));
                    let numeric = f64::from(weight) * (8.0 * near - far) / 0.12;
                    let error = (numeric - f64::from(gradient[i])).abs();
                    assert!(error < 2e-4, "d{name}[{i}] {} {numeric}", gradient[i]);
                }
                case.params.set(name, &original).unwrap();
            }
        }
    }

    #[test]
    fn probabilities_sum_to_one_and_are_those_of_the_loss() {
        let ids: Vec<u32> = (0..12).collect();
        let case = Case::new(ids.len());
        let mut tape = Tape::evaluation(&case.params);
        let x = tape.parameter(case.features);
        let targets = BandedIds::from_host(&Device::cpu(), &case.bands, &ids);
        let sums = tape.adaptive_loss(&x, case.softmax(0.2), &targets, 1.0);
        let all = tape.adaptive_log_probs(&x, case.softmax(0.2), &case.bands);
        let given = sums.log_probs.to_host();
        let mut nll = 0.0;
        for (row, &id) in ids.iter().enumerate() {
            let total: f32 = all.row(row).iter().map(|v| v.exp()).sum();
            assert!((total - 1.0).abs() < 1e-5, "row {row} sums to {total}");
            assert!((all.row(row)[id as usize] - given[row]).abs() < 1e-5, "row {row}");
            nll -= f64::from(given[row]);
        }
        assert!((nll - sums.nll()).abs() < 1e-4);
    }
}
