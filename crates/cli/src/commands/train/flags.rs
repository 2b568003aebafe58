//! Flags of `mae train` that stand for keys, and those that begin things anew.

use std::path::PathBuf;

use anyhow::Result;
use mae_train::Recipe;
use mae_train::checkpoint::Resets;
use toml::Value;

use crate::model_arg::model_folder;

const MODEL: &str = "Model";
const OPTIMISATION: &str = "Optimisation";
const BATCHES: &str = "Data and batches";
const PARTS: &str = "Parts that are trained";
const LENGTH: &str = "Length of the run";
const CHECKPOINTS: &str = "Checkpoints and validation";

/// Flags that stand for the key in their description, by fairseq's names where it has them.
#[derive(clap::Args)]
pub struct Flags {
    /// model.arch
    #[arg(long, help_heading = MODEL)]
    arch: Option<String>,
    /// model.dropout
    #[arg(long, help_heading = MODEL)]
    dropout: Option<f32>,
    /// model.share_embeddings = "all"
    #[arg(long, help_heading = MODEL)]
    share_all_embeddings: bool,
    /// model.adaptive_softmax_cutoff, such as 20000,60000
    #[arg(long, value_name = "N,…", help_heading = MODEL)]
    adaptive_softmax_cutoff: Option<String>,
    /// train.optimizer: adam or nag
    #[arg(long, help_heading = OPTIMISATION)]
    optimizer: Option<String>,
    /// train.momentum, for nag
    #[arg(long, help_heading = OPTIMISATION)]
    momentum: Option<f32>,
    /// train.lr_scheduler: inverse_sqrt or cosine
    #[arg(long, help_heading = OPTIMISATION)]
    lr_scheduler: Option<String>,
    /// train.lr; for cosine the lowest rate
    #[arg(long, help_heading = OPTIMISATION)]
    lr: Option<f64>,
    /// train.min_lr
    #[arg(long, help_heading = OPTIMISATION)]
    min_lr: Option<f64>,
    /// train.max_lr, for cosine
    #[arg(long, help_heading = OPTIMISATION)]
    max_lr: Option<f64>,
    /// train.warmup_updates
    #[arg(long, help_heading = OPTIMISATION)]
    warmup_updates: Option<u64>,
    /// train.warmup_init_lr
    #[arg(long, help_heading = OPTIMISATION)]
    warmup_init_lr: Option<f64>,
    /// train.lr_period_updates, for cosine; 0: up to --max-update
    #[arg(long, help_heading = OPTIMISATION)]
    lr_period_updates: Option<u64>,
    /// train.t_mult, for cosine
    #[arg(long, help_heading = OPTIMISATION)]
    t_mult: Option<f64>,
    /// train.lr_shrink, for cosine
    #[arg(long, help_heading = OPTIMISATION)]
    lr_shrink: Option<f64>,
    /// train.weight_decay
    #[arg(long, help_heading = OPTIMISATION)]
    weight_decay: Option<f32>,
    /// train.clip_norm
    #[arg(long, help_heading = OPTIMISATION)]
    clip_norm: Option<f64>,
    /// train.label_smoothing
    #[arg(long, help_heading = OPTIMISATION)]
    label_smoothing: Option<f32>,
    /// train.seed
    #[arg(long, help_heading = OPTIMISATION)]
    seed: Option<u64>,
    /// train.max_tokens
    #[arg(long, help_heading = BATCHES)]
    max_tokens: Option<u32>,
    /// train.max_sentences
    #[arg(long, alias = "batch-size", help_heading = BATCHES)]
    max_sentences: Option<u32>,
    /// train.update_freq
    #[arg(long, help_heading = BATCHES)]
    update_freq: Option<usize>,
    /// train.batching: packed, or frozen for fairseq's batches in fairseq's order
    #[arg(long, help_heading = BATCHES)]
    batching: Option<String>,
    /// train.required_batch_size_multiple, for frozen batches
    #[arg(long, help_heading = BATCHES)]
    required_batch_size_multiple: Option<usize>,
    /// train.subset: fraction of the training set to use, such as 5% or 0.05
    #[arg(long, value_parser = fraction, value_name = "PART", help_heading = BATCHES)]
    subset: Option<f64>,
    /// train.tokens_per_sample: tokens per block of a language model's text
    #[arg(long, help_heading = BATCHES)]
    tokens_per_sample: Option<usize>,
    /// train.sample_break_mode: none, complete or eos
    #[arg(long, help_heading = BATCHES)]
    sample_break_mode: Option<String>,
    /// train.memory_check = false: do not try the largest batch before training
    #[arg(long, help_heading = BATCHES)]
    no_memory_check: bool,
    /// train.ddp_dtype: numbers in which gradients travel between processes, f32 or bf16
    #[arg(long, value_name = "TYPE", help_heading = BATCHES)]
    ddp_dtype: Option<String>,
    /// train.ddp_overlap: sum gradients over processes during the backward pass: auto, always, never
    #[arg(long, value_name = "WHEN", help_heading = BATCHES)]
    ddp_overlap: Option<String>,
    /// train.zero: 1 divides the memory of the optimiser among processes, on CPUs
    #[arg(long, value_name = "STAGE", help_heading = BATCHES)]
    zero: Option<u32>,
    /// train.finetune_from_model: model folder whose weights a new run starts from; the folder of a run stands for its best
    /// model
    #[arg(long, value_name = "DIR", value_parser = model_folder(), help_heading = PARTS)]
    finetune_from_model: Option<PathBuf>,
    /// train.free: parameters to train: gates, gates+out (gates and attention outputs) or all
    #[arg(long, value_name = "GROUPS", help_heading = PARTS)]
    free: Option<String>,
    /// train.gate_every_updates: G steps by update, not by epoch
    #[arg(long, help_heading = PARTS)]
    gate_every_updates: Option<u64>,
    /// train.max_epoch
    #[arg(long, help_heading = LENGTH)]
    max_epoch: Option<u64>,
    /// train.max_update
    #[arg(long, help_heading = LENGTH)]
    max_update: Option<u64>,
    /// train.patience
    #[arg(long, help_heading = LENGTH)]
    patience: Option<u64>,
    /// train.save_interval: epochs between checkpoints
    #[arg(long, help_heading = CHECKPOINTS)]
    save_interval: Option<u64>,
    /// train.save_interval_updates
    #[arg(long, help_heading = CHECKPOINTS)]
    save_interval_updates: Option<u64>,
    /// train.keep_last_epochs
    #[arg(long, help_heading = CHECKPOINTS)]
    keep_last_epochs: Option<usize>,
    /// train.keep_interval_updates
    #[arg(long, help_heading = CHECKPOINTS)]
    keep_interval_updates: Option<usize>,
    /// train.keep_best_checkpoints
    #[arg(long, help_heading = CHECKPOINTS)]
    keep_best_checkpoints: Option<usize>,
    /// train.best_checkpoint_metric (loss or bleu)
    #[arg(long, help_heading = CHECKPOINTS)]
    best_checkpoint_metric: Option<String>,
    /// train.eval_bleu_beam = 5
    #[arg(long, help_heading = CHECKPOINTS)]
    eval_bleu: bool,
    /// train.log_interval
    #[arg(long, help_heading = CHECKPOINTS)]
    log_interval: Option<u64>,
}

impl Flags {
    /// Sets the key of each flag that was given.
    pub fn apply(&self, recipe: Recipe) -> Result<Recipe> {
        let text = |value: &dyn std::fmt::Display| value.to_string();
        // With an exponent, so that a large one is not taken for a whole number.
        let float = |value: f64| format!("{value:e}");
        let given = [
            ("model.arch", self.arch.clone()),
            ("model.dropout", self.dropout.as_ref().map(|v| text(v))),
            ("model.share_embeddings", self.share_all_embeddings.then(|| "all".into())),
            ("train.seed", self.seed.as_ref().map(|v| text(v))),
            ("train.optimizer", self.optimizer.clone()),
            ("train.momentum", self.momentum.as_ref().map(|v| text(v))),
            ("train.lr_scheduler", self.lr_scheduler.clone()),
            ("train.lr", self.lr.map(float)),
            ("train.max_lr", self.max_lr.map(float)),
            ("train.lr_period_updates", self.lr_period_updates.as_ref().map(|v| text(v))),
            ("train.t_mult", self.t_mult.map(float)),
            ("train.lr_shrink", self.lr_shrink.map(float)),
            ("train.warmup_init_lr", self.warmup_init_lr.map(float)),
            ("train.min_lr", self.min_lr.map(float)),
            ("train.tokens_per_sample", self.tokens_per_sample.as_ref().map(|v| text(v))),
            ("train.sample_break_mode", self.sample_break_mode.clone()),
            (
                "model.adaptive_softmax_cutoff",
                self.adaptive_softmax_cutoff.as_ref().map(|v| format!("[{v}]")),
            ),
            ("train.gate_every_updates", self.gate_every_updates.as_ref().map(|v| text(v))),
            ("train.warmup_updates", self.warmup_updates.as_ref().map(|v| text(v))),
            ("train.weight_decay", self.weight_decay.as_ref().map(|v| text(v))),
            ("train.clip_norm", self.clip_norm.map(float)),
            ("train.label_smoothing", self.label_smoothing.as_ref().map(|v| text(v))),
            ("train.max_tokens", self.max_tokens.as_ref().map(|v| text(v))),
            ("train.max_sentences", self.max_sentences.as_ref().map(|v| text(v))),
            ("train.batching", self.batching.clone()),
            (
                "train.required_batch_size_multiple",
                self.required_batch_size_multiple.as_ref().map(|v| text(v)),
            ),
            ("train.subset", self.subset.map(float)),
            ("train.free", self.free.clone()),
            ("train.ddp_dtype", self.ddp_dtype.clone()),
            ("train.ddp_overlap", self.ddp_overlap.clone()),
            ("train.zero", self.zero.as_ref().map(|v| text(v))),
            // A folder may have a name that looks like a number.
            (
                "train.finetune_from_model",
                self.finetune_from_model.as_ref().map(|v| Value::String(v.display().to_string()).to_string()),
            ),
            ("train.memory_check", self.no_memory_check.then(|| "false".into())),
            ("train.update_freq", self.update_freq.as_ref().map(|v| text(v))),
            ("train.max_epoch", self.max_epoch.as_ref().map(|v| text(v))),
            ("train.max_update", self.max_update.as_ref().map(|v| text(v))),
            ("train.patience", self.patience.as_ref().map(|v| text(v))),
            ("train.save_interval", self.save_interval.as_ref().map(|v| text(v))),
            ("train.save_interval_updates", self.save_interval_updates.as_ref().map(|v| text(v))),
            ("train.keep_last_epochs", self.keep_last_epochs.as_ref().map(|v| text(v))),
            ("train.keep_interval_updates", self.keep_interval_updates.as_ref().map(|v| text(v))),
            ("train.keep_best_checkpoints", self.keep_best_checkpoints.as_ref().map(|v| text(v))),
            ("train.log_interval", self.log_interval.as_ref().map(|v| text(v))),
            ("train.eval_bleu_beam", self.eval_bleu.then(|| "5".into())),
            ("train.best_checkpoint_metric", self.best_checkpoint_metric.clone()),
        ];
        let given = given.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        Ok(given.into_iter().try_fold(recipe, |recipe, text| recipe.set(&text))?)
    }
}

/// fairseq's flags for a run that resumes with less than it had.
#[derive(clap::Args)]
#[command(next_help_heading = "Resets of a resumed run")]
pub struct ResetFlags {
    /// Restart the optimiser, and with it the count of updates, the schedule and the best score
    #[arg(long)]
    reset_optimizer: bool,
    /// Restart the learning rate schedule, including the warm-up, at the next update
    #[arg(long)]
    reset_lr_scheduler: bool,
    /// Forget the best score and the count of validations without improvement
    #[arg(long)]
    reset_meters: bool,
    /// Restart at the first epoch
    #[arg(long)]
    reset_dataloader: bool,
}

impl ResetFlags {
    /// Parts to reset.
    pub fn resets(&self) -> Resets {
        Resets {
            optimizer: self.reset_optimizer,
            lr_scheduler: self.reset_lr_scheduler,
            meters: self.reset_meters,
            dataloader: self.reset_dataloader,
        }
    }
}

/// `5%` or `0.05`.
fn fraction(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let value = number.trim().parse::<f64>().map_err(|_| "expected a part as 5% or 0.05".to_owned())?;
    Ok(value / unit)
}
