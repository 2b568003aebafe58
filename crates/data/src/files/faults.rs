//! Faults of the disk, for tests: an operation of a folder that fails or is cut short, a process that ends at it, or a
//! record of all of them. Each test has a folder of its own; other folders are not touched.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A change of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new, empty file.
    CreateFile(PathBuf),
    /// Bytes at the end of a file.
    Write(PathBuf, Vec<u8>),
    /// The contents of a file are on the disk.
    SyncFile(PathBuf),
    /// The names in a folder are on the disk.
    SyncFolder(PathBuf),
    /// Another name; what had that name is gone.
    Rename(PathBuf, PathBuf),
    /// Two folders exchange their names.
    Exchange(PathBuf, PathBuf),
    /// A new, empty folder.
    CreateFolder(PathBuf),
    /// A file or an empty folder is gone.
    Remove(PathBuf),
}

impl Operation {
    fn path(&self) -> &Path {
        match self {
            Self::CreateFile(path)
            | Self::Write(path, _)
            | Self::SyncFile(path)
            | Self::SyncFolder(path)
            | Self::Rename(path, _)
            | Self::Exchange(path, _)
            | Self::CreateFolder(path)
            | Self::Remove(path) => path,
        }
    }
}

/// Fault of an operation, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None; operations are recorded.
    None,
    /// The operation fails, as on a full disk.
    Fail(usize),
    /// The operation fails after half of its bytes.
    Short(usize),
    /// The process ends at the operation: neither it nor any after it has an effect.
    End(usize),
}

/// Faults of a folder, as long as the value lives.
pub struct Faults(PathBuf);

struct Watched {
    folder: PathBuf,
    fault: Fault,
    record: Vec<Operation>,
}

static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

fn watched() -> MutexGuard<'static, Vec<Watched>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Faults {
    /// Watches a folder.
    pub fn of(folder: &Path, fault: Fault) -> Self {
        watched().push(Watched { folder: folder.to_owned(), fault, record: Vec::new() });
        Self(folder.to_owned())
    }

    /// Operations so far; those that failed, and those after the end of the process, are counted but not listed.
    pub fn operations(&self) -> Vec<Operation> {
        let watched = watched();
        watched.iter().find(|watched| watched.folder == self.0).map_or_else(Vec::new, |w| w.record.clone())
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        watched().retain(|watched| watched.folder != self.0);
    }
}

/// Message of an operation that is cut short.
const SHORT: &str = "No space left on device (injected after half of the bytes)";

/// Returns whether an error is that of an operation that is cut short.
pub(super) fn is_short(error: &io::Error) -> bool {
    error.to_string() == SHORT
}

/// Returns whether a path is watched. What is synced there is recorded and need not reach a disk.
pub(super) fn is_watched(path: &Path) -> bool {
    watched().iter().any(|watched| path.starts_with(&watched.folder))
}

/// An operation is about to happen.
pub(super) fn announce(operation: impl FnOnce() -> Operation) -> io::Result<()> {
    let mut watched = watched();
    if watched.is_empty() {
        return Ok(());
    }
    let operation = operation();
    let Some(watched) = watched.iter_mut().find(|watched| operation.path().starts_with(&watched.folder))
    else {
        return Ok(());
    };
    let number = watched.record.len() + 1;
    let fails = |text: &str| Err(io::Error::new(ErrorKind::StorageFull, text.to_owned()));
    let result = match watched.fault {
        Fault::Fail(at) if at == number => fails("No space left on device (injected)"),
        Fault::Short(at) if at == number => fails(SHORT),
        // Nothing happens any more, so that the number stays.
        Fault::End(at) if at <= number => return fails("the process has ended (injected)"),
        _ => Ok(()),
    };
    watched.record.push(operation);
    result
}
