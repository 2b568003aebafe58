//! Files of others, mapped into memory: only the parts that are read take memory.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::{Error, Result};

/// A mapped file.
pub(crate) struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

impl MappedFile {
    #[expect(unsafe_code, reason = "memory maps")]
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(Error::format(path, "not a file"));
        }
        // SAFETY: the map is read-only. Nothing in this crate writes to files of others; somebody who cuts off the file
        // while it is in use gets a bus error, as with every memory-mapped format.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Self { path: path.to_owned(), map })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An error about this file.
    pub(crate) fn fault(&self, what: impl Into<String>) -> Error {
        Error::format(&self.path, what)
    }
}

/// Largest text file (configuration, vocabulary) that is read.
const LARGEST_TEXT: u64 = 1 << 28;

/// Reads a text file of bounded size.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(io)?.len();
    if size > LARGEST_TEXT {
        return Err(Error::format(path, format!("{size} bytes are too many for a text file")));
    }
    let bytes = std::fs::read(path).map_err(io)?;
    String::from_utf8(bytes).map_err(|_| Error::format(path, "not UTF-8"))
}
