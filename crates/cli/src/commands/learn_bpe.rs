//! `mae learn-bpe`: learns merges from text, like `subword-nmt learn-bpe` and `learn-joint-bpe-and-vocab`.

use std::path::{Path, PathBuf};

use mae_data::bpe::{Bpe, LearnOptions, WordCounts, learn};

use crate::exit::ExitCode;
use crate::outputs::{check_apart, check_place};
use crate::progress::bar;
use crate::stream::{Output, open, spinner, tell_issues};

const EXAMPLES: &str = "\
Examples:
  Learn joint codes of two languages, and write each vocabulary for `mae apply-bpe --vocabulary`:
    mae learn-bpe -s 32000 train.tok.de train.tok.en -o codes \\
        --write-vocabulary vocab.de,vocab.en

  Learn the codes of one language from a pipe:
    mae tokenize -l de train.de | mae learn-bpe -s 10000 > codes.de

The codes are those of subword-nmt, version 0.2.";

/// Learn byte-pair merges from text (subword-nmt learn-bpe).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Texts to learn from, all together; `-` is standard input. Files can be compressed (gzip, zstd).
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,
    /// Number of merges to learn.
    #[arg(short, long, value_name = "N", default_value_t = 10_000)]
    symbols: usize,
    /// Stop when no pair of symbols occurs N times.
    #[arg(long, value_name = "N", default_value_t = 2)]
    min_frequency: u64,
    /// File for the codes, in place of standard output; it appears when it is complete.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Files for the pieces of each text with their counts: one per text, separated by commas.
    #[arg(long, value_name = "FILE,…", value_delimiter = ',')]
    write_vocabulary: Vec<PathBuf>,
    /// Replace bytes that are not UTF-8 with U+FFFD. Without this flag they are an error.
    #[arg(long)]
    replace_bad_utf8: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (texts, vocabularies) = (args.files.len(), args.write_vocabulary.len());
    anyhow::ensure!(
        vocabularies == 0 || vocabularies == texts,
        "--write-vocabulary names {vocabularies} file(s) for {texts} text(s); name one for each"
    );
    let outputs: Vec<&Path> =
        args.output.iter().chain(&args.write_vocabulary).map(PathBuf::as_path).collect();
    let inputs: Vec<&Path> =
        args.files.iter().map(PathBuf::as_path).filter(|path| path.as_os_str() != "-").collect();
    outputs.iter().try_for_each(|path| check_place(Some(path)))?;
    check_apart(&outputs, &inputs)?;
    let counting = spinner("counting words", false);
    let mut each = Vec::new();
    for path in &args.files {
        let mut reader = open(path, args.replace_bad_utf8)?;
        let mut counts = WordCounts::default();
        counts.add_file(&mut reader)?;
        counting.inc(reader.lines_read());
        counting.suspend(|| tell_issues(&reader));
        each.push(counts);
    }
    counting.finish_and_clear();
    let mut all = WordCounts::default();
    each.iter().for_each(|counts| all.merge(counts));
    let options = LearnOptions { merges: args.symbols, min_frequency: args.min_frequency };
    let learning = bar(args.symbols as u64, "learning merges");
    let codes = learn(&all, options, |done| learning.set_position(done as u64))?;
    learning.finish_and_clear();
    if codes.len() < args.symbols {
        eprintln!(
            "mae: learned {} merges instead of {}: no other pair occurs {} times",
            codes.len(),
            args.symbols,
            args.min_frequency
        );
    }
    let bpe = Bpe::new(&codes);
    for (path, words) in args.write_vocabulary.iter().zip(&each) {
        let mut out = Output::open(Some(path))?;
        for (piece, count) in bpe.piece_counts(words) {
            out.line(&format!("{piece} {count}"))?;
        }
        out.finish()?;
    }
    let mut out = Output::open(args.output.as_deref())?;
    for line in codes.lines() {
        if !out.line(&line)? {
            break;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
