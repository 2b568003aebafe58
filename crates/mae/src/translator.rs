//! Translation models: text in, text out.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use mae_data::{ParallelDataset, TextRecord};
use mae_model::folder::ModelFolder;
use mae_model::{ExpertMode, ModelConfig};
use mae_translate::{
    ExpertChoice, Fitted, Group, GroupOptions, Models, Pipeline, SearchCaches, Shortlist, Side, TextForm,
    without,
};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::options::TranslateOptions;
use crate::translation::Translation;

/// A translation model, or an ensemble, with what it needs to read and write text.
///
/// Translators can be shared between threads. On the CPU, calls run side by side; on a GPU they take turns,
/// because a GPU has one stream of work. The result for a line depends neither on other lines nor on other
/// calls.
///
/// ```
/// use mae::{Device, TranslateOptions, Translator};
/// # let place = tempfile::tempdir().unwrap();
/// # let folder = place.path();
/// # let words = std::sync::Arc::new(mae::data::Vocab::from_counts([("guten", 1), ("morgen", 1)], Default::default()));
/// # let config = mae::model::ModelConfig { max_positions: 9, ..mae::model::ModelConfig::arch("transformer_tiny")? };
/// # let model = mae::model::Translator::new(&config, [words.len(); 2], Device::cpu().engine(), 1)?;
/// # mae::model::folder::ModelFolder { model, source: words.clone(), target: words, codes: None, text: Default::default() }.save(folder)?;
///
/// let translator = Translator::load(folder, &Device::cpu())?;
/// let found = translator.translate(&["guten morgen", ""], &TranslateOptions::default().nbest(3))?;
/// for hypothesis in found[0].nbest() {
///     println!("{} ({:.2} nats)", hypothesis.text, hypothesis.score);
/// }
/// assert_eq!(found[1].text(), "");
/// # Ok::<(), mae::Error>(())
/// ```
pub struct Translator {
    models: Models,
    device: Device,
    /// Caches of finished calls, for the next ones.
    caches: Mutex<Vec<SearchCaches>>,
}

impl Translator {
    /// Loads a model folder.
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Self::load_ensemble(&[path], device)
    }

    /// Loads several model folders with the same dictionaries; their probabilities are averaged at every step.
    pub fn load_ensemble<P: AsRef<Path>>(paths: &[P], device: &Device) -> Result<Self> {
        let _turn = device.turn();
        Ok(Self::new(Models::load(paths, device.engine())?, device))
    }

    /// Takes a model that is in memory and lives on `device`; `name` stands for its folder in messages.
    pub fn from_model(model: ModelFolder, name: &str, device: &Device) -> Result<Self> {
        Ok(Self::new(Models::from_folder(model, name)?, device))
    }

    fn new(models: Models, device: &Device) -> Self {
        Self { models, device: device.clone(), caches: Mutex::default() }
    }

    /// Reads a shortlist for this model: a file of `mae make-shortlist`, CTranslate2's `vmap.txt` or a lexical table of
    /// Marian. Its pairs with words that the model does not have are left out.
    pub fn read_shortlist(&self, path: impl AsRef<Path>) -> Result<Arc<Shortlist>> {
        let [source, target] = [Side::Source, Side::Target].map(|side| self.models.dictionary(side));
        Ok(Arc::new(Shortlist::load(path, source, target)?.0))
    }

    /// Translates lines, one result per line and in order. No line is dropped: one that is longer than the
    /// model's positions is cut, an empty one has an empty translation.
    pub fn translate<S: AsRef<str> + Sync>(
        &self,
        lines: &[S],
        options: &TranslateOptions,
    ) -> Result<Vec<Translation>> {
        self.run(lines, None, options, &mut |_| {})
    }

    /// Translates lines, each with a given beginning of its translation, which may be empty.
    pub fn translate_from<S: AsRef<str> + Sync, P: AsRef<str> + Sync>(
        &self,
        lines: &[S],
        prefixes: &[P],
        options: &TranslateOptions,
    ) -> Result<Vec<Translation>> {
        if prefixes.len() != lines.len() {
            return Err(Error::Lengths { what: "prefixes", found: prefixes.len(), wanted: lines.len() });
        }
        let (prefixes, _) = self.models.encode_prefixes(prefixes, options.form);
        self.run(lines, Some(prefixes), options, &mut |_| {})
    }

    /// Translates lines as [`Translator::translate`] does; `progress` gets the number of lines of each
    /// finished batch.
    pub fn translate_with_progress<S: AsRef<str> + Sync>(
        &self,
        lines: &[S],
        options: &TranslateOptions,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Translation>> {
        self.run(lines, None, options, progress)
    }

    fn run<S: AsRef<str> + Sync>(
        &self,
        lines: &[S],
        prefixes: Option<Vec<Vec<u32>>>,
        options: &TranslateOptions,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Translation>> {
        options.search.check()?;
        let mode = self.mode(options)?;
        self.models.check_experts(&mode)?;
        let group_options = GroupOptions { search: options.search.clone(), mode, gates: options.gates };
        let Fitted { sentences, counts } = self.models.encode(Side::Source, lines, options.form);
        let sources = sentences.into();
        let group = Group { sources: &sources, prefixes: prefixes.as_deref(), first: options.first_line };
        let _turn = self.device.turn();
        let mut pipeline = Pipeline::with_caches(&self.models.all(), options.limits, self.take_caches());
        let mut found = Vec::with_capacity(lines.len());
        let done = pipeline.translate(group, &group_options, progress, |i, translated| -> Result<()> {
            found.push(Translation::new(&self.models, options.form, counts[i], translated));
            Ok(())
        });
        self.caches().push(pipeline.into_caches());
        done.map(|()| found)
    }

    /// The mode of a pass with these options.
    pub(crate) fn mode(&self, options: &TranslateOptions) -> Result<ExpertMode> {
        match (&options.off[..], options.experts) {
            ([], experts) => Ok(experts.mode(options.search.seed)),
            (off, ExpertChoice::Mix) => {
                let named = |fault| mae_translate::Error::Experts { model: "the model".into(), fault };
                Ok(without(self.models.first(), off).map_err(named)?)
            }
            (_, experts) => {
                let fault =
                    format!("experts are switched off in mixtures only, not with experts = {experts}");
                Err(mae_translate::InvalidOptions(vec![fault]).into())
            }
        }
    }

    /// Scores given translations of lines, both in this form: the natural-log probabilities of their tokens, the end mark
    /// last.
    pub fn score<S: AsRef<str> + Sync, T: AsRef<str> + Sync>(
        &self,
        lines: &[S],
        translations: &[T],
        form: TextForm,
        experts: ExpertChoice,
    ) -> Result<Vec<Vec<f32>>> {
        if translations.len() != lines.len() {
            return Err(Error::Lengths {
                what: "translations",
                found: translations.len(),
                wanted: lines.len(),
            });
        }
        let mode = experts.mode(0);
        self.models.check_experts(&mode)?;
        let pairs = ParallelDataset {
            src: self.models.encode(Side::Source, lines, form).sentences.into(),
            tgt: self.models.encode(Side::Target, translations, form).sentences.into(),
            src_vocab: self.models.dictionary(Side::Source).clone(),
            tgt_vocab: self.models.dictionary(Side::Target).clone(),
        };
        let _turn = self.device.turn();
        let mut found = Vec::with_capacity(lines.len());
        let pipeline = Pipeline::new(&self.models.all(), Default::default());
        pipeline.score((&pairs, 0), &mode, &mut |_| {}, |_, log_probs| -> Result<()> {
            found.push(log_probs);
            Ok(())
        })?;
        Ok(found)
    }

    /// Languages of the text, and rules that plain lines go through before they are cut into pieces, as the model folder
    /// has them; both are empty in folders that do not tell them.
    pub fn text_record(&self) -> &TextRecord {
        self.models.record()
    }

    /// Sizes and choices of the first model.
    pub fn config(&self) -> &ModelConfig {
        self.models.first().config()
    }

    /// The device it computes on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The models with their dictionaries and codes.
    pub fn models(&self) -> &Models {
        &self.models
    }

    fn take_caches(&self) -> SearchCaches {
        self.caches().pop().unwrap_or_default()
    }

    fn caches(&self) -> std::sync::MutexGuard<'_, Vec<SearchCaches>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
