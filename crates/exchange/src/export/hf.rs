//! A model folder of Hugging Face's transformers: FSMT for models of fairseq's kind, MarianMT for those of Marian's.

use std::path::Path;

use mae_data::bpe::Codes;
use mae_data::vocab::SPECIALS;
use mae_data::{Segmentation, Vocab, files};
use mae_model::config::{Activation, DecoderStart, ModelConfig, NormOrder, Positions, Sharing, SourceEnd};
use serde_json::{Map, Value, json};

use super::{Folder, HeadWeights, Weights, check_empty};
use crate::layout::Named;
use crate::new_model::write_safetensors;
use crate::{Error, Result, layout};

/// Kind of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `FSMTForConditionalGeneration`.
    Fsmt,
    /// `MarianMTModel`.
    Marian,
}

/// Writes a model with these weights of heads to the folder `to`. `languages` are the names of source and target.
/// Returns the kind of the folder.
pub fn export(folder: &Folder, heads: &HeadWeights, languages: [&str; 2], to: &Path) -> Result<Kind> {
    check_empty(to)?;
    let kind = kind(folder)?;
    let weights = Weights::new(folder, heads)?;
    let named = names(folder, &weights, kind);
    let config = config(folder, languages, kind);
    let order: Vec<&Named> = named.iter().map(|(named, _)| named).collect();
    files::replace_folder(to, |aside| {
        files::write_with(&aside.join("model.safetensors"), |out| {
            write_safetensors(out, &order, |i| {
                Ok(match &named[i].1 {
                    Some(ours) => weights.values(ours),
                    None => vec![0.0; named[i].0.1.iter().product()],
                })
            })
        })?;
        let text = |value: &Value| serde_json::to_vec_pretty(value).expect("JSON can always be written");
        files::write(aside.join("config.json"), &text(&config))?;
        match kind {
            Kind::Fsmt => fsmt_tokeniser(folder, languages, aside, &text)?,
            Kind::Marian => marian_tokeniser(folder, languages, aside, &text)?,
        }
        Ok::<(), Error>(())
    })?;
    Ok(kind)
}

fn kind(folder: &Folder) -> Result<Kind> {
    let config = &folder.config;
    let mut faults = Vec::new();
    let mut require = |holds: bool, fault: &str| {
        if !holds {
            faults.push(fault.to_owned());
        }
    };
    require(config.norm == NormOrder::Post, "`norm` = \"pre\": neither FSMT nor MarianMT is pre-norm");
    require(config.head_dim == 0, "`head_dim`: heads of another width than D / H are not supported");
    require(config.source_end == SourceEnd::Mark, "`source_end` = \"none\" is not supported");
    require(config.positions != Positions::Table, "`positions` = \"table\" is not supported");
    let pieces =
        matches!(folder.codes, Some(Segmentation::SentencePiece(_) | Segmentation::SentencePieces { .. }));
    let kind = if config.positions == Positions::Marian { Kind::Marian } else { Kind::Fsmt };
    match kind {
        Kind::Marian => {
            require(pieces, "MarianMT needs SentencePiece models, which the folder does not have");
            require(
                config.decoder_start == DecoderStart::Pad,
                "`decoder_start` is not \"pad\", as in MarianMT",
            );
        }
        Kind::Fsmt => {
            require(!config.output_bias, "`output_bias` = true: FSMT has no output bias");
            require(config.decoder_start == DecoderStart::Eos, "`decoder_start` is not \"eos\", as in FSMT");
            require(
                matches!(folder.codes, None | Some(Segmentation::Joint(_))),
                "FSMT needs BPE codes for both sides",
            );
        }
    }
    folder.unsupported(faults)?;
    Ok(kind)
}

/// Tensors of the folder with the names of our parameters; `None` for zeros.
fn names(folder: &Folder, weights: &Weights<'_>, kind: Kind) -> Vec<(Named, Option<String>)> {
    let config = &folder.config;
    let types = [folder.source.len(), folder.target.len()];
    let width = config.encoder_embed_dim;
    let mut all: Vec<(Named, Option<String>)> = Vec::new();
    for (name, shape) in layout::translation(config, types) {
        match (&*name, kind) {
            ("decoder.embed_out" | "decoder.output_projection.bias", _) => {}
            ("encoder.embed_tokens.weight", Kind::Marian) if config.share_embeddings == Sharing::All => {
                all.push((("model.shared.weight".into(), shape), Some(name)));
            }
            _ => all.push(((format!("model.{name}"), shape), Some(name))),
        }
    }
    let output = Some(weights.output().to_owned());
    match kind {
        Kind::Fsmt => {
            if config.share_embeddings == Sharing::All {
                let shape = vec![types[1], width];
                all.push((
                    ("model.decoder.embed_tokens.weight".into(), shape),
                    Some("encoder.embed_tokens.weight".into()),
                ));
            }
            all.push((("model.decoder.output_projection.weight".into(), vec![types[1], width]), output));
        }
        Kind::Marian => {
            let bias = config.output_bias.then(|| "decoder.output_projection.bias".to_owned());
            all.push((("final_logits_bias".into(), vec![1, types[1]]), bias));
            if config.share_embeddings == Sharing::None {
                all.push((("lm_head.weight".into(), vec![types[1], width]), output));
            }
        }
    }
    all.sort();
    all
}

fn config(folder: &Folder, languages: [&str; 2], kind: Kind) -> Value {
    let config = &folder.config;
    let ModelConfig { encoder_layers, decoder_layers, encoder_embed_dim: width, .. } = *config;
    let (heads, inner) = (config.encoder_attention_heads, config.encoder_ffn_embed_dim);
    let activation = match config.activation {
        Activation::Relu => "relu",
        Activation::Swish => "swish",
        Activation::Gelu => "gelu",
    };
    let all = config.share_embeddings == Sharing::All;
    let mut json = json!({
        "activation_function": activation,
        "d_model": width,
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": !config.no_scale_embedding,
        "max_position_embeddings": config.max_positions,
        "is_encoder_decoder": true,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "forced_eos_token_id": 2,
        "decoder_start_token_id": config.decoder_start.id(),
        "dtype": "float32",
        "num_beams": 5,
        "early_stopping": false,
        "max_length": 200,
    });
    let more = match kind {
        Kind::Fsmt => json!({
            "model_type": "fsmt",
            "architectures": ["FSMTForConditionalGeneration"],
            "langs": languages,
            "src_vocab_size": folder.source.len(),
            "tgt_vocab_size": folder.target.len(),
            "tie_word_embeddings": false,
            "decoder": {"bos_token_id": 2, "model_type": "fsmt_decoder", "vocab_size": folder.target.len()},
        }),
        Kind::Marian => json!({
            "model_type": "marian",
            "architectures": ["MarianMTModel"],
            "vocab_size": folder.source.len(),
            "decoder_vocab_size": folder.target.len(),
            "share_encoder_decoder_embeddings": all,
            "tie_word_embeddings": config.share_embeddings != Sharing::None,
            "static_position_embeddings": true,
            "normalize_embedding": false,
            "normalize_before": false,
            "add_final_layer_norm": false,
            "bad_words_ids": [[1]],
        }),
    };
    if let (Value::Object(json), Value::Object(more)) = (&mut json, more) {
        json.extend(more);
    }
    json
}

type Text<'a> = &'a dyn Fn(&Value) -> Vec<u8>;

/// Symbols by a naming, with their ids.
fn vocabulary(vocab: &Vocab, name: impl Fn(&str) -> String) -> Value {
    let entry = |id: u32| {
        let symbol = vocab.symbol(id);
        let symbol = if (id as usize) < SPECIALS.len() { symbol.to_owned() } else { name(symbol) };
        (symbol, Value::from(id))
    };
    Value::Object((0..vocab.len() as u32).map(entry).collect::<Map<_, _>>())
}

fn fsmt_tokeniser(folder: &Folder, languages: [&str; 2], aside: &Path, text: Text<'_>) -> Result<()> {
    let name = |symbol: &str| match symbol.strip_suffix("@@") {
        Some(start) => start.to_owned(),
        None => format!("{symbol}</w>"),
    };
    files::write(aside.join("vocab-src.json"), &text(&vocabulary(&folder.source, name)))?;
    files::write(aside.join("vocab-tgt.json"), &text(&vocabulary(&folder.target, name)))?;
    let none = Codes::default();
    let codes = match &folder.codes {
        Some(Segmentation::Joint(codes)) => codes,
        _ => &none,
    };
    let merges: String = codes.merges.iter().map(|(left, right)| format!("{left} {right}\n")).collect();
    files::write(aside.join("merges.txt"), merges.as_bytes())?;
    let settings = json!({"langs": languages, "do_lower_case": folder.text.rules.lowercase, "model_max_length": folder.config.max_positions});
    Ok(files::write(aside.join("tokenizer_config.json"), &text(&settings))?)
}

fn marian_tokeniser(folder: &Folder, languages: [&str; 2], aside: &Path, text: Text<'_>) -> Result<()> {
    let name = |symbol: &str| mae_data::sentencepiece::unescape(symbol).into_owned();
    let one = folder.source == folder.target;
    files::write(aside.join("vocab.json"), &text(&vocabulary(&folder.source, name)))?;
    if !one {
        files::write(aside.join("target_vocab.json"), &text(&vocabulary(&folder.target, name)))?;
    }
    if let Some(Segmentation::SentencePiece(src) | Segmentation::SentencePieces { src, .. }) = &folder.codes {
        src.save(aside.join("source.spm"))?;
    }
    if let Some(Segmentation::SentencePiece(tgt) | Segmentation::SentencePieces { tgt, .. }) = &folder.codes {
        tgt.save(aside.join("target.spm"))?;
    }
    let settings = json!({
        "source_lang": languages[0],
        "target_lang": languages[1],
        "separate_vocabs": !one,
        "model_max_length": folder.config.max_positions,
        "tokenizer_class": "MarianTokenizer",
    });
    Ok(files::write(aside.join("tokenizer_config.json"), &text(&settings))?)
}
