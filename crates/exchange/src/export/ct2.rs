//! A model folder of CTranslate2 (`TransformerSpec`, float32).

use std::path::Path;

use mae_data::files;
use mae_data::vocab::{PAD, SPECIALS};
use mae_model::config::{Activation, DecoderStart, ModelConfig, NormOrder, Sharing, SourceEnd};
use serde_json::json;

use super::{Folder, HeadWeights, Weights, check_empty};
use crate::ct2::{self, Variable};
use crate::{Error, Result, sinusoids};

/// Symbol of padding there.
const BLANK: &str = "<blank>";
/// Bias of a symbol that must not be produced.
const NEVER: f32 = -1e4;

/// Writes a model with these weights of heads to the folder `to`, which must not exist or be empty.
pub fn export(folder: &Folder, heads: &HeadWeights, to: &Path) -> Result<()> {
    check_empty(to)?;
    let config = &folder.config;
    let mut faults = Vec::new();
    if config.head_dim != 0 && config.head_dim * config.encoder_attention_heads != config.encoder_embed_dim {
        faults.push("`head_dim`: CTranslate2 has no heads of another width than D / H".to_owned());
    }
    folder.unsupported(faults)?;
    let weights = Weights::new(folder, heads)?;
    let (variables, aliases) = variables(config, [folder.source.len(), folder.target.len()]);
    let bias = |weights: &Weights<'_>| {
        let mut bias = match config.output_bias {
            true => weights.values("decoder.output_projection.bias"),
            false => vec![0.0; folder.target.len()],
        };
        bias[PAD as usize] = NEVER;
        bias
    };
    let values = |name: &str| -> Vec<f32> {
        let (side, rest) = name.split_at(7);
        match rest.trim_start_matches('/') {
            "projection/bias" => bias(&weights),
            "projection/weight" => weights.values(weights.output()),
            "embeddings/weight" => weights.values(weights.decoder_embedding()),
            "embeddings_0/weight" => weights.values("encoder.embed_tokens.weight"),
            "position_encodings/encodings" => {
                let table = sinusoids::of(config.positions, config.max_positions, config.encoder_embed_dim);
                table.unwrap_or_else(|| weights.values(&format!("{side}.embed_positions.weight")))
            }
            part => {
                let names = sources(side, part);
                names.iter().flat_map(|name| weights.values(name)).collect()
            }
        }
    };
    let symbols = |vocab: &mae_data::Vocab| {
        let symbol = |id: u32| if id == PAD { BLANK } else { vocab.symbol(id) };
        let pieces =
            (0..vocab.len() as u32).map(|id| mae_data::sentencepiece::unescape(symbol(id)).into_owned());
        serde_json::to_vec(&pieces.collect::<Vec<_>>()).expect("a list of texts")
    };
    let settings = json!({
        "add_source_bos": false,
        "add_source_eos": config.source_end == SourceEnd::Mark,
        "bos_token": SPECIALS[0],
        "decoder_start_token": match config.decoder_start {
            DecoderStart::Eos => SPECIALS[2],
            DecoderStart::Pad => BLANK,
            DecoderStart::Bos => SPECIALS[0],
        },
        "eos_token": SPECIALS[2],
        "layer_norm_epsilon": null,
        "multi_query_attention": false,
        "unk_token": SPECIALS[3],
    });
    files::replace_folder(to, |aside| {
        files::write_with(&aside.join("model.bin"), |out| {
            ct2::write(out, &variables, &aliases, |name| Ok(values(name)))
        })?;
        let settings = serde_json::to_vec_pretty(&settings).expect("a map of texts");
        files::write(aside.join("config.json"), &settings)?;
        if folder.source == folder.target {
            files::write(aside.join("shared_vocabulary.json"), &symbols(&folder.source))?;
        } else {
            files::write(aside.join("source_vocabulary.json"), &symbols(&folder.source))?;
            files::write(aside.join("target_vocabulary.json"), &symbols(&folder.target))?;
        }
        mae_data::Segmentation::save(folder.codes.as_ref(), aside)?;
        folder.text.save(aside)?;
        Ok::<(), Error>(())
    })
}

/// Names of our parameters that a variable of a side is made of, end to end.
fn sources(side: &str, part: &str) -> Vec<String> {
    let kind = match part.rsplit_once('/').map_or("", |(_, kind)| kind) {
        "weight" | "gamma" => "weight",
        _ => "bias",
    };
    let Some(layer) = part.strip_prefix("layer_").filter(|rest| !rest.starts_with("norm")) else {
        return vec![format!("{side}.layer_norm.{kind}")];
    };
    let (number, part) = layer.split_once('/').unwrap_or((layer, ""));
    let part = part.rsplit_once('/').map_or(part, |(part, _)| part);
    let names: &[&str] = match part {
        "self_attention/linear_0" => &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "self_attention/linear_1" => &["self_attn.out_proj"],
        "self_attention/layer_norm" => &["self_attn_layer_norm"],
        "attention/linear_0" => &["encoder_attn.q_proj"],
        "attention/linear_1" => &["encoder_attn.k_proj", "encoder_attn.v_proj"],
        "attention/linear_2" => &["encoder_attn.out_proj"],
        "attention/layer_norm" => &["encoder_attn_layer_norm"],
        "ffn/linear_0" => &["fc1"],
        "ffn/linear_1" => &["fc2"],
        _ => &["final_layer_norm"],
    };
    names.iter().map(|name| format!("{side}.layers.{number}.{name}.{kind}")).collect()
}

type Variables = Vec<(String, Variable)>;
/// Names, and the names that they stand for.
type Aliases = Vec<(String, String)>;

/// Variables in the order of their names, and aliases of shared ones.
fn variables(config: &ModelConfig, types: [usize; 2]) -> (Variables, Aliases) {
    let (width, inner) = (config.encoder_embed_dim, config.encoder_ffn_embed_dim);
    let mut all = Vec::new();
    let mut aliases = Vec::new();
    let pre_norm = config.norm == NormOrder::Pre;
    let activation = match config.activation {
        Activation::Relu => 0,
        Activation::Swish => 2,
        Activation::Gelu => 3,
    };
    let scale = if config.no_scale_embedding { 1.0 } else { (width as f32).sqrt() };
    for (side, layers) in [("encoder", config.encoder_layers), ("decoder", config.decoder_layers)] {
        let mut add = |name: &str, variable| all.push((format!("{side}/{name}"), variable));
        add("num_heads", Variable::Short(config.encoder_attention_heads as i16));
        add("pre_norm", Variable::Byte(pre_norm.into()));
        add("activation", Variable::Byte(activation));
        add("scale_embeddings", Variable::Float(scale));
        add("multi_query_attention", Variable::Byte(0));
        add("position_encodings/encodings", Variable::Floats(vec![config.max_positions, width]));
        let mut sublayers = vec![("self_attention", vec![(3 * width, width), (width, width)])];
        if side == "decoder" {
            sublayers.push(("attention", vec![(width, width), (2 * width, width), (width, width)]));
        }
        sublayers.push(("ffn", vec![(inner, width), (width, inner)]));
        for layer in 0..layers {
            for (sublayer, linears) in &sublayers {
                let at = format!("layer_{layer}/{sublayer}");
                for (i, (rows, cols)) in linears.iter().enumerate() {
                    add(&format!("{at}/linear_{i}/weight"), Variable::Floats(vec![*rows, *cols]));
                    add(&format!("{at}/linear_{i}/bias"), Variable::Floats(vec![*rows]));
                }
                add(&format!("{at}/layer_norm/gamma"), Variable::Floats(vec![width]));
                add(&format!("{at}/layer_norm/beta"), Variable::Floats(vec![width]));
            }
        }
        if pre_norm {
            add("layer_norm/gamma", Variable::Floats(vec![width]));
            add("layer_norm/beta", Variable::Floats(vec![width]));
        }
    }
    let mut add = |name: &str, variable| all.push((name.to_owned(), variable));
    add("encoder/embeddings_merge", Variable::Byte(0));
    add("decoder/alignment_layer", Variable::Short(-1));
    add("decoder/alignment_heads", Variable::Short(0));
    for choice in ["alibi", "alibi_use_positive_positions", "scale_alibi", "start_from_zero_embedding"] {
        add(&format!("decoder/{choice}"), Variable::Byte(0));
    }
    add("decoder/embeddings/weight", Variable::Floats(vec![types[1], width]));
    if config.output_bias || config.decoder_start == DecoderStart::Pad {
        add("decoder/projection/bias", Variable::Floats(vec![types[1]]));
    }
    let target = "decoder/embeddings/weight".to_owned();
    match config.share_embeddings {
        Sharing::None => add("decoder/projection/weight", Variable::Floats(vec![types[1], width])),
        _ => aliases.push(("decoder/projection/weight".to_owned(), target.clone())),
    }
    match config.share_embeddings {
        Sharing::All => aliases.push(("encoder/embeddings_0/weight".to_owned(), target)),
        _ => add("encoder/embeddings_0/weight", Variable::Floats(vec![types[0], width])),
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    (all, aliases)
}
