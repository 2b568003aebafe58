//! Start or resumption of a run, and the parts of its state that no longer hold.

use std::borrow::Cow;
use std::path::PathBuf;

use mae_data::Fingerprint;
use mae_model::{Config, Model, init};

use super::Trainer;
use crate::checkpoint::{self, RunState};
use crate::config::{GateInit, TrainConfig};
use crate::error::CheckpointFault;
use crate::kept::KeptKind;
use crate::log::{Event, JsonLog};
use crate::ranks::Identity;
use crate::tensorboard::TensorBoard;
use crate::{Error, Result, artifacts, finetune, kept, ranks};

/// Keys of `[train]` that decide what a validation measures: scores from before and after a change do not compare.
const OF_SCORES: [&str; 5] =
    ["tokens_per_sample", "sample_break_mode", "label_smoothing", "best_checkpoint_metric", "eval_bleu_beam"];
/// Keys of `[train]` that decide which batches an epoch has.
const OF_BATCHES: [&str; 9] = [
    "tokens_per_sample",
    "sample_break_mode",
    "max_tokens",
    "max_sentences",
    "batching",
    "required_batch_size_multiple",
    "subset",
    "bpe_dropout",
    "seed",
];

/// The key of a line of `[train]`.
fn key_of(line: &str) -> &str {
    line.split_once(" =").map_or(line, |(key, _)| key)
}

/// Returns whether a line of `[train]` is about one of these keys.
fn is_of(line: &str, keys: &[&str]) -> bool {
    line.split_once(" =").is_some_and(|(key, _)| keys.contains(&key))
}

/// A run that may begin or resume.
pub(super) struct Beginning {
    /// Its state, from its last checkpoint or a fresh one.
    pub(super) state: RunState,
    /// Events to report.
    pub(super) events: Vec<Event>,
    /// Kept checkpoints whose numbers will come again.
    pub(super) outdated: Vec<KeptKind>,
}

impl<M: Model> Trainer<'_, M> {
    /// Loads what the run begins with and checks it. Nothing is written. Rank 0 loads, and gives it to the others.
    pub(super) fn begin(&mut self) -> Result<Beginning> {
        let team = self.learner.team().clone();
        if team.place().is_alone() {
            return self.load();
        }
        let device = self.learner.model.params().device();
        Identity::new(&self.config, device, self.train, self.valid, &self.text).check(&team)?;
        let loaded = if team.place().is_first() { Some(self.load()?) } else { None };
        let own = loaded.as_ref().map(|loaded| serde_json::to_vec(&loaded.state));
        let own = own.transpose().expect("a state can always be written as JSON").unwrap_or_default();
        let state = ranks::from_first(team.host(), own)?;
        self.learner.share()?;
        if let Some(loaded) = loaded {
            return Ok(loaded);
        }
        let fault = |error: serde_json::Error| CheckpointFault::DamagedState(error.to_string());
        let state: RunState = serde_json::from_slice(&state)
            .map_err(|error| Error::Checkpoint { path: self.folder.clone(), fault: fault(error) })?;
        self.learner.set_counters(state.counters);
        Ok(Beginning { state, events: Vec::new(), outdated: Vec::new() })
    }

    fn load(&mut self) -> Result<Beginning> {
        let train = toml::to_string(&self.config.train).expect("configurations can be written as TOML");
        checkpoint::check_dictionaries(&self.folder, &self.text)?;
        let Some(mut state) = checkpoint::load_last(&self.folder, &mut self.learner, self.resets)? else {
            let from = PathBuf::from(&self.config.train.finetune_from_model);
            let mut events = Vec::new();
            if self.config.train.gate_init == GateInit::Zero {
                let system = self.config.model.mixture().system;
                init::make_neutral(self.learner.model.params_mut(), system)?;
            }
            if !from.as_os_str().is_empty() {
                let gates = finetune::load(&from, &mut self.learner.model, &self.text)?;
                events.push(Event::Finetuned { from, new_gates: gates == finetune::Gates::Uniform });
            }
            let (development, training) = (self.development(), Some(self.training()));
            let state = RunState { epoch: 1, train, development, training, ..RunState::default() };
            return Ok(Beginning { state, events, outdated: Vec::new() });
        };
        let update_freq = update_freq_in(&state.train).unwrap_or(self.config.train.update_freq as u64);
        state.batches = state.batches.or(Some(state.position * update_freq));
        let before = std::mem::replace(&mut state.train, train);
        // Keys that the version before did not know had the value that is the default now.
        let defaults =
            toml::to_string(&TrainConfig::default()).expect("configurations can be written as TOML");
        let is_new = |line: &&str| !before.lines().any(|known| key_of(known) == key_of(line));
        let known: Vec<&str> = before.lines().chain(defaults.lines().filter(is_new)).collect();
        let changed = state.train.lines().filter(|line| !known.contains(line)).map(str::to_owned);
        let lines: Vec<String> = changed.collect();
        let mut what: Vec<Cow<'static, str>> = self.resets.names().into_iter().map(Cow::Borrowed).collect();
        let measured = std::mem::replace(&mut state.development, self.development());
        let other_set = measured.is_some() && measured != state.development;
        let mut forgets_best = self.resets.meters || self.resets.optimizer;
        if state.best.is_some() && (other_set || lines.iter().any(|line| is_of(line, &OF_SCORES))) {
            (state.best, state.stale, forgets_best) = (None, 0, true);
            what.push("best score, which was measured otherwise".into());
        }
        let trained_on = state.training.replace(self.training());
        if trained_on.is_some() && trained_on != state.training {
            what.push(
                "training set: this one is another, and what is left of the epoch comes from it".into(),
            );
        }
        if state.batches != Some(0) && lines.iter().any(|line| is_of(line, &OF_BATCHES)) {
            what.push(
                "exact place in the epoch: batches are cut otherwise, and some of its data come twice or not at all"
                    .into(),
            );
        }
        // Checkpoints whose numbers will come again must not be taken for newer or better ones.
        let kinds = [
            (self.resets.dataloader, KeptKind::Epochs),
            (self.resets.optimizer, KeptKind::Updates),
            (forgets_best, KeptKind::Best),
        ];
        let outdated = kinds.into_iter().filter_map(|(begins_anew, kind)| begins_anew.then_some(kind));
        let events = [
            (!lines.is_empty()).then_some(Event::Changed { lines }),
            (!what.is_empty()).then_some(Event::Reset { what }),
        ];
        Ok(Beginning { state, events: events.into_iter().flatten().collect(), outdated: outdated.collect() })
    }

    /// Makes the folder ready for updates, and opens the log and TensorBoard's files.
    pub(super) fn open(
        &self,
        outdated: &[KeptKind],
        state: &RunState,
    ) -> Result<(JsonLog, Option<TensorBoard>)> {
        mae_data::files::create_folder(&self.folder)?;
        let (path, updates) = (self.folder.join(artifacts::LOG), state.counters.updates);
        if self.resets.optimizer {
            JsonLog::set_aside(&path)?;
        }
        let log = JsonLog::open(&path, updates)?;
        outdated.iter().try_for_each(|kind| kept::set_aside(&self.folder, *kind))?;
        if let Some(record) = &self.record {
            record.write(&self.folder, updates)?;
        }
        let folder = self.tensorboard.as_deref();
        Ok((log, folder.map(|folder| TensorBoard::open(folder, updates)).transpose()?))
    }

    /// Sentences, target tokens and lengths of the training set: others are another set.
    fn training(&self) -> [u64; 3] {
        let lengths = self.train.lengths();
        let bytes = lengths.iter().flat_map(|&(source, target)| [source, target]).flat_map(u32::to_le_bytes);
        let fingerprint = Fingerprint::of(bytes).value();
        [lengths.len() as u64, lengths.iter().map(|&(_, target)| u64::from(target)).sum(), fingerprint]
    }

    /// Sentences and target tokens of the development set: another size is another set.
    fn development(&self) -> Option<[u64; 2]> {
        let lengths = self.valid?.lengths();
        Some([lengths.len() as u64, lengths.iter().map(|&(_, target)| u64::from(target)).sum()])
    }
}

/// Batches per update, as a record of `[train]` has them.
fn update_freq_in(record: &str) -> Option<u64> {
    record.parse::<toml::Table>().ok()?.get("update_freq")?.as_integer()?.try_into().ok()
}
