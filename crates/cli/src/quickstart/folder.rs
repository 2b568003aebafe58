//! The folder of a quickstart: what an earlier quickstart left there is replaced, what is somebody's own is not.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// What the records of quickstart's runs call their data.
pub const CORPUS: &str = "pairs of quickstart's corpus";

/// Refuses a folder with a text of one of these names that no quickstart wrote.
pub fn check_texts(folder: &Path, files: &[(PathBuf, String)]) -> Result<()> {
    let is_other = |(path, text): &&(PathBuf, String)| {
        path.exists() && std::fs::read(path).ok().as_deref() != Some(text.as_bytes())
    };
    let Some((other, _)) = files.iter().find(is_other) else { return Ok(()) };
    let entries = std::fs::read_dir(folder).with_context(|| format!("--dir {}", folder.display()))?;
    ensure!(
        entries.flatten().any(|entry| is_quickstart(&entry.path())),
        "{} is there already and no quickstart wrote it; choose another --dir, or move it away",
        other.display()
    );
    Ok(())
}

/// Quickstart trains afresh: a run of the same name that an earlier quickstart left is removed.
pub fn forget_earlier_run(run: &Path) -> Result<()> {
    if run.join("log.jsonl").exists() {
        ensure!(
            is_quickstart(run),
            "{} is there already and is no run of quickstart; choose another --dir, or move it away",
            run.display()
        );
        std::fs::remove_dir_all(run)
            .with_context(|| format!("removing the earlier run {}", run.display()))?;
    }
    Ok(())
}

/// Whether a folder is a run of quickstart, by its record.
fn is_quickstart(run: &Path) -> bool {
    let record = std::fs::read_to_string(run.join("run.toml")).unwrap_or_default();
    record.lines().any(|line| line.starts_with("# data: ") && line.contains(CORPUS))
}
