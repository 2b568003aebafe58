//! The one place that writes files and folders which must survive a crash or a power cut.
//!
//! | room | contents |
//! |---|---|
//! | `file` | [`AsideFile`]: a file that gets its name once it is complete and on the disk |
//! | `folder` | [`replace_folder`]: a folder that takes the place of another once it is complete and on the disk |
//! | `lock` | [`FolderLock`]: a folder that one process at a time works in |
//!
//! Contents reach the disk before the name that leads to them does, and the name before anything older is
//! removed. So a reader finds the old version or the new one, whole, whenever the process or the machine stops.

mod file;
mod folder;
mod lock;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

pub use file::AsideFile;
pub(crate) use file::TextFile;
pub use folder::{create_folder, previous_folder, recover_folder, replace_folder};
pub use lock::{Claim, FolderLock};

use crate::error::{Error, Result};

/// Ending of files and folders that are not complete yet.
const ASIDE: &str = "tmp";

/// Writes a whole file: aside, to the disk, then under its name.
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    write_with(path.as_ref(), |out| out.write_all(bytes))
}

/// Writes a whole file like [`write()`]; `write` fills it.
pub fn write_with(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut file = AsideFile::create(path).map_err(Error::io("create", path))?;
    write(&mut file).and_then(|()| file.finish()).map_err(Error::io("write", path))
}

/// Removes files that stopped runs left aside in a folder: those of which `ours` knows the final name.
pub(crate) fn sweep(folder: &Path, ours: impl Fn(&str) -> bool) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let entry = entry.map_err(Error::io("list", folder))?;
        let path = entry.path();
        let is_ours = path.extension().is_some_and(|end| end == ASIDE)
            && path.file_stem().and_then(|name| name.to_str()).is_some_and(&ours);
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

/// The folder that a path lies in; a bare name lies in the current one.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// `name.ext` → `name.ext.tmp`, beside it.
fn aside(path: &Path) -> PathBuf {
    path.with_added_extension(ASIDE)
}

/// Brings the names in a folder to the disk. Some file systems cannot, and some folders may be written to but
/// not opened: then nothing more can be done.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let cannot = [ErrorKind::InvalidInput, ErrorKind::Unsupported, ErrorKind::PermissionDenied];
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if cannot.contains(&error.kind()) => Ok(()),
        result => result,
    }
}
