//! `mae normalize`: the punctuation normaliser of Moses.

use mae_data::moses::{Lang, NonPrinting, NormalizeOptions, Normalizer};

use crate::exit::ExitCode;
use crate::stream::{Files, map_lines};

const EXAMPLES: &str = "\
Examples:
  Normalise a compressed text:
    mae normalize -l de train.de.gz -o train.norm.de

  Also turn full-width punctuation into ASCII and non-printing characters into blanks:
    mae normalize -l en --replace-unicode-punct --non-printing blank < in.txt \\
        > out.txt

The output equals that of sacremoses 0.2.0; `--non-printing blank` is the
remove-non-printing-char.perl of Moses.";

/// Normalise quotes, dashes and blanks as Moses does: one line out for one line in.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Language of the text, such as `de`.
    #[arg(short, long, value_name = "LANG")]
    lang: Lang,
    /// First convert punctuation and digits of other scripts to ASCII.
    #[arg(long, visible_alias = "pre-replace-unicode-punct")]
    replace_unicode_punct: bool,
    /// Keep Penn Treebank quotes (`` and '').
    #[arg(long)]
    no_penn: bool,
    /// Keep the order of quotes and commas.
    #[arg(long)]
    no_quote_commas: bool,
    /// Keep no-break spaces between digits.
    #[arg(long)]
    no_numbers: bool,
    /// Treatment of non-printing characters: keep, remove, or blank (replace with a blank).
    #[arg(long, value_name = "HOW", default_value = "keep", value_parser = non_printing)]
    non_printing: NonPrinting,
    #[command(flatten)]
    files: Files,
}

fn non_printing(text: &str) -> Result<NonPrinting, String> {
    match text {
        "keep" => Ok(NonPrinting::Keep),
        "remove" => Ok(NonPrinting::Remove),
        "blank" => Ok(NonPrinting::Blank),
        _ => Err("choose keep, remove or blank".into()),
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = NormalizeOptions {
        replace_unicode_punct: args.replace_unicode_punct,
        penn: !args.no_penn,
        quote_commas: !args.no_quote_commas,
        numbers: !args.no_numbers,
        non_printing: args.non_printing,
    };
    let normalizer = Normalizer::new(args.lang, options);
    map_lines(&args.files, "normalising", |line| Ok(normalizer.normalize(line)))?;
    Ok(ExitCode::SUCCESS)
}
