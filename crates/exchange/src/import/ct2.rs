//! CTranslate2's model folders: encoder-decoders in float32 or float16.

mod settings;

use std::path::Path;

use mae_data::TextRecord;
use mae_model::config::{Activation, DecoderStart, Mixture, ModelConfig, NormOrder, Positions, Sharing};

use self::settings::Settings;
use super::{Found, expect_file, same, segmentation_in, unknown};
use crate::ct2::Variables;
use crate::file::MappedFile;
use crate::new_model::{Imported, NewModel, Source};
use crate::tensor::Dtype;
use crate::{Error, Result, layout, sinusoids};

/// Positions of models that do not store any.
const POSITIONS: usize = 1024;

/// Reads the folder `from` and writes the model folder `to`.
pub fn import(from: &Path, to: &Path) -> Result<Imported> {
    expect_file(from, "model.bin", "a model folder of CTranslate2")?;
    let file = MappedFile::open(&from.join("model.bin"))?;
    let variables = Variables::parse(file.bytes()).map_err(|what| file.fault(what))?;
    let found = Found::new(variables.tensors);
    let settings = Settings::read(from)?;
    let words = [&["source", "shared"], &["target", "shared"]].map(|names| settings.words(from, names));
    let [source, target] = words;
    let (source, target) = (source?, target?);
    let mut faults = settings.faults.clone();
    let config = config(&variables.spec, &found, &settings, &mut faults);
    let config = match config {
        Ok(config) if faults.is_empty() => config,
        Ok(_) => return Err(Error::unsupported(from, faults)),
        Err(fault) => return Err(Error::unsupported(from, faults.into_iter().chain([fault]).collect())),
    };
    let embedding = encoder_embedding(&found).to_owned();
    let rows = [(source, &*embedding), (target, "decoder/embeddings/weight")].map(|(words, name)| {
        let rows = found.matrix(name).map_err(|fault| Error::unsupported(from, vec![fault]))?[0];
        words.padded(rows, &settings.unk).map_err(|what| Error::format(from, what))
    });
    let [source, target] = rows;
    let (source, target) = (source?, target?);
    let rows = [source.rows(), target.rows()];
    let dictionaries = [source.dictionary(), target.dictionary()];
    let one_dictionary = rows[0] == rows[1] && dictionaries[0] == dictionaries[1];
    let config = sharing(config, &found, &embedding, (one_dictionary, rows[1].contains(&None)));
    let width = config.encoder_embed_dim;
    let types = rows.each_ref().map(Vec::len);
    let find = |name: &str| -> Result<Source<'_>, String> {
        Ok(match name {
            "encoder.embed_tokens.weight" => Source::embedding(found.need(&embedding)?, &rows[0]),
            "decoder.embed_tokens.weight" => {
                Source::embedding(found.need("decoder/embeddings/weight")?, &rows[1])
            }
            "decoder.embed_out" => Source::embedding(found.need("decoder/projection/weight")?, &rows[1]),
            "decoder.output_projection.bias" => match found.get("decoder/projection/bias") {
                Some(bias) => Source::bias(bias, &rows[1]),
                None => Source::forbidding(&rows[1]),
            },
            "encoder.embed_positions.weight" | "decoder.embed_positions.weight" => {
                let side = &name[..7];
                match found.get(&format!("{side}/position_encodings/encodings")) {
                    Some(table) => Source::Rows(table.clone(), 0..config.max_positions),
                    None => Source::Values(sinusoids::ctranslate2(config.max_positions, width)),
                }
            }
            _ => parameter(&found, name, width)?,
        })
    };
    let parts = (config.clone(), |config: &ModelConfig| layout::translation(config, types));
    let codes = segmentation_in(from)?;
    let notes = match codes {
        Some(_) => Vec::new(),
        None => vec!["text must come in pieces: no BPE codes or SentencePiece models were found".to_owned()],
    };
    let model = NewModel::new(from, parts, (dictionaries.into(), codes), find)?;
    let model = model.of_text(TextRecord::load(from)?);
    found.get("decoder/projection/weight");
    let left = found.unused();
    if !left.is_empty() {
        return Err(Error::unsupported(from, unknown(left)));
    }
    model.write(to, notes)
}

fn encoder_embedding(found: &Found<'_>) -> &'static str {
    match found.tensors.contains_key("encoder/embeddings_0/weight") {
        true => "encoder/embeddings_0/weight",
        false => "encoder/embeddings/weight",
    }
}

/// A parameter of a layer or a norm: its variable there, or rows of it.
fn parameter<'a>(found: &Found<'a>, name: &str, width: usize) -> Result<Source<'a>, String> {
    let (at, kind) = name.rsplit_once('.').unwrap_or((name, ""));
    let (layer, part) = match at.split_once(".layers.") {
        Some((side, rest)) => {
            let (number, part) = rest.split_once('.').unwrap_or((rest, ""));
            (format!("{side}/layer_{number}"), part)
        }
        None => (at.replace('.', "/"), ""),
    };
    let norm_kind = if kind == "weight" { "gamma" } else { "beta" };
    let (path, rows) = match part {
        "" => (format!("{layer}/{norm_kind}"), None),
        "self_attn_layer_norm" => (format!("{layer}/self_attention/layer_norm/{norm_kind}"), None),
        "encoder_attn_layer_norm" => (format!("{layer}/attention/layer_norm/{norm_kind}"), None),
        "final_layer_norm" => (format!("{layer}/ffn/layer_norm/{norm_kind}"), None),
        "fc1" => (format!("{layer}/ffn/linear_0/{kind}"), None),
        "fc2" => (format!("{layer}/ffn/linear_1/{kind}"), None),
        "self_attn.q_proj" => (format!("{layer}/self_attention/linear_0/{kind}"), Some(0)),
        "self_attn.k_proj" => (format!("{layer}/self_attention/linear_0/{kind}"), Some(1)),
        "self_attn.v_proj" => (format!("{layer}/self_attention/linear_0/{kind}"), Some(2)),
        "self_attn.out_proj" => (format!("{layer}/self_attention/linear_1/{kind}"), None),
        "encoder_attn.q_proj" => (format!("{layer}/attention/linear_0/{kind}"), None),
        "encoder_attn.k_proj" => (format!("{layer}/attention/linear_1/{kind}"), Some(0)),
        "encoder_attn.v_proj" => (format!("{layer}/attention/linear_1/{kind}"), Some(1)),
        "encoder_attn.out_proj" => (format!("{layer}/attention/linear_2/{kind}"), None),
        _ => return Err(format!("`{name}` is not known here")),
    };
    let tensor = found.need(&path)?;
    Ok(match rows {
        Some(part) => Source::Rows(tensor.clone(), part * width..(part + 1) * width),
        None => Source::Whole(tensor.clone()),
    })
}

/// The configuration, but for what is shared.
fn config(
    spec: &str,
    found: &Found<'_>,
    settings: &Settings,
    faults: &mut Vec<String>,
) -> Result<ModelConfig, String> {
    let default_heads = match spec {
        "TransformerSpec" => None,
        "TransformerBase" => Some(8.0),
        "TransformerBig" => Some(16.0),
        other => return Err(format!("the specification `{other}` is not supported; `TransformerSpec` is")),
    };
    let number = |name: &str| {
        let mut names = [format!("encoder/{name}"), name.to_owned()].into_iter();
        names.find_map(|name| found.get(&name)).and_then(|tensor| tensor.scalar())
    };
    let mut require = |holds: bool, fault: String| {
        if !holds {
            faults.push(fault);
        }
    };
    for (name, default) in
        [("num_heads", 0.0), ("pre_norm", 1.0), ("activation", 0.0), ("scale_embeddings", 1.0)]
    {
        let side =
            |side: &str| found.get(&format!("{side}/{name}")).and_then(|t| t.scalar()).unwrap_or(default);
        require(side("encoder") == side("decoder"), format!("`{name}` differs between encoder and decoder"));
    }
    let zeros =
        ["embeddings_merge", "multi_query_attention", "alibi", "alibi_use_positive_positions", "scale_alibi"];
    let more = ["start_from_zero_embedding", "sliding_window", "rotary_interleave", "parallel_residual"];
    for (side, name) in
        ["encoder", "decoder"].iter().flat_map(|side| zeros.iter().chain(&more).map(move |name| (side, name)))
    {
        let value = found.get(&format!("{side}/{name}")).and_then(|tensor| tensor.scalar());
        require(
            value.is_none_or(|value| value == 0.0 || *name == "alibi_use_positive_positions"),
            format!("`{side}/{name}` is not supported"),
        );
    }
    for ignored in [
        "decoder/alignment_layer",
        "decoder/alignment_heads",
        "decoder/scale_outputs",
        "encoder/return_hidden",
    ] {
        found.get(ignored);
    }
    let heads = number("num_heads").or(default_heads).ok_or("`num_heads` is missing")?;
    let activation = match number("activation").unwrap_or(0.0) as i64 {
        0 => Activation::Relu,
        2 => Activation::Swish,
        3 => Activation::Gelu,
        other => return Err(format!("`activation` = {other} is not supported; ReLU, swish and GELU are")),
    };
    let [_, width] = found.matrix("decoder/embeddings/weight")?;
    // A choice, or the scale itself.
    let scale = found.get("encoder/scale_embeddings").map(|tensor| (tensor.dtype(), tensor.scalar()));
    let root = (width as f32).sqrt();
    let scaled = match scale {
        None => true,
        Some((Dtype::I8, value)) => value != Some(0.0),
        Some((_, Some(1.0))) => false,
        Some((_, value)) => {
            let value = value.unwrap_or(f32::NAN);
            let fits = (value - root).abs() < 1e-3 * root;
            require(fits, format!("`scale_embeddings` = {value} is not supported; √D or 1 is"));
            fits
        }
    };
    let tables =
        ["encoder", "decoder"].map(|side| found.get(&format!("{side}/position_encodings/encodings")));
    let (positions, max_positions) = match tables {
        [Some(encoder), Some(decoder)] => {
            let kinds = [encoder, decoder].map(sinusoids::recognise);
            let kind = if kinds[0] == kinds[1] { kinds[0] } else { Positions::Table };
            let rows = [encoder, decoder].map(|table| table.shape().first().copied().unwrap_or(0));
            (kind, rows[0].min(rows[1]))
        }
        [None, None] => (Positions::Table, POSITIONS),
        _ => return Err("`position_encodings` are stored for one side only".into()),
    };
    let layers = |side: &str| found.layers(|i| format!("{side}/layer_{i}/ffn/linear_0/weight"));
    let start = match &*settings.start {
        start if *start == settings.eos => DecoderStart::Eos,
        start if *start == settings.bos => DecoderStart::Bos,
        "<blank>" | "<pad>" => DecoderStart::Pad,
        other => return Err(format!("`decoder_start_token` = `{other}` is not supported")),
    };
    Ok(ModelConfig {
        arch: "ctranslate2".into(),
        encoder_layers: layers("encoder"),
        decoder_layers: layers("decoder"),
        encoder_embed_dim: width,
        encoder_ffn_embed_dim: found.matrix("encoder/layer_0/ffn/linear_0/weight")?[0],
        encoder_attention_heads: heads as usize,
        activation,
        positions,
        no_scale_embedding: !scaled,
        decoder_start: start,
        source_end: settings.source_end,
        norm: if number("pre_norm").unwrap_or(1.0) == 0.0 { NormOrder::Post } else { NormOrder::Pre },
        max_positions,
        mixture: Mixture::default(),
        ..ModelConfig::arch("transformer_tiny").expect("a known architecture")
    })
}

/// Shares what is the same, and adds an output bias where symbols must be forbidden.
fn sharing(
    config: ModelConfig,
    found: &Found<'_>,
    embedding: &str,
    (one_dictionary, forbids): (bool, bool),
) -> ModelConfig {
    let get = |name: &str| found.tensors.get(name);
    let (encoder, decoder) = (get(embedding), get("decoder/embeddings/weight"));
    let output = get("decoder/projection/weight");
    let equal = |a: Option<&_>, b: Option<&_>| matches!((a, b), (Some(a), Some(b)) if same(a, b));
    let tied = equal(decoder, output);
    let share_embeddings = match (tied, tied && one_dictionary && equal(encoder, decoder)) {
        (_, true) => Sharing::All,
        (true, false) => Sharing::Decoder,
        (false, false) => Sharing::None,
    };
    let output_bias = get("decoder/projection/bias").is_some() || forbids;
    ModelConfig { share_embeddings, output_bias, dropout: 0.0, ..config }
}
