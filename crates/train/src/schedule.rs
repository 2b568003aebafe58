//! fairseq's schedules: `inverse_sqrt` for translation, `cosine` for language models.

use crate::config::{SchedulerKind, TrainConfig};

/// The learning rate of the update after `done` finished ones.
pub fn rate(config: &TrainConfig, done: u64) -> f64 {
    match config.lr_scheduler {
        SchedulerKind::InverseSqrt => inverse_sqrt(config, done),
        SchedulerKind::Cosine => Cosine::of(config).rate(done),
    }
}

/// `inverse_sqrt`: linear warm-up, then decay with the square root of the update.
///
/// The rate of the update after `done` finished ones: below the warm-up W, `init + done·(lr − init)/W`; from W on,
/// `lr·√(W/done)`; never under `min_lr`.
pub fn inverse_sqrt(config: &TrainConfig, done: u64) -> f64 {
    let (peak, warmup) = (config.lr, config.warmup_updates as f64);
    let done = done as f64;
    let rate = if done < warmup {
        config.warmup_init_lr + done * (peak - config.warmup_init_lr) / warmup
    } else {
        peak * (warmup.max(1.0) / done.max(1.0)).sqrt()
    };
    rate.max(config.min_lr)
}

/// `cosine`: linear warm-up, then falls along half a cosine, period after period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cosine {
    /// Highest rate of the first period (fairseq's `--max-lr`).
    pub max_lr: f64,
    /// Lowest rate of the first period (fairseq's `--lr`).
    pub min_lr: f64,
    /// W: updates of linear warm-up.
    pub warmup_updates: u64,
    /// Rate of the first update.
    pub warmup_init_lr: f64,
    /// Updates of the first period (fairseq's `--lr-period-updates`); at least 1.
    pub period: u64,
    /// Each period is so many times as long as the one before (fairseq's `--t-mult`); at least 1.
    pub t_mult: f64,
    /// Both rates are so many times those of the period before (fairseq's `--lr-shrink`).
    pub lr_shrink: f64,
}

impl Cosine {
    /// As a run chooses.
    pub fn of(config: &TrainConfig) -> Self {
        Self {
            max_lr: config.max_lr,
            min_lr: config.lr,
            warmup_updates: config.warmup_updates,
            warmup_init_lr: config.warmup_init_lr,
            period: match config.lr_period_updates {
                0 => config.max_update.saturating_sub(config.warmup_updates),
                given => given,
            },
            t_mult: config.t_mult,
            lr_shrink: config.lr_shrink,
        }
    }

    /// The rate of the update after `done` finished ones: below W, `init + done·(max − init)/W`; then, t updates into a
    /// period of T, `min + ½(max − min)(1 + cos(π·t/T))`.
    pub fn rate(&self, done: u64) -> f64 {
        if done < self.warmup_updates {
            let rise = self.max_lr - self.warmup_init_lr;
            return self.warmup_init_lr + done as f64 * rise / self.warmup_updates as f64;
        }
        let (mut t, mut period, mut shrink) =
            ((done - self.warmup_updates) as f64, self.period.max(1) as f64, 1.0);
        while t >= period {
            t -= period;
            period *= self.t_mult.max(1.0);
            shrink *= self.lr_shrink;
        }
        let (low, high) = (shrink * self.min_lr, shrink * self.max_lr);
        low + 0.5 * (high - low) * (1.0 + (std::f64::consts::PI * t / period).cos())
    }
}

/// Weight of the losses of gates in an update after `updates` updates: 0 before the start, then a straight line to 1.
pub fn gate_loss(config: &TrainConfig, updates: u64) -> f32 {
    match updates.checked_sub(config.gate_loss_start) {
        None => 0.0,
        Some(since) if since < config.gate_loss_ramp => {
            (since + 1) as f32 / (config.gate_loss_ramp + 1) as f32
        }
        Some(_) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recipe for WikiText-103; values by fairseq's closed formulas for the period and the place in it.
    #[test]
    fn cosine_rates_are_fairseqs() {
        let cosine = Cosine {
            max_lr: 1.0,
            min_lr: 1e-4,
            warmup_updates: 16_000,
            warmup_init_lr: 1e-7,
            period: 270_000,
            t_mult: 2.0,
            lr_shrink: 0.75,
        };
        assert_eq!(cosine.rate(0), 1e-7);
        assert!((cosine.rate(8_000) - 0.500_000_05).abs() < 1e-12);
        assert_eq!(cosine.rate(16_000), 1.0);
        assert!((cosine.rate(16_000 + 135_000) - 0.500_05).abs() < 1e-12);
        assert!((cosine.rate(285_999) - 1e-4).abs() < 1e-9);
        assert!((cosine.rate(286_000) - 0.75).abs() < 1e-12);
        for mult in [1.0f64, 2.0, 1.5] {
            let cosine = Cosine { t_mult: mult, period: 1_000, ..cosine };
            for done in [16_000u64, 16_500, 16_999, 17_001, 18_400, 19_100, 24_321] {
                let (t, period) = ((done - 16_000) as f64, 1_000.0);
                let (i, length, place) = if mult == 1.0 {
                    let i = (t / period).floor();
                    (i, period, t - period * i)
                } else {
                    let i = (1.0 - t / period * (1.0 - mult)).log(mult).floor();
                    let before = (1.0 - mult.powf(i)) / (1.0 - mult) * period;
                    (i, mult.powf(i) * period, t - before)
                };
                let (low, high) = (1e-4 * 0.75f64.powf(i), 0.75f64.powf(i));
                let want = low + 0.5 * (high - low) * (1.0 + (std::f64::consts::PI * place / length).cos());
                assert!((cosine.rate(done) - want).abs() < 1e-9, "t_mult {mult}, {done} done");
            }
        }
    }

    #[test]
    fn losses_of_gates_begin_late_and_rise() {
        let weights = |start: u64, ramp: u64| {
            let config =
                TrainConfig { gate_loss_start: start, gate_loss_ramp: ramp, ..TrainConfig::default() };
            (0..6).map(|done| gate_loss(&config, done)).collect::<Vec<_>>()
        };
        assert_eq!(weights(0, 0), [1.0; 6]);
        assert_eq!(weights(2, 0), [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(weights(1, 3), [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]);
    }

    #[test]
    fn rates_are_fairseqs() {
        let config =
            TrainConfig { lr: 7e-4, warmup_updates: 4000, warmup_init_lr: 1e-7, ..TrainConfig::default() };
        for (done, want) in [(0, 1e-7), (2000, 3.5005e-4), (4000, 7e-4), (16_000, 3.5e-4), (100_000, 1.4e-4)]
        {
            assert!((inverse_sqrt(&config, done) - want).abs() < 1e-9, "{done}");
        }
        let config = TrainConfig { warmup_updates: 0, ..config };
        assert_eq!(inverse_sqrt(&config, 0), 7e-4);
    }
}
