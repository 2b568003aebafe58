//! Rules for flags that most commands of fairseq have.

use super::rule::Row;
use super::rule::Rule::{By, Only, Same, Unneeded, Unsupported, Words};
use super::values::{dataset, tasks};

/// Numbers, logs, plug-ins, segmentation and scorers.
pub const COMMON: &[Row] = &[
    ("--cpu", Words("--device cpu")),
    (
        "--fp16 --bf16 --amp --memory-efficient-fp16 --memory-efficient-bf16 --fp16-init-scale --fp16-scale-window \
         --fp16-scale-tolerance --fp16-no-flatten-grads --min-loss-scale --threshold-loss-scale --amp-batch-retries \
         --amp-init-scale --amp-scale-window --on-cpu-convert-precision",
        Unneeded("bf16 is what GPUs use here, and it needs no loss scale; --precision f32 chooses f32"),
    ),
    ("--tpu", Unsupported("there are CPUs and NVIDIA GPUs: --device cpu or --device cuda")),
    ("--task", By(tasks, "translation and language_modeling; the model or the data decides between them")),
    ("--source-lang --target-lang", Same),
    ("--no-progress-bar --log-format --log-interval", Unneeded("bars show in terminals only")),
    ("--log-file", Unneeded("redirect standard output and standard error")),
    (
        "--tensorboard-logdir --wandb-project --azureml-logging --aim-repo --aim-run-hash",
        Unneeded("training writes log.jsonl and, with --tensorboard-logdir, files of TensorBoard"),
    ),
    ("--seed", Same),
    (
        "--user-dir",
        Unsupported("plug-ins in Python cannot be loaded; docs/library.md shows how to build on the library"),
    ),
    ("--dataset-impl", By(dataset, "mmap, the format of `mae preprocess`")),
    (
        "--bpe --bpe-codes --bpe-separator --bpe-merges --bpe-vocab --bpe-vocab-file --bpe-cased --bpe-add-prefix-space \
         --sentencepiece-model --sentencepiece-model-path --gpt2-encoder-json --gpt2-vocab-bpe",
        Unneeded("the folder of the data or of the model holds the codes, and text is segmented with them"),
    ),
    (
        "--sentencepiece-enable-sampling --sentencepiece-alpha",
        Unsupported("`mae preprocess --bpe-dropout P` varies the segmentation of training texts"),
    ),
    (
        "--tokenizer --moses-no-dash-splits --moses-no-escape",
        Unsupported(
            "tokenise the text first: `mae tokenize -l LANG`, and `mae detokenize -l LANG` for the output",
        ),
    ),
    ("--scoring", Only("bleu", "bleu; `mae score` has sacreBLEU, chrF and TER for the output")),
    (
        "--sacrebleu --sacrebleu-tokenizer --sacrebleu-char-level --sacrebleu-lowercase --wer-tokenizer --wer-remove-punct \
         --wer-char-level --wer-lowercase --bert-score-lang",
        Unsupported("print the translations with --plain and pass them to `mae score --sys - --ref FILE`"),
    ),
    ("--pad --eos --unk", Unneeded("special symbols have the ids of fairseq's dictionaries")),
    (
        "--criterion --optimizer --lr-scheduler --simul-type",
        Unneeded("a choice of training, which the model folder does not need"),
    ),
    (
        "--quantization-config-path",
        Unsupported("`mae quantize MODEL --out DIR` writes 8-bit weights for CPUs; GPUs use bf16"),
    ),
    ("--model-parallel-size", Only("1", "1: one device holds the model")),
    (
        "--empty-cache-freq --all-gather-list-size --profile --reset-logging --suppress-crashes --use-plasma-view \
         --plasma-path",
        Unneeded("this concerns PyTorch"),
    ),
];

/// Data sets and batches, and the tasks.
pub const DATA: &[Row] = &[
    ("--max-tokens", Same),
    ("--num-workers --data-buffer-size", Unneeded("batches are made ahead by a thread")),
    (
        "--skip-invalid-size-inputs-valid-test",
        Unneeded("pairs that are too long are left out and counted; lines to translate are cut"),
    ),
    (
        "--batch-size --required-batch-size-multiple --required-seq-len-multiple --num-batch-buckets --pad-to-fixed-length \
         --pad-to-fixed-bsz --left-pad-source --left-pad-target",
        Unneeded("sentences are packed without padding; --max-tokens limits a batch"),
    ),
    ("--max-tokens-valid --batch-size-valid", Unneeded("validation has batches of --max-tokens")),
    ("--train-subset", Only("train", "train")),
    ("--gen-subset --valid-subset", Unneeded("this command has no use for a split")),
    (
        "--combine-valid-subsets --ignore-unused-valid-subsets",
        Unneeded("one development set is used: --valid-subset"),
    ),
    (
        "--validate-interval --validate-interval-updates --validate-after-updates --fixed-validation-seed \
         --disable-validation --curriculum --update-ordered-indices-seed --update-epoch-batch-itr --grouped-shuffling \
         --upsample-primary",
        Unneeded("a choice of training"),
    ),
    ("--max-valid-steps", Unsupported("name a smaller development set: --valid-subset NAME")),
    ("--num-shards", Only("1", "1; divide the text into several files")),
    ("--shard-id", Only("0", "0")),
    (
        "--max-source-positions --max-target-positions --truncate-source",
        Unneeded("the model has its number of positions, and longer lines are cut"),
    ),
    ("--load-alignments", Unsupported("alignments are not used")),
    (
        "--eval-bleu --eval-bleu-args --eval-bleu-detok --eval-bleu-detok-args --eval-bleu-remove-bpe \
         --eval-bleu-print-samples --eval-tokenized-bleu",
        Unneeded("a choice of training"),
    ),
    ("--sample-break-mode --tokens-per-sample", Unneeded("a choice for language models")),
    ("--shorten-method", Only("none", "none: no text is shortened")),
    ("--shorten-data-split-list", Unneeded("no text is shortened")),
    ("--output-dictionary-size", Only("-1", "-1: the dictionary decides")),
    (
        "--add-bos-token --self-target --future-target --past-target",
        Unsupported(
            "a language model predicts the next token; lines begin with the end mark of the one before",
        ),
    ),
    (
        "--raw-text --lazy-load",
        Unsupported("binarise the text with `mae preprocess`; `mae generate --source FILE` reads text"),
    ),
];

/// Several processes and devices.
pub const PROCESSES: &[Row] = &[
    (
        "--distributed-world-size --distributed-num-procs --nprocs-per-node",
        Only("1", "1: mpirun, srun or torchrun start several processes, and only of `mae train`"),
    ),
    ("--zero-sharding", Only("none", "none: one device holds everything")),
    (
        "--pipeline-model-parallel --pipeline-balance --pipeline-devices --pipeline-chunks --pipeline-encoder-balance \
         --pipeline-encoder-devices --pipeline-decoder-balance --pipeline-decoder-devices --pipeline-checkpoint --cpu-offload \
         --use-sharded-state",
        Unsupported("one device holds the whole model"),
    ),
    (
        "--distributed-rank --distributed-backend --distributed-init-method --distributed-port --distributed-no-spawn \
         --device-id --ddp-backend --ddp-comm-hook --bucket-cap-mb --fix-batches-to-gpus --find-unused-parameters \
         --gradient-as-bucket-view --fast-stat-sync --heartbeat-timeout --broadcast-buffers --slowmo-momentum \
         --slowmo-base-algorithm --localsgd-frequency --no-reshard-after-forward --fp32-reduce-scatter \
         --not-fsdp-flatten-parameters",
        Unneeded("one process computes on one device; --device cuda:1 chooses a GPU"),
    ),
];
