//! Command lines of fairseq in our words.

use clap::CommandFactory;

use super::list;
use super::rule::{self, Rule};
use super::translate;
use crate::Cli;

fn words(line: &str) -> Vec<std::ffi::OsString> {
    line.split_whitespace().map(Into::into).collect()
}

/// A line in our words, and the flags that were left out.
#[track_caller]
fn ours(line: &str) -> (String, String) {
    let translated = translate(words(line)).unwrap();
    let text: Vec<&str> = translated.words.iter().map(|word| word.to_str().unwrap()).collect();
    (text.join(" "), translated.left_out.join("; "))
}

fn refused(line: &str) -> String {
    translate(words(line)).unwrap_err()
}

#[test]
fn every_flag_of_fairseq_has_a_rule() {
    let missing: Vec<String> = list::flags()
        .filter(|listed| rule::find(listed.command, listed.flag).is_none())
        .map(|listed| format!("{} {}", listed.command, listed.flag))
        .collect();
    assert!(missing.is_empty(), "no rule for {}", missing.join(", "));
}

#[test]
fn rules_are_for_flags_of_fairseq_and_the_same_ones_exist() {
    let program = Cli::command();
    for command in list::COMMANDS {
        let ours = program.find_subcommand(command).unwrap();
        let has = |flag: &str| {
            let mut names = ours.get_arguments().flat_map(|argument| {
                argument
                    .get_long_and_visible_aliases()
                    .into_iter()
                    .flatten()
                    .chain(argument.get_all_aliases().into_iter().flatten())
            });
            names.any(|name| format!("--{name}") == flag)
        };
        for (names, rule) in rule::tables(command).into_iter().flatten() {
            for name in names.split(' ') {
                let Some(listed) = list::find(command, name) else { continue };
                let is_first = rule::find(command, name)
                    .is_some_and(|first| matches!((first, rule), (Rule::Same, Rule::Same)));
                assert!(!is_first || has(listed.flag), "{command} has no {name}");
            }
        }
    }
    for (names, _) in list::COMMANDS.iter().flat_map(|command| rule::tables(command)).flatten() {
        for name in names.split(' ') {
            let known = list::COMMANDS.iter().any(|command| list::find(command, name).is_some());
            assert!(known, "fairseq has no {name}");
        }
    }
}

#[test]
fn lines_of_this_program_stay_as_they_are() {
    for line in [
        "mae",
        "mae --help",
        "mae train bin --recipe multi30k-mae7 --save-dir runs/a --max-epoch 3 --set train.clip_norm=0.1 --device cpu",
        "mae --threads 2 generate model bin --beam 4 --lenpen 0.6",
        "mae preprocess -s de -t en --trainpref train --bpe-codes codes",
        "mae score --sys a --ref b --tok 13a",
        "mae average run --num-epoch-checkpoints 5 --output a",
        "mae tokenize -l de",
    ] {
        let (same, left_out) = ours(line);
        assert_eq!((same.as_str(), left_out.as_str()), (line, ""));
    }
    assert_eq!(
        ours("mae preprocess --bpe 10 --tokenizer t.json").0,
        "mae preprocess --bpe=10 --tokenizer=t.json"
    );
}

#[test]
fn flags_become_keys() {
    let (line, left_out) = ours(
        "mae train bin --encoder-layers 6 --adam-betas (0.9,0.98) --attention-dropout 0.1 --fp16 --patience -1 \
         --share-decoder-input-output-embed --criterion cross_entropy --num-workers 4 --lr [0.0005] --cpu",
    );
    assert_eq!(
        line,
        "mae train bin --set model.encoder_layers=6 --set train.adam_betas=[0.9, 0.98] --set model.attention_dropout=0.1 \
         --set model.share_embeddings=decoder --set train.label_smoothing=0.0 --lr=0.0005 --device cpu"
    );
    assert!(left_out.contains("--fp16 (bf16 is what GPUs use here") && left_out.contains("--num-workers"));
    assert!(!left_out.contains("patience"), "{left_out}");
}

#[test]
fn models_stand_before_the_data() {
    let (line, _) = ours("mae generate bin --path run/checkpoint_best.pt --remove-bpe --quiet");
    assert_eq!(line, "mae generate run/checkpoint_best bin --quiet --remove-bpe");
    let (line, _) = ours("fairseq-generate bin --path a.pt:b.pt --beam 4");
    assert_eq!(line, "mae generate a:b --tokenized --remove-bpe=false bin --beam 4");
    let (line, _) = ours("mae fairseq-eval-lm bin --path a --batch-size 2 --context-window 400");
    assert_eq!(line, "mae eval-lm a bin --context-window 400");
    let (line, _) = ours("mae fairseq-interactive bin --path a --bpe subword_nmt --remove-bpe=subword_nmt");
    assert_eq!(line, "mae interactive a --tokenized bin --remove-bpe");
    let (line, _) =
        ours("mae fairseq-interactive bin --path a --bpe subword_nmt --tokenizer moses --remove-bpe");
    assert_eq!(line, "mae interactive a bin --remove-bpe");
    let (line, _) =
        ours("mae scripts/average_checkpoints.py --inputs run --num-epoch-checkpoints 3 --output avg.pt");
    assert_eq!(line, "mae average --inputs run --num-epoch-checkpoints 3 --output avg.pt");
    assert_eq!(ours("/usr/bin/fairseq-score --sys a --ref b").0, "mae score --fairseq --sys a --ref b");
    assert_eq!(ours("fairseq-score --ref b --sacrebleu").0, "mae score --sys - --ref b");
}

#[test]
fn lines_for_fairseq_have_its_defaults() {
    let (line, _) =
        ours("fairseq-train bin --arch transformer_iwslt_de_en --lr-scheduler inverse_sqrt --lr 5e-4");
    for key in [
        "model.arch=transformer_iwslt_de_en",
        "model.encoder_attention_heads=4",
        "model.dropout=0.1",
        "train.adam_betas=[0.9, 0.999]",
        "train.label_smoothing=0.0",
        "train.warmup_init_lr=0.0",
        "train.batching=frozen",
        "model.share_embeddings=none",
    ] {
        assert!(line.contains(&format!("--set {key}")), "{key}: {line}");
    }
    let cosine = "fairseq-train bin --task language_modeling --arch transformer_lm_wiki103 --lr-scheduler cosine --lr 1.0 \
                  --min-lr 0.0001";
    let (line, _) = ours(cosine);
    assert!(line.contains("train.max_lr=1.0") && line.contains("train.lr=0.0001"), "{line}");
    // The rates of fairseq 0.9.
    let (line, _) = ours(&format!("{cosine} --max-lr 1.0"));
    assert!(line.contains("--lr=1.0") && line.contains("--max-lr 1.0"), "{line}");
}

#[test]
fn what_is_not_there_is_answered() {
    for (line, part) in [
        ("mae train bin --user-dir plug", "docs/library.md"),
        ("mae train bin --optimizer sgd", "adam"),
        ("mae train bin --lr-scheduler fixed", "inverse_sqrt and cosine"),
        ("mae generate bin --path a --distributed-world-size 8", "only of `mae train`"),
        ("mae train bin --restore-file other/checkpoint5.pt", "--finetune-from-model"),
        ("mae train bin --criterion adaptive_loss", "label_smoothed_cross_entropy"),
        ("fairseq-train bin --arch fconv --lr-scheduler inverse_sqrt", "transformer_iwslt_de_en"),
        ("mae generate bin --path a --sacrebleu", "mae score"),
        ("mae generate bin --path a --lm-path b", "a:b:c"),
        ("mae interactive bin --path a --tokenizer nltk", "mae tokenize"),
        ("mae train bin --decoder-embed-dim 256", "--encoder-embed-dim 256"),
        ("mae train bin --max-tokens-valid", "needs a value"),
    ] {
        let said = refused(line);
        assert!(said.contains(part), "{line}: {said}");
    }
}
