//! Text commands: one line out for one line in, in order, with a bounded number of lines in memory.

use std::io::{self, BufReader, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use mae_data::{AsideFile, BadUtf8, LineReader};
use rayon::prelude::*;

use crate::outputs::check_apart;

/// Lines that are read, processed and written together.
const CHUNK: usize = 1 << 13;

/// Input and output files of a text command.
#[derive(clap::Args)]
pub struct Files {
    /// Input texts, read in order; `-` is standard input. Files can be compressed (gzip, zstd).
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,
    /// Output file, in place of standard output; it appears when it is complete.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write each line before reading the next one, for programs connected by two pipes.
    #[arg(long)]
    line_buffered: bool,
    /// Replace bytes that are not UTF-8 with U+FFFD. Without this flag they are an error.
    #[arg(long)]
    replace_bad_utf8: bool,
}

/// Applies `work` to every line on all threads and writes the results in order.
pub fn map_lines(
    files: &Files,
    what: &'static str,
    work: impl Fn(&str) -> mae_data::Result<String> + Sync,
) -> anyhow::Result<()> {
    map_numbered_lines(files, what, |_, line| work(line))
}

/// Like [`map_lines`]; `work` also gets the number of earlier lines of all files.
pub fn map_numbered_lines(
    files: &Files,
    what: &'static str,
    work: impl Fn(u64, &str) -> mae_data::Result<String> + Sync,
) -> anyhow::Result<()> {
    let inputs: Vec<&Path> = files.files.iter().map(PathBuf::as_path).collect();
    check_apart(&files.output.as_deref().into_iter().collect::<Vec<_>>(), &inputs)?;
    let mut earlier_files = 0;
    let mut out = Output::open(files.output.as_deref())?;
    let bar = spinner(what, files.output.is_none() && io::stdout().is_terminal());
    let chunk = if files.line_buffered { 1 } else { CHUNK };
    for path in &files.files {
        let mut reader = open(path, files.replace_bad_utf8)?;
        loop {
            let before = reader.lines_read();
            // Lines before a bad one are written before the error is reported.
            let (lines, failed) = read_chunk(&mut reader, chunk);
            let number = |i: usize| earlier_files + before + i as u64;
            let done: Vec<_> = lines.par_iter().enumerate().map(|(i, line)| work(number(i), line)).collect();
            for (i, line) in done.into_iter().enumerate() {
                let line = line.with_context(|| {
                    format!("{}, line {}", reader.path().display(), before + i as u64 + 1)
                })?;
                if !out.line(&line)? {
                    return Ok(());
                }
            }
            bar.inc(lines.len() as u64);
            if files.line_buffered {
                out.flush()?;
            }
            if let Some(error) = failed {
                out.flush()?;
                return Err(error.into());
            }
            if lines.is_empty() {
                break;
            }
        }
        earlier_files += reader.lines_read();
        bar.suspend(|| tell_issues(&reader));
    }
    bar.finish_and_clear();
    out.finish()
}

/// Spinner that counts lines; hidden if the text itself goes to the terminal.
pub fn spinner(what: &'static str, hidden: bool) -> ProgressBar {
    if hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} {spinner} {human_pos} lines [{elapsed}, {per_sec}]")
        .expect("the template is valid");
    ProgressBar::new_spinner().with_style(style).with_prefix(what)
}

/// Opens a text; `-` is standard input.
pub fn open(path: &Path, replace: bool) -> anyhow::Result<LineReader> {
    let policy = if replace { BadUtf8::Replace } else { BadUtf8::Error };
    Ok(if path.as_os_str() == "-" {
        LineReader::new("standard input", BufReader::new(io::stdin()), policy)
    } else {
        LineReader::open(path, policy)?
    })
}

/// Reads up to `n` lines, fewer if they are long; also returns the error that stopped it.
fn read_chunk(reader: &mut LineReader, n: usize) -> (Vec<String>, Option<mae_data::Error>) {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while lines.len() < n && bytes < 1 << 24 {
        match reader.next_line() {
            Ok(Some(line)) => {
                bytes += line.len();
                lines.push(line.to_owned());
            }
            Ok(None) => break,
            Err(error) => return (lines, Some(error)),
        }
    }
    (lines, None)
}

/// Reports repairs of a text on standard error, if there were any.
pub fn tell_issues(reader: &LineReader) {
    tell_issues_with(reader, "");
}

/// Like [`tell_issues`], with a note after the report.
pub fn tell_issues_with(reader: &LineReader, note: &str) {
    if !reader.issues().is_empty() {
        eprintln!("mae: {}: {}{note}", reader.path().display(), reader.issues());
    }
}

/// Standard output, or a file that is written under a temporary name and renamed at the end.
pub enum Output {
    /// Standard output; its reader can close the pipe at any time.
    Standard(BufWriter<io::Stdout>),
    /// A file; it is removed if `finish` is not called.
    File(AsideFile),
}

impl Output {
    /// Opens standard output, or the file under a temporary name.
    pub fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::Standard(BufWriter::new(io::stdout()))) };
        let file = AsideFile::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self::File(file))
    }

    /// Writes a line; returns false if the reader has closed the pipe.
    pub fn line(&mut self, line: &str) -> anyhow::Result<bool> {
        let written = writeln!(self.out(), "{line}");
        self.unless_nobody_reads(written)
    }

    /// Writes all buffered lines.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        let flushed = self.out().flush();
        self.unless_nobody_reads(flushed).map(drop)
    }

    /// Completes the output: the file gets its name.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.flush()?;
        let complaint = self.complaint();
        match self {
            Self::Standard(_) => Ok(()),
            Self::File(file) => file.finish().context(complaint),
        }
    }

    /// Writer of the output.
    pub fn out(&mut self) -> &mut dyn Write {
        match self {
            Self::Standard(out) => out,
            Self::File(file) => file,
        }
    }

    /// Error message for a failed write.
    pub fn complaint(&self) -> String {
        match self {
            Self::Standard(_) => "cannot write standard output".into(),
            Self::File(file) => format!("cannot write {}", file.writing().display()),
        }
    }

    fn unless_nobody_reads(&self, written: io::Result<()>) -> anyhow::Result<bool> {
        match (self, written) {
            (Self::Standard(_), Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            (_, written) => written.with_context(|| self.complaint()).map(|()| true),
        }
    }
}
