//! Writing datasets.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{MAGIC, U16_VOCAB, VERSION, with_suffix};
use crate::error::{Error, Result};
use crate::files::AsideFile;

/// Writes a dataset, sentence by sentence. Nothing is visible under its name before [`DatasetWriter::finish`];
/// dropped before that, it removes what it has written.
#[derive(Debug)]
pub struct DatasetWriter {
    prefix: PathBuf,
    bin: AsideFile,
    wide: bool,
    vocab_size: usize,
    sizes: Vec<i32>,
}

impl DatasetWriter {
    /// Starts `PREFIX.bin` aside; ids are stored in 16 bits if the vocabulary has fewer than [`U16_VOCAB`] entries.
    pub fn create(prefix: impl AsRef<Path>, vocab_size: usize) -> Result<Self> {
        let prefix = prefix.as_ref().to_path_buf();
        let path = with_suffix(&prefix, ".bin");
        let bin = AsideFile::create(&path).map_err(Error::io("create", &path))?;
        Ok(Self { prefix, bin, wide: vocab_size >= U16_VOCAB, vocab_size, sizes: Vec::new() })
    }

    /// Appends one sentence.
    pub fn push(&mut self, ids: &[u32]) -> Result<()> {
        let path = with_suffix(&self.prefix, ".bin");
        if let Some(id) = ids.iter().find(|&&id| id as usize >= self.vocab_size) {
            let what = format!("id {id} is not below the vocabulary size {}", self.vocab_size);
            return Err(Error::dataset(&path, what));
        }
        let written = ids.iter().try_for_each(|&id| match self.wide {
            true => self.bin.write_all(&id.to_le_bytes()),
            false => self.bin.write_all(&(id as u16).to_le_bytes()),
        });
        written.map_err(Error::io("write", self.bin.writing()))?;
        let size = i32::try_from(ids.len());
        self.sizes
            .push(size.map_err(|_| Error::dataset(&path, "a sentence of over two thousand million tokens"))?);
        Ok(())
    }

    /// Number of sentences so far.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Returns whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Writes the index and renames both files into place.
    pub fn finish(mut self) -> Result<()> {
        let (bin, idx) = (with_suffix(&self.prefix, ".bin"), with_suffix(&self.prefix, ".idx"));
        self.bin.sync().map_err(Error::io("write", &bin))?;
        let mut index = AsideFile::create(&idx).map_err(Error::io("create", &idx))?;
        self.write_index(&mut index).and_then(|()| index.sync()).map_err(Error::io("write", &idx))?;
        // The index comes last: without it there is no dataset, and an old one never meets new ids.
        if idx.exists() {
            fs::remove_file(&idx).map_err(Error::io("replace", &idx))?;
        }
        self.bin.finish().map_err(Error::io("rename", &bin))?;
        index.finish().map_err(Error::io("rename", &idx))
    }

    fn write_index(&self, out: &mut impl Write) -> io::Result<()> {
        let code: u8 = if self.wide { 4 } else { 8 };
        let bytes: i64 = if self.wide { 4 } else { 2 };
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&[code])?;
        out.write_all(&(self.sizes.len() as u64).to_le_bytes())?;
        self.sizes.iter().try_for_each(|size| out.write_all(&size.to_le_bytes()))?;
        let mut start = 0_i64;
        for &size in &self.sizes {
            out.write_all(&start.to_le_bytes())?;
            start += i64::from(size) * bytes;
        }
        Ok(())
    }
}
