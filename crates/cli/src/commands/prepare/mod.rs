//! `mae prepare`: a corpus as it was downloaded to a folder to train on.

mod parallel;

use std::io::Write;
use std::path::{Path, PathBuf};

use mae_data::bpe::{Dropout, LearnOptions};
use mae_data::pairs::detect_languages;
use mae_data::prepare::recipes::{self, NewsCommentary};
use mae_data::prepare::{Corpus, DATA_BIN, Pieces, PrepareOptions, PrepareReport, Progress, prepare};
use mae_data::{BadUtf8, ParallelDataset};

use mae_engine::{Device, Numbers};
use mae_train::recipe;

use super::preprocess;
use crate::exit::ExitCode;
use crate::progress::Stages;

const EXAMPLES: &str = "\
Examples:
  IWSLT14 German to English from the archive of WIT3, as fairseq's prepare-iwslt14.sh does it:
    mae prepare iwslt14 -s de -t en --archive de-en.tgz --out iwslt14.de-en
    mae train iwslt14.de-en/data-bin --recipe iwslt14-mae7 \\
        --save-dir runs/iwslt14

  WMT14 English to German from a folder with the archives that prepare-wmt14en2de.sh downloads:
    mae prepare wmt14 -s en -t de --archive downloads --out wmt14.en-de

  Any two aligned files, with 2,000 pairs held out for validation and 2,000 for testing:
    mae prepare parallel -s de -t en --source corpus.de.gz \\
        --target corpus.en.gz --out my-corpus

The folder --out then holds
    tmp/SPLIT.LANG    the splits as tokens
    code              the merges (code.LANG with --separate-codes)
    SPLIT.LANG        the splits as pieces
    test.raw.LANG     the unprocessed test set, to score against
    data-bin          the data that `mae train` reads";

/// Prepare a corpus for training: tokenise, clean, split, learn and apply BPE, binarise.
///
/// Texts are streamed, so that memory does not grow with the corpus. Files appear when they are complete.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    corpus: CorpusArgs,
}

#[derive(clap::Subcommand)]
enum CorpusArgs {
    Iwslt14(Iwslt14),
    Iwslt17(Iwslt17),
    Wmt14(Wmt14),
    Wmt16(Wmt16),
    Parallel(parallel::Parallel),
}

/// Prepare the TED talks of IWSLT14, German and English, like fairseq's prepare-iwslt14.sh.
///
/// Tokenises, keeps pairs of 1 to 175 tokens with a ratio of at most 1.5, converts to lower case, takes every 23rd pair
/// for validation and dev2010, dev2012 and tst2010 to tst2012 for testing, learns 10,000 joint merges and builds a
/// dictionary for each language.
#[derive(clap::Args)]
#[command(after_help = "Examples:
    mae prepare iwslt14 -s de -t en --archive de-en.tgz --out iwslt14.de-en
    mae prepare iwslt14 -s en -t de --archive downloads --joined-dictionary \\
        --out iwslt14.en-de")]
struct Iwslt14 {
    #[command(flatten)]
    common: Common,
    /// Archive de-en.tgz, an archive that contains it, or a folder with either or with the extracted files; can be
    /// repeated.
    #[arg(long, value_name = "PATH", required = true)]
    archive: Vec<PathBuf>,
    /// Number of joint merges to learn.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    bpe: usize,
    /// Build one dictionary for both languages; needed to share all embeddings.
    #[arg(long)]
    joined_dictionary: bool,
}

/// Prepare the TED talks of IWSLT17, any pair of its languages.
///
/// Tokenises (Chinese and Japanese by character), takes dev2010 for validation and tst2010 to tst2015 for testing,
/// learns 16,384 joint merges, keeps pairs of 1 to 250 pieces, and builds a dictionary for each language.
#[derive(clap::Args)]
#[command(after_help = "Examples:
    mae prepare iwslt17 -s de -t en --archive de-en.tgz --out iwslt17.de-en
    mae prepare iwslt17 -s en -t zh --archive downloads --out iwslt17.en-zh")]
struct Iwslt17 {
    #[command(flatten)]
    common: Common,
    /// Archive of the pair, such as de-en.tgz, an archive that contains it, or a folder with either or with the
    /// extracted files; can be repeated.
    #[arg(long, value_name = "PATH", required = true)]
    archive: Vec<PathBuf>,
    /// Number of joint merges to learn.
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    bpe: usize,
    /// Build one dictionary for both languages; needed to share all embeddings.
    #[arg(long)]
    joined_dictionary: bool,
}

/// Prepare WMT16, English and Romanian.
///
/// Reads Europarl v8 (or v7) and SETIMES2, normalises punctuation and Romanian ş and ţ, tokenises with dashes split,
/// keeps pairs of 1 to 80 tokens, takes newsdev2016 for validation and newstest2016 for testing, learns 40,000 joint
/// merges, and builds one dictionary for both languages.
#[derive(clap::Args)]
#[command(after_help = "Examples:
    mae prepare wmt16 -s en -t ro --archive downloads --out wmt16.en-ro")]
struct Wmt16 {
    #[command(flatten)]
    common: Common,
    /// Archives, or folders with them or with the extracted files (SETIMES2 is a zip: extract it); can be repeated.
    #[arg(long, value_name = "PATH", required = true)]
    archive: Vec<PathBuf>,
    /// Number of joint merges to learn.
    #[arg(long, value_name = "N", default_value_t = 40_000)]
    bpe: usize,
    /// Build a dictionary for each language.
    #[arg(long)]
    separate_dictionaries: bool,
}

/// Prepare WMT14, English and German, like fairseq's prepare-wmt14en2de.sh.
///
/// Reads Europarl v7, Common Crawl and News Commentary, normalises punctuation, tokenises with dashes split, takes
/// every 100th pair for validation and newstest2014 for testing, learns 40,000 joint merges, keeps pairs of 1 to 250
/// pieces with a ratio of at most 1.5, and builds one dictionary for both languages.
#[derive(clap::Args)]
#[command(after_help = "Examples:
    mae prepare wmt14 -s en -t de --archive downloads --out wmt14.en-de
    mae prepare wmt14 -s en -t de --archive downloads --icml17 --bpe 32000 \\
        --out wmt14.icml17")]
struct Wmt14 {
    #[command(flatten)]
    common: Common,
    /// Archives, or folders with them or with the extracted files; can be repeated.
    #[arg(long, value_name = "PATH", required = true)]
    archive: Vec<PathBuf>,
    /// Use News Commentary v9 in place of v12.
    #[arg(long)]
    icml17: bool,
    /// Number of joint merges to learn.
    #[arg(long, value_name = "N", default_value_t = 40_000)]
    bpe: usize,
    /// Build a dictionary for each language. The WMT14 recipes share embeddings and need one for both.
    #[arg(long)]
    separate_dictionaries: bool,
}

/// Arguments of all corpora.
#[derive(clap::Args)]
struct Common {
    /// Source language, such as `de`.
    #[arg(short, long, value_name = "SRC")]
    source_lang: String,
    /// Target language, such as `en`.
    #[arg(short, long, value_name = "TGT")]
    target_lang: String,
    /// Folder to write to.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Learn separate merges for each language.
    #[arg(long)]
    separate_codes: bool,
    /// Probability of skipping each merge at each step (BPE dropout), in the training split only.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    bpe_dropout: f64,
    /// Seed of --bpe-dropout.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Treat types with fewer than N occurrences as unknown.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threshold: u64,
    /// Replace bytes that are not UTF-8 with U+FFFD. Without this flag they are an error.
    #[arg(long)]
    replace_bad_utf8: bool,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
    /// Print no progress bars and no report (--json still prints its object).
    #[arg(short, long)]
    quiet: bool,
}

impl Common {
    /// These choices in place of a recipe's.
    fn choose(&self, options: PrepareOptions, merges: usize) -> mae_data::Result<PrepareOptions> {
        let learn = LearnOptions { merges, ..LearnOptions::default() };
        let pieces = match (merges, self.separate_codes) {
            (0, _) => Pieces::None,
            (_, true) => Pieces::Separate(learn),
            (_, false) => Pieces::Joint(learn),
        };
        let bad_utf8 = if self.replace_bad_utf8 { BadUtf8::Replace } else { BadUtf8::Error };
        let dropout = Dropout::new(self.bpe_dropout, self.seed)?;
        let dropout = (self.bpe_dropout > 0.0).then_some(dropout);
        Ok(PrepareOptions { pieces, dropout, threshold: self.threshold, bad_utf8, ..options })
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match &args.corpus {
        CorpusArgs::Iwslt14(args) => {
            let choices = (args.bpe, args.joined_dictionary);
            archived(&args.common, recipes::iwslt14, choices, |options, progress| {
                recipes::iwslt14_corpus(&args.archive, options, progress)
            })
        }
        CorpusArgs::Iwslt17(args) => {
            let choices = (args.bpe, args.joined_dictionary);
            archived(&args.common, recipes::iwslt17, choices, |options, progress| {
                recipes::iwslt17_corpus(&args.archive, options, progress)
            })
        }
        CorpusArgs::Wmt14(args) => {
            let news = if args.icml17 { NewsCommentary::V9 } else { NewsCommentary::Newest };
            let choices = (args.bpe, !args.separate_dictionaries);
            archived(&args.common, recipes::wmt14, choices, |options, progress| {
                recipes::wmt14_corpus(&args.archive, options, news, progress)
            })
        }
        CorpusArgs::Wmt16(args) => {
            let choices = (args.bpe, !args.separate_dictionaries);
            archived(&args.common, recipes::wmt16, choices, |options, progress| {
                recipes::wmt16_corpus(&args.archive, options, progress)
            })
        }
        CorpusArgs::Parallel(args) => {
            let options = args.options()?;
            let corpus = args.corpus()?;
            work(&args.common, &options, |_| Ok(corpus))
        }
    }
}

/// Prepares a corpus of archives by its recipe, with a number of merges and the choice of a joined dictionary.
fn archived(
    common: &Common,
    recipe: fn(&str, &str, &Path) -> mae_data::Result<PrepareOptions>,
    (merges, joined_dictionary): (usize, bool),
    gather: impl FnOnce(&PrepareOptions, &mut dyn FnMut(Progress<'_>)) -> mae_data::Result<Corpus>,
) -> anyhow::Result<ExitCode> {
    let options = recipe(&common.source_lang, &common.target_lang, &common.out)?;
    let options = PrepareOptions { joined_dictionary, ..common.choose(options, merges)? };
    work(common, &options, |stages| gather(&options, &mut |step| show(stages, step)))
}

fn work(
    common: &Common,
    options: &PrepareOptions,
    gather: impl FnOnce(&mut Stages) -> mae_data::Result<Corpus>,
) -> anyhow::Result<ExitCode> {
    let mut stages = Stages::new(common.quiet);
    let done =
        gather(&mut stages).and_then(|corpus| prepare(&corpus, options, |step| show(&mut stages, step)));
    stages.finish();
    let report = done?;
    if !report.removed.is_empty() {
        let (out, names) = (options.out.display(), report.removed.join(", "));
        eprintln!(
            "mae: removed from {out}, because dictionaries and codes are new and these were of an earlier run: {names}"
        );
    }
    print(common, options, &report)?;
    Ok(ExitCode::SUCCESS)
}

fn print(common: &Common, options: &PrepareOptions, report: &PrepareReport) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if common.json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
    } else if !common.quiet {
        let data = options.out.join(DATA_BIN);
        writeln!(out, "{report}")?;
        let folder = options.out.display();
        writeln!(out, "written to {folder}; {}", how_to_train(&data, options.joined_dictionary))?;
    }
    Ok(())
}

/// The command that trains on a folder, with a recipe that fits its size and this machine.
pub(super) fn how_to_train(data: &Path, joined: bool) -> String {
    let folder = data.display();
    let on_gpu = Device::cuda(0, Numbers::Bf16).is_ok();
    let pairs = detect_languages(data)
        .and_then(|(source, target)| ParallelDataset::open(data, "train", &source, &target))
        .map_or(0, |train| train.len() as u64);
    let recipe = match recipe::fitting(pairs, on_gpu) {
        // Its embeddings are shared by both languages.
        "wmt14-mae7" if !joined => "wmt14-mae7 --set model.share_embeddings=decoder",
        recipe => recipe,
    };
    let device = if on_gpu { "this GPU" } else { "a CPU" };
    format!(
        "train on it with a recipe for {pairs} pairs on {device} (`mae recipes` has others):\n  mae train {folder} --recipe \
         {recipe} --save-dir runs/mae7"
    )
}

fn show(stages: &mut Stages, step: Progress<'_>) {
    match step {
        Progress::Unpacking(name) => stages.lines(&format!("looking into {name}"), 0),
        Progress::Pairs { stage, done } => stages.lines(stage, done),
        Progress::Preprocess(step) => preprocess::show(stages, step),
    }
}
