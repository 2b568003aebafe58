//! fairseq's checkpoints: translation and language models, of old and new layouts, in full or half precision.

use std::path::{Path, PathBuf};

use mae_data::bpe::Codes;
use mae_data::{Segmentation, SentencePiece, TextRecord, Vocab};
use mae_model::config::{Activation, Mixture, ModelConfig, NormOrder, Positions, Sharing};
use mae_model::lm::LmConfig;

use super::{Found, same, unknown};
use crate::file::MappedFile;
use crate::new_model::{Imported, NewModel, Source};
use crate::pickle::{Id, Pickle, Value};
use crate::torch::Checkpoint;
use crate::{Error, Result, layout};

/// Rows of position tables before the first position.
const FIRST_POSITION: usize = 2;

/// Reads the checkpoint `from` and writes the model folder `to`. Dictionaries and codes are those of the folder
/// `dictionaries`: `dict.LANG.txt` (`dict.txt` for a language model) and, if there, `bpe.codes`, `bpecodes`, `code`,
/// `sentencepiece.model` or `sentencepiece.bpe.model`.
pub fn import(from: &Path, dictionaries: &Path, to: &Path) -> Result<Imported> {
    let file = MappedFile::open(from)?;
    let checkpoint = Checkpoint::open(&file)?;
    let pickle = checkpoint.pickle();
    let model = pickle.get(pickle.root, "model");
    let model = model.ok_or_else(|| file.fault("not a checkpoint of fairseq: it has no `model`"))?;
    let tensors = checkpoint.tensors(model).map_err(|what| file.fault(what))?;
    let args = Args::of(pickle).ok_or_else(|| file.fault("it has neither `args` nor `cfg.model`"))?;
    let found = Found::new(tensors);
    for name in found.tensors.keys().filter(|name| is_constant(name)).cloned().collect::<Vec<_>>() {
        found.get(&name);
    }
    let is_translation = found.tensors.keys().any(|name| name.starts_with("encoder."));
    let import = Import { path: from, found, args, folder: dictionaries };
    if is_translation { import.translation(to) } else { import.language(to) }
}

/// Buffers that hold no weights, and copies: fairseq 0.12 has the weights of encoder layers a second time, for torch's own
/// encoder layer (`encoder.layers.0.in_proj_weight`), and fills them when it loads a checkpoint.
fn is_constant(name: &str) -> bool {
    let is_copy = name.strip_prefix("encoder.layers.").and_then(|rest| rest.split_once('.')).is_some_and(
        |(_, parameter)| {
            let part = parameter.strip_suffix("_weight").or_else(|| parameter.strip_suffix("_bias"));
            part.is_some_and(|part| ["in_proj", "out_proj", "fc1", "fc2"].contains(&part))
        },
    );
    is_copy
        || ["._float_tensor", "embed_positions.weights", ".version", "future_mask"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// Options of a training run: `args` or `cfg["model"]`.
struct Args<'a> {
    pickle: &'a Pickle,
    ids: Vec<Id>,
}

impl<'a> Args<'a> {
    fn of(pickle: &'a Pickle) -> Option<Self> {
        let is_there = |id: &Id| *pickle.value(*id) != Value::None;
        let args = pickle.get(pickle.root, "args").filter(is_there);
        let config = pickle.get(pickle.root, "cfg").filter(is_there);
        let ids = match (args, config) {
            (Some(args), _) => vec![args],
            // Languages are options of the task.
            (None, Some(config)) => {
                ["model", "task"].iter().filter_map(|part| pickle.get(config, part)).collect()
            }
            (None, None) => Vec::new(),
        };
        (!ids.is_empty()).then_some(Self { pickle, ids })
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.ids.iter().find_map(|&id| self.pickle.get(id, key)).map(|id| self.pickle.value(id))
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        match self.value(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn is_set(&self, key: &str) -> bool {
        match self.value(key) {
            Some(Value::Bool(value)) => *value,
            Some(Value::Int(value)) => *value != 0,
            _ => false,
        }
    }

    fn size(&self, key: &str) -> Option<usize> {
        match self.value(key) {
            Some(Value::Int(value)) => usize::try_from(*value).ok(),
            Some(Value::Float(value)) if *value >= 0.0 => Some(*value as usize),
            _ => None,
        }
    }

    /// Numbers with commas between, or a list of them.
    fn sizes(&self, key: &str) -> Option<Vec<usize>> {
        match self.value(key)? {
            Value::Text(text) => text.split(',').map(|part| part.trim().parse().ok()).collect(),
            Value::List(items) | Value::Tuple(items) => {
                items.iter().map(|&id| usize::try_from(self.pickle.int(id)?).ok()).collect()
            }
            _ => None,
        }
    }
}

struct Import<'a> {
    path: &'a Path,
    found: Found<'a>,
    args: Args<'a>,
    folder: &'a Path,
}

impl<'a> Import<'a> {
    fn fault(&self, fault: impl Into<String>) -> Error {
        Error::unsupported(self.path, vec![fault.into()])
    }

    fn translation(self, to: &Path) -> Result<Imported> {
        let languages = ["source_lang", "target_lang"].map(|key| {
            let lang = self.args.text(key).ok_or_else(|| self.fault(format!("`{key}` is missing")))?;
            Ok::<_, Error>(lang)
        });
        let [source, target] = languages;
        let dictionaries = [source?, target?].map(|lang| self.dictionary(&format!("dict.{lang}.txt")));
        let [source, target] = dictionaries;
        let dictionaries = vec![source?, target?];
        let config = self.translation_config(dictionaries[0] == dictionaries[1])?;
        let types = [dictionaries[0].len(), dictionaries[1].len()];
        let shared = config.share_embeddings == Sharing::All;
        let find = |name: &str| match name {
            "decoder.embed_out" => {
                self.output().cloned().map(Source::Whole).ok_or("no output projection".to_owned())
            }
            "encoder.embed_positions.weight" | "decoder.embed_positions.weight" => {
                let rows = FIRST_POSITION..FIRST_POSITION + config.max_positions;
                Ok(Source::Rows(self.found.need(name)?.clone(), rows))
            }
            "encoder.embed_tokens.weight" if shared => {
                self.found.get("decoder.embed_tokens.weight");
                self.parameter(name)
            }
            _ => self.parameter(name),
        };
        let parts = (config.clone(), |config: &ModelConfig| layout::translation(config, types));
        self.output();
        self.finish(to, parts, dictionaries, &find)
    }

    fn language(self, to: &Path) -> Result<Imported> {
        let dictionary = self.dictionary("dict.txt")?;
        let config = self.language_config()?;
        let types = dictionary.len();
        let parts = (config.clone(), |config: &LmConfig| layout::language(config, types));
        let find = |name: &str| self.parameter(name);
        // Copies of tied weights.
        for name in self.found.tensors.keys().filter(|name| name.starts_with("decoder.adaptive_softmax.")) {
            self.found.get(name);
        }
        self.output();
        self.finish(to, parts, vec![dictionary], &find)
    }

    fn finish<C: mae_model::kind::Config>(
        &self,
        to: &Path,
        parts: (C, impl FnOnce(&C) -> Vec<layout::Named>),
        dictionaries: Vec<Vocab>,
        find: &dyn Fn(&str) -> Result<Source<'a>, String>,
    ) -> Result<Imported> {
        let codes = self.codes()?;
        let mut notes = Vec::new();
        if codes.is_none() {
            notes
                .push("no BPE codes were found beside the dictionaries: text must come in pieces".to_owned());
        }
        let mut text = TextRecord::default();
        if let (2, Some(source), Some(target)) =
            (dictionaries.len(), self.args.text("source_lang"), self.args.text("target_lang"))
        {
            text = TextRecord::new(source, target, TextRecord::load(self.folder)?.rules);
        }
        let model = NewModel::new(self.path, parts, (dictionaries, codes), find)?.of_text(text);
        let left = self.found.unused();
        match left.is_empty() {
            true => model.write(to, notes),
            false => Err(Error::unsupported(self.path, unknown(left))),
        }
    }

    fn dictionary(&self, name: &str) -> Result<Vocab> {
        Ok(Vocab::load(self.folder.join(name))?)
    }

    fn codes(&self) -> Result<Option<Segmentation>> {
        let file = |names: &[&str]| -> Option<PathBuf> {
            names.iter().map(|name| self.folder.join(name)).find(|path| path.is_file())
        };
        if let Some(path) = file(&["bpe.codes", "bpecodes", "code"]) {
            return Ok(Some(Segmentation::Joint(Codes::load(path)?)));
        }
        match file(&["sentencepiece.model", "sentencepiece.bpe.model"]) {
            Some(path) => Ok(Some(Segmentation::SentencePiece(SentencePiece::load(path)?))),
            None => Ok(None),
        }
    }

    /// The projection to the vocabulary, where the checkpoint has one of its own.
    fn output(&self) -> Option<&crate::tensor::Tensor<'a>> {
        self.found.get("decoder.output_projection.weight").or_else(|| self.found.get("decoder.embed_out"))
    }

    /// A parameter under its name, or under that of an older layout.
    fn parameter(&self, name: &str) -> Result<Source<'a>, String> {
        if let Some(tensor) = self.found.get(name) {
            return Ok(Source::Whole(tensor.clone()));
        }
        let missing = || format!("`{name}` is missing");
        let (at, kind) = name.rsplit_once('.').ok_or_else(missing)?;
        let (layer, part) = at.rsplit_once('.').ok_or_else(missing)?;
        if let Some(third) = ["q_proj", "k_proj", "v_proj"].iter().position(|known| *known == part)
            && let Some(stacked) = self.found.get(&format!("{layer}.in_proj_{kind}"))
        {
            let size = stacked.shape().first().copied().unwrap_or(0) / 3;
            return Ok(Source::Rows(stacked.clone(), third * size..(third + 1) * size));
        }
        let order: &[&str] = match layer.starts_with("encoder.") {
            true => &["self_attn_layer_norm", "final_layer_norm"],
            false => &["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"],
        };
        let number = order.iter().position(|known| *known == part).ok_or_else(missing)?;
        let old = self.found.get(&format!("{layer}.layer_norms.{number}.{kind}"));
        old.cloned().map(Source::Whole).ok_or_else(missing)
    }

    /// Refuses options that change what a model computes, by name.
    fn refuse(&self, faults: &mut Vec<String>) {
        let keys = [
            "layernorm_embedding",
            "no_token_positional_embeddings",
            "no_cross_attention",
            "cross_self_attention",
            "character_embeddings",
            "encoder_normalize_output",
            "no_decoder_final_norm",
            "add_bos_token_to_source",
            "scale_attn",
            "scale_fc",
            "scale_heads",
        ];
        let is_lm = !self.found.tensors.keys().any(|name| name.starts_with("encoder."));
        let set =
            keys.iter().filter(|key| self.args.is_set(key) && !(is_lm && **key == "no_decoder_final_norm"));
        faults.extend(set.map(|key| format!("`{key}` = True is not supported")));
    }

    fn activation(&self, faults: &mut Vec<String>) -> Activation {
        match self.args.text("activation_fn").unwrap_or("relu") {
            "relu" => Activation::Relu,
            "swish" | "silu" => Activation::Swish,
            "gelu" => Activation::Gelu,
            other => {
                faults.push(format!("`activation_fn` = {other} is not supported; relu, swish and gelu are"));
                Activation::Relu
            }
        }
    }

    fn translation_config(&self, one_dictionary: bool) -> Result<ModelConfig> {
        let (found, args) = (&self.found, &self.args);
        let mut faults = Vec::new();
        self.refuse(&mut faults);
        let activation = self.activation(&mut faults);
        let matrix = |name: &str| found.matrix(name).map_err(|fault| self.fault(fault));
        let [_, width] = matrix("encoder.embed_tokens.weight")?;
        let [inner, _] = matrix("encoder.layers.0.fc1.weight")?;
        let heads = args.size("encoder_attention_heads");
        let heads = heads.ok_or_else(|| self.fault("`encoder_attention_heads` is missing"))?;
        if args.size("decoder_attention_heads").is_some_and(|other| other != heads) {
            faults.push("`decoder_attention_heads` differs from `encoder_attention_heads`".into());
        }
        let pre = args.is_set("encoder_normalize_before");
        if pre != args.is_set("decoder_normalize_before") {
            faults.push("`encoder_normalize_before` and `decoder_normalize_before` differ".into());
        }
        if pre
            && ["encoder", "decoder"]
                .iter()
                .any(|side| !found.tensors.contains_key(&format!("{side}.layer_norm.weight")))
        {
            faults.push("`encoder.layer_norm` or `decoder.layer_norm` is missing: pre-norm models without are not supported".into());
        }
        if args.sizes("adaptive_softmax_cutoff").is_some() {
            faults.push("`adaptive_softmax_cutoff` is not supported in translation models".into());
        }
        let learned = [args.is_set("encoder_learned_pos"), args.is_set("decoder_learned_pos")];
        if learned[0] != learned[1] {
            faults.push("`encoder_learned_pos` and `decoder_learned_pos` differ".into());
        }
        let rows = |side: &str| {
            let table = found.tensors.get(&format!("{side}.embed_positions.weight"));
            table.and_then(|table| table.shape().first()).map(|rows| rows.saturating_sub(FIRST_POSITION))
        };
        let asked = |key: &str| args.size(key).unwrap_or(1024);
        let max_positions = match learned[0] {
            true => rows("encoder").unwrap_or(0).min(rows("decoder").unwrap_or(0)),
            false => asked("max_source_positions").min(asked("max_target_positions")),
        };
        if !faults.is_empty() {
            return Err(Error::unsupported(self.path, faults));
        }
        let get = |name: &str| found.tensors.get(name);
        let equal = |a: Option<&_>, b: Option<&_>| matches!((a, b), (Some(a), Some(b)) if same(a, b));
        let decoder = get("decoder.embed_tokens.weight");
        let output = get("decoder.output_projection.weight").or_else(|| get("decoder.embed_out"));
        let tied = output.is_none() || equal(decoder, output);
        let all = tied && one_dictionary && equal(get("encoder.embed_tokens.weight"), decoder);
        Ok(ModelConfig {
            arch: args.text("arch").or_else(|| args.text("_name")).unwrap_or("fairseq").to_owned(),
            encoder_layers: found.layers(|i| format!("encoder.layers.{i}.fc1.weight")),
            decoder_layers: found.layers(|i| format!("decoder.layers.{i}.fc1.weight")),
            encoder_embed_dim: width,
            encoder_ffn_embed_dim: inner,
            encoder_attention_heads: heads,
            activation,
            positions: if learned[0] { Positions::Table } else { Positions::Fairseq },
            no_scale_embedding: args.is_set("no_scale_embedding"),
            norm: if pre { NormOrder::Pre } else { NormOrder::Post },
            share_embeddings: match (tied, all) {
                (_, true) => Sharing::All,
                (true, false) => Sharing::Decoder,
                (false, false) => Sharing::None,
            },
            max_positions,
            mixture: Mixture::default(),
            dropout: 0.0,
            ..ModelConfig::arch("transformer_tiny")?
        })
    }

    fn language_config(&self) -> Result<LmConfig> {
        let (found, args) = (&self.found, &self.args);
        let mut faults = Vec::new();
        self.refuse(&mut faults);
        let activation = self.activation(&mut faults);
        let cutoffs = args.sizes("adaptive_softmax_cutoff").unwrap_or_default();
        if !cutoffs.is_empty() {
            if args.sizes("adaptive_input_cutoff").unwrap_or_default() != cutoffs {
                faults.push("`adaptive_input_cutoff` differs from `adaptive_softmax_cutoff`".into());
            }
            let factors =
                ["adaptive_input_factor", "adaptive_softmax_factor"].map(|key| args.size(key).unwrap_or(4));
            if factors[0] != factors[1] {
                faults.push("`adaptive_input_factor` differs from `adaptive_softmax_factor`".into());
            }
        }
        if args.is_set("decoder_learned_pos") {
            faults.push("`decoder_learned_pos` = True is not supported in language models".into());
        }
        if args.is_set("no_scale_embedding") {
            faults.push("`no_scale_embedding` = True is not supported in language models".into());
        }
        // `transformer_lm` is pre-norm unless it says otherwise; very old ones say nothing.
        if args.value("decoder_normalize_before").is_some() && !args.is_set("decoder_normalize_before") {
            faults.push("`decoder_normalize_before` = False is not supported in language models".into());
        }
        let get = |name: &str| found.tensors.get(name);
        let equal = |a: &str, b: &str| matches!((get(a), get(b)), (Some(a), Some(b)) if same(a, b));
        let embeddings = "decoder.embed_tokens.embeddings.1";
        let tail = "decoder.adaptive_softmax.tail.0";
        let tied = equal(&format!("{embeddings}.0.weight"), &format!("{tail}.2.weight"))
            || get("decoder.adaptive_softmax.head.class_proj.weight").is_some();
        let tied_projection = equal(&format!("{embeddings}.1.weight"), &format!("{tail}.0.weight"));
        if cutoffs.is_empty()
            && let Some(output) = get("decoder.output_projection.weight").or_else(|| get("decoder.embed_out"))
            && !get("decoder.embed_tokens.weight").is_some_and(|embedding| same(embedding, output))
        {
            faults.push(
                "`share_decoder_input_output_embed` = False is not supported in language models".into(),
            );
        }
        let [inner, width] =
            found.matrix("decoder.layers.0.fc1.weight").map_err(|fault| self.fault(fault))?;
        let heads = args.size("decoder_attention_heads");
        let heads = heads.ok_or_else(|| self.fault("`decoder_attention_heads` is missing"))?;
        if !faults.is_empty() {
            return Err(Error::unsupported(self.path, faults));
        }
        let positions = ["max_target_positions", "tokens_per_sample"].iter().find_map(|key| args.size(key));
        Ok(LmConfig {
            arch: args.text("arch").or_else(|| args.text("_name")).unwrap_or("fairseq").to_owned(),
            decoder_layers: found.layers(|i| format!("decoder.layers.{i}.fc1.weight")),
            decoder_embed_dim: width,
            decoder_ffn_embed_dim: inner,
            decoder_attention_heads: heads,
            head_dim: 0,
            activation,
            dropout: 0.0,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            adaptive_softmax_factor: args.size("adaptive_softmax_factor").unwrap_or(4),
            adaptive_softmax_dropout: 0.0,
            tie_adaptive_weights: cutoffs.is_empty() || tied,
            tie_adaptive_proj: cutoffs.is_empty() || (tied && tied_projection),
            adaptive_softmax_cutoff: cutoffs,
            final_norm: get("decoder.layer_norm.weight").is_some(),
            max_positions: positions.unwrap_or(1024),
            mixture: Mixture { gate_window: 100, ..Mixture::default() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_buffers_are_no_weights() {
        for name in [
            "encoder.layers.3.in_proj_weight",
            "encoder.layers.0.fc2_bias",
            "encoder.layers.11.out_proj_weight",
            "decoder.version",
            "encoder.embed_positions._float_tensor",
            "decoder.embed_tokens._float_tensor",
        ] {
            assert!(is_constant(name), "{name}");
        }
        for name in [
            "encoder.layers.3.self_attn.in_proj_weight",
            "encoder.layers.3.fc1.weight",
            "decoder.layers.3.fc1_weight",
            "encoder.layers.0.self_attn.out_proj.weight",
        ] {
            assert!(!is_constant(name), "{name}");
        }
    }
}
