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
    write(&mut out).and_then(|()| out.flush()).map_err(Error::io("write", &aside))?;
    drop(out);
    fs::rename(&aside, path).map_err(Error::io("rename", &aside))
}

/// `name.ext` → `name.ext.tmp`, beside it.
pub(crate) fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}
