//! fairseq's defaults, for command lines that were written for fairseq.

use super::line::Line;

/// Sizes of an architecture of fairseq: ours of the same kind, and the keys that differ.
type Architecture = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const DROPOUT: (&str, &str) = ("model.dropout", "0.1");
const BIG: &str = "transformer_vaswani_wmt_en_de_big";
const ATTENTION_DROPOUT: (&str, &str) = ("model.attention_dropout", "0.1");

/// Architectures of fairseq 0.12, for translation.
const TRANSLATION: [Architecture; 8] = [
    ("transformer", "transformer_wmt_en_de", &[]),
    ("transformer_wmt_en_de", "transformer_wmt_en_de", &[]),
    (
        "transformer_iwslt_de_en",
        "transformer_iwslt_de_en",
        &[DROPOUT, ("model.encoder_attention_heads", "4")],
    ),
    (BIG, BIG, &[]),
    ("transformer_vaswani_wmt_en_fr_big", BIG, &[DROPOUT]),
    ("transformer_wmt_en_de_big", BIG, &[ATTENTION_DROPOUT]),
    (
        "transformer_wmt_en_de_big_t2t",
        BIG,
        &[ATTENTION_DROPOUT, ("model.activation_dropout", "0.1"), ("model.norm", "pre")],
    ),
    (
        "transformer_tiny",
        "transformer_tiny",
        &[
            DROPOUT,
            ("model.encoder_embed_dim", "64"),
            ("model.encoder_ffn_embed_dim", "64"),
            ("model.encoder_layers", "2"),
            ("model.decoder_layers", "2"),
            ("model.encoder_attention_heads", "2"),
        ],
    ),
];

/// Architectures of fairseq 0.12, for language models.
const LANGUAGE_MODELS: [Architecture; 4] = [
    (
        "transformer_lm",
        "transformer_lm_small",
        &[
            ("model.decoder_layers", "6"),
            ("model.adaptive_softmax_cutoff", "[]"),
            ("model.final_norm", "true"),
        ],
    ),
    (
        "transformer_lm_big",
        "transformer_lm_wiki103",
        &[
            DROPOUT,
            ("model.decoder_layers", "12"),
            ("model.decoder_attention_heads", "16"),
            ("model.adaptive_softmax_cutoff", "[]"),
            ("model.adaptive_softmax_dropout", "0.0"),
            ("model.attention_dropout", "0.0"),
            ("model.activation_dropout", "0.0"),
            ("model.final_norm", "true"),
        ],
    ),
    ("transformer_lm_wiki103", "transformer_lm_wiki103", &[]),
    ("transformer_lm_baevski_wiki103", "transformer_lm_wiki103", &[]),
];

/// Keys that a flag decides: with it, the key of an architecture does not count.
fn flag_of(key: &str) -> String {
    let flag = format!("--{}", key.trim_start_matches("model.").replace('_', "-"));
    if key == "model.norm" { "--encoder-normalize-before".into() } else { flag }
}

/// Adds what fairseq does where the line says nothing.
pub fn add(line: &mut Line) -> Result<(), String> {
    match line.command {
        "train" => train(line)?,
        "preprocess" if !line.has("--only-source") => line.add_first(&["--empty-train", "keep"]),
        "generate" | "interactive" => {
            if !line.has("--post-process") {
                line.add_first(&["--remove-bpe=false"]);
            }
            if line.command == "interactive" && !line.has("--bpe") {
                line.add_first(&["--no-bpe"]);
            }
            if !line.has("--tokenizer") {
                line.add_first(&["--tokenized"]);
            }
        }
        "score" => {
            if !line.has("--sys") {
                line.add_first(&["--sys", "-"]);
            }
            if !line.has("--sacrebleu") {
                line.add_first(&["--fairseq"]);
            }
        }
        _ => {}
    }
    Ok(())
}

fn train(line: &mut Line) -> Result<(), String> {
    let is_lm = line.is_language_model();
    let known: &[Architecture] = if is_lm { &LANGUAGE_MODELS } else { &TRANSLATION };
    let wanted = line.value("--arch").unwrap_or(if is_lm { "transformer_lm" } else { "transformer" });
    let Some((_, arch, keys)) = known.iter().find(|(name, ..)| *name == wanted) else {
        let names: Vec<&str> = known.iter().map(|(name, ..)| *name).collect();
        return Err(format!("--arch {wanted} of fairseq: there are {}", names.join(", ")));
    };
    let mut set = vec![("model.arch".to_owned(), (*arch).to_owned())];
    let mut unless = |flag: &str, key: &str, value: &str, line: &Line| {
        if !line.has(flag) {
            set.push((key.to_owned(), value.to_owned()));
        }
    };
    for (key, value) in *keys {
        unless(&flag_of(key), key, value, line);
    }
    unless("--adam-betas", "train.adam_betas", "[0.9, 0.999]", line);
    // All checkpoints of epochs are kept.
    if !line.has("--no-epoch-checkpoints") {
        unless("--keep-last-epochs", "train.keep_last_epochs", "100000", line);
    }
    let is_cosine = line.value("--lr-scheduler") == Some("cosine");
    match is_cosine {
        true => {
            let lowest = line.value("--min-lr").unwrap_or("0.0").to_owned();
            unless("--warmup-init-lr", "train.warmup_init_lr", &lowest, line);
            unless("--warmup-updates", "train.warmup_updates", "0", line);
        }
        false => {
            unless("--warmup-init-lr", "train.warmup_init_lr", "0.0", line);
            unless("--min-lr", "train.min_lr", "0.0", line);
        }
    }
    if !line.has("--lr-scheduler") {
        return Err("fairseq-train without --lr-scheduler has a fixed rate, which is not supported: choose \
                    --lr-scheduler inverse_sqrt or cosine"
            .into());
    }
    if !is_lm {
        unless("--label-smoothing", "train.label_smoothing", "0.0", line);
        unless("--batching", "train.batching", "frozen", line);
        if !line.has("--share-all-embeddings") {
            unless("--share-decoder-input-output-embed", "model.share_embeddings", "none", line);
        }
    }
    for (key, value) in set.into_iter().rev() {
        line.add_first(&["--set", &format!("{key}={value}")]);
    }
    Ok(())
}
