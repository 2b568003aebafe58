//! `mae score`: BLEU, chrF and TER of translations against references, to the digit what sacreBLEU, multi-bleu and
//! fairseq print, and whether systems differ.

mod input;
mod metrics;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use mae_eval::bleu::{BleuConfig, BleuScore, BleuStats, Compounds, ExactMatch, Smoothing, Tokenizer};
use serde_json::{Value, json};

use input::SideBySide;
use metrics::{MetricArgs, MetricName};

const EXAMPLES: &str = "\
Examples:
  Score detokenised text; prints the line of sacreBLEU:
    mae score --sys hyp.txt --ref newstest2014.de

  Score tokenised text; prints the line of multi-bleu.perl:
    mae score --sys hyp.tok --ref ref.tok --multi-bleu

  The number that many papers report for WMT14 English to German (about a point more; label it):
    mae score --sys hyp.tok --ref newstest2014.tok.de --multi-bleu --compound-split

  Score the output of a model, with the share of translations that match the reference exactly:
    mae generate MODEL --source src.txt --plain | mae score --sys - --ref ref.txt --exact

  Compare two systems by three metrics, with a paired bootstrap test (or --paired-ar):
    mae score --sys base.txt --sys mae.txt --ref ref.txt --metric bleu,chrf,ter --paired-bs

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
    /// References, one per line. Repeat --ref for each further set.
    #[arg(short, long = "ref", value_name = "FILE", required = true)]
    refs: Vec<PathBuf>,
    /// Metrics, separated by commas.
    #[arg(short, long = "metric", value_name = "NAME", default_value = "bleu", value_delimiter = ',')]
    metrics: Vec<MetricName>,
    /// Tokeniser of BLEU: 13a for detokenised text, intl for all punctuation and symbols of Unicode, char for single
    /// characters, none for text that is tokenised already.
    #[arg(long, value_name = "TOK", default_value = "13a", value_parser = ["13a", "intl", "char", "none"])]
    tok: String,
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

impl Args {
    fn config(&self) -> anyhow::Result<BleuConfig> {
        let base = if self.multi_bleu {
            BleuConfig::multi_bleu()
        } else if self.fairseq {
            BleuConfig::fairseq()
        } else {
            let tokenizer = self.tok.parse::<Tokenizer>()?;
            BleuConfig { tokenizer, smoothing: self.smooth, ..BleuConfig::default() }
        };
        let compounds = if self.compound_split { Compounds::Split } else { Compounds::Whole };
        Ok(BleuConfig { lowercase: self.lowercase, compounds, ..base })
    }

    /// The name of the metric, and the line of the tool that defines it.
    fn metric(&self, score: &BleuScore) -> (&'static str, String) {
        if self.multi_bleu {
            ("multi-bleu", score.multi_bleu_line())
        } else if self.fairseq {
            ("fairseq", score.fairseq_line())
        } else {
            ("sacrebleu", score.sacrebleu_line(self.width.into()))
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
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
    let mut files = SideBySide::open(args.sys.iter().chain(&args.refs))?;
    let mut stats = BleuStats::new(args.config()?);
    let mut exact = ExactMatch::default();
    while let Some(lines) = files.next()? {
        let (hypothesis, references) = (&lines[0], &lines[1..]);
        stats.add(hypothesis, references)?;
        exact.add(hypothesis, references);
    }
    if stats.segments() == 0 {
        bail!("there is nothing to score: {} has no lines", args.sys[0].display());
    }
    Ok((stats, exact))
}
