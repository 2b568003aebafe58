//! Training keys of a run.

use mae_data::BreakMode;
use mae_engine::GroupSet;
use mae_engine::collective::{Overlap, Transport};
use mae_model::folder::Task;
use mae_model::groups;
use serde::{Deserialize, Serialize};

use super::gates::{GateInit, GateOptimizerKind, GateRate, GateTraining};

/// Training keys of a run: `[train]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Seed of initial values, data order and all randomness.
    pub seed: u64,
    /// Optimiser of everything but the gates.
    pub optimizer: OptimizerKind,
    /// Schedule of the learning rate.
    pub lr_scheduler: SchedulerKind,
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
    /// End of blocks: `none` (when they are full), `complete` (as many whole lines as fit) or `eos` (one line each).
    pub sample_break_mode: BreakMode,
    /// Source tokens and target tokens at most in a batch.
    pub max_tokens: u32,
    /// Sentences at most in a batch; 0: no limit.
    pub max_sentences: u32,
    /// Order and composition of batches.
    pub batching: Batching,
    /// Frozen batches have a multiple of so many sentences where they can.
    pub required_batch_size_multiple: usize,
    /// The part of the training set that is used, above 0 and at most 1. It is drawn with the seed; a larger part holds
    /// every smaller one.
    pub subset: f64,
    /// Probability of skipping each merge when the words of the training text are cut (BPE dropout), anew for each
    /// epoch; 0: the text as it was binarised.
    pub bpe_dropout: f64,
    /// Parameters that are trained; the others stay as they are.
    pub free: Free,
    /// Model folder that a new run takes its weights from; empty: initial values.
    pub finetune_from_model: String,
    /// Try the largest batch before training, to see that the memory suffices.
    pub memory_check: bool,
    /// Batches that make one update.
    pub update_freq: usize,
    /// Stop after this many epochs; 0: no limit.
    pub max_epoch: u64,
    /// Stop after this many updates; 0: no limit.
    pub max_update: u64,
    /// Training of the gates: learned, or a control.
    pub gate_training: GateTraining,
    /// Optimiser of the gates.
    pub gate_optimizer: GateOptimizerKind,
    /// Rate of the gates' optimiser.
    pub gate_lr: f32,
    /// Whether `gate_lr` is the rate itself, or a factor of the schedule's.
    pub gate_rate: GateRate,
    /// μ of `gate_optimizer = "momentum"`.
    pub gate_momentum: f32,
    /// Initial values of the gates.
    pub gate_init: GateInit,
    /// G steps in epochs that are a multiple of this.
    pub gate_every_epochs: u64,
    /// G steps in updates that are a multiple of this, whatever the epoch; 0: by epoch.
    pub gate_every_updates: u64,
    /// Joint training (NoBCD): gates are trained in updates that are a multiple of this, the rest in all.
    pub joint_gate_every_updates: u64,
    /// Numbers in which gradients travel between processes.
    pub ddp_dtype: DdpDtype,
    /// When gradients are summed over processes: during the backward pass or after it.
    pub ddp_overlap: DdpOverlap,
    /// 1: each process keeps the memory of the optimiser for its slice of the parameters. On CPUs.
    pub zero: u32,
    /// Updates before losses of gates (MoH's balance loss, L0's penalty) begin to count.
    pub gate_loss_start: u64,
    /// Updates in which the weight of losses of gates rises to its full value.
    pub gate_loss_ramp: u64,
    /// Validate every so many epochs; 0: where a run ends within one, and with `save_interval_updates`.
    pub validate_interval: u64,
    /// Save every so many epochs; 0: by updates only, and at the end.
    pub save_interval: u64,
    /// Validate and save every so many updates as well; 0: at epochs only.
    pub save_interval_updates: u64,
    /// Score that decides which checkpoint is best.
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

/// Optimiser of everything but the gates, which have [one of their own](GateOptimizerKind).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// Adam, with `adam_betas` and `adam_eps`.
    #[default]
    Adam,
    /// Nesterov's accelerated gradient, with `momentum`.
    Nag,
}

/// Schedule of the learning rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulerKind {
    /// Up to `lr`, then down with the square root of the update.
    #[default]
    InverseSqrt,
    /// Up to `max_lr`, then down to `lr` along half a cosine.
    Cosine,
}

/// Score that decides which checkpoint is best.
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

/// Order and composition of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Batching {
    /// Every epoch shuffles all sentences and cuts where the token budget is full.
    #[default]
    Packed,
    /// fairseq's: made once from sentences sorted by length; every epoch shuffles the batches.
    Frozen,
}

/// Numbers in which gradients travel between processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DdpDtype {
    /// As they are: K processes make the bits of one.
    #[default]
    F32,
    /// Rounded to bfloat16: half the bytes. Sums are f32.
    Bf16,
}

impl From<DdpDtype> for Transport {
    fn from(dtype: DdpDtype) -> Self {
        match dtype {
            DdpDtype::F32 => Self::F32,
            DdpDtype::Bf16 => Self::Bf16,
        }
    }
}

/// Time at which gradients are summed over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DdpOverlap {
    /// During the backward pass if that is faster.
    #[default]
    Auto,
    /// During the backward pass.
    Always,
    /// After it.
    Never,
}

impl From<DdpOverlap> for Overlap {
    fn from(overlap: DdpOverlap) -> Self {
        match overlap {
            DdpOverlap::Auto => Self::Auto,
            DdpOverlap::Always => Self::Always,
            DdpOverlap::Never => Self::Never,
        }
    }
}

/// Parameters that are trained. Running statistics of gates follow the data in any case.
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
    /// Rates, factors and limits that are finite and not negative, by their keys.
    pub(super) fn numbers(&self) -> [(&'static str, f64); 16] {
        [
            ("lr", self.lr),
            ("warmup_init_lr", self.warmup_init_lr),
            ("min_lr", self.min_lr),
            ("max_lr", self.max_lr),
            ("t_mult", self.t_mult),
            ("lr_shrink", self.lr_shrink),
            ("momentum", self.momentum.into()),
            ("adam_betas", self.adam_betas[0].into()),
            ("adam_betas", self.adam_betas[1].into()),
            ("adam_eps", self.adam_eps.into()),
            ("weight_decay", self.weight_decay.into()),
            ("clip_norm", self.clip_norm),
            ("label_smoothing", self.label_smoothing.into()),
            ("subset", self.subset),
            ("gate_lr", self.gate_lr.into()),
            ("gate_momentum", self.gate_momentum.into()),
        ]
    }

    /// Groups of parameters that are trained.
    pub fn trained(&self) -> GroupSet {
        match self.gate_training {
            GateTraining::Learned | GateTraining::RandomSigns => self.free.groups(),
            GateTraining::Frozen => self.free.groups().and(groups::all_but_gates()),
        }
    }

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
            optimizer: OptimizerKind::Adam,
            lr_scheduler: SchedulerKind::InverseSqrt,
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
            bpe_dropout: 0.0,
            free: Free::All,
            finetune_from_model: String::new(),
            memory_check: true,
            update_freq: 1,
            max_epoch: 0,
            max_update: 0,
            gate_training: GateTraining::Learned,
            gate_optimizer: GateOptimizerKind::Sgd,
            gate_lr: 1.0,
            gate_rate: GateRate::Constant,
            gate_momentum: 0.9,
            gate_init: GateInit::Default,
            gate_every_epochs: 5,
            gate_every_updates: 0,
            joint_gate_every_updates: 1,
            ddp_dtype: DdpDtype::F32,
            ddp_overlap: DdpOverlap::Auto,
            zero: 0,
            gate_loss_start: 0,
            gate_loss_ramp: 0,
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
