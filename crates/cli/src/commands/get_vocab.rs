//! `mae get-vocab`: counts the tokens of a text, like `subword-nmt get-vocab`.

use std::path::{Path, PathBuf};

use mae_data::bpe::TokenCounts;

use crate::exit::ExitCode;
use crate::outputs::{check_apart, check_place};
use crate::stream::{Output, open, spinner, tell_issues};

const EXAMPLES: &str = "\
Examples:
  Count the pieces of a segmented text, for `mae apply-bpe --vocabulary`:
    mae apply-bpe -c codes train.tok.de | mae get-vocab -o vocab.de

The output is that of subword-nmt: `token count` lines, the most frequent token first.";

/// Count the tokens of texts (subword-nmt get-vocab).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Texts to count, all together; `-` is standard input. Files can be compressed (gzip, zstd).
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,
    /// Output file, in place of standard output; it appears when it is complete.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace bytes that are not UTF-8 with U+FFFD. Without this flag they are an error.
    #[arg(long)]
    replace_bad_utf8: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let inputs: Vec<&Path> =
        args.files.iter().map(PathBuf::as_path).filter(|path| path.as_os_str() != "-").collect();
    check_place(args.output.as_deref())?;
    check_apart(&args.output.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &inputs)?;
    let counting = spinner("counting tokens", false);
    let mut counts = TokenCounts::default();
    for path in &args.files {
        let mut reader = open(path, args.replace_bad_utf8)?;
        counts.add_file(&mut reader)?;
        counting.inc(reader.lines_read());
        counting.suspend(|| tell_issues(&reader));
    }
    counting.finish_and_clear();
    let mut out = Output::open(args.output.as_deref())?;
    for (token, count) in counts.into_sorted() {
        if !out.line(&format!("{token} {count}"))? {
            break;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
