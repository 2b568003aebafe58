//! The sums of a loss, where its device has made them.

use super::cuda;
use crate::ops::adaptive;
use crate::{Ids, Tensor};

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
            Sums::PerRow(losses) => cuda::read_sums(losses.gpu(), losses),
        }
    }

    /// Both sums, known on the host.
    pub(crate) fn on_host(sums: [f64; 2], log_probs: Tensor) -> Self {
        Self { sums: Sums::Host(sums), log_probs }
    }

    pub(crate) fn on_gpu(losses: Tensor, log_probs: Tensor) -> Self {
        Self { sums: Sums::PerRow(losses), log_probs }
    }

    /// Adds the loss of row i of `tail` to row `rows[i]`; no row is named twice.
    pub(crate) fn add_tail(&mut self, tail: &Self, rows: &Ids) {
        match (&mut self.sums, &tail.sums) {
            (Sums::PerRow(all), Sums::PerRow(own)) => {
                let all = [&*all, &self.log_probs];
                adaptive::cuda::add_tail(all[0].gpu(), all, [own, &tail.log_probs], rows);
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
