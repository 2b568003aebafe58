//! Files of which line n of each belongs to line n of the others.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use mae_data::LineReader;
use mae_eval::bleu::TokenisedPeriods;

use crate::stream::{open, tell_issues_with};

/// Several files, read line by line.
pub struct SideBySide {
    readers: Vec<LineReader>,
    /// Fields of each line of the last file, with tabs between them.
    fields: usize,
}

/// Counts, for each system, of lines that look tokenised.
pub struct Periods {
    names: Vec<String>,
    counts: Vec<TokenisedPeriods>,
}

impl Periods {
    /// Counts for these systems, or for none of them.
    pub fn new(systems: &[PathBuf], wanted: bool) -> Self {
        let names: Vec<_> =
            systems.iter().filter(|_| wanted).map(|path| path.display().to_string()).collect();
        let counts = vec![TokenisedPeriods::default(); names.len()];
        Self { names, counts }
    }

    /// Counts the lines of all systems.
    pub fn add(&mut self, lines: &[String]) {
        self.counts.iter_mut().zip(lines).for_each(|(count, line)| count.add(line));
    }

    /// Warns of those that look tokenised.
    pub fn tell(&self) {
        for (name, count) in self.names.iter().zip(&self.counts).filter(|(_, count)| count.looks_tokenised())
        {
            let (found, lines) = (count.found, count.lines);
            eprintln!(
                "mae: {found} of {lines} lines of {name} end in ` .`: they look tokenised, which changes the score. Join \
                 the tokens first (`mae detokenize`), or score tokens with --multi-bleu or --tok none; --force \
                 suppresses this message"
            );
        }
    }
}

impl SideBySide {
    /// Opens all of them; `-` is standard input, once.
    /// Lines of the last file are divided into `fields`.
    pub fn open<'a>(paths: impl Iterator<Item = &'a PathBuf>, fields: usize) -> anyhow::Result<Self> {
        let paths: Vec<&PathBuf> = paths.collect();
        ensure!(
            paths.iter().filter(|path| is_stdin(path)).count() <= 1,
            "standard input (`-`) can be one file only"
        );
        let readers = paths.into_iter().map(|path| open(path, false)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { readers, fields })
    }

    /// The next line of each file, that of the last one as its fields; none after the last. That some end before others is an error.
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
        let mut lines: Vec<String> = lines.into_iter().flatten().collect();
        if self.fields > 1 {
            let line = lines.pop().unwrap_or_default();
            let fields: Vec<&str> = line.splitn(self.fields, '\t').collect();
            if fields.len() != self.fields
                && let Some(reader) = self.readers.last()
            {
                let (path, number) = (reader.path().display(), reader.lines_read());
                let (found, wanted) = (fields.len(), self.fields);
                bail!("{path}, line {number}: {found} references with tabs between them, not {wanted}");
            }
            lines.extend(fields.into_iter().map(str::to_owned));
        }
        Ok(Some(lines))
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
