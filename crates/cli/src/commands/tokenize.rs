//! `mae tokenize`: the tokeniser of Moses.

use mae_data::moses::{CjkWords, Dashes, Escapes, Lang, Protected, TokenizeOptions, Tokenizer};

use crate::exit::ExitCode;
use crate::stream::{Files, map_lines};

const EXAMPLES: &str = "\
Examples:
  Tokenise a text:
    mae tokenize -l de train.de -o train.tok.de

  Normalise punctuation first and split dashes, as in the usual recipe for WMT14:
    mae normalize -l en train.en | mae tokenize -l en -a > train.tok.en

  Keep web addresses, @names, #topics and ISBNs in one piece:
    mae tokenize -l en --protect-web --protect 'ISBN [0-9-]+' < in.txt

  Make each Chinese or Japanese character a token; `mae detokenize -l zh` joins them again:
    mae tokenize -l zh --characters train.zh -o train.tok.zh

The tokens are those of sacremoses 0.2.0. Languages: as, bn, ca, cs, de, el, en, es, et, fi, fr, ga,
gu, hi, hu, is, it, ja, kn, ko, lt, lv, ml, mni, mr, nl, or, pa, pl, pt, ro, ru, sk, sl, sv, ta,
tdt, te, yue, zh.";

/// Split text into tokens, as Moses does: one line out for one line in.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Language of the text, such as `de`.
    #[arg(short, long, value_name = "LANG")]
    lang: Lang,
    /// Split dashes inside words: `well-known` becomes `well @-@ known`.
    #[arg(short, long, visible_alias = "aggressive")]
    aggressive_dash_splits: bool,
    /// Make each Chinese, Japanese and Korean character a token, whatever stands beside it.
    #[arg(long)]
    characters: bool,
    /// Keep `& | < > ' " [ ]`. Without this flag they become entities such as `&apos;`.
    #[arg(long)]
    no_escape: bool,
    /// Keep text that matches this regular expression (ignoring case) in one piece; can be repeated.
    #[arg(long, value_name = "REGEX")]
    protect: Vec<String>,
    /// Keep XML tags, e-mail addresses and web addresses in one piece.
    #[arg(long)]
    protect_basic: bool,
    /// Keep web addresses, e-mail addresses, @names and #topics in one piece.
    #[arg(long)]
    protect_web: bool,
    #[command(flatten)]
    files: Files,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut protected = Protected::default();
    if args.protect_basic {
        protected.add_basic();
    }
    if args.protect_web {
        protected.add_web();
    }
    for pattern in &args.protect {
        protected.add(pattern)?;
    }
    let dashes = if args.aggressive_dash_splits { Dashes::Split } else { Dashes::Keep };
    let escapes = if args.no_escape { Escapes::Plain } else { Escapes::Entities };
    let cjk_words = if args.characters { CjkWords::Characters } else { CjkWords::Whole };
    let options = TokenizeOptions { dashes, cjk_words, escapes, protected };
    let tokenizer = Tokenizer::new(args.lang, options);
    map_lines(&args.files, "tokenising", |line| tokenizer.tokenize(line))?;
    Ok(ExitCode::SUCCESS)
}
