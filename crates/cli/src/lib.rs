//! The `mae` program as a library, for packages that carry it: parses the command line, calls the libraries, and turns errors into one message and exit code 1.

mod bus;
mod columns;
mod commands;
mod data_arg;
mod device;
#[cfg(test)]
mod examples;
mod exit;
mod fairseq;
mod faults;
mod lm_text;
mod model_arg;
mod names;
mod outputs;
mod page;
mod progress;
mod stream;
mod studies;
mod suggestions;
mod training;

use std::io::Write;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use mae_engine::cpu::threads;

use exit::ExitCode;
pub use studies::record::commit;

const EXAMPLES: &str = "\
Examples:
  Train a small model on a corpus that the program makes, in about two minutes:
    mae quickstart

  Prepare, train, translate and score:
    mae preprocess -s de -t en --trainpref train --validpref val \\
        --testpref test --bpe 4000
    mae train data-bin --recipe multi30k-mae7 --save-dir runs/mae7
    mae generate runs/mae7/checkpoint_best --source test.de --plain > test.out
    mae score --sys test.out --ref test.en";

/// Translation and language models whose attention is a gated mixture of experts (MAE, ACL 2020).
///
/// One program prepares text, trains, translates, scores and analyses models.
#[derive(Parser)]
#[command(
    name = "mae",
    version = env!("MAE_VERSION"),
    propagate_version = true,
    max_term_width = 100,
    after_help = EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Number of threads [default: all cores].
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
}

#[derive(Subcommand)]
enum Command {
    Quickstart(commands::quickstart::Args),
    Normalize(commands::normalize::Args),
    Tokenize(commands::tokenize::Args),
    Detokenize(commands::detokenize::Args),
    CleanCorpus(commands::clean_corpus::Args),
    LearnBpe(commands::learn_bpe::Args),
    GetVocab(commands::get_vocab::Args),
    ApplyBpe(commands::apply_bpe::Args),
    Prepare(commands::prepare::Args),
    Preprocess(commands::preprocess::Args),
    Recipes(commands::recipes::Args),
    Train(Box<commands::train::Args>),
    Validate(commands::validate::Args),
    #[command(visible_alias = "translate")]
    Generate(commands::generate::Args),
    Interactive(commands::interactive::Args),
    EvalLm(commands::eval_lm::Args),
    Continue(commands::continuation::Args),
    Serve(Box<commands::serve::Args>),
    Score(commands::score::Args),
    Average(commands::average::Args),
    Convert(commands::convert::Args),
    Quantize(commands::quantize::Args),
    MakeShortlist(commands::make_shortlist::Args),
    Import(commands::import::Args),
    Export(commands::export::Args),
    Analyze(commands::analyze::Args),
    Report(commands::report::Args),
    Reproduce(commands::reproduce::Args),
    Transfer(commands::transfer::Args),
    Bench(commands::bench::Args),
    Doctor(commands::doctor::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
}

/// Runs the program with these arguments, the first being its name; returns its exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    explain_failed_prints();
    ignore_file_size_signal();
    answer(arguments.into_iter().collect()).number()
}

fn answer(arguments: Vec<OsString>) -> ExitCode {
    bus::explain_lost_pages();
    mae_model::provenance::set_program(concat!("mae ", env!("MAE_VERSION")));
    let fairseq::Translated { words, left_out } = match fairseq::translate(names::expand(arguments)) {
        Ok(translated) => translated,
        Err(why) => {
            eprintln!("mae: {why} (docs/fairseq.md has all flags)");
            return ExitCode::from(2);
        }
    };
    let program = Cli::command();
    let matches = program.clone().try_get_matches_from(&words);
    let matches = matches.unwrap_or_else(|error| suggestions::checked(error, &program, &words).exit());
    if !left_out.is_empty() {
        eprintln!("mae: flags of fairseq that change nothing here: {}", left_out.join("; "));
    }
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match start(cli) {
        Ok(code) => code,
        Err(error) => {
            // An I/O error without context comes from standard output: all other writes name their file.
            if error.chain().count() == 1
                && let Some(error) = error.downcast_ref::<std::io::Error>()
            {
                return cannot_print(error, error.kind() == std::io::ErrorKind::BrokenPipe).into();
            }
            let message = faults::message(&error, &program, &matches);
            writeln!(std::io::stderr(), "mae: {}", without_controls(&message)).ok();
            ExitCode::FAILURE
        }
    }
}

/// Escapes control characters, which come from files and would change the terminal; line ends stay.
fn without_controls(message: &str) -> String {
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
    message
        .chars()
        .map(|c| if is_control(c) { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

/// Reports that standard output cannot be written, and returns the exit code. A closed pipe (`mae … | head`) is not
/// reported; its exit code is that of a program ended by SIGPIPE.
fn cannot_print(why: impl std::fmt::Display, nobody_reads: bool) -> u8 {
    if nobody_reads {
        return 141;
    }
    eprintln!("mae: cannot write to standard output: {why}");
    1
}

/// Ends the program with a message where `println!` or `eprintln!` cannot write, in place of their panic.
fn explain_failed_prints() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if let Some(why) = text.strip_prefix("failed printing to stdout: ") {
            std::process::exit(cannot_print(why, why.starts_with("Broken pipe")).into());
        }
        match text.strip_prefix("failed printing to stderr: ") {
            // `mae … 2>&1 | head`. In other cases no output is left for a message.
            Some(why) => std::process::exit(if why.starts_with("Broken pipe") { 141 } else { 1 }),
            None => usual(panic),
        }
    }));
}

/// Turns a write beyond the limit on file sizes into an error, like that of a full disk. The signal would end the
/// program without a message.
fn ignore_file_size_signal() {
    let signal = signal_hook::consts::signal::SIGXFSZ;
    signal_hook::flag::register(signal, std::sync::Arc::default()).ok();
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    start_threads(cli.threads())?;
    match cli.command {
        // The server waits on threads of its own: those of the pool compute.
        command @ Command::Serve(_) => run_command(command),
        // On a thread of the pool, ops start parallel loops without waking another thread first.
        command => rayon::scope(|_| run_command(command)),
    }
}

impl Cli {
    /// The number of threads that was asked for, and the flag that asked.
    fn threads(&self) -> Option<(&'static str, usize)> {
        let workers = match &self.command {
            Command::Preprocess(args) => args.workers(),
            _ => None,
        };
        let threads = self.threads.map(|threads| ("--threads", threads));
        threads.or(workers.map(|workers| ("--workers", workers)))
    }
}

/// Most threads: more than any machine has cores, and few enough to start at once.
const MOST_THREADS: usize = 4096;

/// Starts the threads that compute.
fn start_threads(asked: Option<(&str, usize)>) -> anyhow::Result<()> {
    if let Some((flag, threads)) = asked {
        anyhow::ensure!(threads > 0, "{flag} 0: at least one thread is needed");
        anyhow::ensure!(threads <= MOST_THREADS, "{flag} {threads}: {MOST_THREADS} is the most there can be");
    }
    let threads = asked.map(|(_, threads)| threads).or_else(training::ranks::share_of_cores);
    // Without a number, all cores.
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).spawn_handler(threads::start);
    pool.build_global().map_err(|error| {
        anyhow::anyhow!(
            "cannot start the threads that compute: {error}; ask for fewer with --threads, or raise the limits of \
             processes (ulimit -u) and memory (ulimit -v)"
        )
    })
}

fn run_command(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Quickstart(args) => commands::quickstart::run(args),
        Command::Normalize(args) => commands::normalize::run(args),
        Command::Tokenize(args) => commands::tokenize::run(args),
        Command::Detokenize(args) => commands::detokenize::run(args),
        Command::CleanCorpus(args) => commands::clean_corpus::run(args),
        Command::LearnBpe(args) => commands::learn_bpe::run(args),
        Command::GetVocab(args) => commands::get_vocab::run(args),
        Command::ApplyBpe(args) => commands::apply_bpe::run(args),
        Command::Prepare(args) => commands::prepare::run(args),
        Command::Preprocess(args) => commands::preprocess::run(args),
        Command::Recipes(args) => commands::recipes::run(args),
        Command::Train(args) => commands::train::run(*args),
        Command::Validate(args) => commands::validate::run(args),
        Command::Generate(args) => commands::generate::run(args),
        Command::Interactive(args) => commands::interactive::run(args),
        Command::EvalLm(args) => commands::eval_lm::run(args),
        Command::Continue(args) => commands::continuation::run(args),
        Command::Serve(args) => commands::serve::run(*args),
        Command::Score(args) => commands::score::run(args),
        Command::Average(args) => commands::average::run(args),
        Command::Convert(args) => commands::convert::run(args),
        Command::Quantize(args) => commands::quantize::run(args),
        Command::MakeShortlist(args) => commands::make_shortlist::run(args),
        Command::Import(args) => commands::import::run(args),
        Command::Export(args) => commands::export::run(args),
        Command::Analyze(args) => commands::analyze::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Reproduce(args) => commands::reproduce::run(args),
        Command::Transfer(args) => commands::transfer::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Completions(args) => commands::completions::run(&args, Cli::command()),
        Command::Man(args) => commands::man::run(&args, Cli::command()),
    }
}
