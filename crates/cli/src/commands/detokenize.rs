//! `mae detokenize`: the detokeniser of Moses.

use mae_data::moses::{Detokenizer, Escapes, Lang};

use crate::exit::ExitCode;
use crate::stream::{Files, map_lines};

const EXAMPLES: &str = "\
Examples:
  Join the tokens of a file:
    mae detokenize -l de train.tok.de -o train.de

  Score the output of a model that was trained on tokens:
    mae generate MODEL --source test.tok.de --plain | mae detokenize -l en \\
        > test.out
    mae score --sys test.out --ref test.en

The output equals that of sacremoses 0.2.0.";

/// Join tokens into text, as Moses does: one line out for one line in.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Language of the text, such as `de`.
    #[arg(short, long, value_name = "LANG")]
    lang: Lang,
    /// Keep entities such as `&apos;`.
    #[arg(long)]
    no_unescape: bool,
    #[command(flatten)]
    files: Files,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let escapes = if args.no_unescape { Escapes::Plain } else { Escapes::Entities };
    let detokenizer = Detokenizer::new(args.lang, escapes);
    map_lines(&args.files, "detokenising", |line| Ok(detokenizer.detokenize(line)))?;
    Ok(ExitCode::SUCCESS)
}
