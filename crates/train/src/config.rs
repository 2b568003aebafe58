//! Everything a run chooses. Key names are fairseq's flags with underscores where the meaning is the same.
//!
//! A run's configuration is laid in layers of TOML tables: defaults, the architecture, a recipe, flags. A key that no
//! layer knows is refused, with the nearest name that exists.

mod layers;

use mae_data::BreakMode;
use mae_engine::GroupSet;
use mae_model::config::Mixture;
use mae_model::folder::Task;
use mae_model::system::SYSTEMS;
use mae_model::{Config, ModelConfig, groups};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use self::layers::{arch, merge, merged, positions_of_blocks, table_of, unknown_keys, wrong_value};
pub use self::layers::{assignment, suggestion, task};
use crate::{Error, Result};

/// How a model is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Seed of initial values, data order and all randomness.
    pub seed: u64,
    /// What steps everything but the gates.
    pub optimizer: Optimizing,
    /// How the learning rate goes up and down.
    pub lr_scheduler: Scheduling,
    /// Highest learning rate; of `cosine` the lowest, as in fairseq.
    pub lr: f64,
    /// Updates of linear warm-up.
    pub warmup_updates: u64,
    /// Rate of the first update.
    pub warmup_init_lr: f64,
    /// The rate of `inverse_sqrt` never falls below this.
    pub min_lr: f64,
    /// Highest rate of `cosine`.
    pub max_lr: f64,
    /// Updates of the first period of `cosine`; 0: from the warm-up to `max_update`.
    pub lr_period_updates: u64,
    /// Each period of `cosine` is so many times as long as the one before.
    pub t_mult: f64,
    /// The rates of each period of `cosine` are so many times those of the one before (fairseq's default: a tenth).
    pub lr_shrink: f64,
    /// μ of NAG.
    pub momentum: f32,
    /// β₁ and β₂ of Adam.
    pub adam_betas: [f32; 2],
    /// ε of Adam.
    pub adam_eps: f32,
    /// Decoupled decay of everything but the gates.
    pub weight_decay: f32,
    /// Gradients of everything but the gates are scaled down to this norm; 0: never.
    pub clip_norm: f64,
    /// ε of label smoothing.
    pub label_smoothing: f32,
    /// Tokens of a block of a language model's text.
    pub tokens_per_sample: usize,
    /// Where blocks end: `none` (when they are full), `complete` (as many whole lines as fit) or `eos` (one line each).
    pub sample_break_mode: BreakMode,
    /// Source tokens and target tokens at most in a batch.
    pub max_tokens: u32,
    /// Sentences at most in a batch; 0: no limit.
    pub max_sentences: u32,
    /// How batches are made.
    pub batching: Batching,
    /// Frozen batches have a multiple of so many sentences where they can.
    pub required_batch_size_multiple: usize,
    /// The part of the training set that is used, above 0 and at most 1. It is drawn with the seed; a larger part holds
    /// every smaller one.
    pub subset: f64,
    /// Parameters that are trained; the others stay as they are.
    pub free: Free,
    /// Model folder that a new run takes its weights from; empty: initial values.
    pub finetune_from_model: String,
    /// Whether to try the largest batch before training, to see that the memory suffices.
    pub memory_check: bool,
    /// Batches that make one update.
    pub update_freq: usize,
    /// Stop after this many epochs; 0: no limit.
    pub max_epoch: u64,
    /// Stop after this many updates; 0: no limit.
    pub max_update: u64,
    /// Rate of the gates' SGD.
    pub gate_lr: f32,
    /// G steps in epochs that are a multiple of this.
    pub gate_every_epochs: u64,
    /// G steps in updates that are a multiple of this, whatever the epoch; 0: by epoch.
    pub gate_every_updates: u64,
    /// Validate every so many epochs; 0: where a run ends within one, and with `save_interval_updates`.
    pub validate_interval: u64,
    /// Save every so many epochs; 0: by updates only, and at the end.
    pub save_interval: u64,
    /// Validate and save every so many updates as well; 0: at epochs only.
    pub save_interval_updates: u64,
    /// What the best checkpoint is best at.
    pub best_checkpoint_metric: Metric,
    /// Stop when this many validations in a row bring nothing better; 0: never.
    pub patience: u64,
    /// Epoch checkpoints to keep besides best and last.
    pub keep_last_epochs: usize,
    /// Checkpoints of `save_interval_updates` to keep besides best and last, the newest.
    pub keep_interval_updates: usize,
    /// Checkpoints to keep that were best at the checkpoint metric.
    pub keep_best_checkpoints: usize,
    /// Updates per line of the log; the rest of an epoch has a line, too.
    pub log_interval: u64,
    /// Beam of validation by BLEU; 0: no BLEU.
    pub eval_bleu_beam: usize,
}

/// What steps everything but the gates, which are always stepped by plain gradient descent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimizing {
    /// Adam, with `adam_betas` and `adam_eps`.
    #[default]
    Adam,
    /// Nesterov's accelerated gradient, with `momentum`.
    Nag,
}

/// How the learning rate goes up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// Up to `lr`, then down with the square root of the update.
    #[default]
    InverseSqrt,
    /// Up to `max_lr`, then down to `lr` along half a cosine.
    Cosine,
}

/// What the best checkpoint is best at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Smoothed development loss; lower is better.
    #[default]
    Loss,
    /// BLEU of the development set; higher is better.
    Bleu,
}

impl Metric {
    /// Its name in keys and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Bleu => "bleu",
        }
    }

    /// A score of which less is better.
    pub fn cost(self, value: f64) -> f64 {
        match self {
            Self::Loss => value,
            Self::Bleu => -value,
        }
    }
}

/// How batches are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Batching {
    /// Every epoch shuffles all sentences and cuts where the token budget is full.
    #[default]
    Packed,
    /// fairseq's: made once from sentences sorted by length; every epoch shuffles the batches.
    Frozen,
}

/// Which parameters are trained. Running statistics of gates follow the data in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Free {
    /// The gates (the paper's FtG): every update is a G step.
    #[serde(rename = "gates")]
    Gates,
    /// The gates and the output projections of attentions (FtG+).
    #[serde(rename = "gates+out")]
    GatesAndOutputs,
    /// Everything (FtAll).
    #[default]
    #[serde(rename = "all")]
    All,
}

impl Free {
    /// The groups of parameters.
    pub fn groups(self) -> GroupSet {
        match self {
            Self::Gates => groups::gates(),
            Self::GatesAndOutputs => GroupSet::of(&[groups::GATE, groups::ATTENTION_OUTPUT]),
            Self::All => groups::trained(),
        }
    }
}

impl TrainConfig {
    /// The defaults for a task: the loss of language models has no label smoothing.
    pub fn of(task: Task) -> Self {
        let label_smoothing = if task == Task::Translation { 0.1 } else { 0.0 };
        Self { label_smoothing, ..Self::default() }
    }
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            optimizer: Optimizing::Adam,
            lr_scheduler: Scheduling::InverseSqrt,
            lr: 5e-4,
            warmup_updates: 4000,
            warmup_init_lr: 1e-7,
            min_lr: 1e-9,
            max_lr: 1.0,
            lr_period_updates: 0,
            t_mult: 1.0,
            lr_shrink: 0.1,
            momentum: 0.99,
            adam_betas: [0.9, 0.98],
            adam_eps: 1e-8,
            weight_decay: 0.0,
            clip_norm: 0.0,
            label_smoothing: 0.1,
            tokens_per_sample: 512,
            sample_break_mode: BreakMode::None,
            max_tokens: 4096,
            max_sentences: 0,
            batching: Batching::Packed,
            required_batch_size_multiple: 8,
            subset: 1.0,
            free: Free::All,
            finetune_from_model: String::new(),
            memory_check: true,
            update_freq: 1,
            max_epoch: 0,
            max_update: 0,
            gate_lr: 1.0,
            gate_every_epochs: 5,
            gate_every_updates: 0,
            validate_interval: 1,
            save_interval: 1,
            save_interval_updates: 0,
            best_checkpoint_metric: Metric::Loss,
            patience: 0,
            keep_last_epochs: 0,
            keep_interval_updates: 0,
            keep_best_checkpoints: 0,
            log_interval: 100,
            eval_bleu_beam: 0,
        }
    }
}

/// A whole run: the model and how it is trained.
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
        require(train.lr > 0.0, "train.lr must be above 0");
        require((0.0..1.0).contains(&train.momentum), "train.momentum must be in [0, 1)");
        if train.lr_scheduler == Scheduling::Cosine {
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
        let gated = SYSTEMS.into_iter().filter(|system| system.is_gated());
        let gated = gated.map(|system| format!("\"{}\"", system.key())).collect::<Vec<_>>().join(" or ");
        require(
            train.free == Free::All || model.mixture().system.is_gated(),
            &format!("train.free = \"gates\" and \"gates+out\" need gates: model.mixture.system = {gated}"),
        );
        require(
            train.keep_interval_updates == 0 || train.save_interval_updates > 0,
            "train.keep_interval_updates needs train.save_interval_updates above 0",
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
        assert_eq!((config.train.optimizer, config.train.label_smoothing), (Optimizing::Nag, 0.0));
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
