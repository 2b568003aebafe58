//! `mae score`: BLEU of translations against references, to the digit what sacreBLEU and multi-bleu print.

use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{bail, ensure};
use mae_data::{BadUtf8, LineReader};
use mae_eval::bleu::{BleuConfig, BleuScore, BleuStats, ExactMatch, Smoothing, Tokenizer};
use serde_json::json;

const EXAMPLE: &str = "\
Detokenised text, the line sacreBLEU prints:

    mae score --sys hyp.txt --ref newstest2014.de

Tokenised text, the line multi-bleu.perl prints:

    mae score --sys hyp.tok --ref ref.tok --multi-bleu

Straight from a model, with the share of translations that are exactly right:

    mae generate MODEL --source src.txt --plain | mae score --sys - --ref ref.txt --exact

Compare scores only where their signatures are equal; tokenised and detokenised BLEU are different numbers.";

/// BLEU of translations against one or more references, and the share of exact matches.
///
/// Line n of each file belongs to line n of the others. Files may be compressed (gzip, zstd).
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// Translations, one per line; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    sys: PathBuf,
    /// References, one per line; give --ref again for each further set.
    #[arg(short, long = "ref", value_name = "FILE", required = true)]
    refs: Vec<PathBuf>,
    /// How lines become words: 13a for detokenised text, none for text that is tokenised already.
    #[arg(long, value_name = "TOK", default_value = "13a", value_parser = ["13a", "none"])]
    tok: String,
    /// Lower-case both sides first.
    #[arg(long, alias = "ignore-case")]
    lowercase: bool,
    /// What stands in for a precision of zero: exp, none, floor, floor:VALUE, add-k or add-k:VALUE.
    #[arg(long, value_name = "HOW", default_value = "exp", value_parser = smoothing)]
    smooth: Smoothing,
    /// Tokenised BLEU: print the line of Moses' multi-bleu.perl (words between blanks, no smoothing).
    #[arg(long, visible_alias = "tokenized", conflicts_with_all = ["tok", "smooth", "fairseq"])]
    multi_bleu: bool,
    /// Tokenised BLEU: print the line of fairseq-score.
    #[arg(long, conflicts_with_all = ["tok", "smooth"])]
    fairseq: bool,
    /// Also print the share of translations that equal a reference but for blanks at the ends.
    #[arg(long)]
    exact: bool,
    /// Digits after the point of sacreBLEU's score.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(..=17))]
    width: u8,
    /// Print everything as one JSON object.
    #[arg(long)]
    json: bool,
}

/// A smoothing whose value makes sense.
fn smoothing(text: &str) -> Result<Smoothing, String> {
    let smoothing = text.parse().map_err(|e: mae_eval::bleu::BleuError| e.to_string())?;
    match smoothing {
        Smoothing::Floor(value) | Smoothing::AddK(value) if !(value.is_finite() && value >= 0.0) => {
            Err(format!("the value {value} must be a number of at least 0"))
        }
        _ => Ok(smoothing),
    }
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
        Ok(BleuConfig { lowercase: self.lowercase, ..base })
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
    let (stats, exact) = count(&args)?;
    let score = stats.score();
    let (metric, line) = args.metric(&score);
    let mut out = std::io::stdout().lock();
    if args.json {
        let mut object = json!({
            "metric": metric,
            "score": score.score,
            "line": line,
            "signature": score.signature.to_string(),
            "precisions": score.precisions,
            "counts": score.counts,
            "totals": score.totals,
            "bp": score.bp,
            "ratio": score.ratio(),
            "hyp_len": score.sys_len,
            "ref_len": score.ref_len,
            "lines": stats.segments(),
        });
        if args.exact {
            object["exact"] = json!({ "equal": exact.equal, "share": exact.share() });
        }
        writeln!(out, "{object}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{line}")?;
    if args.exact {
        let percent = 100.0 * exact.share();
        writeln!(out, "exact match = {percent:.2}% ({} of {} lines)", exact.equal, exact.lines)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads all files side by side.
fn count(args: &Args) -> anyhow::Result<(BleuStats, ExactMatch)> {
    let files: Vec<&PathBuf> = std::iter::once(&args.sys).chain(&args.refs).collect();
    ensure!(
        files.iter().filter(|path| is_stdin(path)).count() <= 1,
        "standard input (`-`) can be one file only"
    );
    let mut readers = files.into_iter().map(|path| open(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut stats = BleuStats::new(args.config()?);
    let mut exact = ExactMatch::default();
    loop {
        let lines = readers.iter_mut().map(|reader| reader.next().transpose());
        let lines = lines.collect::<Result<Vec<Option<String>>, _>>()?;
        let ended = lines.iter().filter(|line| line.is_none()).count();
        if ended == readers.len() {
            break;
        }
        if ended > 0 {
            return Err(mismatch(readers)?);
        }
        let mut lines = lines.into_iter().flatten();
        let hypothesis = lines.next().unwrap_or_default();
        let references: Vec<String> = lines.collect();
        stats.add(&hypothesis, &references)?;
        let equal = references.iter().any(|reference| reference.trim() == hypothesis.trim());
        exact.merge(ExactMatch { equal: equal.into(), lines: 1 });
    }
    if stats.segments() == 0 {
        bail!("there is nothing to score: {} has no lines", args.sys.display());
    }
    Ok((stats, exact))
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn open(path: &Path) -> anyhow::Result<LineReader> {
    Ok(if is_stdin(path) {
        LineReader::new("standard input", BufReader::new(std::io::stdin()), BadUtf8::Error)
    } else {
        // The message has its cause in it already.
        LineReader::open(path, BadUtf8::Error).map_err(|error| anyhow::anyhow!("{error}"))?
    })
}

/// The complaint that some files go on where others end, with the counts of all.
fn mismatch(readers: Vec<LineReader>) -> anyhow::Result<anyhow::Error> {
    let mut counts = Vec::new();
    for mut reader in readers {
        while reader.next_line()?.is_some() {}
        counts.push(format!("{} has {}", reader.path().display(), reader.lines_read()));
    }
    let counts = counts.join(", ");
    Ok(anyhow::anyhow!(
        "the files do not have the same number of lines: {counts}; line n of each must belong together"
    ))
}
