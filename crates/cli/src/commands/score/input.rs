//! Files of which line n of each belongs to line n of the others.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use mae_data::LineReader;

use crate::stream::{open, tell_issues_with};

/// Several files, read line by line.
pub struct SideBySide {
    readers: Vec<LineReader>,
}

impl SideBySide {
    /// Opens all of them; `-` is standard input, once.
    pub fn open<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> anyhow::Result<Self> {
        let paths: Vec<&PathBuf> = paths.collect();
        ensure!(
            paths.iter().filter(|path| is_stdin(path)).count() <= 1,
            "standard input (`-`) can be one file only"
        );
        let readers = paths.into_iter().map(|path| open(path, false)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { readers })
    }

    /// The next line of each file; none after the last. That some end before others is an error.
    pub fn next(&mut self) -> anyhow::Result<Option<Vec<String>>> {
        let lines = self.readers.iter_mut().map(|reader| reader.next().transpose());
        let lines = lines.collect::<Result<Vec<Option<String>>, _>>()?;
        let ended = lines.iter().filter(|line| line.is_none()).count();
        if ended == self.readers.len() {
            self.tell_oddities();
            return Ok(None);
        }
        if ended > 0 {
            return Err(mismatch(&mut self.readers)?);
        }
        Ok(Some(lines.into_iter().flatten().collect()))
    }

    /// Says what was dropped from the files: other programs may score it.
    fn tell_oddities(&self) {
        for reader in &self.readers {
            let note = match reader.issues().bom.count {
                0 => "",
                _ => "; sacreBLEU keeps a byte-order mark as part of the first word",
            };
            tell_issues_with(reader, note);
        }
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The complaint that some files continue where others end, with the counts of all.
fn mismatch(readers: &mut [LineReader]) -> anyhow::Result<anyhow::Error> {
    let mut counts = Vec::new();
    for reader in readers {
        while reader.next_line()?.is_some() {}
        counts.push(format!("{} has {}", reader.path().display(), reader.lines_read()));
    }
    let counts = counts.join(", ");
    Ok(anyhow::anyhow!(
        "the files do not have the same number of lines: {counts}; line n of each must belong together"
    ))
}
