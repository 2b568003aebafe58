//! Report of a preparation, to print and to store.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::lines::Issues;
use crate::moses::Tallies;
use crate::preprocess::PreprocessReport;

/// Report of a preparation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PrepareReport {
    /// Files that were read, in order, with their oddities.
    pub files: Vec<(PathBuf, Issues)>,
    /// Training pairs read.
    pub pairs: u64,
    /// Training pairs held out to validate on.
    pub held_out_valid: u64,
    /// Training pairs held out to test on.
    pub held_out_test: u64,
    /// Pairs dropped in cleaning, by split.
    pub cleaned: Vec<(String, Tallies)>,
    /// Binarised files of an earlier run that were removed, because dictionaries and codes are new.
    pub removed: Vec<String>,
    /// The binarised folder.
    pub binarised: PreprocessReport,
}

impl PrepareReport {
    /// Names files by their final places.
    pub(super) fn move_paths(&mut self, from: &Path, to: &Path) {
        let sides =
            self.binarised.splits.iter_mut().flat_map(|split| [Some(&mut split.src), split.tgt.as_mut()]);
        for side in sides.flatten() {
            if let Ok(rest) = side.path.strip_prefix(from) {
                side.path = to.join(rest);
            }
        }
    }
}

impl fmt::Display for PrepareReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, issues) in &self.files {
            write!(f, "read {}", path.display())?;
            if !issues.is_empty() {
                write!(f, "; {issues}")?;
            }
            writeln!(f)?;
        }
        write!(f, "training pairs read: {}", self.pairs)?;
        if self.held_out_valid + self.held_out_test > 0 {
            write!(f, "; held out: {} for valid, {} for test", self.held_out_valid, self.held_out_test)?;
        }
        for (split, tallies) in &self.cleaned {
            write!(f, "\n{split} after cleaning: {} of {} pairs", tallies.kept, tallies.pairs)?;
            for (reason, tally) in tallies.dropped().into_iter().filter(|(_, tally)| tally.count > 0) {
                write!(f, "; dropped, {reason}: {}", tally.count)?;
            }
        }
        write!(f, "\n{}", self.binarised)
    }
}
