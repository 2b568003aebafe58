//! A model folder: `model.safetensors`, `config.toml`, `dict.src.txt`, `dict.tgt.txt` and, where the text was
//! segmented, the files of a [`Segmentation`]; `text.json` with languages and rules. Described in `docs/formats.md`, so that outsiders can write one.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mae_data::{Segmentation, TextRecord, Vocab, files};
use mae_engine::{ComputeType, Device, params};
use safetensors::tensor::SafeTensors;
use serde::{Deserialize, Serialize};

use crate::config::{ModelConfig, Sharing};
use crate::kind::{Config, Model};
use crate::translator::Translator;
pub use crate::weights::{floats, load_weights, load_weights_but, not_whole, write_tensors};
use crate::{Error, Result, limits, provenance};

/// File names in a model folder.
pub const WEIGHTS: &str = "model.safetensors";
/// Sizes and choices.
pub const CONFIG: &str = "config.toml";
/// Source dictionary.
pub const SOURCE_DICT: &str = "dict.src.txt";
/// Target dictionary.
pub const TARGET_DICT: &str = "dict.tgt.txt";
/// Looks for a folder that another is about to replace, and the pause between two.
const TRIES: usize = 10;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// The format this version reads and writes.
pub const FORMAT: u32 = 1;

/// Task of a model, by fairseq's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A [`Translator`].
    #[default]
    Translation,
    /// A [`LanguageModel`](crate::LanguageModel).
    LanguageModeling,
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Translation => "translation model",
            Self::LanguageModeling => "language model",
        })
    }
}

/// Number type of the large matrices in a file of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stored {
    /// 32 bits.
    #[default]
    F32,
    /// Whole numbers of 8 bits with a scale for each row.
    Int8,
}

impl Stored {
    fn is_f32(&self) -> bool {
        *self == Self::F32
    }

    /// The type in which a CPU computes with such a file, in inference, if no other is asked for.
    pub fn compute_type(self) -> ComputeType {
        match self {
            Self::F32 => ComputeType::F32,
            Self::Int8 => ComputeType::Int8,
        }
    }

    /// Bytes of a number.
    fn size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Int8 => 1,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile<M> {
    format: u32,
    #[serde(default)]
    task: Task,
    #[serde(default, skip_serializing_if = "Stored::is_f32")]
    weights: Stored,
    model: M,
}

/// Keys that must be known before `[model]` can be read.
#[derive(Deserialize)]
struct Header {
    format: u32,
    #[serde(default)]
    task: Task,
    #[serde(default)]
    weights: Stored,
}

/// A model with what it needs to read and write text.
pub struct ModelFolder {
    /// The model.
    pub model: Translator,
    /// Source dictionary.
    pub source: Arc<Vocab>,
    /// Target dictionary.
    pub target: Arc<Vocab>,
    /// Segmentation of both sides, if the folder holds codes or a tokeniser.
    pub codes: Option<Segmentation>,
    /// Languages, and rules that plain text goes through first.
    pub text: TextRecord,
}

impl ModelFolder {
    /// Loads a folder; anything missing, extra or of another shape is refused by name. The model computes in the number
    /// type of the device ([`Device::holding`]), which may be left to the folder.
    pub fn load(folder: &Path, device: &Device) -> Result<Self> {
        let config: ModelConfig = load_config(folder)?;
        let stored = check_size(folder, &config)?;
        let device = &holding(device, stored)?;
        let source = Arc::new(Vocab::load(folder.join(SOURCE_DICT))?);
        let target = Arc::new(Vocab::load(folder.join(TARGET_DICT))?);
        check_sharing(&config, &source, &target)?;
        let mut model = Translator::zeroed(&config, [source.len(), target.len()], device)?;
        load_weights(&folder.join(WEIGHTS), model.params_mut())
            .map_err(|error| mention_dictionaries(error, &source, &target))?;
        let (codes, text) = (Segmentation::load(folder)?, TextRecord::load(folder)?);
        Ok(Self { model, source, target, codes, text })
    }

    /// Writes all files into `folder`, which is made if need be, each aside and then renamed.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let dicts: [(&str, &Vocab); 2] = [(SOURCE_DICT, &self.source), (TARGET_DICT, &self.target)];
        Snapshot::of(&self.model)?.save(folder, &dicts, self.codes.as_ref(), &self.text)
    }
}

/// A model's sizes and parameters at one moment: what is left to do is writing, which another thread can.
pub struct Snapshot {
    /// The text of `config.toml`.
    config: String,
    params: params::Snapshot,
}

impl Snapshot {
    /// The model as it is now; does not wait for its device.
    pub fn of<M: Model>(model: &M) -> Result<Self> {
        Ok(Self { config: config_text(model.config()), params: model.params().snapshot()? })
    }

    /// Name of the first parameter whose values `is_wrong` refuses.
    pub fn find(&self, is_wrong: impl Fn(&[f32]) -> bool) -> Result<Option<String>> {
        let tensors = self.params.tensors()?;
        Ok(tensors.into_iter().find(|(_, _, values)| is_wrong(values)).map(|(name, ..)| name.to_owned()))
    }

    /// Writes a model folder with these dictionaries by their file names, each file aside and then renamed.
    pub fn save(
        &self,
        folder: &Path,
        dicts: &[(&str, &Vocab)],
        codes: Option<&Segmentation>,
        text: &TextRecord,
    ) -> Result<()> {
        files::create_folder(folder)?;
        write_tensors(&folder.join(WEIGHTS), &self.params.tensors()?, BTreeMap::new())?;
        files::write(folder.join(CONFIG), self.config.as_bytes())?;
        for (name, dict) in dicts {
            dict.save(folder.join(name))?;
        }
        Segmentation::save(codes, folder)?;
        Ok(text.save(folder)?)
    }
}

/// The text of `config.toml`.
pub fn config_text<C: Config>(config: &C) -> String {
    config_text_of(config, Stored::F32)
}

/// The text of `config.toml` beside weights of a number type.
pub(crate) fn config_text_of<C: Config>(config: &C, weights: Stored) -> String {
    let file = ConfigFile { format: FORMAT, task: C::TASK, weights, model: config };
    let text = toml::to_string(&file).expect("a model configuration can always be written as TOML");
    format!("# {}\n{text}", provenance::program())
}

/// Adds a hint about dictionaries: embeddings that do not fit mostly come from a dictionary of another model.
fn mention_dictionaries(mut error: Error, source: &Vocab, target: &Vocab) -> Error {
    if let Error::Weights { faults, .. } = &mut error
        && faults.iter().any(|fault| fault.contains("embed_tokens"))
    {
        faults.push(format!(
            "rows of embed_tokens are types: {SOURCE_DICT} has {}, {TARGET_DICT} has {}; are they this model's?",
            source.len(),
            target.len()
        ));
    }
    error
}

/// One embedding for both sides means one dictionary for both sides.
pub fn check_sharing(config: &ModelConfig, source: &Vocab, target: &Vocab) -> Result<()> {
    if config.share_embeddings == Sharing::All && source != target {
        return Err(Error::TwoDictionaries { source_types: source.len(), target_types: target.len() });
    }
    Ok(())
}

/// Reads `config.toml`, which must be of the wanted kind of model.
pub fn load_config<C: Config>(folder: &Path) -> Result<C> {
    let (path, text) = read_config(folder)?;
    let parse = |message: String| Error::Parse { path: path.clone(), message };
    let (found, wanted) = (header(&path, &text)?.task, C::TASK);
    if found != wanted {
        return Err(parse(format!("this is the folder of a {found}; a {wanted} is needed here")));
    }
    let file: ConfigFile<C> = toml::from_str(&text).map_err(|e| parse(e.to_string()))?;
    file.model.check()?;
    Ok(file.model)
}

/// Fails if `config.toml` asks for more than the weights beside it can hold, before anything is allocated. Returns the
/// number type of the weights.
pub(crate) fn check_size<C: Config>(folder: &Path, config: &C) -> Result<Stored> {
    let (path, stored) = (folder.join(WEIGHTS), stored(folder)?);
    let bytes = std::fs::metadata(&path).map_err(Error::io(&path))?.len();
    let numbers = bytes / stored.size();
    let Some(message) = limits::fault_of_file(&config.stacks(), config.max_positions(), numbers) else {
        return Ok(stored);
    };
    // A file that is cut off explains it better.
    let weights = std::fs::read(&path).map_err(Error::io(&path))?;
    SafeTensors::deserialize(&weights)
        .map_err(|fault| Error::Weights { path, faults: vec![not_whole(&fault)] })?;
    Err(Error::Parse { path: folder.join(CONFIG), message })
}

/// The device, for a model whose file has this number type: a CPU holds 8-bit integers as such unless another type was
/// asked for.
pub(crate) fn holding(device: &Device, stored: Stored) -> Result<Device> {
    match stored {
        Stored::Int8 if !device.is_gpu() => Ok(device.holding(device.compute_type().or(ComputeType::Int8))?),
        _ => Ok(device.clone()),
    }
}

/// The device, for inference with the model in `folder`, which is neither trained nor saved: where no number type was
/// asked for, a CPU takes that of the folder, packed for products.
pub fn for_inference(device: &Device, folder: &Path) -> Result<Device> {
    match device.is_gpu() {
        true => Ok(device.clone()),
        false => Ok(device.holding(device.compute_type().or(stored(folder)?.compute_type()))?),
    }
}

/// Number type of the weights in `folder`.
pub fn stored(folder: &Path) -> Result<Stored> {
    let (path, text) = read_config(folder)?;
    Ok(header(&path, &text)?.weights)
}

/// Returns an error for a model of 8-bit integers, which can be translated with and nothing else.
pub fn check_full(folder: &Path) -> Result<()> {
    match stored(folder)? {
        Stored::F32 => Ok(()),
        Stored::Int8 => {
            let message = "the weights are 8-bit integers; use the model that they were made from".to_owned();
            Err(Error::Parse { path: folder.join(CONFIG), message })
        }
    }
}

/// Task of the model in `folder`.
pub fn task(folder: &Path) -> Result<Task> {
    let (path, text) = read_config(folder)?;
    Ok(header(&path, &text)?.task)
}

/// `config.toml` and its text.
fn read_config(folder: &Path) -> Result<(PathBuf, String)> {
    let path = folder.join(CONFIG);
    let mut text = std::fs::read_to_string(&path);
    // A run may be about to put a new folder there, where the system cannot exchange two folders in one step.
    for _ in 0..TRIES {
        if text.is_ok() || folder.exists() || files::previous_folder(folder).is_none() {
            break;
        }
        std::thread::sleep(PAUSE);
        text = std::fs::read_to_string(&path);
    }
    match text {
        Ok(text) => Ok((path, text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(Error::NoModel { folder: folder.to_owned(), hint: where_models_are(folder) })
        }
        Err(source) => Err(Error::Io { path, source }),
    }
}

/// Hint for a folder that holds no model.
fn where_models_are(folder: &Path) -> String {
    if let Some(before) = files::previous_folder(folder).filter(|before| before.join(CONFIG).is_file()) {
        let before = before.display();
        return format!(
            "Its run was stopped as it put a new one there; {before} is the one before: use it, or start the run again, \
             which puts it back"
        );
    }
    let last = folder.with_file_name("checkpoint_last");
    if folder.ends_with("checkpoint_best") && last.join(CONFIG).is_file() {
        return format!("Its run was stopped before a validation; its newest model is {}", last.display());
    }
    let inside = ["checkpoint_best", "checkpoint_last", "average"].map(|name| folder.join(name));
    match inside.iter().find(|inside| inside.join(CONFIG).is_file()) {
        Some(inside) => format!("It is the folder of a run; a model in it is {}", inside.display()),
        None => {
            "Training writes such folders, checkpoint_best and checkpoint_last, into its save folder".into()
        }
    }
}

fn header(path: &Path, text: &str) -> Result<Header> {
    let parse = |message: String| Error::Parse { path: path.to_owned(), message };
    let header: Header = toml::from_str(text).map_err(|e| parse(e.to_string()))?;
    if header.format != FORMAT {
        let message = format!("format = {} is not known; this program reads format {FORMAT}", header.format);
        return Err(parse(message));
    }
    Ok(header)
}
