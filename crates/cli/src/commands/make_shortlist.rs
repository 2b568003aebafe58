//! `mae make-shortlist`: a lexical table of a parallel corpus, for `--shortlist`.

use std::path::PathBuf;

use anyhow::ensure;
use mae_data::lexicon::{LexiconOptions, learn};
use mae_data::{ParallelDataset, pairs};

use crate::data_arg::data_bin;
use crate::exit::ExitCode;
use crate::outputs::check_place;
use crate::progress::bar;
use crate::stream::Output;

const EXAMPLES: &str = "\
Examples:
  Learn the shortlist of a model from its training data, and translate with it:
    mae make-shortlist data-bin/wmt14.en-de -o shortlist.en-de
    mae generate runs/en-de/checkpoint_best --source news.en --device cpu \\
        --compute-type int8 --shortlist shortlist.en-de

The file has a line `target source probability` for each pair, as Marian's lexical tables have, the
likeliest first for each source word.";

/// Learn a shortlist from a parallel corpus: for each source word the target words that may translate it.
///
/// Probabilities are those of IBM model 1. The corpus is a folder of binarised data, so that words are cut as the model
/// cuts them.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder written by `mae prepare`, `mae preprocess` or fairseq-preprocess
    data: PathBuf,
    /// Split of DATA to learn from
    #[arg(long, value_name = "NAME", default_value = "train")]
    subset: String,
    /// Source language of DATA [default: from the file names, if there is one pair only]
    #[arg(long, short = 's', value_name = "LANG", requires = "target_lang")]
    source_lang: Option<String>,
    /// Target language of DATA
    #[arg(long, short = 't', value_name = "LANG", requires = "source_lang")]
    target_lang: Option<String>,
    /// File for the table, in place of standard output; it appears when it is complete
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Number of target words to keep for each source word
    #[arg(long, value_name = "N", default_value_t = 100)]
    best: usize,
    /// Number of rounds of learning
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Number of sentence pairs to learn from, the first ones; memory grows with the number of different pairs of words in
    /// them
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pairs: usize,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.best > 0 && args.rounds > 0 && args.pairs > 0,
        "--best, --rounds and --pairs must be at least 1"
    );
    check_place(args.output.as_deref())?;
    let folder = data_bin(&args.data);
    let (source, target) = match (args.source_lang, args.target_lang) {
        (Some(source), Some(target)) => (source, target),
        _ => pairs::detect_languages(&folder)?,
    };
    let data = ParallelDataset::open(&folder, &args.subset, &source, &target)?;
    ensure!(!data.is_empty(), "{} has no sentence pairs in {}", folder.display(), args.subset);
    let options = LexiconOptions {
        rounds: args.rounds,
        pairs: Some(args.pairs),
        best: args.best,
        ..LexiconOptions::default()
    };
    let progress = bar(args.rounds as u64, "learning pairs of words");
    let table = learn(&data, &options, &mut |round| progress.set_position(round as u64));
    progress.finish_and_clear();
    let mut out = Output::open(args.output.as_deref())?;
    for pair in &table {
        let (source, target) = (data.src_vocab.symbol(pair.source), data.tgt_vocab.symbol(pair.target));
        if !out.line(&format!("{target} {source} {:.7}", pair.probability))? {
            break;
        }
    }
    out.finish()?;
    eprintln!("mae: {} pairs of words from {} sentence pairs", table.len(), data.len().min(args.pairs));
    Ok(ExitCode::SUCCESS)
}
