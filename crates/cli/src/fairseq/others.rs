//! Rules for flags of fairseq's other commands.

use super::rule::Row;
use super::rule::Rule::{By, Only, Same, Unneeded, Unsupported};
use super::values::{
    codes, moses, path, remove_bpe, results, score_sacrebleu, tokenizer, unless_negative, whole_words,
};

/// fairseq-preprocess.
pub const PREPROCESS: &[Row] = &[
    (
        "--trainpref --validpref --testpref --destdir --joined-dictionary --only-source --srcdict --tgtdict",
        Same,
    ),
    ("--thresholdsrc --thresholdtgt --padding-factor --workers --bpe-codes", Same),
    ("--nwordssrc --nwordstgt", By(unless_negative, "the same; a negative number is left out")),
    ("--bpe", By(codes, "a number of merges to learn; names of fairseq's segmentations are left out")),
    ("--tokenizer", By(tokenizer, "a tokenizer.json; tokenise with Moses first: `mae tokenize -l LANG`")),
    ("--alignfile --align-suffix", Unsupported("alignments are not used")),
    (
        "--dict-only",
        Unsupported("dictionaries are written with the data; --srcdict and --tgtdict use them again"),
    ),
    ("--cpu", Unneeded("text is prepared by the CPU")),
];

/// Search of fairseq-generate and fairseq-interactive.
pub const SEARCH: &[Row] = &[
    (
        "--path",
        By(path, "the model folder, before DATA; `checkpoint_best.pt` means the folder `checkpoint_best`"),
    ),
    ("--beam --nbest --lenpen --unkpen --max-len-a --max-len-b --min-len --unnormalized", Same),
    ("--no-repeat-ngram-size --sampling --temperature --diverse-beam-strength --batch-size", Same),
    (
        "--sampling-topk --sampling-topp --diverse-beam-groups",
        By(unless_negative, "the same; a negative number is left out"),
    ),
    (
        "--post-process",
        By(remove_bpe, "--remove-bpe, whatever the kind of pieces: the model folder knows it"),
    ),
    ("--tokenizer", By(moses, "moses: the rules of the model folder; without the flag, --tokenized")),
    (
        "--moses-no-dash-splits --moses-no-escape",
        Unneeded("the model folder has the rules of its training text"),
    ),
    ("--results-path", By(results, "--output DIR/generate-SPLIT.txt")),
    ("--model-overrides", Only("{}", "{}: the model folder has its own keys")),
    (
        "--replace-unk --print-alignment",
        Unsupported("attention is not turned into alignments; `mae preprocess --bpe N` avoids unknown words"),
    ),
    ("--lm-path --lm-weight", Unsupported("translation models form ensembles: a:b:c in place of the model")),
    (
        "--constraints",
        Unsupported("the first words of a translation can be forced: --prefix-file, --prefix-after-tab"),
    ),
    ("--match-source-len --eos-token", Unsupported("--min-len, --max-len-a and --max-len-b set lengths")),
    ("--diversity-rate", Unsupported("--diverse-beam-groups G and --sampling give different translations")),
    (
        "--decoding-format --iter-decode-eos-penalty --iter-decode-max-iter --iter-decode-force-max-iter \
         --iter-decode-with-beam --iter-decode-with-external-reranker --retain-iter-history",
        Unsupported("models translate from left to right"),
    ),
    (
        "--retain-dropout --retain-dropout-modules",
        Unsupported("nothing is dropped in translation; --expert random varies experts"),
    ),
    (
        "--no-early-stop --no-beamable-mm --no-seed-provided --print-step --print-score",
        Unneeded("it has no effect in fairseq 0.12 either"),
    ),
    CHECKPOINTS_OF_TRAINING,
];

/// Flags of checkpoints that fairseq-generate has without a use.
const CHECKPOINTS_OF_TRAINING: Row = (
    "--save-dir --restore-file --continue-once --finetune-from-model --reset-dataloader --reset-lr-scheduler --reset-meters \
     --reset-optimizer --optimizer-overrides --save-interval --save-interval-updates --keep-interval-updates \
     --keep-interval-updates-pattern --keep-last-epochs --keep-best-checkpoints --no-save --no-epoch-checkpoints \
     --no-last-checkpoints --no-save-optimizer-state --best-checkpoint-metric --maximize-best-checkpoint-metric --patience \
     --checkpoint-suffix --checkpoint-shard-count --load-checkpoint-on-all-dp-ranks --write-checkpoints-asynchronously",
    Unneeded("a flag of training"),
);

/// fairseq-generate alone.
pub const GENERATE: &[Row] = &[("--gen-subset --prefix-size --score-reference --quiet", Same)];

/// fairseq-interactive alone.
pub const INTERACTIVE: &[Row] = &[
    ("--buffer-size --input", Same),
    ("--source-lang --target-lang", Unneeded("the model folder has its dictionaries")),
    ("--bpe", By(whole_words, "text is segmented with the codes of the model folder")),
    (
        "--prefix-size --score-reference",
        Unsupported(
            "`mae generate --source FILE --target FILE` does it; --prefix-after-tab forces first words",
        ),
    ),
    ("--quiet", Unneeded("speed and notes go to standard error")),
];

/// fairseq-eval-lm.
pub const EVAL_LM: &[Row] = &[
    (
        "--path",
        By(path, "the model folder, before DATA; `checkpoint_best.pt` means the folder `checkpoint_best`"),
    ),
    ("--gen-subset --tokens-per-sample --context-window --sample-break-mode", Same),
    ("--source-lang --target-lang", Unneeded("a language model has one text")),
    ("--softmax-batch", Unneeded("--max-tokens limits a batch")),
    (
        "--output-word-probs --output-word-stats",
        Unsupported("--log-probs FILE writes the log-probability of every token"),
    ),
    ("--post-process", Unneeded("perplexity is printed per token and per word")),
    ("--quiet", Unneeded("only the result is printed")),
    (
        "--results-path",
        Unsupported("redirect standard output; --log-probs FILE writes the log-probability of every token"),
    ),
    ("--model-overrides", Only("{}", "{}: the model folder has its own keys")),
];

/// fairseq-validate.
pub const VALIDATE: &[Row] = &[
    (
        "--path",
        By(path, "the model folder, before DATA; `checkpoint_best.pt` means the folder `checkpoint_best`"),
    ),
    ("--gen-subset --valid-subset", Same),
    ("--seed", Unneeded("nothing is drawn")),
    ("--model-overrides", Only("{}", "{}: the model folder has its own keys")),
    CHECKPOINTS_OF_TRAINING,
];

/// fairseq-score.
pub const SCORE: &[Row] = &[
    ("--sys --ref --ignore-case", Same),
    ("--order", Only("4", "4")),
    (
        "--sacrebleu",
        By(score_sacrebleu, "the default of `mae score`; fairseq-score without it has --fairseq"),
    ),
    ("--sentence-bleu", Unsupported("BLEU of single sentences is printed by `mae score --sentence-level`")),
];

/// average_checkpoints.py.
pub const AVERAGE: &[Row] = &[(
    "--inputs --output --num-epoch-checkpoints --num-update-checkpoints --num-best-checkpoints --checkpoint-upper-bound",
    Same,
)];
