//! The one place that writes files and folders which must survive a crash or a power cut.
//!
//! | room | contents |
//! |---|---|
//! | `file` | [`AsideFile`]: a file that gets its name once it is complete and on the disk; [`GrowingFile`]: a log |
//! | `folder` | [`replace_folder`]: a folder that takes the place of another once it is complete and on the disk |
//! | `set` | files of one folder that change together |
//! | `lock` | [`FolderLock`]: a folder that one process at a time works in |
//! | `aside` | names of what is not complete yet, and removal of what ended processes left |
//! | `disk` | calls of the operating system |
//! | `faults`, `replay` | for tests (feature `faults`): operations that fail, and power cuts |
//!
//! Contents reach the disk before the name that leads to them does, and the name before anything older is
//! removed. So a reader finds the old version or the new one, whole, whenever the process or the machine stops.

mod aside;
mod disk;
#[cfg(feature = "faults")]
pub mod faults;
mod file;
mod folder;
mod lock;
#[cfg(feature = "faults")]
pub mod replay;
mod set;

use std::io::{self, Write};
use std::path::Path;

pub(crate) use file::TextFile;
pub use file::{AsideFile, GrowingFile};
pub use folder::{create_folder, previous_folder, recover_folder, remove_folder, rename, replace_folder};
pub use lock::{Claim, FolderLock};
pub(crate) use set::{FileSet, settle};

use crate::error::{Error, Result};

/// Writes a whole file: aside, to the disk, then under its name.
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    write_with(path.as_ref(), |out| out.write_all(bytes))
}

/// Writes a whole file like [`write()`]; `write` fills it.
pub fn write_with(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut file = AsideFile::create(path).map_err(Error::io("create", path))?;
    write(&mut file).and_then(|()| file.finish()).map_err(Error::io("write", path))
}

/// Removes files and folders that stopped runs left aside in a folder that belongs to this program: those of which
/// `ours` knows the final name.
pub fn sweep(folder: &Path, ours: impl Fn(&str) -> bool) -> Result<()> {
    aside::sweep_own(folder, ours)
}

/// The folder that a path lies in; a bare name lies in the current one.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
