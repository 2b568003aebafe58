//! `mae apply-bpe`: splits words into pieces, like `subword-nmt apply-bpe`.

use std::path::PathBuf;

use mae_data::bpe::{Bpe, Codes, Dropout, Glossaries, PieceSet};

use crate::exit::ExitCode;
use crate::stream::{Files, map_lines, map_numbered_lines};

const EXAMPLES: &str = "\
Examples:
  Segment a text:
    mae apply-bpe -c codes train.tok.de -o train.bpe.de

  Use only pieces that occur at least 50 times in the training text (see `mae learn-bpe`):
    mae apply-bpe -c codes --vocabulary vocab.de --vocabulary-threshold 50 \\
        < test.de > test.bpe.de

  Keep placeholders and a name in one piece:
    mae apply-bpe -c codes --glossaries '<[a-z]+>' Europarl < test.tok.de \\
        > test.bpe.de

  Segment training text with BPE dropout; another seed gives another segmentation:
    mae apply-bpe -c codes --dropout 0.1 --seed 1 train.tok.de -o train.bpe.1.de

`sed -r 's/(@@ )|(@@ ?$)//g'` joins the pieces again.";

/// Split words into pieces by learned merges (subword-nmt apply-bpe): one line out for one line in.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Merges: subword-nmt's codes, version 0.1 or 0.2.
    #[arg(short, long, value_name = "FILE")]
    codes: PathBuf,
    /// Use only pieces of this file (`piece count` lines); merges into other pieces are undone.
    #[arg(long, value_name = "FILE")]
    vocabulary: Option<PathBuf>,
    /// Use only pieces of the vocabulary with at least this count.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "vocabulary")]
    vocabulary_threshold: u64,
    /// Words or regular expressions whose matches stay in one piece, inside words too.
    #[arg(long, value_name = "REGEX", num_args = 1..)]
    glossaries: Vec<String>,
    /// Probability of skipping each merge at each step (BPE dropout), for training text only.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    dropout: f64,
    /// Seed of the dropout. Skipped merges depend on the seed and the line number, not on threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    files: Files,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let dropout = Dropout::new(args.dropout, args.seed)?;
    let mut bpe = Bpe::new(&Codes::load(&args.codes)?);
    if let Some(path) = &args.vocabulary {
        bpe = bpe.with_pieces(PieceSet::load(path, args.vocabulary_threshold)?);
    }
    if !args.glossaries.is_empty() {
        let mut glossaries = Glossaries::default();
        args.glossaries.iter().try_for_each(|pattern| glossaries.add(pattern))?;
        bpe = bpe.with_glossaries(glossaries);
    }
    if args.dropout == 0.0 {
        map_lines(&args.files, "segmenting", |line| Ok(bpe.segment_line(line)))?;
    } else {
        map_numbered_lines(&args.files, "segmenting", |number, line| {
            Ok(bpe.segment_line_dropping(line, dropout, number))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
