//! A folder that one process at a time works in. The operating system releases a lock when its process ends,
//! however it ends, so none is ever left behind. On network file systems a lock may not be seen by other
//! machines.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::create_folder;
use crate::error::{Error, Result};

/// Name of the locked file in the folder.
const LOCK: &str = "lock";

/// A folder that is locked for this process as long as the value lives.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

/// Answer to [`FolderLock::claim`].
#[derive(Debug)]
pub enum Claim {
    /// The folder is locked for this process now.
    Held(FolderLock),
    /// Another process holds the lock; its id, if it is known.
    Busy(Option<u32>),
}

impl FolderLock {
    /// Locks a folder, which is made if it is missing, unless another process has locked it.
    pub fn claim(folder: &Path) -> Result<Claim> {
        let (path, mut file) = open(folder)?;
        match file.try_lock() {
            Ok(()) => Ok(Claim::Held(Self::sign(file, &path)?)),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(Error::io("read", &path))?;
                Ok(Claim::Busy(text.trim().parse().ok()))
            }
            Err(TryLockError::Error(error)) => Err(Error::io("lock", &path)(error)),
        }
    }

    /// Locks a folder, which is made if it is missing, as soon as no other process has it locked.
    pub fn wait(folder: &Path) -> Result<Self> {
        let (path, file) = open(folder)?;
        file.lock().map_err(Error::io("lock", &path))?;
        Self::sign(file, &path)
    }

    /// Leaves the id of this process for others to read.
    fn sign(mut file: File, path: &Path) -> Result<Self> {
        file.set_len(0)
            .and_then(|()| write!(file, "{}", std::process::id()))
            .map_err(Error::io("write", path))?;
        Ok(Self { _file: file })
    }
}

fn open(folder: &Path) -> Result<(PathBuf, File)> {
    create_folder(folder)?;
    let path = folder.join(LOCK);
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let file = file.map_err(Error::io("lock", &path))?;
    Ok((path, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("run");
        let first = FolderLock::claim(&folder).unwrap();
        assert!(matches!(first, Claim::Held(_)));
        let second = FolderLock::claim(&folder).unwrap();
        assert!(matches!(second, Claim::Busy(Some(id)) if id == std::process::id()));
        drop(first);
        let third = FolderLock::wait(&folder).unwrap();
        assert!(matches!(FolderLock::claim(&folder).unwrap(), Claim::Busy(_)));
        drop(third);
        assert!(matches!(FolderLock::claim(&folder).unwrap(), Claim::Held(_)));
    }
}
