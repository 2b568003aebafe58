//! A folder that one process at a time works in. The operating system releases a lock when its process ends,
//! however it ends, so none is ever left behind. On network file systems a lock may not be seen by other
//! machines, and where a file system has no locks at all the work goes on without one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::{create_folder, parent};
use crate::error::{Error, Result};

/// Name of the locked file in the folder.
const LOCK: &str = "lock";

/// A folder that is locked for this process as long as the value lives.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
    path: PathBuf,
    /// The folder, as messages name it.
    folder: PathBuf,
}

/// Answer to [`FolderLock::claim`].
#[derive(Debug)]
pub enum Claim {
    /// The folder is locked for this process now.
    Held(FolderLock),
    /// Another process holds the lock; its id, if it is known.
    Busy(Option<u32>),
}

/// Answer of the system.
enum Answer {
    Locked,
    Busy,
}

impl FolderLock {
    /// Locks a folder, which is made if it is missing, unless another process has locked it.
    pub fn claim(folder: &Path) -> Result<Claim> {
        claim(folder, &folder.join(LOCK))
    }

    /// Locks a folder, which is made if it is missing; an error if another process has locked it.
    pub fn take(folder: &Path) -> Result<Self> {
        taken(folder, Self::claim(folder)?)
    }

    /// Locks a folder that is replaced as a whole, by a file `name.lock` beside it; an error if another process has
    /// locked it. The folder need not exist.
    pub fn take_beside(folder: &Path) -> Result<Self> {
        let mut path = super::file::behind_links(folder);
        if path.file_name().is_none() {
            path = std::path::absolute(&path).unwrap_or(path);
        }
        taken(folder, claim(folder, &path.with_added_extension(LOCK))?)
    }

    /// Locks a folder, which is made if it is missing, as soon as no other process has it locked.
    pub fn wait(folder: &Path) -> Result<Self> {
        let path = folder.join(LOCK);
        loop {
            let file = open(&path)?;
            answer(file.lock().map_err(TryLockError::Error), &path)?;
            if let Some(lock) = sign(file, &path, folder)? {
                return Ok(lock);
            }
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fails if the folder was removed, or moved away, since it was locked.
    pub fn check(&self) -> Result<()> {
        match is_at(&self.file, &self.path) {
            Ok(true) => Ok(()),
            _ => Err(Error::FolderGone { folder: self.folder.clone() }),
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Others look at the name again after they got the lock. Elsewhere an open file cannot be removed.
        if cfg!(unix) && matches!(is_at(&self.file, &self.path), Ok(true)) {
            fs::remove_file(&self.path).ok();
        }
    }
}

fn claim(folder: &Path, path: &Path) -> Result<Claim> {
    loop {
        let mut file = open(path)?;
        match answer(file.try_lock(), path)? {
            Answer::Locked => {
                if let Some(lock) = sign(file, path, folder)? {
                    return Ok(Claim::Held(lock));
                }
            }
            Answer::Busy => {
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(Error::io("read", path))?;
                return Ok(Claim::Busy(text.trim().parse().ok()));
            }
        }
    }
}

fn taken(folder: &Path, claim: Claim) -> Result<FolderLock> {
    match claim {
        Claim::Held(lock) => Ok(lock),
        Claim::Busy(process) => Err(Error::Busy { folder: folder.to_owned(), process }),
    }
}

fn answer(locked: Result<(), TryLockError>, path: &Path) -> Result<Answer> {
    // ENOLCK, ENOSYS and EOPNOTSUPP of Linux.
    let no_locks = |error: &io::Error| {
        error.kind() == io::ErrorKind::Unsupported || matches!(error.raw_os_error(), Some(37 | 38 | 95))
    };
    match locked {
        Ok(()) => Ok(Answer::Locked),
        Err(TryLockError::WouldBlock) => Ok(Answer::Busy),
        Err(TryLockError::Error(error)) if no_locks(&error) => Ok(Answer::Locked),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
    }
}

/// Leaves the id of this process for others to read; `None` if the file was removed before it was locked.
fn sign(mut file: File, path: &Path, folder: &Path) -> Result<Option<FolderLock>> {
    if !is_at(&file, path).map_err(Error::io("lock", path))? {
        return Ok(None);
    }
    // Without it, others cannot name the process.
    file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).ok();
    Ok(Some(FolderLock { file, path: path.to_owned(), folder: folder.to_owned() }))
}

fn open(path: &Path) -> Result<File> {
    create_folder(parent(path)).map_err(|error| match error {
        // A lock beside a folder is named itself: the error is about another folder.
        Error::Io { source, .. } if path.file_name() != Some(LOCK.as_ref()) => {
            Error::io("create", path)(source)
        }
        other => other,
    })?;
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
    file.map_err(Error::io("lock", path))
}

/// Returns whether an open file still has this name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether an open file still has this name.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> io::Result<bool> {
    Ok(path.exists())
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
        let text = FolderLock::take(&folder).unwrap_err().to_string();
        assert!(text.contains("is in use") && text.contains(&std::process::id().to_string()), "{text}");
        drop(first);
        let third = FolderLock::wait(&folder).unwrap();
        assert!(matches!(FolderLock::claim(&folder).unwrap(), Claim::Busy(_)));
        drop(third);
        assert!(matches!(FolderLock::claim(&folder).unwrap(), Claim::Held(_)));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "no lock file stays");
    }

    #[test]
    fn many_at_once_take_turns() {
        let home = tempfile::tempdir().unwrap();
        let (folder, inside) = (home.path().join("run"), std::sync::atomic::AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _lock = FolderLock::wait(&folder).unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn a_folder_that_vanishes_is_noticed() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("run");
        let lock = FolderLock::take(&folder).unwrap();
        lock.check().unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(lock.check().unwrap_err().to_string().contains("removed"));
        // Nor does another that was made in its place count.
        let other = FolderLock::take(&folder).unwrap();
        assert!(lock.check().is_err());
        drop(lock);
        other.check().unwrap();
        // A folder that is replaced as a whole is locked beside it.
        let beside = FolderLock::take_beside(&home.path().join("new")).unwrap();
        assert!(home.path().join("new.lock").exists() && !home.path().join("new").exists());
        assert!(FolderLock::take_beside(&home.path().join("new")).is_err());
        drop(beside);
        assert!(!home.path().join("new.lock").exists());
    }
}
