//! fairseq's `inverse_sqrt`: linear warm-up, then decay with the square root of the update.

use crate::config::TrainConfig;

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

#[cfg(test)]
mod tests {
    use super::*;

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
