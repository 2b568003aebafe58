//! Model folders of Hugging Face's transformers: MarianMT (OPUS-MT), FSMT and M2M100-shaped models.

mod words;

use std::path::Path;

use mae_data::moses::Dashes;
use mae_data::{TextRecord, TextRules};
use mae_model::config::{Activation, DecoderStart, Mixture, ModelConfig, NormOrder, Positions, Sharing};
use safetensors::tensor::SafeTensors;
use serde_json::Value;

use self::words::{BothWords, words};
use super::{Found, expect_file, same, unknown};
use crate::file::{MappedFile, read_text};
use crate::new_model::{Imported, NewModel, Source};
use crate::tensor::{Dtype, Tensor, Tensors};
use crate::torch::Checkpoint;
use crate::{Error, Result, layout, sinusoids};

/// Kind of a model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Marian,
    Fsmt,
    M2m100,
}

/// Reads the folder `from` and writes the model folder `to`.
pub fn import(from: &Path, to: &Path) -> Result<Imported> {
    expect_file(from, "config.json", "a folder of Hugging Face transformers")?;
    let json = read_json(&from.join("config.json"))?;
    let kind = match json["model_type"].as_str() {
        Some("marian") => Kind::Marian,
        Some("fsmt") => Kind::Fsmt,
        Some("m2m_100") => Kind::M2m100,
        other => {
            let other = other.unwrap_or("none");
            let fault = format!("`model_type` = {other} is not supported; marian, fsmt and m2m_100 are");
            return Err(Error::unsupported(from, vec![fault]));
        }
    };
    let file = match from.join("model.safetensors") {
        path if path.exists() => MappedFile::open(&path)?,
        path if from.join("pytorch_model.bin").exists() => {
            MappedFile::open(&path.with_file_name("pytorch_model.bin"))?
        }
        path => {
            return Err(Error::format(
                &path,
                "there is neither this file nor pytorch_model.bin; files in parts are not supported",
            ));
        }
    };
    let found = Found::new(weights(&file)?);
    let words = words(from, &json, kind)?;
    Import { from, json, kind, found, words }.write(to)
}

fn read_json(path: &Path) -> Result<Value> {
    serde_json::from_str(&read_text(path)?).map_err(|error| Error::format(path, format!("not JSON: {error}")))
}

/// Tensors of a safetensors file.
pub fn safetensors(bytes: &[u8]) -> Result<Tensors<'_>, String> {
    let file =
        SafeTensors::deserialize(bytes).map_err(|error| format!("not a whole safetensors file: {error}"))?;
    let mut tensors = Tensors::new();
    for (name, view) in file.iter() {
        let dtype = match view.dtype() {
            safetensors::Dtype::F32 => Dtype::F32,
            safetensors::Dtype::F64 => Dtype::F64,
            safetensors::Dtype::F16 => Dtype::F16,
            safetensors::Dtype::BF16 => Dtype::Bf16,
            safetensors::Dtype::I64 => Dtype::I64,
            other => return Err(format!("`{name}` has the type {other:?}, which is not supported")),
        };
        let tensor = Tensor::new(dtype, view.shape().to_vec(), view.data());
        tensors.insert(name.to_owned(), tensor.ok_or_else(|| format!("`{name}`: size and shape disagree"))?);
    }
    Ok(tensors)
}

fn weights(file: &MappedFile) -> Result<Tensors<'_>> {
    let tensors = match file.path().extension() {
        Some(end) if end == "bin" => {
            let checkpoint = Checkpoint::open(file)?;
            checkpoint.tensors(checkpoint.pickle().root)
        }
        _ => safetensors(file.bytes()),
    };
    tensors.map_err(|what| file.fault(what))
}

struct Import<'a> {
    from: &'a Path,
    json: Value,
    kind: Kind,
    found: Found<'a>,
    words: BothWords,
}

impl<'a> Import<'a> {
    fn size(&self, key: &str, faults: &mut Vec<String>) -> usize {
        self.json[key].as_u64().map(|size| size as usize).unwrap_or_else(|| {
            faults.push(format!("`{key}` is missing or no size"));
            0
        })
    }

    fn config(&self, rows: &[Vec<Option<usize>>; 2]) -> Result<ModelConfig> {
        let json = &self.json;
        let mut faults = Vec::new();
        let width = self.size("d_model", &mut faults);
        let mut both = |name: &str| {
            let sizes = ["encoder", "decoder"].map(|side| self.size(&format!("{side}_{name}"), &mut faults));
            if sizes[0] != sizes[1] {
                faults.push(format!("`encoder_{name}` and `decoder_{name}` differ"));
            }
            sizes[0]
        };
        let (heads, inner) = (both("attention_heads"), both("ffn_dim"));
        for key in ["normalize_embedding", "normalize_before", "add_final_layer_norm"] {
            if json[key] == true && self.kind != Kind::M2m100 {
                faults.push(format!("`{key}` = true is not supported"));
            }
        }
        for key in ["static_position_embeddings"] {
            if json[key] == false {
                faults.push(format!("`{key}` = false is not supported"));
            }
        }
        let activation = match json["activation_function"].as_str().unwrap_or("relu") {
            "relu" => Activation::Relu,
            "swish" | "silu" => Activation::Swish,
            "gelu" => Activation::Gelu,
            other => {
                faults.push(format!(
                    "`activation_function` = {other} is not supported; relu, swish and gelu are"
                ));
                Activation::Relu
            }
        };
        let start = json["decoder_start_token_id"].as_u64().map(|id| Some(id as usize));
        let decoder_start = match start {
            Some(start) if start == rows[1][1] => DecoderStart::Pad,
            None => DecoderStart::Eos,
            Some(start) if start == rows[1][2] => DecoderStart::Eos,
            Some(start) if start == rows[1][0] => DecoderStart::Bos,
            _ => {
                let id = &json["decoder_start_token_id"];
                faults.push(format!("`decoder_start_token_id` = {id} is neither <pad>, </s> nor <s>"));
                DecoderStart::Eos
            }
        };
        let positions = match self.kind {
            Kind::Marian => match self.found.get("model.encoder.embed_positions.weight") {
                Some(table) => sinusoids::recognise(table),
                None => Positions::Marian,
            },
            Kind::Fsmt | Kind::M2m100 => Positions::Fairseq,
        };
        let config = ModelConfig {
            arch: json["model_type"].as_str().unwrap_or("hf").into(),
            encoder_layers: self.size("encoder_layers", &mut faults),
            decoder_layers: self.size("decoder_layers", &mut faults),
            encoder_embed_dim: width,
            encoder_ffn_embed_dim: inner,
            encoder_attention_heads: heads,
            activation,
            positions,
            no_scale_embedding: json["scale_embedding"] != true,
            decoder_start,
            norm: if self.kind == Kind::M2m100 { NormOrder::Pre } else { NormOrder::Post },
            max_positions: self.size("max_position_embeddings", &mut faults),
            mixture: Mixture::default(),
            dropout: 0.0,
            ..ModelConfig::arch("transformer_tiny")?
        };
        match faults.is_empty() {
            true => Ok(config),
            false => Err(Error::unsupported(self.from, faults)),
        }
    }

    fn embedding(&self, side: &str) -> Result<&Tensor<'a>, String> {
        let own = format!("model.{side}.embed_tokens.weight");
        self.found.get(&own).map_or_else(|| self.found.need("model.shared.weight"), Ok)
    }

    fn output(&self) -> Option<&Tensor<'a>> {
        let names = ["lm_head.weight", "model.decoder.output_projection.weight"];
        names.iter().find_map(|name| self.found.get(name))
    }

    fn write(self, to: &Path) -> Result<Imported> {
        let fault = |fault: String| Error::unsupported(self.from, vec![fault]);
        let rows = [self.words.source.rows(), self.words.target.rows()];
        let dictionaries = vec![self.words.source.dictionary(), self.words.target.dictionary()];
        let config = self.config(&rows)?;
        let (encoder, decoder) =
            (self.embedding("encoder").map_err(fault)?, self.embedding("decoder").map_err(fault)?);
        let output = self.output().unwrap_or(decoder);
        self.found.get("model.shared.weight");
        let is_one = |a: &Tensor<'_>, b: &Tensor<'_>| std::ptr::eq(a, b) || same(a, b);
        let tied = is_one(decoder, output);
        let all =
            tied && rows[0] == rows[1] && dictionaries[0] == dictionaries[1] && is_one(encoder, decoder);
        let bias =
            self.found.get("final_logits_bias").filter(|bias| bias.read().iter().any(|&value| value != 0.0));
        let config = ModelConfig {
            share_embeddings: match (tied, all) {
                (_, true) => Sharing::All,
                (true, false) => Sharing::Decoder,
                (false, false) => Sharing::None,
            },
            output_bias: bias.is_some() || rows[1].contains(&None),
            ..config
        };
        let find = |name: &str| -> Result<Source<'a>, String> {
            Ok(match name {
                "encoder.embed_tokens.weight" => Source::embedding(encoder, &rows[0]),
                "decoder.embed_tokens.weight" => Source::embedding(decoder, &rows[1]),
                "decoder.embed_out" => Source::embedding(output, &rows[1]),
                "decoder.output_projection.bias" => match bias {
                    Some(bias) => Source::bias(bias, &rows[1]),
                    None => Source::forbidding(&rows[1]),
                },
                "encoder.embed_positions.weight" | "decoder.embed_positions.weight" => {
                    let table = self.found.need(&format!("model.{name}"))?;
                    Source::Rows(table.clone(), 0..config.max_positions)
                }
                _ => Source::Whole(self.found.need(&format!("model.{name}"))?.clone()),
            })
        };
        let types = [dictionaries[0].len(), dictionaries[1].len()];
        let parts = (config.clone(), |config: &ModelConfig| layout::translation(config, types));
        let model = NewModel::new(self.from, parts, (dictionaries, Some(self.words.codes.clone())), find)?;
        for side in ["encoder", "decoder"] {
            self.found.get(&format!("model.{side}.embed_positions.weight"));
            self.found.get(&format!("model.{side}.embed_positions.weights"));
        }
        let left = self.found.unused();
        if !left.is_empty() {
            return Err(Error::unsupported(self.from, unknown(left)));
        }
        let (text, notes) = (self.text(), self.notes());
        model.of_text(text).write(to, notes)
    }

    /// Languages, and the rules of FSMT's tokeniser.
    fn text(&self) -> TextRecord {
        let settings = read_json(&self.from.join("tokenizer_config.json")).unwrap_or_default();
        let pair = |json: &Value| -> Option<[String; 2]> {
            let [source, target] = match self.kind {
                Kind::Fsmt => [&json["langs"][0], &json["langs"][1]],
                Kind::Marian => [&json["source_lang"], &json["target_lang"]],
                Kind::M2m100 => return None,
            };
            Some([source.as_str()?.to_owned(), target.as_str()?.to_owned()])
        };
        let languages = pair(&settings).or_else(|| pair(&self.json));
        let lowercase = settings["do_lower_case"].as_bool().unwrap_or(false);
        let rules =
            TextRules { normalize: true, tokenize: Some(Dashes::Split), lowercase, ..Default::default() };
        let record = TextRecord { languages, rules };
        match self.kind {
            Kind::Fsmt if record.tools().is_ok() => record,
            _ => TextRecord { rules: TextRules::default(), ..record },
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(beams) = self.json["num_beams"].as_u64() {
            notes.push(format!("its configuration asks for a beam of {beams}"));
        }
        match self.kind {
            Kind::Marian => {}
            Kind::Fsmt if self.text().rules == TextRules::default() => {
                notes.push("text must be tokenised by Moses' rules, which its languages do not have here".into());
            }
            Kind::Fsmt => {}
            Kind::M2m100 => notes.push(
                "a line begins with the language of its text, and its translation with that of the target (`__en__`): \
                 both must be given"
                    .into(),
            ),
        }
        notes
    }
}
