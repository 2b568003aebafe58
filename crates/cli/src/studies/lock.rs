//! A run is worked on by one process at a time. The operating system gives a lock back when its process ends, however it
//! ends, so none is ever left behind.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// Held as long as it lives.
pub struct Lock {
    _file: File,
}

/// What came of asking.
pub enum Asked {
    /// The run is ours.
    Ours(Lock),
    /// Another process has it; its number, if it says.
    Busy(Option<u32>),
}

/// Asks for the run in `folder`, which is made if need be.
pub fn ask(folder: &Path) -> Result<Asked> {
    let (path, mut file) = open(folder)?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).context(path)?;
            Ok(Asked::Ours(Lock { _file: file }))
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            file.read_to_string(&mut text).context(path)?;
            Ok(Asked::Busy(text.trim().parse().ok()))
        }
        Err(TryLockError::Error(error)) => Err(error).context(path),
    }
}

/// Waits for the folder.
pub fn wait(folder: &Path) -> Result<Lock> {
    let (path, file) = open(folder)?;
    file.lock().context(path)?;
    Ok(Lock { _file: file })
}

fn open(folder: &Path) -> Result<(String, File)> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let path = folder.join("lock");
    let text = format!("cannot lock {}", path.display());
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    Ok((text.clone(), file.context(text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = ask(folder.path()).unwrap();
        assert!(matches!(first, Asked::Ours(_)));
        assert!(matches!(ask(folder.path()).unwrap(), Asked::Busy(Some(id)) if id == std::process::id()));
        drop(first);
        assert!(matches!(ask(folder.path()).unwrap(), Asked::Ours(_)));
    }
}
