//! Text lines from plain, `.gz` and `.zst` files, streamed; repairs are counted.
//!
//! Lines end at `\n` and nowhere else, as for `wc -l`: Unicode line separators and form feeds inside a line
//! stay text, so that line n of the source still pairs with line n of the target.

use std::fmt;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::decompress;
use crate::error::{Error, Result};

/// Longest line in bytes. A longer one is not text, and would fill the memory.
pub const MAX_LINE_BYTES: usize = 1 << 28;

const EXAMPLES: usize = 5;
/// A chunk of lines ends when it holds this much.
const CHUNK_BYTES: usize = 1 << 25;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Policy for lines that are not UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadUtf8 {
    /// Stop with an error that names file, line and byte.
    #[default]
    Error,
    /// Put U+FFFD in place of the bad bytes and count the line.
    Replace,
}

/// Number of lines with some property, and the first few of their line numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Lines in all.
    pub count: u64,
    /// The first few line numbers, from 1.
    pub examples: Vec<u64>,
}

impl Tally {
    /// Counts one more, seen at `line`.
    pub fn add(&mut self, line: u64) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(line);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        if let Some((first, rest)) = self.examples.split_first() {
            write!(f, " (line {first}")?;
            rest.iter().try_for_each(|n| write!(f, ", {n}"))?;
            write!(f, "{})", if self.count > self.examples.len() as u64 { ", …" } else { "" })?;
        }
        Ok(())
    }
}

/// Oddities of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Issues {
    /// Lines that ended in `\r\n`; the `\r` was dropped.
    pub crlf: Tally,
    /// A byte-order mark at the start; it was dropped.
    pub bom: Tally,
    /// Lines with invalid UTF-8, replaced by U+FFFD.
    pub bad_utf8: Tally,
    /// Lines with NUL characters; kept as they are.
    pub nul: Tally,
    /// The last line lacked its `\n` (it was read all the same).
    pub no_final_newline: bool,
}

impl Issues {
    /// Returns whether there are none worth mentioning (a missing last `\n` alone is not).
    pub fn is_empty(&self) -> bool {
        [&self.crlf, &self.bom, &self.bad_utf8, &self.nul].iter().all(|t| t.count == 0)
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            ("carriage returns dropped", &self.crlf),
            ("byte-order mark dropped", &self.bom),
            ("invalid UTF-8 replaced", &self.bad_utf8),
            ("NUL characters kept", &self.nul),
        ];
        let mut sep = "";
        for (name, tally) in named.into_iter().filter(|(_, t)| t.count > 0) {
            write!(f, "{sep}{name}: {tally}")?;
            sep = "; ";
        }
        Ok(())
    }
}

/// Lines and oddities of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineReport {
    /// The file.
    pub path: PathBuf,
    /// Lines read.
    pub lines: u64,
    /// Oddities of the file.
    pub issues: Issues,
}

/// Finds the text `{prefix}.{lang}`, or `{prefix}` where the language is empty: plain, or compressed with `.gz`
/// or `.zst` after its name.
pub fn find_text(prefix: &str, lang: &str) -> Result<PathBuf> {
    let name = if lang.is_empty() { prefix.to_owned() } else { format!("{prefix}.{lang}") };
    let mut paths = ["", ".gz", ".zst"].iter().map(|end| PathBuf::from(format!("{name}{end}")));
    paths.find(|path| path.exists()).ok_or(Error::NoText { name })
}

/// Reads a file line by line into one buffer: memory does not grow with the file.
///
/// [`LineReader::next_line`] lends each line out; as an [`Iterator`] the reader yields owned lines.
pub struct LineReader {
    path: PathBuf,
    source: Box<dyn BufRead + Send>,
    policy: BadUtf8,
    line: String,
    lines: u64,
    issues: Issues,
}

impl LineReader {
    /// Opens a plain, gzip or zstd file (its first bytes tell which).
    pub fn open(path: impl AsRef<Path>, policy: BadUtf8) -> Result<Self> {
        let path = path.as_ref();
        Ok(Self::new(path, decompress::open(path)?, policy))
    }

    /// Reads from an open stream, e.g. standard input; `name` stands in for the path in messages.
    pub fn new(name: impl Into<PathBuf>, source: impl BufRead + Send + 'static, policy: BadUtf8) -> Self {
        Self {
            path: name.into(),
            source: Box::new(source),
            policy,
            line: String::new(),
            lines: 0,
            issues: Issues::default(),
        }
    }

    /// The next line without its line end, or `None` at the end of the file.
    pub fn next_line(&mut self) -> Result<Option<&str>> {
        Ok(if self.advance()? { Some(&self.line) } else { None })
    }

    /// Puts the next line into `self.line`; false at the end of the file.
    fn advance(&mut self) -> Result<bool> {
        let mut bytes = std::mem::take(&mut self.line).into_bytes();
        if !self.fill(&mut bytes)? {
            return Ok(false);
        }
        if bytes.contains(&0) {
            self.issues.nul.add(self.lines);
        }
        match String::from_utf8(bytes) {
            Ok(line) => self.line = line,
            Err(e) if self.policy == BadUtf8::Replace => {
                self.issues.bad_utf8.add(self.lines);
                self.line = String::from_utf8_lossy(e.as_bytes()).into_owned();
            }
            Err(e) => {
                let byte = e.utf8_error().valid_up_to() + 1;
                return Err(Error::BadUtf8 { path: self.path.clone(), line: self.lines, byte });
            }
        }
        Ok(true)
    }

    /// Reads the bytes of one line, byte-order mark and line end dropped; false at the end of the file.
    fn fill(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        bytes.clear();
        let limit = MAX_LINE_BYTES as u64 + 2;
        let read = self.source.by_ref().take(limit).read_until(b'\n', bytes);
        if read.map_err(Error::io("read", &self.path))? == 0 {
            return Ok(false);
        }
        self.lines += 1;
        if self.lines == 1 && bytes.starts_with(BOM) {
            bytes.drain(..BOM.len());
            self.issues.bom.add(1);
        } else if self.lines == 1 && (bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")) {
            return Err(Error::Utf16 { path: self.path.clone() });
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        } else if bytes.len() > MAX_LINE_BYTES {
            let path = self.path.clone();
            return Err(Error::LineTooLong { path, line: self.lines, limit: MAX_LINE_BYTES });
        } else {
            self.issues.no_final_newline = true;
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
            self.issues.crlf.add(self.lines);
        }
        Ok(true)
    }

    /// Reads up to `n` lines, fewer if they are long: none only at the end of the file.
    pub fn next_chunk(&mut self, n: usize) -> Result<Vec<String>> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while chunk.len() < n && bytes < CHUNK_BYTES {
            let Some(line) = self.next_line()? else { break };
            bytes += line.len();
            chunk.push(line.to_owned());
        }
        Ok(chunk)
    }

    /// Lines read so far.
    pub fn lines_read(&self) -> u64 {
        self.lines
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Oddities so far.
    pub fn issues(&self) -> &Issues {
        &self.issues
    }

    /// Lines and issues so far, to print or to store.
    pub fn report(&self) -> LineReport {
        LineReport { path: self.path.clone(), lines: self.lines, issues: self.issues.clone() }
    }

    /// Counts the remaining lines without decoding them.
    fn count_rest(&mut self) -> Result<u64> {
        let mut bytes = Vec::new();
        while self.fill(&mut bytes)? {}
        Ok(self.lines)
    }
}

impl Iterator for LineReader {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_line().map(|line| line.map(str::to_owned)).transpose()
    }
}

/// Reads two files that translate each other line by line.
pub struct ParallelLines {
    /// The source side.
    pub src: LineReader,
    /// The target side.
    pub tgt: LineReader,
}

impl ParallelLines {
    /// Opens both sides.
    pub fn open(src: impl AsRef<Path>, tgt: impl AsRef<Path>, policy: BadUtf8) -> Result<Self> {
        Ok(Self { src: LineReader::open(src, policy)?, tgt: LineReader::open(tgt, policy)? })
    }

    /// The next pair, or `None` when both sides end together; if only one ends, the error gives both counts.
    pub fn next_pair(&mut self) -> Result<Option<(&str, &str)>> {
        match (self.src.advance()?, self.tgt.advance()?) {
            (true, true) => Ok(Some((&self.src.line, &self.tgt.line))),
            (false, false) => Ok(None),
            _ => {
                let (src_lines, tgt_lines) = (self.src.count_rest()?, self.tgt.count_rest()?);
                let (src, tgt) = (self.src.path.clone(), self.tgt.path.clone());
                Err(Error::LineCountMismatch { src, src_lines, tgt, tgt_lines })
            }
        }
    }

    /// Reads up to `n` pairs, fewer if they are long: none only at the end of the files.
    pub fn next_chunk(&mut self, n: usize) -> Result<Vec<(String, String)>> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while chunk.len() < n && bytes < CHUNK_BYTES {
            let Some((src, tgt)) = self.next_pair()? else { break };
            bytes += src.len() + tgt.len();
            chunk.push((src.to_owned(), tgt.to_owned()));
        }
        Ok(chunk)
    }
}
