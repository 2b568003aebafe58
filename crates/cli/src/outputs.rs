//! Checks of output files, and closed pipes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use mae_model::folder::CONFIG;
use mae_train::artifacts;

use crate::exit::ExitCode;

/// Returns an error if the path cannot be a file. Called before the work, so that no work is lost.
pub fn check_place(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    ensure!(!path.is_dir(), "cannot write {}: it is a folder; name a file", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        ensure!(folder.is_dir(), "cannot write {}: there is no folder {}", path.display(), folder.display());
    }
    Ok(())
}

/// Returns an error if the folder of a flag cannot be a new model folder, or would take the place of one of `models` or of
/// something else.
pub fn check_model_place<P: AsRef<Path>>(flag: &str, out: &Path, models: &[P]) -> Result<()> {
    let name = format!("{flag} {}", out.display());
    if !out.exists() {
        return Ok(());
    }
    ensure!(!out.is_file(), "{name} is a file; a model is a folder");
    let is_itself = |model: &P| model.as_ref().canonicalize().ok() == out.canonicalize().ok();
    ensure!(!models.iter().any(is_itself), "{name} is a model that is read; name another folder");
    ensure!(
        !out.join(artifacts::STATE).exists(),
        "{name} is a checkpoint from which a run can continue; name another folder"
    );
    let is_empty = out.read_dir().with_context(|| name.clone())?.next().is_none();
    ensure!(
        is_empty || out.join(CONFIG).is_file(),
        "{name} is a folder with other files; name another folder"
    );
    Ok(())
}

/// Returns an error if two outputs are one file or an output is an input: one of them would be lost.
pub fn check_apart(outputs: &[&Path], inputs: &[&Path]) -> Result<()> {
    for (i, output) in outputs.iter().enumerate() {
        // Writing to a device or a pipe replaces nothing.
        if output.exists() && !output.is_file() {
            continue;
        }
        let is_same = |other: &&&Path| place(other) == place(output);
        ensure!(
            outputs[..i].iter().find(is_same).is_none(),
            "{} is named for two outputs; name a file for each",
            output.display()
        );
        ensure!(
            inputs.iter().find(is_same).is_none(),
            "{} is an input and would be overwritten; name another output",
            output.display()
        );
    }
    Ok(())
}

/// Absolute path of a file that may not exist yet.
fn place(path: &Path) -> PathBuf {
    let beside = || {
        let path = Path::new(".").join(path);
        Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(beside).unwrap_or_else(|| path.to_owned())
}

/// Turns the error of a closed pipe (`mae generate … | head`) into success.
pub fn unless_nobody_reads(done: Result<()>) -> Result<ExitCode> {
    let is_broken_pipe = |error: &anyhow::Error| {
        let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
        causes.any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    };
    match done {
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result.map(|()| ExitCode::SUCCESS),
    }
}
