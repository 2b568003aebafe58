//! The models of a server, by name and by languages.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mae::data::moses::{Dashes, Lang};
use mae::data::{TextRecord, TextRules, TextTools};
use mae::model::folder::{Task, task};
use mae::{Beginning, Device, LanguageModel, Translation, Translator};

use crate::config::{Batching, Config, ModelSource, Preparation};
use crate::error::{Error, Result};
use crate::metrics::{Metrics, WorkMetrics};
use crate::text::languages::{canonical, pair_in};
use crate::work::batches::{Batches, Found, Sentence};
use crate::work::continuations::{Continuations, Progress};
use crate::work::joining::Joining;
use crate::work::worker::{Shared, Worker};

/// All models, in the order of the configuration.
pub struct Registry {
    /// Translation models.
    pub translators: Vec<Arc<TranslationModel>>,
    /// Language models.
    pub writers: Vec<Arc<WritingModel>>,
}

/// A translation model with its thread.
pub struct TranslationModel {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Source language.
    pub source: String,
    /// Target language.
    pub target: String,
    /// The model.
    pub translator: Arc<Translator>,
    /// Its thread.
    pub worker: TranslationWorker,
    metrics: Arc<WorkMetrics>,
    /// Rules for texts, if there are any.
    tools: Option<TextTools>,
}

/// A language model with its thread.
pub struct WritingModel {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The model.
    pub model: Arc<LanguageModel>,
    /// Its thread.
    pub worker: WritingWorker,
    /// Its counts.
    pub metrics: Arc<WorkMetrics>,
}

/// The thread of a translation model.
pub type TranslationWorker = Worker<Sentence, Found>;

/// The thread of a language model.
pub type WritingWorker = Worker<Beginning, Progress>;

impl Registry {
    /// Loads all models.
    pub fn load(config: &Config, device: &Device, metrics: &Metrics) -> Result<Self> {
        let mut registry = Self { translators: Vec::new(), writers: Vec::new() };
        for (i, source) in config.models.iter().enumerate() {
            if let Some(first) = config.models[..i].iter().find(|first| first.name == source.name) {
                return Err(Error::SameName {
                    name: source.name.clone(),
                    first: first.folder.clone(),
                    second: source.folder.clone(),
                });
            }
            match task(&source.folder).map_err(mae::Error::from)? {
                Task::Translation => {
                    let model = TranslationModel::load(source, config, device, metrics)?;
                    registry.translators.push(Arc::new(model));
                }
                Task::LanguageModeling => {
                    let model = WritingModel::load(source, config, device, metrics)?;
                    registry.writers.push(Arc::new(model));
                }
            }
        }
        if config.models.is_empty() { Err(Error::NoModels) } else { Ok(registry) }
    }

    /// Codes of all languages, sources first, each once.
    pub fn languages(&self) -> Vec<String> {
        let sources = self.translators.iter().map(|model| &model.source);
        let targets = self.translators.iter().map(|model| &model.target);
        let mut codes: Vec<String> = Vec::new();
        for code in sources.chain(targets) {
            if !codes.contains(code) {
                codes.push(code.clone());
            }
        }
        codes
    }

    /// Codes of source languages.
    pub fn sources(&self) -> Vec<String> {
        let is_source = |code: &String| self.translators.iter().any(|model| model.source == *code);
        self.languages().into_iter().filter(is_source).collect()
    }

    /// Codes of the languages that a language can be translated to.
    pub fn targets(&self, source: &str) -> Vec<String> {
        let reached = |code: &String| {
            code == source || self.translators.iter().any(|m| m.source == source && m.target == *code)
        };
        self.languages().into_iter().filter(reached).collect()
    }

    /// The first model of a pair of languages.
    pub fn pair(&self, source: &str, target: &str) -> Option<&Arc<TranslationModel>> {
        self.translators.iter().find(|model| model.source == source && model.target == target)
    }

    /// A translation model by its name.
    pub fn translator(&self, name: &str) -> Option<&Arc<TranslationModel>> {
        self.translators.iter().find(|model| model.name == name)
    }

    /// A language model by its name.
    pub fn writer(&self, name: &str) -> Option<&Arc<WritingModel>> {
        self.writers.iter().find(|model| model.name == name)
    }
}

impl TranslationModel {
    fn load(source: &ModelSource, config: &Config, device: &Device, metrics: &Metrics) -> Result<Self> {
        let name = source.name.clone();
        let translator = Arc::new(Translator::load(&source.folder, device)?);
        let of_folder =
            translator.text_record().languages.as_ref().map(|[from, to]| (canonical(from), canonical(to)));
        let languages = source.languages.clone().or(of_folder).or_else(|| pair_in(&name));
        let Some((from, to)) = languages else {
            return Err(Error::NoLanguages { folder: source.folder.clone() });
        };
        let tools = match config.preparation {
            Preparation::Folder => translator.models().tools().cloned(),
            Preparation::Moses => Some(moses(&name, &from, &to)?),
            Preparation::Tokenised => None,
        };
        let metrics = metrics.worker(&name);
        let (shared, budget) = (translator.clone(), config.limits.budget);
        let batching = config.batching;
        let run = move |work: &Shared<_, _>| match batching {
            Batching::Joining => work.run(|| Joining::new(&shared, budget)),
            Batching::Waiting => work.run(|| Batches::new(shared.clone(), budget)),
        };
        let worker =
            Worker::start(&name, config.limits.bounds(), metrics.clone(), run).map_err(Error::Thread)?;
        let folder = source.folder.clone();
        Ok(Self { name, folder, source: from, target: to, translator, worker, metrics, tools })
    }

    /// A sentence in tokens, as the codes of the model read it.
    pub fn prepare(&self, sentence: &str) -> String {
        self.tools.as_ref().map_or_else(|| sentence.to_owned(), |tools| tools.source(sentence))
    }

    /// A translation as people read it.
    pub fn finish(&self, translation: &str) -> String {
        self.tools.as_ref().map_or_else(|| translation.to_owned(), |tools| tools.plain(translation))
    }

    /// Counts a translation.
    pub fn count(&self, found: &Translation) {
        let read = found.source.tokens - found.source.cut;
        self.metrics.source_tokens.fetch_add(read as u64, Ordering::Relaxed);
        self.metrics.target_tokens.fetch_add(found.best().tokens.len() as u64, Ordering::Relaxed);
        self.metrics.cut.fetch_add(u64::from(found.source.cut > 0), Ordering::Relaxed);
    }
}

impl WritingModel {
    fn load(source: &ModelSource, config: &Config, device: &Device, metrics: &Metrics) -> Result<Self> {
        let model = Arc::new(LanguageModel::load(&source.folder, device)?);
        let (name, metrics, shared) = (source.name.clone(), metrics.worker(&source.name), model.clone());
        let run = move |work: &Shared<_, _>| work.run(|| Continuations::new(shared.clone()));
        let worker =
            Worker::start(&name, config.limits.bounds(), metrics.clone(), run).map_err(Error::Thread)?;
        Ok(Self { name, folder: source.folder.clone(), model, worker, metrics })
    }
}

/// Moses' tools of a pair of languages.
fn moses(name: &str, source: &str, target: &str) -> Result<TextTools> {
    for language in [source, target] {
        let fault = |_| Error::NoRules { language: language.to_owned(), name: name.to_owned() };
        language.parse::<Lang>().map_err(fault)?;
    }
    let rules = TextRules { normalize: true, tokenize: Some(Dashes::Keep), ..TextRules::default() };
    let tools = TextRecord::new(source, target, rules).tools().map_err(mae::Error::from)?;
    Ok(tools.expect("there are rules"))
}
