//! Where results go: files, and whoever reads the standard output.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};

/// An error where a file cannot be written because of its path: told before the work that leads to it, and not after.
pub fn check_place(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    ensure!(!path.is_dir(), "cannot write {}: it is a folder; name a file", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        ensure!(folder.is_dir(), "cannot write {}: there is no folder {}", path.display(), folder.display());
    }
    Ok(())
}

/// Whoever reads our output may have seen enough (`mae generate … | head`): no fault.
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
