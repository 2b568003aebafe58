//! Files that results go to.

use std::path::Path;

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
