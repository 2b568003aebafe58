//! Everything a run chooses. Key names are fairseq's flags with underscores where the meaning is the same.
//!
//! A run's configuration is laid in layers of TOML tables: defaults, the architecture, a recipe, flags. A key that no
//! layer knows is refused, with the nearest name that exists.

use mae_engine::GroupSet;
use mae_model::{ModelConfig, groups};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::{Error, Result};

/// How a model is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Seed of initial values, data order and all randomness.
    pub seed: u64,
    /// Highest learning rate.
    pub lr: f64,
    /// Updates of linear warm-up.
    pub warmup_updates: u64,
    /// Rate of the first update.
    pub warmup_init_lr: f64,
    /// The rate never falls below this.
    pub min_lr: f64,
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
    /// Validate every so many epochs; 0: never.
    pub validate_interval: u64,
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
    /// Updates per line of the log.
    pub log_interval: u64,
    /// Beam of validation by BLEU; 0: no BLEU.
    pub eval_bleu_beam: usize,
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

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            lr: 5e-4,
            warmup_updates: 4000,
            warmup_init_lr: 1e-7,
            min_lr: 1e-9,
            adam_betas: [0.9, 0.98],
            adam_eps: 1e-8,
            weight_decay: 0.0,
            clip_norm: 0.0,
            label_smoothing: 0.1,
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
pub struct RunConfig {
    /// `[model]`.
    pub model: ModelConfig,
    /// `[train]`.
    pub train: TrainConfig,
}

impl RunConfig {
    /// Lays `layers` over the defaults, later ones on top; each is a table with `[model]` and `[train]`. The
    /// architecture that the last layer names gives the model's defaults.
    pub fn from_layers(layers: &[Table]) -> Result<Self> {
        let mut merged = Table::new();
        for layer in layers {
            merge(&mut merged, layer);
        }
        let arch = merged.get("model").and_then(|model| model.get("arch")).and_then(Value::as_str);
        let arch = arch.unwrap_or("transformer_iwslt_de_en");
        let mut base = Table::new();
        base.insert("model".into(), table_of(&ModelConfig::arch(arch)?));
        base.insert("train".into(), table_of(&TrainConfig::default()));
        let mut faults = Vec::new();
        unknown_keys("", &merged, &base, &mut faults);
        if !faults.is_empty() {
            return Err(Error::Config(faults));
        }
        merge(&mut base, &merged);
        let config: Self =
            Value::Table(base).try_into().map_err(|e: toml::de::Error| Error::Config(vec![e.to_string()]))?;
        config.check()?;
        Ok(config)
    }

    /// As TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a run configuration can always be written as TOML")
    }

    fn check(&self) -> Result<()> {
        self.model.check()?;
        let train = &self.train;
        let mut faults = Vec::new();
        let mut require = |holds: bool, fault: &str| {
            if !holds {
                faults.push(fault.to_owned());
            }
        };
        require(train.lr > 0.0, "train.lr must be above 0");
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
        require(
            train.free == Free::All || self.model.mixture.system.is_gated(),
            "train.free = \"gates\" and \"gates+out\" need gates: model.mixture.system = \"mae\" or \"nobcd\"",
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

/// Parses `key.path=value` into a table, for flags. What TOML cannot read is taken as text.
pub fn assignment(text: &str) -> Result<Table> {
    let fault =
        || Error::Config(vec![format!("`{text}` is not of the form key=value, as in train.lr=0.001")]);
    let (path, value) = text.split_once('=').ok_or_else(fault)?;
    let (path, value) = (path.trim(), value.trim());
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return Err(fault());
    }
    let parsed = format!("v = {value}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
    let mut value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
    for key in path.rsplit('.') {
        value = Value::Table(Table::from_iter([(key.to_owned(), value)]));
    }
    match value {
        Value::Table(table) => Ok(table),
        _ => unreachable!("the path has at least one key"),
    }
}

fn table_of(value: &impl Serialize) -> Value {
    Value::try_from(value).expect("configurations can always be written as TOML")
}

fn merge(under: &mut Table, over: &Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge(under, over),
            // `lr = 1` is meant where 1.0 is wanted.
            (Some(slot @ Value::Float(_)), Value::Integer(whole)) => *slot = Value::Float(*whole as f64),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

fn unknown_keys(path: &str, table: &Table, known: &Table, faults: &mut Vec<String>) {
    for (key, value) in table {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (value, known.get(key)) {
            (Value::Table(inner), Some(Value::Table(known))) => unknown_keys(&full, inner, known, faults),
            (_, Some(_)) => {}
            (_, None) => {
                let nearest = known.keys().min_by_key(|candidate| distance(key, candidate));
                let hint = nearest.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
                faults.push(format!("unknown key `{full}`{hint}"));
            }
        }
    }
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_layers_win_and_the_architecture_gives_the_rest() {
        let recipe: Table =
            "[model]\narch = \"transformer_tiny\"\n[model.mixture]\nsystem = \"mae\"\n[train]\nlr = 1e-3"
                .parse()
                .unwrap();
        let flags = assignment("train.lr=2").unwrap();
        let config = RunConfig::from_layers(&[recipe, flags]).unwrap();
        assert_eq!((config.model.encoder_embed_dim, config.train.lr), (256, 2.0));
        assert!(config.model.mixture.system.is_gated());
        let again: RunConfig = toml::from_str(&config.to_toml()).unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn unknown_keys_suggest_the_nearest() {
        let error =
            RunConfig::from_layers(&[assignment("train.warmup_update=3").unwrap()]).unwrap_err().to_string();
        assert!(
            error.contains("unknown key `train.warmup_update`; did you mean `warmup_updates`?"),
            "{error}"
        );
        let error = RunConfig::from_layers(&[assignment("train.lr=fast").unwrap()]).unwrap_err().to_string();
        assert!(error.contains("fast"), "{error}");
        assert!(assignment("lr").is_err());
    }
}
