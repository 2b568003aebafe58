//! From gate logits to head weights.
//!
//! An expert leaves some heads out and scales the rest: row e of M `[E, H]` holds h/(h−t) for heads that expert e
//! keeps and 0 for the others. A mixture of experts with gate g is one number per head: `w = g·M`. Drawing one
//! expert is taking one row of M.

use crate::cpu::{for_rows, math, vectorised};
use crate::cuda::ops::mixture as gpu_ops;
use crate::ops::linear::Activation;
use crate::{Ids, ParamId, Segments, Tape, Tensor, Var};

/// Which expert a row takes when it takes only one.
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
        if let Some(gpu) = self.gpu().filter(|_| gpu_ops::fits(self, network)) {
            let dropout = self.next_dropout(network.dropout);
            // The second layer drops nothing, and has its number all the same.
            self.next_stream();
            let streams = (dropout, self.next_stream());
            return gpu_ops::pick_by_gate(self, &gpu, x, network, experts, pick, streams);
        }
        let logits = self.gate_logits(x, network);
        self.pick_experts(&logits, experts, pick)
    }

    /// `g = softmax(logits)`, `w = g·M`; logits `[n, E]`, M `[E, H]`.
    pub fn mix_experts(&mut self, logits: &Var, experts: &Tensor) -> HeadMix {
        if let Some(gpu) = self.gpu() {
            return gpu_ops::mix_experts(self, &gpu, logits, experts);
        }
        let gates = self.gates(logits, experts);
        let (heads, count) = (experts.cols(), experts.rows());
        let mut weights = self.device().scratch(logits.rows() * heads);
        for_rows(
            &mut weights,
            heads,
            #[inline(always)]
            |first, rows| {
                for (i, w) in rows.chunks_exact_mut(heads).enumerate() {
                    w.fill(0.0);
                    for (e, g) in gates.row(first + i).iter().enumerate() {
                        w.iter_mut().zip(experts.row(e)).for_each(|(w, m)| *w = g.mul_add(*m, *w));
                    }
                }
            },
        );
        let weights = self.output([logits.rows(), heads], weights, logits.tracked());
        let (logits, experts, own) = (logits.clone(), experts.clone(), gates.clone());
        self.record(&weights, move |backward, dw| {
            backward.input(&logits, |dl, held| {
                for_rows(
                    dl,
                    count,
                    #[inline(always)]
                    |first, rows| {
                        let mut dg = vec![0.0; count];
                        for (i, dl) in rows.chunks_exact_mut(count).enumerate() {
                            let (g, dw) = (own.row(first + i), &dw[(first + i) * heads..][..heads]);
                            for (e, dg) in dg.iter_mut().enumerate() {
                                *dg = math::dot(dw, experts.row(e));
                            }
                            let mean = math::dot(g, &dg);
                            for ((dl, g), dg) in dl.iter_mut().zip(g).zip(&dg) {
                                let value = g * (dg - mean);
                                *dl = if held { *dl + value } else { value };
                            }
                        }
                    },
                );
            });
        });
        HeadMix { weights, gates }
    }

    /// One expert per row, by `pick`; logits `[n, E]`. No gradient flows to the logits.
    pub fn pick_experts(&mut self, logits: &Var, experts: &Tensor, pick: &Pick) -> HeadMix {
        if let Some(gpu) = self.gpu() {
            let stream = self.next_stream();
            let rows = logits.rows();
            return gpu_ops::pick_experts(self, &gpu, rows, Some(logits), experts, pick, stream);
        }
        let gates = self.gates(logits, experts);
        let chosen = self.choose(&gates, pick);
        HeadMix { weights: self.rows_of(experts, &chosen), gates }
    }

    /// One expert per row where there are no gates: all experts are equally likely.
    pub fn pick_ungated(&mut self, rows: usize, experts: &Tensor, pick: &Pick) -> HeadMix {
        if let Some(gpu) = self.gpu() {
            let stream = self.next_stream();
            return gpu_ops::pick_experts(self, &gpu, rows, None, experts, pick, stream);
        }
        let even = vec![1.0 / experts.rows() as f32; rows * experts.rows()];
        let gates = Tensor::from_host(self.device(), [rows, experts.rows()], &even);
        let chosen = self.choose(&gates, pick);
        HeadMix { weights: self.rows_of(experts, &chosen), gates }
    }

    fn gates(&self, logits: &Var, experts: &Tensor) -> Tensor {
        let count = experts.rows();
        assert_eq!(logits.cols(), count, "mixture: {} logits for {count} experts", logits.cols());
        let mut gates = self.device().scratch(logits.rows() * count);
        gates.copy_from_slice(logits.values());
        for_rows(
            &mut gates,
            count,
            #[inline(always)]
            |_, rows| {
                rows.chunks_exact_mut(count).for_each(|row| {
                    math::softmax(row);
                });
            },
        );
        Tensor::new([logits.rows(), count], gates)
    }

    fn choose(&mut self, gates: &Tensor, pick: &Pick) -> Vec<u32> {
        let stream = self.next_stream();
        let draw = |row: usize| stream.expect("experts are drawn in training passes").uniform(row as u32, 0);
        match pick {
            Pick::Sample => (0..gates.rows()).map(|row| inverse_cdf(gates.row(row), draw(row))).collect(),
            Pick::SamplePerSentence(segments) => segments
                .ranges()
                .enumerate()
                .flat_map(|(sentence, range)| range.map(move |row| (sentence, row)))
                .map(|(sentence, row)| inverse_cdf(gates.row(row), draw(sentence)))
                .collect(),
            Pick::Argmax => (0..gates.rows()).map(|row| argmax(gates.row(row))).collect(),
            Pick::Fixed(expert) => vec![*expert; gates.rows()],
            Pick::Given(ids) => ids.values().to_vec(),
        }
    }

    fn rows_of(&mut self, experts: &Tensor, chosen: &[u32]) -> Var {
        let heads = experts.cols();
        let mut weights = self.device().scratch(chosen.len() * heads);
        for (w, &expert) in weights.chunks_exact_mut(heads).zip(chosen) {
            w.copy_from_slice(experts.row(expert as usize));
        }
        Var::constant(Tensor::new([chosen.len(), heads], weights))
    }
}

/// The first index whose cumulative probability exceeds `u`.
fn inverse_cdf(gate: &[f32], u: f32) -> u32 {
    let mut sum = 0.0;
    let found = gate.iter().position(|g| {
        sum += g;
        u < sum
    });
    // Rounding can leave the sum a little below 1: then the last expert with any probability.
    found.unwrap_or_else(|| gate.iter().rposition(|&g| g > 0.0).unwrap_or(0)) as u32
}

/// The first index of the largest value.
fn argmax(gate: &[f32]) -> u32 {
    vectorised(
        #[inline(always)]
        || {
            let highest = math::max(gate);
            gate.iter().position(|&g| g == highest).unwrap_or(0) as u32
        },
    )
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
