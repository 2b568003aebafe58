//! Model folders to models of other programs.

pub mod ct2;
pub mod fairseq;
mod fold;
pub mod hf;
pub mod onnx;

use std::path::Path;

use mae_data::{Segmentation, TextRecord, Vocab};
use mae_model::config::{ModelConfig, Sharing};
use mae_model::folder::{self, CONFIG, SOURCE_DICT, TARGET_DICT, WEIGHTS};

pub use fold::{Cost, expert, mean_gates};
pub use mae_model::convert::HeadWeights;

use crate::file::MappedFile;
use crate::import::hf::safetensors;
use crate::tensor::{Tensor, Tensors};
use crate::{Error, Result, layout};

/// A model folder whose weights are mapped.
pub struct Folder {
    path: std::path::PathBuf,
    config: ModelConfig,
    source: Vocab,
    target: Vocab,
    codes: Option<Segmentation>,
    text: TextRecord,
    weights: MappedFile,
}

impl Folder {
    /// Opens the folder of a translation model.
    pub fn open(path: &Path) -> Result<Self> {
        folder::check_full(path)?;
        Ok(Self {
            config: folder::load_config(path)?,
            source: Vocab::load(path.join(SOURCE_DICT))?,
            target: Vocab::load(path.join(TARGET_DICT))?,
            codes: Segmentation::load(path)?,
            text: TextRecord::load(path)?,
            weights: MappedFile::open(&path.join(WEIGHTS))?,
            path: path.to_owned(),
        })
    }

    /// Sizes and choices of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Names of source and target language, if the folder tells them.
    pub fn languages(&self) -> Option<[&str; 2]> {
        self.text.languages.as_ref().map(|[source, target]| [source.as_str(), target.as_str()])
    }

    fn tensors(&self) -> Result<Tensors<'_>> {
        let tensors = safetensors(self.weights.bytes()).map_err(|what| self.weights.fault(what))?;
        let mut faults = Vec::new();
        for (name, shape) in layout::translation(&self.config, [self.source.len(), self.target.len()]) {
            match tensors.get(&name) {
                None => faults.push(format!("`{name}` is missing")),
                Some(tensor) if tensor.shape() != shape => {
                    faults.push(format!("`{name}` has shape {:?}; expected {shape:?}", tensor.shape()));
                }
                Some(_) => {}
            }
        }
        if faults.is_empty() { Ok(tensors) } else { Err(Error::unsupported(self.weights.path(), faults)) }
    }

    fn unsupported(&self, faults: Vec<String>) -> Result<()> {
        match faults.is_empty() {
            true => Ok(()),
            false => Err(Error::unsupported(&self.path.join(CONFIG), faults)),
        }
    }
}

/// Weights of a model with heads weighed as `heads` says.
struct Weights<'a> {
    tensors: Tensors<'a>,
    config: &'a ModelConfig,
    heads: &'a HeadWeights,
}

impl<'a> Weights<'a> {
    fn new(folder: &'a Folder, heads: &'a HeadWeights) -> Result<Self> {
        fold::check(folder, heads)?;
        Self::with_gates(folder, heads)
    }

    /// The same for a format that holds gates.
    fn with_gates(folder: &'a Folder, heads: &'a HeadWeights) -> Result<Self> {
        Ok(Self { tensors: folder.tensors()?, config: &folder.config, heads })
    }

    fn tensor(&self, name: &str) -> &Tensor<'a> {
        &self.tensors[name]
    }

    /// Values of a parameter. Output projections of attentions have the weights of their heads multiplied in.
    fn values(&self, name: &str) -> Vec<f32> {
        let mut values = self.tensor(name).read();
        self.heads.fold(name, &mut values, *self.tensor(name).shape().last().unwrap_or(&1));
        values
    }

    /// Name of the target embedding.
    fn decoder_embedding(&self) -> &'static str {
        match self.config.share_embeddings {
            Sharing::All => "encoder.embed_tokens.weight",
            _ => "decoder.embed_tokens.weight",
        }
    }

    /// Name of the output projection.
    fn output(&self) -> &'static str {
        match self.config.share_embeddings {
            Sharing::None => "decoder.embed_out",
            _ => self.decoder_embedding(),
        }
    }
}

/// Names of all attentions of a model.
fn attentions(config: &ModelConfig) -> Vec<String> {
    let encoder = (0..config.encoder_layers).map(|i| format!("encoder.layers.{i}.self_attn"));
    let parts = ["self_attn", "encoder_attn"];
    let decoder =
        (0..config.decoder_layers).flat_map(|i| parts.map(|part| format!("decoder.layers.{i}.{part}")));
    encoder.chain(decoder).collect()
}

/// Returns an error if a folder exists that holds anything.
fn check_empty(folder: &Path) -> Result<()> {
    let is_full = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    match is_full {
        true => Err(Error::format(folder, "the folder exists and is not empty; name another")),
        _ if folder.is_file() => Err(Error::format(folder, "a file of this name exists; name a folder")),
        _ => Ok(()),
    }
}
