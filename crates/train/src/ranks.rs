//! Ranks of a run: whether they may work together, and decisions that all must take alike.

use mae_data::{Corpus, Fingerprint};
use mae_engine::Device;
use mae_engine::collective::{Collective, Team};
use mae_model::{Config, provenance};
use serde::{Deserialize, Serialize};

use crate::checkpoint::TextSide;
use crate::{Error, Result, RunConfig, keys};

/// Samples of a training set whose tokens are compared, spread over all of it.
const SAMPLES: usize = 1024;

/// Everything in which the ranks of a run must agree.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    program: String,
    /// CPU or GPU.
    device: String,
    config: String,
    /// Training set, development set and dictionaries, with a fingerprint each.
    data: Vec<(String, u64)>,
}

impl Identity {
    /// Of this rank.
    pub(crate) fn new<C: Config>(
        config: &RunConfig<C>,
        device: &Device,
        train: &dyn Corpus,
        valid: Option<&dyn Corpus>,
        text: &TextSide,
    ) -> Self {
        let mut data = vec![("training set".to_owned(), fingerprint(train))];
        data.extend(valid.map(|valid| ("development set".to_owned(), fingerprint(valid))));
        for (name, dictionary) in &text.dictionaries {
            let words =
                (0..dictionary.len() as u32).flat_map(|id| dictionary.symbol(id).bytes().chain([b'\n']));
            data.push(((*name).to_owned(), Fingerprint::of(words).value()));
        }
        Self {
            program: provenance::program().to_owned(),
            device: if device.is_gpu() { "a GPU" } else { "the CPU" }.to_owned(),
            config: config.to_toml(),
            data,
        }
    }

    /// Compares the identities of all ranks with that of rank 0.
    pub(crate) fn check(&self, team: &Team) -> Result<()> {
        if team.place().is_alone() {
            return Ok(());
        }
        let own = serde_json::to_vec(self).expect("an identity can be written as JSON");
        let all = team.host().gather(&own)?;
        let read = |bytes: &Vec<u8>| serde_json::from_slice::<Self>(bytes).ok();
        let first = all.first().and_then(read);
        for (rank, bytes) in all.iter().enumerate().skip(1) {
            let faults = match (&first, read(bytes)) {
                (Some(first), Some(other)) => other.differences(first, rank),
                _ => vec!["it runs another version of the program".to_owned()],
            };
            if !faults.is_empty() {
                return Err(Error::Ranks { rank, faults });
            }
        }
        Ok(())
    }

    /// Faults of rank `rank`, which has this identity and not that of rank 0.
    fn differences(&self, first: &Self, rank: usize) -> Vec<String> {
        let mut faults = Vec::new();
        for (what, here, there) in
            [("it runs", &self.program, &first.program), ("it computes on", &self.device, &first.device)]
        {
            if here != there {
                faults.push(format!("{what} {here}, rank 0 {there}"));
            }
        }
        if let (Ok(here), Ok(there)) = (keys::parse(&self.config), keys::parse(&first.config)) {
            let differences = keys::differences(&here, &there);
            faults.extend(differences.into_iter().map(|keys::KeyDifference { key, there, here }| {
                format!("{key} is {there} on rank {rank} and {here} on rank 0")
            }));
        }
        for (name, value) in &self.data {
            if first.data.iter().find(|(other, _)| other == name).map(|(_, value)| value) != Some(value) {
                faults.push(format!("its {name} is another one"));
            }
        }
        if first.data.len() != self.data.len() {
            faults.push("it has more or fewer data sets".to_owned());
        }
        faults
    }
}

/// Hash of all lengths and of the tokens of some samples.
fn fingerprint(data: &dyn Corpus) -> u64 {
    let lengths = data.lengths();
    let step = lengths.len().div_ceil(SAMPLES).max(1);
    let some: Vec<u32> = (0..lengths.len() as u32).step_by(step).collect();
    let numbers = lengths.iter().flat_map(|&(source, target)| [source, target]);
    let tokens = some.chunks(64).flat_map(|ids| {
        let batch = data.pack(ids);
        batch.src.into_iter().chain(batch.tgt).collect::<Vec<u32>>()
    });
    Fingerprint::of(numbers.chain(tokens).flat_map(u32::to_le_bytes)).value()
}

/// Returns true on all ranks if it is true on any.
pub(crate) fn any(team: &Team, here: bool) -> Result<bool> {
    if team.place().is_alone() {
        return Ok(here);
    }
    Ok(team.host().gather(&[u8::from(here)])?.iter().any(|rank| rank.first() == Some(&1)))
}

/// Gives the bytes of rank 0 to all.
pub(crate) fn from_first(ranks: &dyn Collective, bytes: Vec<u8>) -> Result<Vec<u8>> {
    let own = if ranks.place().is_first() { bytes } else { Vec::new() };
    Ok(ranks.gather(&own)?.swap_remove(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            program: "mae 1".into(),
            device: "the CPU".into(),
            config: "[train]\nlr = 0.1\nseed = 1".into(),
            data: vec![("training set".into(), 7), ("dict.txt".into(), 8)],
        }
    }

    #[test]
    fn every_difference_is_named() {
        assert!(identity().differences(&identity(), 1).is_empty());
        let other = Identity {
            program: "mae 2".into(),
            device: "a GPU".into(),
            config: "[train]\nlr = 0.2\nseed = 1".into(),
            data: vec![("training set".into(), 9)],
        };
        let faults = [
            "it runs mae 2, rank 0 mae 1",
            "it computes on a GPU, rank 0 the CPU",
            "train.lr is 0.2 on rank 3 and 0.1 on rank 0",
            "its training set is another one",
            "it has more or fewer data sets",
        ];
        assert_eq!(other.differences(&identity(), 3), faults);
    }
}
