//! The folder of a quickstart: files of an earlier quickstart are replaced, other files are not.

use std::path::{Path, PathBuf};

use mae_data::files;
use mae_train::artifacts;

use crate::error::{Error, QuickstartFault, Result};

/// Name of the data in the records of quickstart's runs.
pub(super) const CORPUS: &str = "pairs of quickstart's corpus";

/// Refuses a folder with a text of one of these names that no quickstart wrote.
pub(super) fn check_texts(folder: &Path, texts: &[(PathBuf, String)]) -> Result<()> {
    let is_other = |(path, text): &&(PathBuf, String)| {
        path.exists() && std::fs::read(path).ok().as_deref() != Some(text.as_bytes())
    };
    let Some((other, _)) = texts.iter().find(is_other) else { return Ok(()) };
    let mut entries = std::fs::read_dir(folder).map_err(Error::io("look into", folder))?.flatten();
    if entries.any(|entry| is_quickstart(&entry.path())) {
        return Ok(());
    }
    Err(QuickstartFault::OtherText(other.clone()).into())
}

/// Removes the run of an earlier quickstart: quickstart trains afresh.
pub(super) fn forget_earlier_run(run: &Path) -> Result<()> {
    if !run.join(artifacts::LOG).exists() {
        return Ok(());
    }
    if !is_quickstart(run) {
        return Err(QuickstartFault::OtherRun(run.to_owned()).into());
    }
    Ok(files::remove_folder(run)?)
}

/// Returns whether a folder is a run of quickstart, by its record.
fn is_quickstart(run: &Path) -> bool {
    let record = std::fs::read_to_string(run.join(artifacts::RECORD)).unwrap_or_default();
    record.lines().any(|line| line.starts_with("# data: ") && line.contains(CORPUS))
}
