//! Configuration of a run. Keys have the names of fairseq's flags, with underscores, where the meaning is the same.
//!
//! A configuration is a stack of TOML tables: defaults, the architecture, a recipe, keys set by hand. An unknown key is
//! refused, with the nearest name that exists.

mod gates;
mod layers;
mod train;

use mae_model::config::Mixture;
use mae_model::folder::Task;
use mae_model::system::{GateOptimizer, SYSTEMS, Training};
use mae_model::{Config, ModelConfig};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub use self::gates::{GateInit, GateOptimizerKind, GateRate, GateTraining};
use self::layers::{arch, merge, merged, positions_of_blocks, table_of, unknown_keys, wrong_value};
pub use self::layers::{assignment, distance, suggestion, task};
pub use self::train::{Batching, Free, Metric, OptimizerKind, SchedulerKind, TrainConfig};
use crate::{Error, Result};

/// Configuration of a whole run: the model and its training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig<C = ModelConfig> {
    /// `[model]`.
    pub model: C,
    /// `[train]`.
    pub train: TrainConfig,
}

impl<C: Config> RunConfig<C> {
    /// Lays `layers` over the defaults, later ones on top; each is a table with `[model]` and `[train]`. The
    /// architecture that the last layer names gives the model's defaults.
    pub fn from_layers(layers: &[Table]) -> Result<Self> {
        let merged = merged(layers);
        let arch = arch(&merged).unwrap_or(C::DEFAULT_ARCH);
        let mut base = Table::new();
        base.insert("model".into(), table_of(&C::named(arch)?));
        base.insert("train".into(), table_of(&TrainConfig::of(C::TASK)));
        for (key, value) in Mixture::UNWRITTEN {
            merge(&mut base, &assignment(&format!("model.mixture.{key}={value}"))?);
        }
        for (key, value) in C::UNWRITTEN {
            merge(&mut base, &assignment(&format!("model.{key}={value}"))?);
        }
        if C::TASK == Task::LanguageModeling {
            merge(&mut base, &positions_of_blocks(&merged));
        }
        let mut faults = Vec::new();
        unknown_keys("", &merged, &base, &mut faults);
        if !faults.is_empty() {
            return Err(Error::Config(faults));
        }
        merge(&mut base, &merged);
        let config: Self = Value::Table(base).try_into().map_err(|e| Error::Config(vec![wrong_value(&e)]))?;
        config.check()?;
        Ok(config)
    }

    /// As TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a run configuration can always be written as TOML")
    }

    fn check(&self) -> Result<()> {
        self.model.check()?;
        let (model, train) = (&self.model, &self.train);
        let mut faults = Vec::new();
        let mut require = |holds: bool, fault: &str| {
            if !holds {
                faults.push(fault.to_owned());
            }
        };
        for (key, value) in train.numbers() {
            require(
                value.is_finite() && value >= 0.0,
                &format!("train.{key} = {value} must be a finite number that is not negative"),
            );
        }
        require(train.lr > 0.0, "train.lr must be above 0");
        require((0.0..1.0).contains(&train.momentum), "train.momentum must be in [0, 1)");
        if train.lr_scheduler == SchedulerKind::Cosine {
            require(
                train.max_lr >= train.lr,
                "train.max_lr must not be below train.lr, the lowest rate of cosine",
            );
            require(
                train.lr_period_updates > 0 || train.max_update > train.warmup_updates,
                "train.lr_period_updates = 0 means the updates from train.warmup_updates to train.max_update: set that, too, \
                 or give a number",
            );
            require(train.t_mult >= 1.0, "train.t_mult must be at least 1");
            require(train.lr_shrink > 0.0, "train.lr_shrink must be above 0");
        }
        if C::TASK == Task::LanguageModeling {
            let tokens = train.tokens_per_sample;
            require(tokens > 0, "train.tokens_per_sample must be above 0");
            require(
                tokens <= model.max_positions(),
                "train.tokens_per_sample must not be above model.max_positions: raise that, too",
            );
            require(
                tokens <= train.max_tokens as usize,
                "train.max_tokens must not be below train.tokens_per_sample: a batch has at least one block",
            );
            require(train.label_smoothing == 0.0, "train.label_smoothing is for translation: leave it out");
            require(train.bpe_dropout == 0.0, "train.bpe_dropout is for translation: leave it out");
            require(train.eval_bleu_beam == 0, "train.eval_bleu_beam is for translation: leave it out");
        }
        require(train.max_tokens > 0, "train.max_tokens must be above 0");
        require(train.update_freq > 0, "train.update_freq must be above 0");
        require(train.log_interval > 0, "train.log_interval must be above 0");
        require((0.0..1.0).contains(&train.label_smoothing), "train.label_smoothing must be in [0, 1)");
        require(
            train.adam_betas.iter().all(|b| (0.0..1.0).contains(b)),
            "train.adam_betas must be in [0, 1)",
        );
        require(train.required_batch_size_multiple > 0, "train.required_batch_size_multiple must be above 0");
        require(train.subset > 0.0 && train.subset <= 1.0, "train.subset must be above 0 and at most 1");
        require((0.0..=1.0).contains(&train.bpe_dropout), "train.bpe_dropout must be from 0 to 1");
        let gated = SYSTEMS.into_iter().filter(|system| system.is_gated());
        let gated = gated.map(|system| format!("\"{}\"", system.key())).collect::<Vec<_>>().join(" or ");
        require(
            train.free == Free::All || model.mixture().system.is_gated(),
            &format!("train.free = \"gates\" and \"gates+out\" need gates: model.mixture.system = {gated}"),
        );
        require(
            train.free != Free::Gates || train.gate_training != GateTraining::Frozen,
            "train.gate_training = \"frozen\" leaves nothing to train with train.free = \"gates\"",
        );
        require((0.0..1.0).contains(&train.gate_momentum), "train.gate_momentum must be in [0, 1)");
        require(train.joint_gate_every_updates > 0, "train.joint_gate_every_updates must be above 0");
        let defaults = TrainConfig::default();
        let chosen = |train: &TrainConfig| {
            (train.gate_training, train.gate_optimizer, train.gate_init, train.joint_gate_every_updates)
        };
        require(
            model.mixture().system.training() != Training::Joint(GateOptimizer::Shared)
                || chosen(train) == chosen(&defaults),
            "train.gate_training, gate_optimizer, gate_init and joint_gate_every_updates are for gates over experts: those \
             of this system are trained with the rest",
        );
        require(
            train.zero <= 1,
            "train.zero must be 0 or 1: only the memory of the optimiser is divided among processes",
        );
        require(
            train.keep_interval_updates == 0 || train.save_interval_updates > 0,
            "train.keep_interval_updates needs train.save_interval_updates above 0",
        );
        require(
            train.eval_bleu_beam <= 1000,
            "train.eval_bleu_beam is too wide; 1000 is the most there can be",
        );
        require(
            train.best_checkpoint_metric != Metric::Bleu || train.eval_bleu_beam > 0,
            "train.best_checkpoint_metric = \"bleu\" needs train.eval_bleu_beam above 0",
        );
        if faults.is_empty() { Ok(()) } else { Err(Error::Config(faults)) }
    }
}

#[cfg(test)]
mod tests {
    use mae_model::lm;

    use super::*;

    #[test]
    fn later_layers_win_and_the_architecture_gives_the_rest() {
        let recipe: Table =
            "[model]\narch = \"transformer_tiny\"\n[model.mixture]\nsystem = \"mae\"\n[train]\nlr = 1e-3"
                .parse()
                .unwrap();
        let flags = assignment("train.lr=2").unwrap();
        let config: RunConfig = RunConfig::from_layers(&[recipe, flags]).unwrap();
        assert_eq!((config.model.encoder_embed_dim, config.train.lr), (256, 2.0));
        assert!(config.model.mixture.system.is_gated());
        let again: RunConfig = toml::from_str(&config.to_toml()).unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn wrong_keys_suggest_the_nearest_and_wrong_values_say_what_is_expected() {
        let refused = |text: &str| {
            RunConfig::<ModelConfig>::from_layers(&[assignment(text).unwrap()]).unwrap_err().to_string()
        };
        let error = refused("train.warmup_update=3");
        assert!(
            error.contains("unknown key `train.warmup_update`; did you mean `warmup_updates`?"),
            "{error}"
        );
        for (text, fault) in [
            ("train.lr=fast", "`train.lr`: invalid type: string \"fast\", expected a number"),
            (
                "train.max_tokens=-3",
                "`train.max_tokens`: invalid value: integer `-3`, expected a whole number",
            ),
            ("model.norm=last", "`model.norm`: unknown variant `last`, expected"),
        ] {
            let error = refused(text);
            assert!(error.contains(fault), "{error}");
        }
        assert!(assignment("lr").is_err());
    }

    #[test]
    fn the_architecture_decides_what_keys_there_are() {
        let layers = |text: &str| [text.parse::<Table>().unwrap()];
        let lm = layers(
            "[model]\narch = \"transformer_lm_tiny\"\n[train]\noptimizer = \"nag\"\nlr_scheduler = \"cosine\"\nmax_update = 9999",
        );
        assert_eq!((task(&lm), task(&[])), (Task::LanguageModeling, Task::Translation));
        let config = RunConfig::<lm::LmConfig>::from_layers(&lm).unwrap();
        assert_eq!((config.train.optimizer, config.train.label_smoothing), (OptimizerKind::Nag, 0.0));
        assert_eq!(config.model.max_positions, 512);
        for (keys, positions) in [
            ("[train]\ntokens_per_sample = 128", 128),
            ("[train]\ntokens_per_sample = 600", 600),
            ("[train]\ntokens_per_sample = 128\nsample_break_mode = \"eos\"", 512),
            ("[train]\ntokens_per_sample = 128\n[model]\nmax_positions = 200", 200),
        ] {
            let over = keys.parse::<Table>().unwrap();
            let config = RunConfig::<lm::LmConfig>::from_layers(&[lm[0].clone(), over]).unwrap();
            assert_eq!(config.model.max_positions, positions, "{keys}");
        }
        let wrong = layers(
            "[model]\narch = \"transformer_lm_tiny\"\nmax_positions = 500\n[train]\ntokens_per_sample = 600\nmax_tokens = 599\n\
             lr_scheduler = \"cosine\"\nmax_lr = 1e-9\nlabel_smoothing = 0.1",
        );
        let error = RunConfig::<lm::LmConfig>::from_layers(&wrong).unwrap_err().to_string();
        for part in [
            "model.max_positions",
            "train.max_tokens",
            "train.max_lr",
            "train.label_smoothing",
            "train.max_update",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
