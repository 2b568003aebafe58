//! Rules for flags of fairseq-train: optimisation, validation and checkpoints.

use super::rule::Row;
use super::rule::Rule::{By, Key, Keys, Only, Same, Unneeded, Unsupported};
use super::training_values::{
    betas, bleu_arguments, criterion, hours, log_format, lowest_rate, maximise, metric, one_value, optimizer,
    rate, scheduler,
};
use super::values::{model_folder, restore, unless_negative, unless_zero};

/// Optimisation, batches and validation.
pub const TRAIN: &[Row] = &[
    (
        "--task --log-interval --tensorboard-logdir --valid-subset --tokens-per-sample --sample-break-mode",
        Same,
    ),
    ("--distributed-world-size --distributed-rank --distributed-init-method", Same),
    ("--batch-size --required-batch-size-multiple", Same),
    ("--max-epoch --max-update --clip-norm --weight-decay --label-smoothing --momentum", Same),
    ("--warmup-updates --warmup-init-lr --lr-period-updates --t-mult --lr-shrink --max-lr", Same),
    ("--log-format", By(log_format, "json prints JSON lines (--json); the others are left out")),
    ("--lr", By(rate, "one rate; of cosine the highest (train.max_lr), where the line is fairseq-train's")),
    ("--min-lr", By(lowest_rate, "the lowest rate; of cosine train.lr, where the line is fairseq-train's")),
    (
        "--stop-min-lr",
        Unneeded("training does not stop at a rate: --max-update, --max-epoch and --patience end it"),
    ),
    ("--optimizer", By(optimizer, "adam or nag")),
    ("--adam-betas", By(betas, "train.adam_betas")),
    ("--adam-eps", Key("train.adam_eps")),
    ("--use-old-adam --fp16-adam-stats", Unneeded("there is one Adam, with moments in f32")),
    ("--lr-scheduler", By(scheduler, "inverse_sqrt or cosine")),
    (
        "--force-anneal --end-learning-rate --power --total-num-update",
        Unsupported("choose --lr-scheduler inverse_sqrt or cosine"),
    ),
    (
        "--criterion",
        By(
            criterion,
            "label_smoothed_cross_entropy, cross_entropy (no smoothing), adaptive_loss (language models)",
        ),
    ),
    ("--report-accuracy", Unneeded("losses, perplexity and BLEU are reported")),
    ("--ignore-prefix-size", Only("0", "0: all target tokens count")),
    ("--sentence-avg", Unsupported("gradients are means over target tokens")),
    ("--update-freq", By(one_value, "one number")),
    ("--skip-remainder-batch", Unneeded("the last batches of an epoch are used")),
    ("--stop-time-hours", By(hours, "--stop-after, in minutes")),
    (
        "--use-bmuf --block-lr --block-momentum --global-sync-iter --warmup-iterations --use-nbm --average-sync",
        Unsupported("one process computes on one device"),
    ),
    (
        "--store-ema --ema-decay --ema-start-update --ema-seed-model --ema-update-freq --ema-fp32",
        Unsupported("`mae average` averages checkpoints after training"),
    ),
    ("--validate-interval", Key("train.validate_interval")),
    ("--disable-validation", Keys("train.validate_interval=0")),
    (
        "--validate-interval-updates --validate-after-updates",
        By(unless_zero, "0; --save-interval-updates N validates and saves"),
    ),
    ("--fixed-validation-seed", Unneeded("validation draws nothing")),
    ("--curriculum", By(unless_zero, "0: all epochs are shuffled")),
    ("--upsample-primary", Only("1", "1")),
    ("--eval-bleu", Same),
    ("--eval-bleu-args", By(bleu_arguments, "its beam becomes train.eval_bleu_beam; the rest is left out")),
    (
        "--eval-bleu-detok --eval-bleu-detok-args --eval-bleu-remove-bpe --eval-tokenized-bleu",
        Unneeded("BLEU of the development set is that of its tokens, pieces joined"),
    ),
    ("--eval-bleu-print-samples", Unneeded("`mae generate` prints translations")),
];

/// Checkpoints.
pub const CHECKPOINTS: &[Row] = &[
    ("--save-dir --save-interval --save-interval-updates", Same),
    ("--reset-dataloader --reset-lr-scheduler --reset-meters --reset-optimizer", Same),
    ("--best-checkpoint-metric", By(metric, "loss or bleu; ppl and nll_loss become loss")),
    ("--maximize-best-checkpoint-metric", By(maximise, "with bleu; the metric decides")),
    (
        "--keep-last-epochs --keep-interval-updates --keep-best-checkpoints --patience",
        By(unless_negative, "the same; a negative number is left out"),
    ),
    ("--no-epoch-checkpoints", Keys("train.keep_last_epochs=0")),
    (
        "--restore-file",
        By(
            restore,
            "checkpoint_last.pt; a run resumes from its --save-dir, --finetune-from-model starts from a model",
        ),
    ),
    (
        "--finetune-from-model",
        By(model_folder, "a model folder; `mae import fairseq` makes one of a .pt file"),
    ),
    (
        "--no-save --no-last-checkpoints --no-save-optimizer-state",
        Unneeded("a run always saves what it needs to resume: choose a --save-dir that can be removed"),
    ),
    ("--optimizer-overrides", Only("{}", "{}; flags and --set change keys of a run that resumes")),
    (
        "--write-checkpoints-asynchronously --checkpoint-suffix --checkpoint-shard-count --load-checkpoint-on-all-dp-ranks",
        Unneeded("checkpoints are folders, written by a thread of their own"),
    ),
    ("--continue-once --keep-interval-updates-pattern", Unsupported("a run resumes from its --save-dir")),
];
