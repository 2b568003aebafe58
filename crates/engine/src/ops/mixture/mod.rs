//! From gate logits to head weights.
//!
//! An expert leaves some heads out and scales the rest: row e of M `[E, H]` holds h/(h−t) for heads that expert e
//! keeps and 0 for the others. A mixture of experts with gate g is one number per head: `w = g·M`. Drawing one
//! expert is taking one row of M.

pub(super) mod cpu;
pub(super) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;
#[cfg(test)]
mod tests;

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
