//! The log's writer.

use std::path::{Path, PathBuf};

use mae_data::files::{self, GrowingFile};
use serde::Deserialize;

use super::Event;
use crate::{Error, Result};

/// The number of updates that a line has, whatever its event.
#[derive(Deserialize)]
struct Number {
    num_updates: Option<u64>,
}

/// Appends events to a file, one JSON object per line.
pub struct JsonLog {
    path: PathBuf,
    file: GrowingFile,
}

impl JsonLog {
    /// Opens the log of a run that has made `updates` updates. Lines of later updates are dropped: the process that wrote
    /// them died before it could save, and the updates will be made again.
    pub fn open(path: &Path, updates: u64) -> Result<Self> {
        if path.exists() {
            let old = std::fs::read(path).map_err(Error::io(path))?;
            let mut kept = Vec::new();
            for line in old.split(|&byte| byte == b'\n') {
                // A line that a crash cut off or a disk damaged is not JSON and is dropped, too.
                let Ok(number) = serde_json::from_slice::<Number>(line) else { continue };
                if number.num_updates.is_none_or(|number| number <= updates) {
                    kept.extend_from_slice(line);
                    kept.push(b'\n');
                }
            }
            if kept != old {
                files::write(path, &kept)?;
            }
        }
        let file = GrowingFile::open(path).map_err(Error::io(path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Renames an older log to `log.1.jsonl` and so on, because updates are counted from 1 again.
    pub fn set_aside(path: &Path) -> Result<()> {
        let mut names = (1..).map(|n: u64| path.with_extension(format!("{n}.jsonl")));
        match names.find(|name| !name.exists()) {
            Some(name) if path.exists() => Ok(files::rename(path, &name)?),
            _ => Ok(()),
        }
    }

    /// Writes an event.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        let mut line = serde_json::to_string(event).expect("events can always be written as JSON");
        line.push('\n');
        self.file.append(line.as_bytes()).map_err(Error::io(&self.path))
    }

    /// Brings all lines to the disk.
    pub fn sync(&self) -> Result<()> {
        self.file.sync().map_err(Error::io(&self.path))
    }
}
