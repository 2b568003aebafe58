//! Hard concrete gates (Louizos et al., 2018; of heads: Voita et al., 2019): one number for each head, closed at 0, open
//! at 1, and the same for all rows.
//!
//! ```text
//! g = clip(1.2·σ((ln u − ln(1 − u) + log a)/0.33) − 0.1, 0, 1)     u ~ U(0, 1), one for each head and pass
//! g = clip(1.2·σ(log a) − 0.1, 0, 1)                               in evaluation
//! ```
//!
//! Most draws are exactly 0 or 1. The penalty, a loss of its own, is λ times the expected number of heads that are not
//! closed in training, Σ σ(log a + 0.33·ln 11).

mod cpu;
pub(crate) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::Backend;
use crate::rng::Stream;
use crate::tape::BatchShare;
use crate::{Ids, ParamId, Tape, Tensor, Var};

/// Temperature of draws.
const TEMPERATURE: f32 = 0.33;
/// Values of a sigmoid are stretched to `(LOW, LOW + WIDTH)` before they are clipped.
const LOW: f32 = -0.1;
const WIDTH: f32 = 1.2;
/// 0.33·ln(1.1/0.1): a head is closed if its draw is below this much under −log a.
const CLOSED: f32 = 0.791_305_4;
/// Draws are at least this far from 0 and 1.
const MARGIN: f32 = 1e-6;
/// Steps of given draws.
const STEPS: f32 = 65_536.0;

/// Hard concrete gates of an attention.
#[derive(Clone, Copy, Debug)]
pub struct HardConcrete {
    /// log a − `start`, one number for each head.
    pub log_a: ParamId,
    /// log a where the parameter is 0.
    pub start: f32,
    /// λ.
    pub penalty: f32,
}

/// Draws of a pass.
#[derive(Clone, Debug)]
pub enum Noise {
    /// Drawn in training, none in evaluation.
    Drawn,
    /// u = (number + ½)/65,536 for each head; for tests.
    Given(Ids),
}

/// Draws as the backends see them.
enum Draws {
    Nothing,
    Stream(Stream),
    Given(Ids),
}

/// The op and what the backward pass needs.
struct Op {
    gate: HardConcrete,
    temperature: f32,
    weights: Tensor,
    batch: Option<BatchShare>,
}

impl Tape<'_> {
    /// Gates of all heads for `rows` rows, `[rows, H]`. In training the penalty is added to the loss of the batch
    /// ([`Tape::share_losses`]).
    pub fn hard_concrete(&mut self, gate: HardConcrete, rows: usize, noise: &Noise) -> Var {
        let (params, block) = (self.params, self.params.block(gate.log_a));
        let heads = block.rows * block.cols;
        let stream = self.next_stream();
        let draws = match (noise, stream) {
            (Noise::Given(ids), _) => {
                assert_eq!(ids.len(), heads, "hard_concrete: {} draws for {heads} heads", ids.len());
                Draws::Given(ids.clone())
            }
            (Noise::Drawn, Some(stream)) => Draws::Stream(stream),
            (Noise::Drawn, None) => Draws::Nothing,
        };
        let temperature = if matches!(draws, Draws::Nothing) { 1.0 } else { TEMPERATURE };
        let mut weights = self.device().scratch_floats(rows * heads);
        match self.backend() {
            Backend::Cpu => cpu::forward(params, gate, &draws, &mut weights),
            Backend::Gpu(gpu) => cuda::forward(gpu, params, gate, &draws, [rows, heads], &weights),
        }
        let weights = self.output([rows, heads], weights, self.uses([gate.log_a]) && rows > 0);
        let batch = self.batch_share().filter(|_| gate.penalty > 0.0);
        let op = Op { gate, temperature, weights: weights.tensor().clone(), batch };
        self.record(&weights, move |backward, dw| match backward.backend() {
            Backend::Cpu => cpu::backward(backward, &op, &dw),
            Backend::Gpu(gpu) => cuda::backward(gpu, backward, &op, &dw),
        });
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;
    use crate::params::{GroupId, GroupSet, Params, ParamsBuilder};
    use crate::{Device, Gradients, Rng, Segments};

    const HEADS: usize = 7;

    fn gate(values: &[f32]) -> (Params, HardConcrete) {
        let mut builder = ParamsBuilder::default();
        let log_a = builder.vector("log_a".into(), values.len(), GroupId(0));
        let mut params = builder.finish(&Device::cpu());
        params.set("log_a", values).unwrap();
        (params, HardConcrete { log_a, start: 0.0, penalty: 0.0 })
    }

    fn tape<'p>(params: &'p Params, gradients: &'p mut Gradients, step: u32) -> Tape<'p> {
        Tape::training(params, gradients, GroupSet::of(&[GroupId(0)]), Rng::new(1, step))
    }

    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    #[test]
    fn gradients_match_finite_differences() {
        // Draws in the middle, so that no gate is at a corner.
        for (rows, heads) in [(1, 1), (5, 3), (131, 2)] {
            let mut check = Check::new();
            let log_a = check.shifted("log_a", [1, heads], |_| -0.4);
            let given = Ids::from_host(&Device::cpu(), &vec![33_000; heads]);
            check.run(move |tape| {
                let gate = HardConcrete { log_a, start: 0.5, penalty: 0.0 };
                tape.hard_concrete(gate, rows, &Noise::Given(given.clone()))
            });
        }
    }

    #[test]
    fn evaluation_is_the_formula_without_noise() {
        let values = [-9.0, -2.5, -2.3, 0.0, 0.7, 2.3, 2.5];
        let (params, mut gate) = gate(&values);
        let got = Tape::evaluation(&params).hard_concrete(gate, 2, &Noise::Drawn).tensor().to_host();
        for (i, got) in got.iter().enumerate() {
            let want = (1.2 * sigmoid(f64::from(values[i % HEADS])) - 0.1).clamp(0.0, 1.0);
            assert!((f64::from(*got) - want).abs() < 1e-6, "head {}: {got}, {want}", i % HEADS);
        }
        assert_eq!((got[0], got[1], got[HEADS - 1]), (0.0, 0.0, 1.0));
        gate.start = 20.0;
        let open = Tape::evaluation(&params).hard_concrete(gate, 1, &Noise::Drawn).tensor().to_host();
        assert_eq!(open, [1.0; HEADS]);
        assert_eq!(Tape::evaluation(&params).hard_concrete(gate, 0, &Noise::Drawn).rows(), 0);
    }

    /// All rows see one draw, passes see others, and heads are closed as often as the penalty says.
    #[test]
    fn draws_close_heads_as_often_as_the_penalty_counts() {
        let values = [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0];
        let (params, gate) = gate(&values);
        let passes = 4_000;
        let mut open = [0.0; HEADS];
        for pass in 0..passes {
            let mut gradients = params.gradients();
            let mut tape = tape(&params, &mut gradients, pass);
            let got = tape.hard_concrete(gate, 2, &Noise::Drawn).tensor().to_host();
            assert_eq!(got[..HEADS], got[HEADS..]);
            got[..HEADS].iter().enumerate().for_each(|(j, g)| open[j] += f64::from(*g > 0.0));
        }
        for (value, open) in values.into_iter().zip(open) {
            let (share, want) = (open / f64::from(passes), sigmoid(f64::from(value) + f64::from(CLOSED)));
            assert!((share - want).abs() < 0.03, "log a {value}: open {share}, {want}");
        }
        assert!((f64::from(CLOSED) - 0.33 * 11f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn the_penalty_has_the_gradient_of_its_formula() {
        let values = [-9.0, -2.0, -0.5, 0.0, 0.5, 2.0, 9.0];
        let (params, gate) = gate(&values);
        let gate = HardConcrete { penalty: 0.5, start: 0.25, ..gate };
        let mut gradients = params.gradients();
        let mut tape = tape(&params, &mut gradients, 1);
        tape.scale_own_losses(0.5);
        tape.share_losses(&Segments::from_host(&Device::cpu(), &[0, 4, 9]), 0.25, 3);
        let weights = tape.hard_concrete(gate, 3, &Noise::Drawn);
        tape.seed_from_host(&weights, &[0.0; 3 * HEADS]);
        tape.backward();
        let got = gradients.get(&params, "log_a").unwrap().unwrap();
        for (value, got) in values.into_iter().zip(got) {
            let open = sigmoid(f64::from(value) + 0.25 + f64::from(CLOSED));
            let want = 0.5 * 0.5 * (9.0 * 0.25) * open * (1.0 - open);
            assert!((f64::from(got) - want).abs() < 1e-6, "log a {value}: {got}, {want}");
        }
    }
}
