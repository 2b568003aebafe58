//! The label-smoothed loss of features against a vocabulary.
//!
//! With logits `l = x·Eᵀ` (or `x·Eᵀ + b`) and p = softmax(l), fairseq's loss of a target y is
//! `(1−ε)·(−ln p_y) + (ε/V)·Σ_v (−ln p_v)`, summed over tokens. Its gradient `p − (1−ε)·1_y − ε/V` is known as soon
//! as the logits are, so logits exist only for a run of rows at a time and are turned into gradients in place.

mod cpu;
pub(crate) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;
mod sums;

pub use self::sums::LossSums;
use crate::device::Backend;
use crate::{Ids, ParamId, Tape, Tensor, Var};

/// Inputs of the loss.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// E, `[V, D]`.
    pub vocabulary: ParamId,
    /// b, a vector of V values, if there is one.
    pub bias: Option<ParamId>,
    /// y, `[N]`.
    pub targets: &'a Ids,
    /// ε.
    pub smoothing: f32,
    /// Factor of the gradient (not of the reported sums): 1/target tokens of the whole effective batch.
    pub weight: f32,
}

impl Tape<'_> {
    /// The loss of features x `[N, D]`; a root of the backward pass.
    pub fn cross_entropy(&mut self, x: &Var, loss: CrossEntropy<'_>) -> LossSums {
        let (rows, block) = (x.rows(), self.params.block(loss.vocabulary));
        assert_eq!(rows, loss.targets.len(), "cross_entropy: {rows} rows, {} targets", loss.targets.len());
        assert_eq!(x.cols(), block.cols, "cross_entropy: features are not as wide as the vocabulary");
        assert!(
            (loss.targets.max() as usize) < block.rows,
            "cross_entropy: a target is outside the vocabulary"
        );
        self.check_bias(loss.bias, block.rows);
        let mut dx = x.tracked().then(|| self.like(x));
        let mut log_probs = self.device().scratch_floats(rows);
        let sums = match self.backend() {
            Backend::Cpu => {
                let sums = cpu::forward(self, x, &loss, dx.as_deref_mut(), &mut log_probs);
                LossSums::on_host(sums, Tensor::new([rows, 1], log_probs))
            }
            Backend::Gpu(gpu) => {
                let losses = cuda::forward(gpu, self, x, &loss, dx.as_ref(), &log_probs);
                LossSums::on_gpu(losses, Tensor::new([rows, 1], log_probs))
            }
        };
        if let Some(dx) = dx {
            self.seed(x, dx);
        }
        sums
    }

    /// `x·Eᵀ`, or `x·Eᵀ + b`, for features x `[N, D]`: logits `[N, V]`, for search and tests; no gradient.
    pub fn logits(&mut self, x: &Var, vocabulary: ParamId, bias: Option<ParamId>) -> Tensor {
        let (rows, types) = (x.rows(), self.params.block(vocabulary).rows);
        self.check_bias(bias, types);
        let mut logits = self.device().scratch(rows * types);
        match self.backend() {
            Backend::Cpu => cpu::logits(self.params, x, vocabulary, bias, &mut logits),
            Backend::Gpu(gpu) => cuda::logits(gpu, self.params, x, vocabulary, bias, &logits),
        }
        Tensor::new([rows, types], logits)
    }

    fn check_bias(&self, bias: Option<ParamId>, types: usize) {
        let values = bias.map_or(types, |bias| self.params.block(bias).rows * self.params.block(bias).cols);
        assert_eq!(values, types, "cross_entropy: a bias of {values} values for {types} types");
    }
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
        let bias = builder.vector("bias".into(), types, group);
        let mut params = builder.finish(&device);
        for (i, (name, count)) in [("vocabulary", types * width), ("features", rows * width), ("bias", types)]
            .into_iter()
            .enumerate()
        {
            let stream = Rng::new(2, 0).stream(i as u32);
            params.set(name, &(0..count).map(|j| stream.normal(j as u32, 0)).collect::<Vec<_>>()).unwrap();
        }
        let targets = Ids::from_host(&device, &[0, 10, 3, 3, 7]);
        let loss =
            CrossEntropy { vocabulary, bias: Some(bias), targets: &targets, smoothing: 0.1, weight: 0.25 };
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
        for name in ["vocabulary", "features", "bias"] {
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
        let loss = CrossEntropy { vocabulary, bias: None, targets: &targets, smoothing: 0.1, weight: 1.0 };
        let sums = Tape::evaluation(&params).cross_entropy(&x, loss);
        assert!((sums.nll() - 3.0 * 7f64.ln()).abs() < 1e-5);
        assert!((sums.smoothed() - 3.0 * 7f64.ln()).abs() < 1e-5);
    }
}
