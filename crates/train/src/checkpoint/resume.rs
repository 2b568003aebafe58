//! Reading checkpoints back.

use std::path::{Path, PathBuf};

use mae_data::{Vocab, files};
use mae_engine::Params;
use mae_model::{Config, Model, folder, groups};
use safetensors::{Dtype, SafeTensors};

use super::format_1;
use super::state::{Resets, RunState, STATE_FORMAT, TextSide};
use crate::artifacts::{LAST, MOMENTS, STATE};
use crate::dictionaries::{mismatch, name_in_messages};
use crate::error::CheckpointFault;
use crate::keys::{self, KeyDifference};
use crate::learner::Learner;
use crate::{Error, Result};

/// Resumes from `checkpoint_last` of the folder `run`, if there is one: fills the learner and returns the state.
pub fn load_last<M: Model>(run: &Path, learner: &mut Learner<M>, resets: Resets) -> Result<Option<RunState>> {
    let Some(last) = find(run, LAST)? else { return Ok(None) };
    let config: M::Config = folder::load_config(&last)?;
    if config != *learner.model.config() {
        let fault = CheckpointFault::OtherModel(differences(&config, learner.model.config()));
        return Err(Error::Checkpoint { path: last.join(folder::CONFIG), fault });
    }
    folder::load_weights(&last.join(folder::WEIGHTS), learner.model.params_mut())?;
    let mut state = read_state(&last)?;
    if !resets.optimizer {
        load_moments(&last.join(MOMENTS), learner, state.format)?;
    }
    resets.apply(&mut state);
    learner.set_counters(state.counters);
    Ok(Some(state))
}

/// Returns the keys in which two models differ.
fn differences<C: Config>(there: &C, here: &C) -> Vec<KeyDifference> {
    let keys = |config: &C| {
        let model = toml::Value::try_from(config).expect("configurations are TOML");
        keys::flatten(&toml::Table::from_iter([("model".to_owned(), model)]))
    };
    keys::differences(&keys(there), &keys(here))
}

/// Returns the state of the run in a folder, from its `checkpoint_last`, if there is one.
pub fn state(run: &Path) -> Result<Option<RunState>> {
    find(run, LAST)?.map(|last| read_state(&last)).transpose()
}

fn read_state(last: &Path) -> Result<RunState> {
    let path = last.join(STATE);
    let json = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
    let fault = match serde_json::from_str::<RunState>(&json) {
        Ok(state) if (1..=STATE_FORMAT).contains(&state.format) => match state.fault() {
            None => return Ok(state),
            Some(fault) => CheckpointFault::DamagedState(fault),
        },
        Ok(state) => CheckpointFault::UnknownFormat { found: state.format, known: STATE_FORMAT },
        Err(error) => CheckpointFault::DamagedState(error.to_string()),
    };
    Err(Error::Checkpoint { path, fault })
}

/// Checks that a run resumes with the dictionaries that it was started with: ids would mean other words.
pub fn check_dictionaries(run: &Path, text: &TextSide) -> Result<()> {
    let Some(last) = find(run, LAST)? else { return Ok(()) };
    for (name, ours) in &text.dictionaries {
        if let Some(found) = mismatch(name_in_messages(name), &Vocab::load(last.join(name))?, ours) {
            return Err(Error::Checkpoint { path: last, fault: CheckpointFault::OtherDictionary(found) });
        }
    }
    Ok(())
}

fn load_moments<M: Model>(path: &Path, learner: &mut Learner<M>, format: u32) -> Result<()> {
    let fault = |fault: CheckpointFault| Error::Checkpoint { path: path.to_owned(), fault };
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let damaged = |e| fault(CheckpointFault::DamagedMoments(folder::not_whole(&e)));
    let file = SafeTensors::deserialize(&bytes).map_err(damaged)?;
    let read = |params: &Params, name: &str| {
        let missing = || fault(CheckpointFault::MissingMoments { name: name.to_owned() });
        let tensor = file.tensor(name).map_err(|_| missing())?;
        if tensor.dtype() != Dtype::F32 {
            return Err(fault(CheckpointFault::DamagedMoments(format!(
                "`{name}` does not hold 32-bit numbers"
            ))));
        }
        let values = folder::floats(tensor.data());
        let group = groups::ALL.iter().find(|(_, group)| name.split('.').next() == Some(group));
        match (format, group) {
            (1, Some((group, _))) => format_1::moved(params, *group, &values)
                .ok_or_else(|| fault(CheckpointFault::WrongSize { name: name.to_owned() })),
            _ => Ok(values),
        }
    };
    learner.remember(read, |name| fault(CheckpointFault::WrongSize { name }))
}

/// Path of the checkpoint `name`, if there is one; the previous one where a process stopped as it replaced it.
fn find(run: &Path, name: &str) -> Result<Option<PathBuf>> {
    let path = run.join(name);
    Ok(files::recover_folder(&path)?.then_some(path))
}
