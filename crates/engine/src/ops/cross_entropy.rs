//! The label-smoothed loss of features against a vocabulary.
//!
//! With logits `l = x·Eᵀ` and p = softmax(l), fairseq's loss of a target y is
//! `(1−ε)·(−ln p_y) + (ε/V)·Σ_v (−ln p_v)`, summed over tokens. Its gradient `p − (1−ε)·1_y − ε/V` is known as soon
//! as the logits are, so logits exist only for a run of rows at a time and are turned into gradients in place.

use rayon::prelude::*;

use crate::cpu::gemm::{Mat, Precision, gemm};
use crate::cpu::{gemm as products, math, vectorised};
use crate::cuda::ops::cross_entropy as gpu;
use crate::ops::linear::into;
use crate::{Ids, ParamId, Tape, Tensor, Var};

/// Logits held at a time.
const MAX_LOGITS: usize = 1 << 24;

/// What the loss is computed from.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// E, `[V, D]`.
    pub vocabulary: ParamId,
    /// y, `[N]`.
    pub targets: &'a Ids,
    /// ε.
    pub smoothing: f32,
    /// Factor of the gradient (not of the reported sums): 1/target tokens of the whole effective batch.
    pub weight: f32,
}

/// Sums over all tokens, in nats.
#[derive(Clone)]
pub struct LossSums {
    sums: Sums,
    /// ln p of each target, `[N, 1]`.
    pub log_probs: Tensor,
}

#[derive(Clone)]
enum Sums {
    Host([f64; 2]),
    /// `[N, 2]` in device memory: smoothed loss and nll of each row.
    PerRow(Tensor),
}

impl LossSums {
    /// The label-smoothed loss; waits for the device.
    pub fn smoothed(&self) -> f64 {
        self.both()[0]
    }

    /// The plain negative log likelihood; waits for the device.
    pub fn nll(&self) -> f64 {
        self.both()[1]
    }

    /// Smoothed loss and nll; waits for the device.
    pub fn both(&self) -> [f64; 2] {
        match &self.sums {
            Sums::Host(sums) => *sums,
            Sums::PerRow(losses) => gpu::read_sums(losses.gpu(), losses),
        }
    }

    /// Both sums, known on the host.
    pub(crate) fn on_host(sums: [f64; 2], log_probs: Tensor) -> Self {
        Self { sums: Sums::Host(sums), log_probs }
    }

    pub(crate) fn on_gpu(losses: Tensor, log_probs: Tensor) -> Self {
        Self { sums: Sums::PerRow(losses), log_probs }
    }

    /// Adds what row i of `tail` loses to row `rows[i]`; no row is named twice.
    pub(crate) fn add_tail(&mut self, tail: &Self, rows: &Ids) {
        match (&mut self.sums, &tail.sums) {
            (Sums::PerRow(all), Sums::PerRow(own)) => {
                gpu::add_tail(all.gpu(), [&*all, &self.log_probs], [own, &tail.log_probs], rows);
            }
            (Sums::Host(all), Sums::Host(own)) => {
                all.iter_mut().zip(own).for_each(|(all, own)| *all += own);
                let mut log_probs = self.log_probs.to_host();
                for (&row, own) in rows.values().iter().zip(tail.log_probs.values()) {
                    log_probs[row as usize] += own;
                }
                let shape = [self.log_probs.rows(), 1];
                self.log_probs = Tensor::from_host(&crate::Device::cpu(), shape, &log_probs);
            }
            _ => unreachable!("both are losses of one device"),
        }
    }

    /// The losses of a GPU, not summed yet.
    pub(crate) fn per_row(&self) -> Option<&Tensor> {
        match &self.sums {
            Sums::Host(_) => None,
            Sums::PerRow(losses) => Some(losses),
        }
    }
}

impl Tape<'_> {
    /// The loss of features x `[N, D]`; a root of the backward pass.
    pub fn cross_entropy(&mut self, x: &Var, loss: CrossEntropy<'_>) -> LossSums {
        let (rows, width) = (x.rows(), x.cols());
        let types = self.params.block(loss.vocabulary).rows;
        assert_eq!(rows, loss.targets.len(), "cross_entropy: {rows} rows, {} targets", loss.targets.len());
        assert!((loss.targets.max() as usize) < types, "cross_entropy: a target is outside the vocabulary");
        if let Some(gpu) = self.gpu() {
            return gpu::cross_entropy(self, &gpu, x, loss);
        }
        let free = self.is_free(loss.vocabulary);
        let device = self.device().clone();
        let params = self.params;
        let vocabulary = Mat::new(params.values(loss.vocabulary), width);
        let mut dx = x.tracked().then(|| device.scratch(rows * width));
        let mut log_probs = device.scratch(rows);
        let mut sums = [0.0; 2];
        // Even runs, so that the last one is not a sliver.
        let runs = (rows * types).div_ceil(MAX_LOGITS).max(1);
        let per_run = rows.div_ceil(runs).max(1);
        for first in (0..rows).step_by(per_run) {
            let range = first..rows.min(first + per_run);
            let n = range.len();
            let features = Mat::new(&x.values()[first * width..range.end * width], width);
            let mut logits = device.scratch(n * types);
            gemm(
                [n, types, width],
                features,
                vocabulary.t(),
                &mut logits,
                products::Into::Overwrite,
                self.precision(),
            );
            let targets = &loss.targets.values()[range.clone()];
            let gradient_wanted = free || dx.is_some();
            let per_row =
                rows_loss(&mut logits, targets, &mut log_probs[range.clone()], &loss, gradient_wanted);
            for [smoothed, nll] in per_row {
                sums[0] += smoothed;
                sums[1] += nll;
            }
            if free {
                let (gradient, held) = self.gradients().slot(loss.vocabulary);
                gemm(
                    [types, width, n],
                    Mat::new(&logits, types).t(),
                    features,
                    gradient,
                    into(held),
                    Precision::Training,
                );
            }
            if let Some(dx) = &mut dx {
                let part = &mut dx[first * width..range.end * width];
                gemm(
                    [n, width, types],
                    Mat::new(&logits, types),
                    vocabulary,
                    part,
                    products::Into::Overwrite,
                    Precision::Training,
                );
            }
        }
        if rows == 0 && free {
            let (gradient, held) = self.gradients().slot(loss.vocabulary);
            if !held {
                gradient.fill(0.0);
            }
        }
        if let Some(dx) = dx {
            self.seed(x, dx);
        }
        LossSums::on_host(sums, Tensor::new([rows, 1], log_probs))
    }

    /// `x·Eᵀ` for features x `[N, D]`: logits `[N, V]`, for search and tests; no gradient.
    pub fn logits(&mut self, x: &Var, vocabulary: ParamId) -> Tensor {
        if let Some(gpu) = self.gpu() {
            return gpu::logits(self, &gpu, x, vocabulary);
        }
        let (rows, width, types) = (x.rows(), x.cols(), self.params.block(vocabulary).rows);
        let mut logits = self.device().scratch(rows * types);
        let words = Mat::new(self.params.values(vocabulary), width);
        gemm(
            [rows, types, width],
            Mat::new(x.values(), width),
            words.t(),
            &mut logits,
            products::Into::Overwrite,
            Precision::Full,
        );
        Tensor::new([rows, types], logits)
    }
}

/// Per row `[smoothed loss, nll]`; fills ln p of the targets and, if wanted, turns logits into their gradient.
fn rows_loss(
    logits: &mut [f32],
    targets: &[u32],
    log_probs: &mut [f32],
    loss: &CrossEntropy<'_>,
    gradient_wanted: bool,
) -> Vec<[f64; 2]> {
    let types = logits.len() / targets.len().max(1);
    let rows = logits.par_chunks_exact_mut(types).zip(targets).zip(log_probs);
    rows.with_min_len(4)
        .map(|((row, &target), log_prob)| {
            vectorised(
                #[inline(always)]
                || {
                    let target = target as usize;
                    let target_logit = row[target];
                    let total = math::sum_by(row, |v| v);
                    let log_sum = math::softmax(row);
                    let nll = log_sum - target_logit;
                    let smooth = log_sum - total / types as f32;
                    *log_prob = -nll;
                    if gradient_wanted {
                        let even = loss.smoothing / types as f32;
                        row.iter_mut().for_each(|p| *p = (*p - even) * loss.weight);
                        row[target] -= (1.0 - loss.smoothing) * loss.weight;
                    }
                    let smoothed = f64::from(1.0 - loss.smoothing) * f64::from(nll);
                    [smoothed + f64::from(loss.smoothing) * f64::from(smooth), f64::from(nll)]
                },
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{GroupId, GroupSet, ParamsBuilder};
    use crate::{Device, Rng};

    /// The loss is a root, so it is checked against its own differences and not through `gradcheck`.
    #[test]
    fn gradients_match_finite_differences() {
        let (rows, width, types, group) = (5, 3, 11, GroupId(0));
        let device = Device::cpu();
        let mut builder = ParamsBuilder::default();
        let vocabulary = builder.matrix("vocabulary".into(), [types, width], group);
        let features = builder.matrix("features".into(), [rows, width], group);
        let mut params = builder.finish(&device);
        for (i, (name, count)) in
            [("vocabulary", types * width), ("features", rows * width)].into_iter().enumerate()
        {
            let stream = Rng::new(2, 0).stream(i as u32);
            params.set(name, &(0..count).map(|j| stream.normal(j as u32, 0)).collect::<Vec<_>>()).unwrap();
        }
        let targets = Ids::from_host(&device, &[0, 10, 3, 3, 7]);
        let loss = CrossEntropy { vocabulary, targets: &targets, smoothing: 0.1, weight: 0.25 };
        let value = |params: &crate::Params| {
            let mut tape = Tape::evaluation(params);
            let x = tape.parameter(features);
            tape.cross_entropy(&x, loss).smoothed()
        };
        let mut gradients = params.gradients();
        let mut tape = Tape::training(&params, &mut gradients, GroupSet::of(&[group]), Rng::new(1, 1));
        let x = tape.parameter(features);
        tape.cross_entropy(&x, loss);
        tape.backward();
        for name in ["vocabulary", "features"] {
            let gradient = gradients.get(&params, name).unwrap().unwrap();
            let original = params.get(name).unwrap();
            for i in 0..original.len() {
                let mut at = |delta: f32| {
                    let mut moved = original.clone();
                    moved[i] += delta;
                    params.set(name, &moved).unwrap();
                    value(&params)
                };
                let numeric = 0.25 * (at(1e-2) - at(-1e-2)) / 2e-2;
                assert!(
                    (numeric - f64::from(gradient[i])).abs() < 1e-4,
                    "d{name}[{i}] {} {numeric}",
                    gradient[i]
                );
            }
            params.set(name, &original).unwrap();
        }
    }

    #[test]
    fn a_uniform_model_loses_ln_v() {
        let device = Device::cpu();
        let mut builder = ParamsBuilder::default();
        let vocabulary = builder.matrix("vocabulary".into(), [7, 2], GroupId(0));
        let params = builder.finish(&device);
        let targets = Ids::from_host(&device, &[1, 2, 3]);
        let x = Var::constant(Tensor::from_host(&device, [3, 2], &[1.0; 6]));
        let loss = CrossEntropy { vocabulary, targets: &targets, smoothing: 0.1, weight: 1.0 };
        let sums = Tape::evaluation(&params).cross_entropy(&x, loss);
        assert!((sums.nll() - 3.0 * 7f64.ln()).abs() < 1e-5);
        assert!((sums.smoothed() - 3.0 * 7f64.ln()).abs() < 1e-5);
    }
}
