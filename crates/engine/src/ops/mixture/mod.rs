//! From gate logits to head weights.
//!
//! An expert leaves some heads out and scales the rest: row e of M `[E, H]` holds h/(h−t) for heads that expert e
//! keeps and 0 for the others. A mixture of experts with gate g is one number per head: `w = g·M`. Drawing one
//! expert is taking one row of M.

pub(super) mod cpu;
pub(super) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::{Backend, Buffer};
use crate::ops::linear::Activation;
use crate::{Ids, ParamId, Segments, Tape, Tensor, Var};

/// The expert of a row that takes only one.
#[derive(Clone, Debug)]
pub enum Pick {
    /// Drawn from the row's gate.
    Sample,
    /// Drawn from the row's gate with one random number per sentence, so that rows with equal gates agree.
    SamplePerSentence(Segments),
    /// The most likely one.
    Argmax,
    /// Expert number i for all rows.
    Fixed(u32),
    /// Given row by row.
    Given(Ids),
}

/// The network of a gate: logits = W₂·dropout(tanh(W₁·x + b₁)) + b₂.
#[derive(Clone, Copy, Debug)]
pub struct GateNetwork {
    /// W₁ `[hidden, D]` and b₁.
    pub fc1: [ParamId; 2],
    /// W₂ `[E, hidden]` and b₂.
    pub fc2: [ParamId; 2],
    /// Dropout of the hidden units.
    pub dropout: f32,
}

/// Head weights `[n, H]` and the gates `[n, E]` they came from.
pub struct HeadMix {
    /// w.
    pub weights: Var,
    /// g, for reports; carries no gradient.
    pub gates: Tensor,
}

/// Memory for the gates `[n, E]` and head weights `[n, H]` of n rows.
pub(crate) struct Results {
    shapes: [[usize; 2]; 2],
    gates: Buffer,
    weights: Buffer,
}

impl Results {
    pub(crate) fn new(tape: &Tape<'_>, rows: usize, experts: &Tensor) -> Self {
        let shapes = [[rows, experts.rows()], [rows, experts.cols()]];
        let [gates, weights] = shapes.map(|[rows, cols]| tape.device().scratch_floats(rows * cols));
        Self { shapes, gates, weights }
    }

    /// Without a gradient.
    pub(crate) fn constant(self) -> HeadMix {
        let [gates, weights] = self.shapes;
        HeadMix {
            weights: Var::constant(Tensor::new(weights, self.weights)),
            gates: Tensor::new(gates, self.gates),
        }
    }
}

impl Tape<'_> {
    /// Logits `[n, E]` of a gate's network; x `[n, D]`.
    pub fn gate_logits(&mut self, x: &Var, network: &GateNetwork) -> Var {
        let GateNetwork { fc1, fc2, dropout } = network;
        let hidden = self.linear(x, fc1[0], fc1[1], Activation::Tanh, *dropout);
        self.linear(&hidden, fc2[0], fc2[1], Activation::Identity, 0.0)
    }

    /// One expert per row by a gate's network: [`Tape::gate_logits`], then [`Tape::pick_experts`]. No gradient flows to
    /// the gate.
    pub fn pick_by_gate(&mut self, x: &Var, network: &GateNetwork, experts: &Tensor, pick: &Pick) -> HeadMix {
        self.weigh_by_gate(x, network, experts, Some(pick)).unwrap_or_else(|| {
            let logits = self.gate_logits(x, network);
            self.pick_experts(&logits, experts, pick)
        })
    }

    /// All experts by a gate's network: [`Tape::gate_logits`], then [`Tape::mix_experts`].
    pub fn mix_by_gate(&mut self, x: &Var, network: &GateNetwork, experts: &Tensor) -> HeadMix {
        let [fc1, fc2] = [network.fc1, network.fc2];
        let tracked = self.uses(fc1) | self.uses(fc2) | x.tracked();
        let whole = if tracked { None } else { self.weigh_by_gate(x, network, experts, None) };
        whole.unwrap_or_else(|| {
            let logits = self.gate_logits(x, network);
            self.mix_experts(&logits, experts)
        })
    }

    /// One kernel for what follows the first product, without a gradient, where there is such a kernel: on a CPU, in
    /// evaluation. `pick` `None`: the mixture.
    fn weigh_by_gate(
        &mut self,
        x: &Var,
        network: &GateNetwork,
        experts: &Tensor,
        pick: Option<&Pick>,
    ) -> Option<HeadMix> {
        let fits = match self.backend() {
            Backend::Gpu(_) => cuda::fits(self.params, network),
            Backend::Cpu => !self.is_training() && cpu::fits(self.params, network),
        };
        if !fits {
            return None;
        }
        assert_eq!(self.params.block(network.fc2[0]).rows, experts.rows(), "mixture: logits and experts");
        let dropout = self.next_dropout(network.dropout);
        // The second layer drops nothing, and takes its stream all the same.
        self.next_stream();
        let stream = pick.and_then(|_| self.next_stream());
        let mut results = Results::new(self, x.rows(), experts);
        match self.backend() {
            Backend::Cpu => cpu::weigh_by_gate(self.params, x, network, experts, pick, &mut results),
            Backend::Gpu(gpu) => {
                let gate = cuda::Gate { x, network, dropout };
                let picking = cuda::picking(gpu, pick, stream);
                cuda::weigh_by_gate(gpu, self.params, &gate, experts, picking, &results);
            }
        }
        Some(results.constant())
    }

    /// `g = softmax(logits)`, `w = g·M`; logits `[n, E]`, M `[E, H]`.
    pub fn mix_experts(&mut self, logits: &Var, experts: &Tensor) -> HeadMix {
        check(logits, experts);
        let mut results = Results::new(self, logits.rows(), experts);
        match self.backend() {
            Backend::Cpu => cpu::mix(logits, experts, &mut results),
            Backend::Gpu(gpu) => cuda::mix(gpu, logits, experts, &results),
        }
        let Results { shapes, gates, weights } = results;
        let gates = Tensor::new(shapes[0], gates);
        let weights = self.output(shapes[1], weights, logits.tracked());
        let (logits, experts, own) = (logits.clone(), experts.clone(), gates.clone());
        self.record(&weights, move |backward, dw| match backward.backend() {
            Backend::Cpu => cpu::mix_backward(backward, &logits, &experts, &own, &dw),
            Backend::Gpu(gpu) => cuda::mix_backward(gpu, backward, &logits, &experts, &own, &dw),
        });
        HeadMix { weights, gates }
    }

    /// One expert per row, by `pick`; logits `[n, E]`. No gradient flows to the logits.
    pub fn pick_experts(&mut self, logits: &Var, experts: &Tensor, pick: &Pick) -> HeadMix {
        check(logits, experts);
        self.pick(logits.rows(), Some(logits), experts, pick)
    }

    /// One expert per row where there are no gates: all experts are equally likely.
    pub fn pick_ungated(&mut self, rows: usize, experts: &Tensor, pick: &Pick) -> HeadMix {
        self.pick(rows, None, experts, pick)
    }

    fn pick(&mut self, rows: usize, logits: Option<&Var>, experts: &Tensor, pick: &Pick) -> HeadMix {
        let stream = self.next_stream();
        let mut results = Results::new(self, rows, experts);
        match self.backend() {
            Backend::Cpu => cpu::pick(logits, experts, pick, stream, &mut results),
            Backend::Gpu(gpu) => {
                cuda::pick(gpu, logits, experts, cuda::picking(gpu, Some(pick), stream), &results)
            }
        }
        results.constant()
    }
}

fn check(logits: &Var, experts: &Tensor) {
    let (logits, count) = (logits.cols(), experts.rows());
    assert_eq!(logits, count, "mixture: {logits} logits for {count} experts");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;
    use crate::{Device, GroupSet, ParamsBuilder, Rng};

    fn experts(device: &Device) -> Tensor {
        // Four heads, experts that leave one out.
        let scale = 4.0 / 3.0;
        let rows: Vec<f32> = (0..16).map(|i| if i / 4 == i % 4 { 0.0 } else { scale }).collect();
        Tensor::from_host(device, [4, 4], &rows)
    }

    #[test]
    fn gradients_match_finite_differences() {
        for rows in [1, 7] {
            let experts = experts(&Device::cpu());
            let mut check = Check::new();
            let logits = check.param("logits", [rows, 4]);
            check.run(move |tape| {
                let logits = tape.parameter(logits);
                tape.mix_experts(&logits, &experts).weights
            });
        }
    }

    #[test]
    fn uniform_gates_weigh_every_head_one_and_weights_sum_to_the_heads() {
        let device = Device::cpu();
        let params = ParamsBuilder::default().finish(&device);
        let mut tape = Tape::evaluation(&params);
        let logits =
            Var::constant(Tensor::from_host(&device, [2, 4], &[0.3, 0.3, 0.3, 0.3, 2.0, -1.0, 0.0, 0.5]));
        let mix = tape.mix_experts(&logits, &experts(&device));
        let w = mix.weights.tensor().to_host();
        w[..4].iter().for_each(|w| assert!((w - 1.0).abs() < 1e-6));
        assert!((w[4..].iter().sum::<f32>() - 4.0).abs() < 1e-5);
        let argmax = tape.pick_experts(&logits, &experts(&device), &Pick::Argmax);
        assert_eq!(argmax.weights.tensor().to_host()[4], 0.0);
    }

    #[test]
    fn a_gate_in_one_go_is_that_of_its_ops_row_by_row() {
        let (width, hidden) = (24, 10);
        let random = |seed: u64, len: usize| {
            let stream = Rng::new(seed, 0).stream(0);
            (0..len as u32).map(|i| stream.normal(i, 0)).collect::<Vec<f32>>()
        };
        let device = Device::cpu();
        let mut builder = ParamsBuilder::default();
        let group = crate::GroupId(0);
        let network = GateNetwork {
            fc1: [
                builder.matrix("w1".into(), [hidden, width], group),
                builder.vector("b1".into(), hidden, group),
            ],
            fc2: [builder.matrix("w2".into(), [4, hidden], group), builder.vector("b2".into(), 4, group)],
            dropout: 0.5,
        };
        let mut params = builder.finish(&device);
        for (seed, (name, len)) in
            [("w1", hidden * width), ("b1", hidden), ("w2", 4 * hidden), ("b2", 4)].into_iter().enumerate()
        {
            params.set(name, &random(seed as u64, len)).unwrap();
        }
        let experts = experts(&device);
        let mut single = Vec::new();
        for rows in [1, 3, 33, 70] {
            let x = Var::constant(Tensor::from_host(&device, [rows, width], &random(9, rows * width)));
            let mut tape = Tape::evaluation(&params);
            let logits = tape.gate_logits(&x, &network);
            let plain = tape.mix_experts(&logits, &experts);
            let whole = tape.mix_by_gate(&x, &network, &experts);
            let close = |a: &Tensor, b: &Tensor| {
                let (a, b) = (a.to_host(), b.to_host());
                assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{rows} rows: {a:?} {b:?}");
            };
            close(&whole.gates, &plain.gates);
            close(whole.weights.tensor(), plain.weights.tensor());
            let (picked, by_ops) = (
                tape.pick_by_gate(&x, &network, &experts, &Pick::Argmax),
                tape.pick_experts(&logits, &experts, &Pick::Argmax),
            );
            close(picked.weights.tensor(), by_ops.weights.tensor());
            let weights = whole.weights.tensor().to_host();
            if rows == 1 {
                single.clone_from(&weights);
            }
            // Up to rounding: processors with AMX add up products of many rows in another order than those of few.
            let alike = weights[..4].iter().zip(&single).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(alike, "a row depends on itself only: {:?} {single:?}", &weights[..4]);
        }
    }

    #[test]
    fn draws_follow_the_gate() {
        let device = Device::cpu();
        let params = ParamsBuilder::default().finish(&device);
        let rows = 20_000;
        let logits: Vec<f32> = [0.1f32, 0.2, 0.3, 0.4].map(f32::ln).repeat(rows);
        let logits = Var::constant(Tensor::from_host(&device, [rows, 4], &logits));
        let mut gradients = params.gradients();
        let mut tape = Tape::training(&params, &mut gradients, GroupSet::NONE, Rng::new(9, 4));
        let picked = tape.pick_experts(&logits, &experts(&device), &Pick::Sample).weights.tensor().to_host();
        for (e, want) in [0.1, 0.2, 0.3, 0.4].into_iter().enumerate() {
            let share = picked.chunks_exact(4).filter(|w| w[e] == 0.0).count() as f64 / rows as f64;
            assert!((share - want).abs() < 0.015, "expert {e}: {share} of the draws, gate {want}");
        }
        let halves = Segments::from_host(&device, &[0, rows as u32 / 2, rows as u32]);
        let pick = Pick::SamplePerSentence(halves);
        let picked = tape.pick_experts(&logits, &experts(&device), &pick).weights.tensor().to_host();
        assert!(
            picked.chunks_exact(4).take(rows / 2).all(|w| *w == picked[..4]),
            "equal gates agree in a sentence"
        );
    }
}
