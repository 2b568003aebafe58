//! Files that are written aside and renamed into place, so that nobody ever reads half of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{aside, disk, parent};
use crate::error::{Error, Result};

/// Bytes that are collected for one write.
const BUFFER: usize = 1 << 16;

/// A file that is written aside and gets its name when it is finished; without [`AsideFile::finish`] it is
/// removed. Where the name is a link, the file that it leads to is replaced, which keeps its permissions; a device
/// or a pipe is written to directly.
#[derive(Debug)]
pub struct AsideFile {
    /// Path of the open file.
    writing: PathBuf,
    /// Its name at the end; `None` where it has that already.
    name: Option<PathBuf>,
    /// `None` once it is finished.
    out: Option<BufWriter<OpenFile>>,
}

impl AsideFile {
    /// Creates the file aside.
    pub fn create(path: &Path) -> io::Result<Self> {
        let path = behind_links(path);
        let found = fs::metadata(&path).ok();
        let is_stream = found.as_ref().is_some_and(|found| !found.is_file() && !found.is_dir());
        let (writing, file, name) = if is_stream {
            let file = OpenOptions::new().write(true).open(&path)?;
            (path, file, None)
        } else {
            if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
                aside::sweep(parent(&path), |left| left == name)?;
            }
            let (aside, file) = aside::create(&path, aside::NEW, disk::create_file)?;
            aside::hold(&file);
            if let Some(found) = found {
                // Some file systems have no permissions.
                file.set_permissions(found.permissions()).ok();
            }
            (aside, file, Some(path))
        };
        let out = OpenFile { file, path: writing.clone() };
        Ok(Self { writing, name, out: Some(BufWriter::with_capacity(BUFFER, out)) })
    }

    /// Path that is written to, for messages: the final one.
    pub fn writing(&self) -> &Path {
        self.name.as_deref().unwrap_or(&self.writing)
    }

    /// Brings everything written so far to the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        // Streams have no disk.
        if self.name.is_none() {
            return Ok(());
        }
        let OpenFile { file, path } = self.out().get_ref();
        disk::sync_file(file, path)
    }

    /// Brings the file to the disk and gives it its name.
    pub fn finish(mut self) -> io::Result<()> {
        // A folder that is not complete is synced with all its files before it gets its name.
        let with_folder = self.name.as_deref().is_some_and(aside::is_inside);
        if with_folder {
            self.flush()?
        } else {
            self.sync()?
        }
        self.out = None;
        let Some(name) = &self.name else { return Ok(()) };
        disk::rename(&self.writing, name)?;
        let folder = parent(name).to_owned();
        self.name = None;
        if with_folder { Ok(()) } else { disk::sync_folder(&folder) }
    }

    fn out(&mut self) -> &mut BufWriter<OpenFile> {
        self.out.as_mut().expect("a file is open until it is finished")
    }
}

impl Write for AsideFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out().flush()
    }
}

impl Drop for AsideFile {
    fn drop(&mut self) {
        // Bytes that a full disk refused are not tried again.
        self.out.take().map(BufWriter::into_parts);
        if self.name.is_some() {
            disk::remove_file(&self.writing).ok();
        }
    }
}

/// A file that grows line by line, such as a log. Each line is handed to the system at once.
#[derive(Debug)]
pub struct GrowingFile(OpenFile);

impl GrowingFile {
    /// Opens a file to append to, which is created if it is missing.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenFile { file: disk::open_to_append(path)?, path: path.to_owned() }))
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Brings everything written so far to the disk.
    pub fn sync(&self) -> io::Result<()> {
        disk::sync_file(&self.0.file, &self.0.path)
    }
}

/// An open file with its path.
#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
}

impl Write for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        disk::write(&self.file, &self.path, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file that a name leads to.
pub(super) fn behind_links(path: &Path) -> PathBuf {
    if !path.is_symlink() {
        return path.to_owned();
    }
    let to_nothing = || fs::read_link(path).map(|to| path.parent().unwrap_or(Path::new("")).join(to));
    fs::canonicalize(path).or_else(|_| to_nothing()).unwrap_or_else(|_| path.to_owned())
}

/// A file of lines that is written aside; it is removed if it is not finished.
pub(crate) struct TextFile {
    path: PathBuf,
    file: AsideFile,
}

impl TextFile {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = AsideFile::create(path).map_err(Error::io("create", path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.file, "{line}").map_err(Error::io("write", self.file.writing()))
    }

    /// Appends all bytes of another file.
    pub(crate) fn copy(&mut self, from: &mut impl io::Read) -> io::Result<u64> {
        io::copy(from, &mut self.file)
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.file.finish().map_err(Error::io("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn links_stay_and_streams_are_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("real"), "old").unwrap();
        std::os::unix::fs::symlink("real", at("link")).unwrap();
        std::os::unix::fs::symlink("later", at("dangling")).unwrap();
        for name in ["link", "dangling", "new"] {
            super::super::write(at(name), name.as_bytes()).unwrap();
        }
        assert!(at("link").is_symlink() && at("dangling").is_symlink());
        for (name, text) in [("real", "link"), ("later", "dangling"), ("new", "new")] {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), text);
        }
        // A link to a device, so that a mistake here cannot cost the device.
        std::os::unix::fs::symlink("/dev/null", at("null")).unwrap();
        let mut file = AsideFile::create(&at("null")).unwrap();
        assert_eq!(file.writing(), Path::new("/dev/null"));
        file.write_all(b"gone").unwrap();
        file.finish().unwrap();
        assert!(at("null").is_symlink());
        // A file that is not finished is removed.
        AsideFile::create(&at("half")).unwrap().write_all(b"half").unwrap();
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["dangling", "later", "link", "new", "null", "real"]);
    }

    /// Version 0.1 wrote over `X.tmp`, followed a link of that name, and gave X new permissions.
    #[test]
    #[cfg(unix)]
    fn files_of_users_are_not_written_over_and_permissions_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, text) in [("x", "old"), ("precious", "theirs")] {
            fs::write(at(name), text).unwrap();
        }
        std::os::unix::fs::symlink("precious", at("x.tmp")).unwrap();
        fs::set_permissions(at("x"), fs::Permissions::from_mode(0o600)).unwrap();
        super::super::write(at("x"), b"new").unwrap();
        assert_eq!(fs::read_to_string(at("x")).unwrap(), "new");
        assert_eq!(fs::metadata(at("x")).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(at("x.tmp").is_symlink());
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "theirs");
    }
}
