//! `mae interactive`: translations of lines as they come.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::ensure;
use indicatif::ProgressBar;
use mae_data::LineReader;
use mae_translate::Pipeline;

use super::generate::args::{ModelArgs, OutputArgs, SearchArgs, TextArgs};
use super::generate::input::{Input, Lines, TextOptions, open};
use super::generate::notes::{Notes, tell_rules};
use super::generate::output::Printer;
use super::generate::translate::{report_speed, translate};
use crate::exit::ExitCode;
use crate::outputs::unless_nobody_reads;

const EXAMPLES: &str = "\
Examples:
  Type sentences by hand:
    mae interactive runs/de-en/checkpoint_best

  Answer each line as soon as it is read, for a program at the other end of two pipes:
    mae interactive runs/de-en/checkpoint_best --plain

  Translate in a pipeline, in batches of up to 64 lines of tokens:
    mae tokenize -l de < news.de | mae interactive MODEL --tokenized \\
        --plain --buffer-size 64 > news.tok.en

  Force the first words of a translation, given after a tab:
    printf 'Das ist gut .\\tThat is\\n' | mae interactive MODEL \\
        --prefix-after-tab --plain

The output is that of `mae generate`, which also explains the search options.";

/// Translate lines of standard input as they arrive (fairseq-interactive).
///
/// Reads lines, translates them and prints the translations at once, in order. Lines go through the rules of the training
/// text (tokeniser, lower case), if the model folder has them, and are segmented with its BPE codes. No line is dropped; cut lines and unknown words are counted on standard error at the end.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    models: ModelArgs,
    /// fairseq's folder of dictionaries: the model folder has its own
    #[arg(hide = true)]
    _data: Option<PathBuf>,
    /// Number of lines to read before translating them together; the last batch can be smaller
    #[arg(long, value_name = "N", default_value_t = 1)]
    buffer_size: usize,
    /// Input file (plain, .gz or .zst), in place of standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    input: PathBuf,
    #[command(flatten)]
    text: TextArgs,
    /// Take the text after a tab in a line as the start of its translation; lines without a tab are translated freely
    #[arg(long)]
    prefix_after_tab: bool,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    unless_nobody_reads(interactive(&args))
}

fn interactive(args: &Args) -> anyhow::Result<()> {
    ensure!(args.buffer_size > 0, "--buffer-size 0: at least one line must be read before it is translated");
    let mut search = args.search.options(&args.models)?;
    let limits = args.search.limits()?;
    let models = args.models.load()?;
    search.shortlist = args.search.read_shortlist(&models)?;
    let style = args.output.style(&args.search, &models)?;
    let options = args.output.group(search, args.models.mode(&models)?);
    let mut pipeline = Pipeline::new(&models.all(), limits);
    let form = args.text.form();
    let text = TextOptions { form, remove_bpe: args.output.remove_bpe };
    let mut printer = Printer::open(args.output.output.as_deref(), style, text)?;
    let mut notes = Notes::new(models.positions());
    tell_rules(&models, form);
    let mut reader = open(&args.input)?;
    if args.input == Path::new("-") && std::io::stdin().is_terminal() {
        eprintln!("mae: type one sentence per line; Ctrl-D ends");
    }
    let (mut sentences, mut tokens, mut spent) = (0, 0, std::time::Duration::ZERO);
    loop {
        let (sources, failed) = read(&mut reader, args.buffer_size);
        let (count, begin) = (sources.len(), Instant::now());
        let (sources, prefixes) = if args.prefix_after_tab { split(sources) } else { (sources, Vec::new()) };
        let lines = Lines { sources, targets: None };
        let mut input = Input::from_lines("stdin".into(), sentences, lines, &models, text, &mut notes);
        if args.prefix_after_tab {
            input.force(&prefixes, form, &mut notes);
        }
        let done = translate(&mut pipeline, &options, &input, &mut printer, &ProgressBar::hidden())?;
        tokens += done.tokens;
        printer.flush()?;
        (sentences, spent) = (sentences + count, spent + begin.elapsed());
        if let Some(error) = failed {
            return Err(error.into());
        }
        if count < args.buffer_size {
            break;
        }
    }
    notes.repaired(&reader);
    notes.report();
    report_speed("Translated", sentences, tokens, spent);
    printer.finish()
}

/// Sentences, and what their translations begin with: what follows a tab, or nothing.
fn split(lines: Vec<String>) -> (Vec<String>, Vec<String>) {
    let both = lines.iter().map(|line| line.split_once('\t').unwrap_or((line, "")));
    both.map(|(sentence, prefix)| (sentence.to_owned(), prefix.to_owned())).unzip()
}

/// Up to `n` lines, fewer only at the end, and the error that ended them: what was read before it is translated.
fn read(reader: &mut LineReader, n: usize) -> (Vec<String>, Option<mae_data::Error>) {
    let mut lines = Vec::new();
    while lines.len() < n {
        match reader.next_line() {
            Ok(Some(line)) => lines.push(line.to_owned()),
            Ok(None) => break,
            Err(error) => return (lines, Some(error)),
        }
    }
    (lines, None)
}
