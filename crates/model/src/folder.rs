//! A model folder: `model.safetensors`, `config.toml`, `dict.src.txt`, `dict.tgt.txt` and, where the text was
//! segmented, the files of a [`Segmentation`]. Described in `docs/formats.md`, so that outsiders can write one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mae_data::{Segmentation, Vocab, files};
use mae_engine::params::{self, NamedValues};
use mae_engine::{Device, GroupSet, Params};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::config::{ModelConfig, Sharing};
use crate::kind::{Config, Model};
use crate::translator::Translator;
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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile<M> {
    format: u32,
    #[serde(default)]
    task: Task,
    model: M,
}

/// Keys that must be known before `[model]` can be read.
#[derive(Deserialize)]
struct Header {
    format: u32,
    #[serde(default)]
    task: Task,
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
}

impl ModelFolder {
    /// Loads a folder; anything missing, extra or of another shape is refused by name.
    pub fn load(folder: &Path, device: &Device) -> Result<Self> {
        let config: ModelConfig = load_config(folder)?;
        check_size(folder, &config)?;
        let source = Arc::new(Vocab::load(folder.join(SOURCE_DICT))?);
        let target = Arc::new(Vocab::load(folder.join(TARGET_DICT))?);
        check_sharing(&config, &source, &target)?;
        let mut model = Translator::zeroed(&config, [source.len(), target.len()], device)?;
        load_weights(&folder.join(WEIGHTS), model.params_mut())
            .map_err(|error| mention_dictionaries(error, &source, &target))?;
        let codes = Segmentation::load(folder)?;
        Ok(Self { model, source, target, codes })
    }

    /// Writes all files into `folder`, which is made if need be.
    pub fn save(&self, folder: &Path) -> Result<()> {
        save(folder, &self.model, &self.source, &self.target, self.codes.as_ref())
    }
}

/// Writes a model folder, each file aside and then renamed.
pub fn save(
    folder: &Path,
    model: &Translator,
    source: &Vocab,
    target: &Vocab,
    codes: Option<&Segmentation>,
) -> Result<()> {
    Snapshot::of(model)?.save(folder, &[(SOURCE_DICT, source), (TARGET_DICT, target)], codes)
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
    pub fn save(&self, folder: &Path, dicts: &[(&str, &Vocab)], codes: Option<&Segmentation>) -> Result<()> {
        files::create_folder(folder)?;
        write_tensors(&folder.join(WEIGHTS), &self.params.tensors()?, BTreeMap::new())?;
        files::write(folder.join(CONFIG), self.config.as_bytes())?;
        for (name, dict) in dicts {
            dict.save(folder.join(name))?;
        }
        Segmentation::save(codes, folder)?;
        Ok(())
    }
}

/// The text of `config.toml`.
pub fn config_text<C: Config>(config: &C) -> String {
    let file = ConfigFile { format: FORMAT, task: C::TASK, model: config };
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

/// Fails if `config.toml` asks for more than the weights beside it can hold, before anything is allocated.
pub(crate) fn check_size<C: Config>(folder: &Path, config: &C) -> Result<()> {
    let path = folder.join(WEIGHTS);
    let bytes = std::fs::metadata(&path).map_err(Error::io(&path))?.len();
    let Some(message) = limits::fault_of_file(&config.stacks(), config.max_positions(), bytes) else {
        return Ok(());
    };
    // A file that is cut off explains it better.
    let weights = std::fs::read(&path).map_err(Error::io(&path))?;
    SafeTensors::deserialize(&weights)
        .map_err(|fault| Error::Weights { path, faults: vec![not_whole(&fault)] })?;
    Err(Error::Parse { path: folder.join(CONFIG), message })
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

/// Sets all parameters from a file; refuses, naming the key, anything missing, extra or of another shape.
pub fn load_weights(path: &Path, params: &mut Params) -> Result<()> {
    load_weights_but(path, params, GroupSet::NONE)
}

/// The same, but parameters of the groups `new` that the file does not have stay as they are.
pub fn load_weights_but(path: &Path, params: &mut Params, new: GroupSet) -> Result<()> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let weights = |faults: Vec<String>| Error::Weights { path: path.to_owned(), faults };
    let file = SafeTensors::deserialize(&bytes).map_err(|e| weights(vec![not_whole(&e)]))?;
    let wanted: BTreeMap<String, Vec<usize>> = params
        .named()
        .filter(|p| !new.contains(p.group) || file.tensor(p.name).is_ok())
        .map(|p| (p.name.to_owned(), p.shape.to_vec()))
        .collect();
    let mut faults = Vec::new();
    let mut found = Vec::new();
    for (name, shape) in &wanted {
        match file.tensor(name) {
            Err(_) => faults.push(format!("`{name}` is missing; expected shape {shape:?}")),
            Ok(tensor) if tensor.shape() != shape => {
                faults.push(format!("`{name}` has shape {:?}; expected {shape:?}", tensor.shape()));
            }
            Ok(tensor) if tensor.dtype() != Dtype::F32 => {
                faults.push(format!("`{name}` is {:?}; expected F32", tensor.dtype()));
            }
            Ok(tensor) => found.push((name, floats(tensor.data()))),
        }
    }
    let mut extra: Vec<_> = file.names().into_iter().filter(|name| !wanted.contains_key(*name)).collect();
    extra.sort_unstable();
    faults.extend(extra.into_iter().map(|name| format!("`{name}` is not a parameter of this model")));
    if !faults.is_empty() {
        return Err(weights(faults));
    }
    for (name, values) in found {
        params.set(name, &values)?;
    }
    Ok(())
}

/// The complaint about a file that is no safetensors file, or not all of one.
pub fn not_whole(error: &impl std::fmt::Display) -> String {
    format!(
        "not a whole safetensors file ({error}): it is cut off or damaged; copy it again, or take another checkpoint"
    )
}

/// Little-endian bytes as numbers.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Writes named f32 tensors with metadata, aside and then renamed.
pub fn write_tensors(
    path: &Path,
    tensors: &[NamedValues<'_>],
    metadata: BTreeMap<String, String>,
) -> Result<()> {
    let bytes: Vec<Cow<'_, [u8]>> = tensors.iter().map(|(_, _, values)| little_endian(values)).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("sizes and shapes agree");
        (name, view)
    });
    let metadata = (!metadata.is_empty()).then(|| metadata.into_iter().collect());
    let file = safetensors::serialize(views, metadata).expect("in-memory tensors can always be serialised");
    Ok(files::write(path, &file)?)
}

/// The bytes that files hold: on most machines those in memory.
fn little_endian(values: &[f32]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        Cow::Borrowed(bytemuck::cast_slice(values))
    } else {
        Cow::Owned(values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }
}
