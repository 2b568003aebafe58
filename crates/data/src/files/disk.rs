//! The calls of the operating system that change a disk. All other rooms of this module go through these, so that a
//! test can let any one of them fail (feature `faults`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

#[cfg(feature = "faults")]
use super::faults::{self, Operation};

/// Calls the hook of the tests; nothing in other builds.
macro_rules! announce {
    ($operation:ident $(, $path:expr)+) => {
        #[cfg(feature = "faults")]
        faults::announce(|| Operation::$operation($($path.to_owned()),+))?;
    };
}

/// Creates a file that must not exist yet; links are not followed.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    announce!(CreateFile, path);
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Opens a file to append to, which is created if it is missing.
pub(super) fn open_to_append(path: &Path) -> io::Result<File> {
    #[cfg(feature = "faults")]
    if !path.exists() {
        faults::announce(|| Operation::CreateFile(path.to_owned()))?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

/// Writes some of the bytes to the file at `path`.
pub(super) fn write(mut file: &File, path: &Path, bytes: &[u8]) -> io::Result<usize> {
    #[cfg(feature = "faults")]
    if let Err(error) = faults::announce(|| Operation::Write(path.to_owned(), bytes.to_owned())) {
        if faults::is_short(&error) {
            file.write_all(&bytes[..bytes.len() / 2])?;
        }
        return Err(error);
    }
    let _ = path;
    file.write(bytes)
}

/// Brings the contents of the file at `path` to the disk.
pub(super) fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    announce!(SyncFile, path);
    #[cfg(feature = "faults")]
    if faults::is_watched(path) {
        return Ok(());
    }
    let _ = path;
    file.sync_all()
}

/// Brings the names in a folder to the disk. Some file systems cannot, and some folders may be written to but
/// not opened: then nothing more can be done.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    announce!(SyncFolder, folder);
    #[cfg(feature = "faults")]
    if faults::is_watched(folder) {
        return Ok(());
    }
    if !cfg!(unix) {
        return Ok(());
    }
    let cannot = [ErrorKind::InvalidInput, ErrorKind::Unsupported, ErrorKind::PermissionDenied];
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if cannot.contains(&error.kind()) => Ok(()),
        result => result,
    }
}

/// Gives a file or folder another name.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    announce!(Rename, from, to);
    fs::rename(from, to)
}

/// Lets two folders exchange their names in one step; `false` where the system cannot.
pub(super) fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        announce!(Exchange, one, other);
        match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (one, other);
        Ok(false)
    }
}

/// Makes a folder that must not exist yet.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    announce!(CreateFolder, path);
    fs::create_dir(path)
}

/// Removes a file.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    announce!(Remove, path);
    fs::remove_file(path)
}

/// Removes an empty folder.
pub(super) fn remove_empty(path: &Path) -> io::Result<()> {
    announce!(Remove, path);
    fs::remove_dir(path)
}

/// Removes a folder with everything in it.
pub(super) fn remove_all(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => remove_all(&entry.path())?,
            false => remove_file(&entry.path())?,
        }
    }
    remove_empty(path)
}
