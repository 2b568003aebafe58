//! The command lines of fairseq's documents, word for word, on small data. What follows them makes models small.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::common::{self, Sandbox, lines};

/// A shell in a folder where fairseq's names are this program.
struct Shell(Sandbox);

impl Shell {
    fn new() -> Self {
        let place = Sandbox::new();
        std::fs::create_dir_all(place.path("bin")).unwrap();
        for name in ["preprocess", "train", "generate", "interactive", "eval-lm", "score"] {
            symlink(env!("CARGO_BIN_EXE_mae"), place.path("bin").join(format!("fairseq-{name}"))).unwrap();
        }
        // What `python scripts/average_checkpoints.py` runs.
        symlink(env!("CARGO_BIN_EXE_mae"), place.path("bin/python")).unwrap();
        let shell = Self(place);
        shell.texts();
        shell
    }

    /// Texts under the names that the documents have.
    fn texts(&self) {
        let words = ["hund", "haus", "tag", "kind", "ba@@ um"];
        let word = |lang: &str, i: usize| if lang == "de" { words[i % 5] } else { words[(i + 1) % 5] };
        for (name, count, first) in [
            ("iwslt/train", 60, 0),
            ("iwslt/valid", 8, 61),
            ("iwslt/test", 8, 73),
            ("wmt/train.tok.clean.bpe.32000", 60, 0),
            ("wmt/newstest2013.tok.bpe.32000", 8, 61),
            ("wmt/newstest2014.tok.bpe.32000", 8, 73),
        ] {
            for lang in ["de", "en"] {
                let line = |i: usize| {
                    let words = (0..2 + i % 3).map(|j| word(lang, i * 7 + j * 3));
                    words.collect::<Vec<_>>().join(" ")
                };
                self.write(
                    &format!("{name}.{lang}"),
                    &lines(&(first..first + count).map(line).collect::<Vec<_>>()),
                );
            }
        }
        for (name, count) in [("train", 60), ("valid", 9), ("test", 9)] {
            self.write(&format!("wiki/wiki.{name}.tokens"), &common::lm::text(count, count));
        }
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Runs a command line, which must succeed; returns what it printed and its notes.
    #[track_caller]
    fn run(&self, line: &str) -> (String, String) {
        let path = format!("{}:{}", self.0.path("bin").display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-c", line])
            .env("PATH", path)
            .env("MAE_DEVICE", "cpu")
            .current_dir(self.0.path(""))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "{line}\n{out}{err}");
        (out, err)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path(name)).unwrap()
    }
}

const SMALL: &str = "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 \
                     --encoder-ffn-embed-dim 16 --decoder-ffn-embed-dim 16 --warmup-updates 10 --lr 0.01";

#[test]
fn iwslt14() {
    let shell = Shell::new();
    shell.run(
        "TEXT=iwslt
fairseq-preprocess --source-lang de --target-lang en \
    --trainpref $TEXT/train --validpref $TEXT/valid --testpref $TEXT/test \
    --destdir data-bin/iwslt14.tokenized.de-en \
    --workers 20",
    );
    let (_, notes) = shell.run(&format!(
        "CUDA_VISIBLE_DEVICES=0 fairseq-train \
    data-bin/iwslt14.tokenized.de-en \
    --arch transformer_iwslt_de_en --share-decoder-input-output-embed \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 \
    --dropout 0.3 --weight-decay 0.0001 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 4096 \
    --eval-bleu \
    --eval-bleu-args '{{\"beam\": 5, \"max_len_a\": 1.2, \"max_len_b\": 10}}' \
    --eval-bleu-detok moses \
    --eval-bleu-remove-bpe \
    --eval-bleu-print-samples \
    --best-checkpoint-metric bleu --maximize-best-checkpoint-metric {SMALL} --max-epoch 30"
    ));
    assert!(notes.contains("--eval-bleu-detok (BLEU of the development set"), "{notes}");
    let record = shell.read("checkpoints/run.toml");
    for key in [
        "encoder_attention_heads = 4",
        "adam_betas = [0.9, 0.98]",
        "label_smoothing = 0.1",
        "share_embeddings = \"decoder\"",
        "batching = \"frozen\"",
        "eval_bleu_beam = 5",
        "best_checkpoint_metric = \"bleu\"",
        "system = \"base\"",
        "warmup_init_lr = 0.0",
    ] {
        assert!(record.contains(key), "{key}: {record}");
    }
    let (_, said) = shell.run(
        "fairseq-generate data-bin/iwslt14.tokenized.de-en \
    --path checkpoints/checkpoint_best.pt \
    --batch-size 128 --beam 5 --remove-bpe | tee gen.out",
    );
    let bleu = said.lines().find(|line| line.starts_with("Generate test with beam=5: ")).expect("BLEU");
    let (out, _) = shell.run(
        "grep ^H gen.out | cut -f3- > gen.out.sys
grep ^T gen.out | cut -f2- > gen.out.ref
fairseq-score --sys gen.out.sys --ref gen.out.ref",
    );
    assert!(bleu.ends_with(out.trim_end()), "{bleu} {out}");
    assert!(!shell.read("gen.out.sys").contains("@@"));
    let (_, quiet) = shell.run(
        "fairseq-generate data-bin/iwslt14.tokenized.de-en --path checkpoints/checkpoint_best.pt --beam 5 --quiet \
         --remove-bpe=subword_nmt --num-workers 2 --distributed-world-size 1",
    );
    assert!(quiet.contains(bleu), "{quiet}");
    let (out, _) = shell.run(
        "echo 'hund haus' | fairseq-interactive --path checkpoints/checkpoint_best.pt data-bin/iwslt14.tokenized.de-en \
         --beam 5 --source-lang de --target-lang en --remove-bpe",
    );
    assert!(out.starts_with("S-0\thund haus\nH-0\t"), "{out}");
}

#[test]
fn scaling_nmt() {
    let shell = Shell::new();
    shell.run(
        "TEXT=wmt
fairseq-preprocess \
    --source-lang en --target-lang de \
    --trainpref $TEXT/train.tok.clean.bpe.32000 \
    --validpref $TEXT/newstest2013.tok.bpe.32000 \
    --testpref $TEXT/newstest2014.tok.bpe.32000 \
    --destdir data-bin/wmt16_en_de_bpe32k \
    --nwordssrc 32768 --nwordstgt 32768 \
    --joined-dictionary \
    --workers 20",
    );
    let (_, notes) = shell.run(&format!(
        "fairseq-train \
    data-bin/wmt16_en_de_bpe32k \
    --arch transformer_vaswani_wmt_en_de_big --share-all-embeddings \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-07 \
    --dropout 0.3 --weight-decay 0.0 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 3584 \
    --fp16 {SMALL} --max-epoch 10"
    ));
    assert!(notes.contains("--fp16 (bf16 is what GPUs use here"), "{notes}");
    shell.run(
        "python scripts/average_checkpoints \
    --inputs checkpoints \
    --num-epoch-checkpoints 10 \
    --output checkpoint.avg10.pt",
    );
    shell.run(
        "fairseq-generate \
    data-bin/wmt16_en_de_bpe32k \
    --path checkpoint.avg10.pt \
    --beam 4 --lenpen 0.6 --remove-bpe > gen.out",
    );
    assert_eq!(shell.read("gen.out").lines().filter(|line| line.starts_with("H-")).count(), 8);
}

#[test]
fn language_models() {
    let shell = Shell::new();
    shell.run(
        "TEXT=wiki
fairseq-preprocess \
    --only-source \
    --trainpref $TEXT/wiki.train.tokens \
    --validpref $TEXT/wiki.valid.tokens \
    --testpref $TEXT/wiki.test.tokens \
    --destdir data-bin/wikitext-103 \
    --workers 20",
    );
    let small = "--decoder-layers 1 --decoder-embed-dim 32 --decoder-ffn-embed-dim 32 --max-update 6 --update-freq 1 \
                 --max-tokens 512";
    shell.run(&format!(
        "fairseq-train --task language_modeling \
  data-bin/wikitext-103 \
  --save-dir checkpoints/transformer_wikitext-103 \
  --arch transformer_lm --share-decoder-input-output-embed \
  --dropout 0.1 \
  --optimizer adam --adam-betas '(0.9, 0.98)' --weight-decay 0.01 --clip-norm 0.0 \
  --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-07 \
  --tokens-per-sample 512 --sample-break-mode none \
  --max-tokens 2048 --update-freq 16 \
  --fp16 \
  --max-update 50000 {small} --tokens-per-sample 128"
    ));
    let (out, _) = shell.run(
        "fairseq-eval-lm data-bin/wikitext-103 \
    --path checkpoints/transformer_wikitext-103/checkpoint_best.pt \
    --batch-size 2 \
    --tokens-per-sample 128 \
    --context-window 40",
    );
    assert!(out.contains("perplexity per token"), "{out}");
    shell.run(&format!(
        "fairseq-train --task language_modeling \
    data-bin/wikitext-103 \
    --save-dir checkpoints/adaptive \
    --arch transformer_lm_wiki103 \
    --max-update 286000 --lr 1.0 --t-mult 2 --lr-period-updates 270000 --lr-scheduler cosine --lr-shrink 0.75 \
    --warmup-updates 16000 --warmup-init-lr 1e-07 --stop-min-lr 1e-09 --optimizer nag --min-lr 0.0001 --clip-norm 0.1 \
    --criterion adaptive_loss --max-tokens 3072 --update-freq 3 --tokens-per-sample 3072 --seed 1 \
    --sample-break-mode none --skip-invalid-size-inputs-valid-test --ddp-backend=legacy_ddp {small} \
    --tokens-per-sample 64 --adaptive-softmax-cutoff 8 --adaptive-input-cutoff 8"
    ));
    let record = shell.read("checkpoints/adaptive/run.toml");
    for key in [
        "max_lr = 1.0",
        "\nlr = 0.0001",
        "lr_shrink = 0.75",
        "adaptive_softmax_cutoff = [8]",
        "momentum = 0.99",
    ] {
        assert!(record.contains(key), "{key}: {record}");
    }
}
