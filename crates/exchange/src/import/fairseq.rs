//! fairseq's checkpoints: translation and language models, of old and new layouts, in full or half precision.

mod args;
mod config;

use std::path::Path;

use mae_data::{TextRecord, Vocab};
use mae_model::config::{ModelConfig, Sharing};
use mae_model::lm::LmConfig;

use self::args::Args;
use super::{Found, segmentation_in, unknown};
use crate::file::MappedFile;
use crate::new_model::{Imported, NewModel, Source};
use crate::torch::Checkpoint;
use crate::{Error, Result, layout};

/// Rows of position tables before the first position.
const FIRST_POSITION: usize = 2;

/// Reads the checkpoint `from` and writes the model folder `to`. Dictionaries and codes are those of the folder
/// `dictionaries`: `dict.LANG.txt` (`dict.txt` for a language model) and, if there, codes or models of SentencePiece.
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
        let codes = segmentation_in(self.folder)?;
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
