//! From logits to the head weights of MoH (Jin et al., 2024): some heads are shared by all rows, of the others each row
//! uses the k whose logits are largest.
//!
//! A row of logits `[h + 2]` is that of the shared heads, that of the routed heads, and two numbers that divide the row
//! between them. With s, p and a the softmax of each part, and m the mask of the k largest of p (equal ones: the first):
//!
//! ```text
//! w_j = 2·a₀·h_s·s_j                    shared heads, j < h_s
//! w_j = 2·a₁·k·p_j·m_j / Σ p∘m          routed heads
//! ```
//!
//! Equal logits weigh every head in use 1. The balance loss keeps routed heads in use: h_r·Σ_e P_e·F_e, where P and F are
//! the means of p and m over the rows of the batch; its gradient flows through P.

mod cpu;
pub(crate) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::{Backend, Buffer};
use crate::tape::{BatchShare, RealRows};
use crate::{Segments, Tape, Tensor, Var};

/// Division of the heads, and the loss that balances the use of routed ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// h_s: heads that every row uses.
    pub shared: usize,
    /// k: routed heads that a row uses.
    pub active: usize,
    /// Factor of the balance loss, which is a mean over the gates of a model.
    pub balance: f32,
}

/// The op with its input and what the backward pass needs.
struct Op {
    logits: Var,
    routing: Routing,
    heads: usize,
    /// s, p and a, `[n, h + 2]`.
    shares: Tensor,
    weights: Tensor,
    balance: Option<Balance>,
}

/// The balance loss of a batch.
struct Balance {
    /// Rows that use each routed head, in parts to be added up, `[parts, h_r]`.
    used: Buffer,
    /// Rows of the gate that are there.
    rows: RealRows,
    batch: BatchShare,
}

impl Op {
    fn routed(&self) -> usize {
        self.heads - self.routing.shared
    }
}

impl Tape<'_> {
    /// Head weights `[n, h]` of logits `[n, h + 2]`. `sentences`: whose rows the logits have, if they are positions.
    /// In training the balance loss is added to that of the batch ([`Tape::share_losses`]).
    ///
    /// # Panics
    ///
    /// If there are no shared or no active heads, or more than heads.
    pub fn route_heads(&mut self, logits: &Var, routing: Routing, sentences: Option<&Segments>) -> Var {
        let [rows, cols] = logits.shape();
        let heads = cols.saturating_sub(2);
        let Routing { shared, active, balance } = routing;
        assert!(
            shared > 0 && active > 0 && shared + active <= heads,
            "routing: {routing:?} of {heads} heads"
        );
        let [mut shares, mut weights] = [cols, heads].map(|cols| self.device().scratch_floats(rows * cols));
        let batch = self.batch_share().filter(|_| logits.tracked() && balance > 0.0 && rows > 0);
        let mut balance = batch.map(|batch| Balance {
            used: self.device().scratch_floats(self.parts(rows) * (heads - shared)),
            rows: sentences.map_or_else(|| logits.real_rows().clone(), |own| RealRows::Rows(own.clone())),
            batch,
        });
        match self.backend() {
            Backend::Cpu => {
                cpu::forward(logits, routing, &mut shares, &mut weights);
                if let Some(balance) = &mut balance {
                    cpu::count(&weights, heads, &mut balance.used);
                }
            }
            Backend::Gpu(gpu) => cuda::forward(gpu, logits, routing, [&shares, &weights], balance.as_ref()),
        }
        let weights = self.output([rows, heads], weights, logits.tracked());
        let op = Op {
            logits: logits.clone(),
            routing,
            heads,
            shares: Tensor::new([rows, cols], shares),
            weights: weights.tensor().clone(),
            balance,
        };
        self.record(&weights, move |backward, dw| match backward.backend() {
            Backend::Cpu => cpu::backward(backward, &op, &dw),
            Backend::Gpu(gpu) => cuda::backward(gpu, backward, &op, &dw),
        });
        weights
    }

    /// Parts in which the rows that use a head are counted.
    fn parts(&self, rows: usize) -> usize {
        match self.backend() {
            Backend::Cpu => 1,
            Backend::Gpu(_) => cuda::parts(rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;
    use crate::params::{GroupId, GroupSet, ParamsBuilder};
    use crate::{Device, Rng};

    const NO_LOSS: Routing = Routing { shared: 2, active: 3, balance: 0.0 };

    fn weights(logits: &[f32], routing: Routing, rows: usize) -> Vec<f32> {
        let device = Device::cpu();
        let params = ParamsBuilder::default().finish(&device);
        let logits = Var::constant(Tensor::from_host(&device, [rows, logits.len() / rows], logits));
        Tape::evaluation(&params).route_heads(&logits, routing, None).tensor().to_host()
    }

    #[test]
    fn gradients_match_finite_differences() {
        for (rows, heads, shared, active) in [(1, 2, 1, 1), (7, 5, 2, 2), (13, 11, 3, 8), (5, 7, 1, 3)] {
            let mut check = Check::new();
            // Differences of logits in a row are far from 0, where another head would be chosen.
            let logits = check.shifted("logits", [rows, heads + 2], |i| 3.0 * (i * 5 % 13) as f32);
            let routing = Routing { shared, active, balance: 0.0 };
            check.run(move |tape| {
                let logits = tape.parameter(logits);
                // Of the size of logits that do not saturate.
                tape.route_heads(&logits, routing, None)
            });
        }
    }

    #[test]
    fn weights_are_those_of_the_formula() {
        let (rows, heads) = (17, 7);
        let stream = Rng::new(3, 0).stream(0);
        let logits: Vec<f32> = (0..rows * (heads + 2)).map(|i| 2.0 * stream.normal(i as u32, 0)).collect();
        let softmax = |x: &[f32]| {
            let sum: f64 = x.iter().map(|x| f64::from(*x).exp()).sum();
            x.iter().map(|x| f64::from(*x).exp() / sum).collect::<Vec<_>>()
        };
        let got = weights(&logits, NO_LOSS, rows);
        for (row, got) in logits.chunks_exact(heads + 2).zip(got.chunks_exact(heads)) {
            let (s, p, a) = (softmax(&row[..2]), softmax(&row[2..heads]), softmax(&row[heads..]));
            let mut order: Vec<usize> = (0..heads - 2).collect();
            order.sort_by(|&i, &j| p[j].total_cmp(&p[i]));
            let kept: f64 = order[..3].iter().map(|&e| p[e]).sum();
            for (j, got) in got.iter().enumerate() {
                let want = match j.checked_sub(2) {
                    None => 2.0 * a[0] * 2.0 * s[j],
                    Some(e) if order[..3].contains(&e) => 2.0 * a[1] * 3.0 * p[e] / kept,
                    Some(_) => 0.0,
                };
                assert!((f64::from(*got) - want).abs() < 1e-5, "head {j}: {got}, {want}");
            }
        }
    }

    #[test]
    fn equal_logits_weigh_the_first_heads_one_and_empty_batches_are_fine() {
        assert_eq!(weights(&[0.5; 9], NO_LOSS, 1), [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
        let none: [f32; 0] = [];
        let device = Device::cpu();
        let params = ParamsBuilder::default().finish(&device);
        let logits = Var::constant(Tensor::from_host(&device, [0, 9], &none));
        assert_eq!(Tape::evaluation(&params).route_heads(&logits, NO_LOSS, None).rows(), 0);
    }

    /// The loss is h_r·Σ P·F with F constant, times rows·weight of the batch, over the number of gates.
    #[test]
    fn the_balance_loss_has_the_gradient_of_its_formula() {
        let (rows, heads, group) = (11, 7, GroupId(0));
        let device = Device::cpu();
        let mut builder = ParamsBuilder::default();
        let id = builder.matrix("logits".into(), [rows, heads + 2], group);
        let mut params = builder.finish(&device);
        let stream = Rng::new(4, 0).stream(0);
        let start: Vec<f32> = (0..rows * (heads + 2)).map(|i| stream.normal(i as u32, 0)).collect();
        params.set("logits", &start).unwrap();
        let routing = Routing { balance: 0.5, ..NO_LOSS };
        let target = Segments::from_host(&device, &[0, 4, 9]);
        let mut gradients = params.gradients();
        let mut tape = Tape::training(&params, &mut gradients, GroupSet::of(&[group]), Rng::new(1, 1));
        tape.share_losses(&target, 0.25, 3);
        let logits = tape.parameter(id);
        let weights = tape.route_heads(&logits, routing, None);
        let chosen = weights.tensor().to_host();
        // A gradient of 0 for the weights leaves that of the loss.
        tape.seed_from_host(&weights, &vec![0.0; rows * heads]);
        tape.backward();
        let got = gradients.get(&params, "logits").unwrap().unwrap();
        let routed = heads - 2;
        let used: Vec<f64> = (2..heads)
            .map(|j| chosen.chunks_exact(heads).filter(|w| w[j] > 0.0).count() as f64 / rows as f64)
            .collect();
        let loss = |logits: &[f32]| {
            let mut mean = vec![0.0; routed];
            for row in logits.chunks_exact(heads + 2) {
                let sum: f64 = row[2..heads].iter().map(|x| f64::from(*x).exp()).sum();
                for (mean, x) in mean.iter_mut().zip(&row[2..heads]) {
                    *mean += f64::from(*x).exp() / sum / rows as f64;
                }
            }
            let sum: f64 = mean.iter().zip(&used).map(|(p, f)| p * f).sum();
            (0.5 / 3.0) * (9.0 * 0.25) * routed as f64 * sum
        };
        for i in 0..start.len() {
            let at = |delta: f32| {
                let mut moved = start.clone();
                moved[i] += delta;
                loss(&moved)
            };
            let want = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((f64::from(got[i]) - want).abs() < 2e-5, "entry {i}: {}, {want}", got[i]);
        }
        assert!(got.iter().any(|g| g.abs() > 1e-3), "the loss has a gradient");
    }
}
