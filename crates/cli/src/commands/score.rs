//! `mae score`: BLEU, chrF and TER of translations against references, to the digit what sacreBLEU, multi-bleu and
//! fairseq print, and whether systems differ.

mod input;
mod metrics;
mod references;
mod sentences;

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use mae_eval::bleu::{BleuConfig, BleuScore, BleuStats, Compounds, ExactMatch, Smoothing};
use serde_json::{Value, json};

use input::{Periods, SideBySide};
use metrics::{MetricArgs, MetricName};
use references::RefArgs;

use crate::exit::ExitCode;

const EXAMPLES: &str = "\
Examples:
  Score detokenised text; prints the line of sacreBLEU:
    mae score --sys hyp.txt --ref newstest2014.de

  Score tokenised text; prints the line of multi-bleu.perl:
    mae score --sys hyp.tok --ref ref.tok --multi-bleu

  The number that many papers report for WMT14 English to German (about a point more; label it):
    mae score --sys hyp.tok --ref newstest2014.tok.de --multi-bleu \\
        --compound-split

  Score the output of a model, with the share of translations that match the reference exactly:
    mae generate MODEL --source src.txt --plain | mae score --sys - \\
        --ref ref.txt --exact

  Compare two systems by three metrics, with a paired bootstrap test (or --paired-ar):
    mae score --sys base.txt --sys mae.txt --ref ref.txt \\
        --metric bleu,chrf,ter --paired-bs

  Score Chinese, or any language by the pieces of FLORES-200 (a SentencePiece model to download):
    mae score --sys hyp.zh --ref ref.zh --tok zh
    mae score --sys hyp.zh --ref ref.zh --tok flores200 \\
        --spm-model flores200sacrebleuspm

  Score each line by itself; lines of refs.tsv hold four references with tabs between them:
    mae score --sys hyp.txt --ref refs.tsv --num-refs 4 --sentence-level \\
        --score-only

  Score against a test set that sacreBLEU has downloaded:
    mae score --sys hyp.txt --test-set wmt14/full --langpair en-de

Compare scores only if their signatures are equal: tokenised and detokenised BLEU are different
numbers.";

/// Compute BLEU, chrF and TER of translations against one or more references, and exact matches.
///
/// Line n of each file belongs to line n of the others. Files can be compressed (gzip, zstd).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Translations, one per line; `-` is standard input. Repeat --sys for each further system.
    #[arg(short, long, value_name = "FILE", required = true)]
    sys: Vec<PathBuf>,
    #[command(flatten)]
    references: RefArgs,
    /// Metrics, separated by commas.
    #[arg(short, long = "metric", value_name = "NAME", default_value = "bleu", value_delimiter = ',')]
    metrics: Vec<MetricName>,
    /// Tokeniser of BLEU: 13a for detokenised text (the default), intl for all punctuation and symbols of Unicode, zh
    /// for Chinese, ja-mecab for Japanese, ko-mecab for Korean, char for single characters, flores101, flores200 or spBLEU-1K for the pieces of a SentencePiece
    /// model, none for text that is tokenised already.
    #[arg(long, value_name = "TOK", visible_alias = "tokenize", value_parser = TOKENIZERS)]
    tok: Option<String>,
    /// Convert both sides to lower case first (BLEU and chrF; TER has its own flag).
    #[arg(long, alias = "ignore-case")]
    lowercase: bool,
    /// Smoothing of zero precisions: exp, none, floor, floor:VALUE, add-k or add-k:VALUE.
    #[arg(long, value_name = "HOW", default_value = "exp")]
    smooth: Smoothing,
    /// Tokenised BLEU: print the line of multi-bleu.perl of Moses (tokens separated by blanks, no smoothing).
    #[arg(long, group = "tokenised", visible_alias = "tokenized", conflicts_with_all = ["tok", "smooth", "fairseq", "metrics"])]
    multi_bleu: bool,
    /// Tokenised BLEU: print the line of fairseq-score.
    #[arg(long, group = "tokenised", conflicts_with_all = ["tok", "smooth", "metrics"])]
    fairseq: bool,
    /// First split words at dashes on both sides, like get_ende_bleu.sh of Tensor2Tensor and compound_split_bleu.sh of
    /// fairseq; with --multi-bleu or --fairseq, whose output is then labelled.
    #[arg(long, requires = "tokenised")]
    compound_split: bool,
    /// Score each line by itself: one metric of one system, and BLEU of the orders that a line has.
    #[arg(long, conflicts_with_all = ["tokenised", "confidence", "paired_bs", "paired_ar", "exact"])]
    sentence_level: bool,
    /// Print scores without signatures and details.
    #[arg(short = 'b', long, conflicts_with_all = ["tokenised", "json", "confidence", "paired_bs", "paired_ar"])]
    score_only: bool,
    /// Say nothing about translations that look tokenised.
    #[arg(long)]
    force: bool,
    /// Also print the share of translations that equal a reference, ignoring blanks at the ends.
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    more: MetricArgs,
    /// Digits after the decimal point in scores of sacreBLEU.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(..=17))]
    width: u8,
    /// Print one JSON object, or an array of them for several metrics.
    #[arg(long)]
    json: bool,
}

/// Names of tokenisers.
const TOKENIZERS: [&str; 11] = [
    "13a",
    "intl",
    "zh",
    "char",
    "flores101",
    "flores200",
    "spm",
    "spBLEU-1K",
    "none",
    "ja-mecab",
    "ko-mecab",
];

impl Args {
    fn config(&self) -> anyhow::Result<BleuConfig> {
        let base = if self.multi_bleu {
            BleuConfig::multi_bleu()
        } else if self.fairseq {
            BleuConfig::fairseq()
        } else {
            let tokenizer = self.references.tokenizer(self.tok.as_deref())?;
            BleuConfig { tokenizer, smoothing: self.smooth, ..BleuConfig::default() }
        };
        let compounds = if self.compound_split { Compounds::Split } else { Compounds::Whole };
        Ok(BleuConfig { lowercase: self.lowercase, compounds, ..base })
    }

    /// All files side by side: systems, then references.
    fn open(&self) -> anyhow::Result<SideBySide> {
        let (references, fields) = self.references.files()?;
        SideBySide::open(self.sys.iter().chain(&references), fields)
    }

    /// Counts of lines that look tokenised, one per system.
    fn periods(&self) -> anyhow::Result<Periods> {
        Ok(Periods::new(&self.sys, !self.force && self.config()?.expects_detokenised()))
    }

    /// The name of the metric, and the line of the tool that defines it.
    fn metric(&self, score: &BleuScore) -> (&'static str, String) {
        if self.multi_bleu {
            ("multi-bleu", score.multi_bleu_line())
        } else if self.fairseq {
            ("fairseq", score.fairseq_line())
        } else if self.score_only {
            ("sacrebleu", format!("{:.*}", self.width.into(), score.score))
        } else {
            ("sacrebleu", score.sacrebleu_line(self.width.into()))
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.sentence_level {
        return sentences::run(&args);
    }
    if args.metrics != [MetricName::Bleu] || args.sys.len() > 1 || args.more.resamples() {
        return metrics::run(&args);
    }
    let (stats, exact) = count(&args)?;
    let score = stats.score();
    let (metric, line) = args.metric(&score);
    let mut out = std::io::stdout().lock();
    if args.json {
        let mut object = bleu_object(&score, stats.segments());
        object["metric"] = json!(metric);
        object["line"] = json!(line);
        if args.exact {
            object["exact"] = exact_object(exact);
        }
        writeln!(out, "{object}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{line}")?;
    if args.exact {
        writeln!(out, "{}", exact_line(exact))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// JSON of a BLEU score without its line.
fn bleu_object(score: &BleuScore, lines: u64) -> Value {
    json!({
        "metric": "sacrebleu",
        "score": score.score,
        "signature": score.signature.to_string(),
        "precisions": score.precisions,
        "counts": score.counts,
        "totals": score.totals,
        "bp": score.bp,
        "ratio": score.ratio(),
        "hyp_len": score.sys_len,
        "ref_len": score.ref_len,
        "lines": lines,
    })
}

fn exact_object(exact: ExactMatch) -> Value {
    json!({ "equal": exact.equal, "share": exact.share() })
}

fn exact_line(exact: ExactMatch) -> String {
    let percent = 100.0 * exact.share();
    format!("exact match = {percent:.2}% ({} of {} lines)", exact.equal, exact.lines)
}

/// Reads all files side by side.
fn count(args: &Args) -> anyhow::Result<(BleuStats, ExactMatch)> {
    let config = args.config()?;
    let cutter = args.references.cutter(config.tokenizer)?;
    let mut files = args.open()?;
    let mut periods = args.periods()?;
    let mut stats = BleuStats::new(config);
    let mut exact = ExactMatch::default();
    while let Some(mut lines) = files.next()? {
        periods.add(&lines);
        exact.add(&lines[0], &lines[1..]);
        if let Some(cutter) = &cutter {
            lines.iter_mut().for_each(|line| *line = cutter.line(line, config.lowercase));
        }
        stats.add(&lines[0], &lines[1..])?;
    }
    periods.tell();
    if stats.segments() == 0 {
        bail!("there is nothing to score: {} has no lines", args.sys[0].display());
    }
    Ok((stats, exact))
}
