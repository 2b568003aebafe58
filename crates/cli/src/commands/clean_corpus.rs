//! `mae clean-corpus`: drops pairs with unusual lengths, like `clean-corpus-n.perl` of Moses.

use std::io::Write;
use std::path::PathBuf;

use mae_data::lines::find_text;
use mae_data::moses::CleanOptions;
use mae_data::moses::clean::clean_corpus;
use mae_data::{BadUtf8, ParallelLines};

use crate::exit::ExitCode;
use crate::outputs::check_apart;
use crate::stream::{spinner, tell_issues};

const EXAMPLES: &str = "\
Examples:
  Keep pairs with 1 to 175 tokens a side, neither side more than 1.5 times as long as the other:
    mae clean-corpus --ratio 1.5 train.tok de en train.clean 1 175";

/// Drop sentence pairs with unusual lengths, and count them by reason.
///
/// Reads PREFIX.L1 and PREFIX.L2 (also with .gz or .zst appended) and writes OUT.L1 and OUT.L2 with one blank between
/// tokens. Bars (`|`) are removed, except if the first pair contains one: then words have factors.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Prefix of the input files.
    prefix: String,
    /// First language.
    l1: String,
    /// Second language.
    l2: String,
    /// Prefix of the output files.
    out: String,
    /// Smallest number of tokens on a side.
    min: usize,
    /// Largest number of tokens on a side.
    max: usize,
    /// Largest ratio between the numbers of tokens of the two sides.
    #[arg(long, value_name = "X", default_value_t = 9.0)]
    ratio: f64,
    /// Accept any ratio.
    #[arg(long, conflicts_with = "ratio")]
    ignore_ratio: bool,
    /// Largest number of characters in a word.
    #[arg(long, value_name = "N", default_value_t = 1000, visible_alias = "mwl")]
    max_word_length: usize,
    /// Convert the output to lower case.
    #[arg(long, visible_alias = "lc")]
    lowercase: bool,
    /// Replace bytes that are not UTF-8 with U+FFFD. Without this flag they are an error.
    #[arg(long)]
    replace_bad_utf8: bool,
    /// Print the counts as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = CleanOptions {
        ratio: (!args.ignore_ratio).then_some(args.ratio),
        max_word: args.max_word_length,
        lowercase: args.lowercase,
        ..CleanOptions::new(args.min, args.max)
    };
    let (l1, l2) = (find_text(&args.prefix, &args.l1)?, find_text(&args.prefix, &args.l2)?);
    let out = [&args.l1, &args.l2].map(|lang| PathBuf::from(format!("{}.{lang}", args.out)));
    anyhow::ensure!(
        args.l1 != args.l2,
        "both languages are `{}`; the two sides need different names",
        args.l1
    );
    check_apart(&[&out[0], &out[1]], &[&l1, &l2])?;
    let policy = if args.replace_bad_utf8 { BadUtf8::Replace } else { BadUtf8::Error };
    let mut lines = ParallelLines::open(&l1, &l2, policy)?;
    let bar = spinner("cleaning", false);
    let tallies = clean_corpus(&mut lines, [&out[0], &out[1]], options, |pairs| bar.set_position(pairs))?;
    bar.finish_and_clear();
    [&lines.src, &lines.tgt].into_iter().for_each(tell_issues);
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string(&tallies)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(stdout, "pairs read: {}, kept: {}", tallies.pairs, tallies.kept)?;
    for (reason, tally) in tallies.dropped().into_iter().filter(|(_, tally)| tally.count > 0) {
        writeln!(stdout, "dropped, {reason}: {tally}")?;
    }
    Ok(ExitCode::SUCCESS)
}
