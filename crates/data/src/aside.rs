//! Files are written aside and renamed into place, so that nobody ever reads half of one.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Writes a whole file aside and renames it into place.
pub(crate) fn write_aside(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let aside = aside(path);
    let file = File::create(&aside).map_err(Error::io("create", &aside))?;
    let mut out = BufWriter::new(file);
    let written = write(&mut out).and_then(|()| out.flush());
    // What a full disk refused is not tried again.
    drop(out.into_parts());
    let written = written.map_err(Error::io("write", &aside));
    written.and_then(|()| fs::rename(&aside, path).map_err(Error::io("rename", &aside))).inspect_err(|_| {
        fs::remove_file(&aside).ok();
    })
}

/// Takes away what killed runs have left aside in a folder: files of which `ours` knows the name they would have had.
pub(crate) fn remove_leftovers(folder: &Path, ours: impl Fn(&str) -> bool) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let entry = entry.map_err(Error::io("list", folder))?;
        let name = entry.file_name();
        let left = name.to_str().and_then(|name| name.strip_suffix(".tmp")).is_some_and(&ours);
        if left && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            fs::remove_file(entry.path()).map_err(Error::io("remove", &entry.path()))?;
        }
    }
    Ok(())
}

/// `name.ext` → `name.ext.tmp`, beside it.
pub(crate) fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// A file of lines that is written aside; it goes away again if it is not finished.
pub(crate) struct TextFile {
    path: PathBuf,
    out: Option<BufWriter<File>>,
}

impl TextFile {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(aside(path)).map_err(Error::io("create", &aside(path)))?;
        Ok(Self { path: path.to_owned(), out: Some(BufWriter::new(file)) })
    }

    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        writeln!(out, "{line}").map_err(Error::io("write", &aside(&self.path)))
    }

    /// The bytes of another file, whole.
    pub(crate) fn copy(&mut self, from: &mut impl io::Read) -> io::Result<u64> {
        self.out.as_mut().map_or(Ok(0), |out| io::copy(from, out))
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        let aside = aside(&self.path);
        let flushed = self.out.as_mut().map_or(Ok(()), Write::flush).map_err(Error::io("write", &aside));
        flushed.and_then(|()| fs::rename(&aside, &self.path).map_err(Error::io("rename", &aside)))?;
        self.out = None;
        Ok(())
    }
}

impl Drop for TextFile {
    fn drop(&mut self) {
        if self.out.take().is_some() {
            fs::remove_file(aside(&self.path)).ok();
        }
    }
}
