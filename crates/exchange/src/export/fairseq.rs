//! A checkpoint of fairseq: plain tensors with the options that fairseq builds the model from.

use std::path::Path;

use mae_data::files;
use mae_model::config::{Activation, DecoderStart, NormOrder, Positions, Sharing, SourceEnd};

use super::{Folder, HeadWeights, Weights, check_empty};
use crate::torch::{self, Object};
use crate::{Error, Result, layout};

/// Name of the checkpoint in its folder.
pub const CHECKPOINT: &str = "model.pt";

/// Writes a model with these weights of heads to the folder `to`: the checkpoint and the dictionaries
/// (`dict.SOURCE.txt`, `dict.TARGET.txt`), which must have the names of the languages.
pub fn export(folder: &Folder, heads: &HeadWeights, [source, target]: [&str; 2], to: &Path) -> Result<()> {
    check_empty(to)?;
    let config = &folder.config;
    let mut faults = Vec::new();
    let mut require = |holds: bool, fault: &str| {
        if !holds {
            faults.push(format!("{fault}, which fairseq cannot hold"));
        }
    };
    require(config.positions == Positions::Fairseq, "`positions` is not \"fairseq\"");
    require(config.decoder_start == DecoderStart::Eos, "`decoder_start` is not \"eos\"");
    require(config.source_end == SourceEnd::Mark, "`source_end` is not \"mark\"");
    require(!config.output_bias, "`output_bias` is true");
    require(config.head_dim == 0, "`head_dim` is set");
    require(source != target, "both languages have one name");
    folder.unsupported(faults)?;
    let weights = Weights::new(folder, heads)?;
    let types = [folder.source.len(), folder.target.len()];
    let mut names: Vec<(String, String, Vec<usize>)> = Vec::new();
    for (name, shape) in layout::translation(config, types) {
        match &*name {
            "decoder.embed_out" => names.push(("decoder.output_projection.weight".into(), name, shape)),
            _ => names.push((name.clone(), name, shape)),
        }
    }
    let embedding = weights.decoder_embedding();
    let shape = vec![types[1], config.encoder_embed_dim];
    if config.share_embeddings == Sharing::All {
        names.push(("decoder.embed_tokens.weight".into(), embedding.into(), shape.clone()));
    }
    if config.share_embeddings != Sharing::None {
        names.push(("decoder.output_projection.weight".into(), embedding.into(), shape));
    }
    // A tensor that has two names is stored once.
    let mut stored: Vec<&str> = names.iter().map(|(_, ours, _)| ours.as_str()).collect();
    stored.sort_unstable();
    stored.dedup();
    let number = |ours: &str| stored.binary_search(&ours).expect("all names are stored");
    let mut model: Vec<(String, Object)> = names
        .iter()
        .map(|(name, ours, shape)| (name.clone(), Object::Tensor(number(ours), shape.clone())))
        .collect();
    // fairseq's modules of sinusoids and versions hold one number each.
    for side in ["encoder", "decoder"] {
        model.push((format!("{side}.version"), Object::Tensor(stored.len(), vec![1])));
        model.push((
            format!("{side}.embed_positions._float_tensor"),
            Object::Tensor(stored.len() + 1, vec![1]),
        ));
    }
    let history = vec![
        ("criterion_name".into(), Object::Text("LabelSmoothedCrossEntropyCriterion".into())),
        ("optimizer_name".into(), Object::Text("FairseqAdam".into())),
        ("lr_scheduler_state".into(), Object::Dict(Vec::new())),
        ("num_updates".into(), Object::Int(0)),
    ];
    let object = Object::Dict(vec![
        ("args".into(), Object::Namespace(options(folder, source, target))),
        ("cfg".into(), Object::None),
        ("model".into(), Object::Dict(model)),
        // fairseq's loader looks at the last entry.
        ("optimizer_history".into(), Object::List(vec![Object::Dict(history)])),
        ("extra_state".into(), Object::Dict(Vec::new())),
        ("last_optimizer_state".into(), Object::None),
    ]);
    files::replace_folder(to, |aside| {
        let sizes = vec![0; stored.len() + 2];
        files::write_with(&aside.join(CHECKPOINT), |out| {
            torch::write(out, &object, &sizes, |number| {
                let constants = [vec![3.0], vec![0.0]];
                let constant = number.checked_sub(stored.len()).map(|constant| constants[constant].clone());
                Ok(constant.unwrap_or_else(|| weights.values(stored[number])))
            })
        })?;
        folder.source.save(aside.join(format!("dict.{source}.txt")))?;
        folder.target.save(aside.join(format!("dict.{target}.txt")))?;
        mae_data::Segmentation::save(folder.codes.as_ref(), aside)?;
        folder.text.save(aside)?;
        Ok::<(), Error>(())
    })
}

fn options(folder: &Folder, source: &str, target: &str) -> Vec<(String, Object)> {
    let config = &folder.config;
    let mut options = Vec::new();
    let mut add = |key: &str, value| options.push((key.to_owned(), value));
    add("arch", Object::Text("transformer".into()));
    add("task", Object::Text("translation".into()));
    add("source_lang", Object::Text(source.into()));
    add("target_lang", Object::Text(target.into()));
    for (key, size) in [
        ("encoder_layers", config.encoder_layers),
        ("decoder_layers", config.decoder_layers),
        ("encoder_embed_dim", config.encoder_embed_dim),
        ("decoder_embed_dim", config.encoder_embed_dim),
        ("decoder_input_dim", config.encoder_embed_dim),
        ("decoder_output_dim", config.encoder_embed_dim),
        ("encoder_ffn_embed_dim", config.encoder_ffn_embed_dim),
        ("decoder_ffn_embed_dim", config.encoder_ffn_embed_dim),
        ("encoder_attention_heads", config.encoder_attention_heads),
        ("decoder_attention_heads", config.encoder_attention_heads),
        ("max_source_positions", config.max_positions),
        ("max_target_positions", config.max_positions),
    ] {
        add(key, Object::Int(size as i64));
    }
    let pre = config.norm == NormOrder::Pre;
    for (key, value) in [
        ("encoder_normalize_before", pre),
        ("decoder_normalize_before", pre),
        ("encoder_learned_pos", false),
        ("decoder_learned_pos", false),
        ("share_all_embeddings", config.share_embeddings == Sharing::All),
        ("share_decoder_input_output_embed", config.share_embeddings != Sharing::None),
        ("no_scale_embedding", config.no_scale_embedding),
        ("layernorm_embedding", false),
        ("left_pad_source", true),
        ("left_pad_target", false),
    ] {
        add(key, Object::Bool(value));
    }
    for (key, value) in [
        ("dropout", config.dropout),
        ("attention_dropout", config.attention_dropout),
        ("activation_dropout", config.activation_dropout),
    ] {
        add(key, Object::Float(f64::from(value)));
    }
    let activation = match config.activation {
        Activation::Relu => "relu",
        Activation::Swish => "swish",
        Activation::Gelu => "gelu",
    };
    add("activation_fn", Object::Text(activation.into()));
    add("adaptive_softmax_cutoff", Object::None);
    options
}
