//! Several metrics, several systems, confidence intervals and the paired test.

use std::io::Write;

use anyhow::{bail, ensure};
use mae_eval::bleu::{ExactMatch, LineCutter};
use mae_eval::chrf::{ChrfConfig, Orders};
use mae_eval::metric::{Counted, Metric, NoReference};
use mae_eval::significance::{
    Comparison, Method, Resampling, confidence, paired_bootstrap, paired_randomization,
};
use mae_eval::ter::TerConfig;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::input::Periods;
use super::{Args, bleu_object, exact_line, exact_object};

use crate::exit::ExitCode;

/// A metric by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MetricName {
    /// Precision of word n-grams.
    Bleu,
    /// F-score of character n-grams (chrF; chrF++ with --chrf-word-order 2).
    Chrf,
    /// Translation edit rate: lower is better.
    Ter,
}

/// Settings of chrF and TER, and of resampling.
#[derive(clap::Args)]
pub struct MetricArgs {
    /// Longest character n-grams of chrF.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..))]
    chrf_char_order: u8,
    /// Longest word n-grams of chrF; 2 gives chrF++.
    #[arg(long, value_name = "N", default_value_t = 0)]
    chrf_word_order: u8,
    /// Weight β of recall against precision in chrF.
    #[arg(long, value_name = "N", default_value_t = 2)]
    chrf_beta: u32,
    /// Count white space in chrF.
    #[arg(long)]
    chrf_whitespace: bool,
    /// Count all orders in chrF, empty ones with a tiny value, like chrF++.py, NLTK and Moses.
    #[arg(long)]
    chrf_eps_smoothing: bool,
    /// Decode entities and split off punctuation in TER.
    #[arg(long)]
    ter_normalized: bool,
    /// Ignore punctuation in TER.
    #[arg(long)]
    ter_no_punct: bool,
    /// Apply the two options above to Chinese and Japanese as well, whose characters become words.
    #[arg(long)]
    ter_asian_support: bool,
    /// Distinguish upper and lower case in TER.
    #[arg(long)]
    ter_case_sensitive: bool,
    /// Print the 95 % confidence interval of each score, by bootstrap resampling.
    #[arg(long, conflicts_with_all = ["multi_bleu", "fairseq"])]
    confidence: bool,
    /// Compare each system with the first --sys by the paired bootstrap test.
    #[arg(long, conflicts_with_all = ["multi_bleu", "fairseq", "confidence"])]
    paired_bs: bool,
    /// Compare each system with the first --sys by approximate randomisation: translations are swapped.
    #[arg(long, conflicts_with_all = ["multi_bleu", "fairseq", "confidence", "paired_bs"])]
    paired_ar: bool,
    /// Number of resamples [default: 1000], or of trials with --paired-ar [default: 10000].
    #[arg(long, value_name = "N", visible_aliases = ["confidence-n", "paired-bs-n", "paired-ar-n"], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: Option<u32>,
    /// Seed of the random numbers; the default is that of sacreBLEU.
    #[arg(long, value_name = "SEED", default_value_t = 12345)]
    seed: u64,
}

impl MetricArgs {
    /// Returns true if corpora are resampled.
    pub fn resamples(&self) -> bool {
        self.confidence || self.is_paired()
    }

    fn is_paired(&self) -> bool {
        self.paired_bs || self.paired_ar
    }

    fn resampling(&self) -> Resampling {
        let (method, usual) =
            if self.paired_ar { (Method::Randomization, 10_000) } else { (Method::Bootstrap, 1000) };
        Resampling { method, samples: self.samples.unwrap_or(usual) as usize, seed: self.seed }
    }
}

impl Args {
    pub(super) fn named(&self, name: MetricName) -> anyhow::Result<Metric> {
        let more = &self.more;
        Ok(match name {
            MetricName::Bleu => Metric::Bleu(self.config()?),
            MetricName::Chrf => Metric::Chrf(ChrfConfig {
                char_order: more.chrf_char_order.into(),
                word_order: more.chrf_word_order.into(),
                beta: more.chrf_beta,
                lowercase: self.lowercase,
                whitespace: more.chrf_whitespace,
                orders: if more.chrf_eps_smoothing { Orders::All } else { Orders::Effective },
            }),
            MetricName::Ter => Metric::Ter(TerConfig {
                normalized: more.ter_normalized,
                no_punct: more.ter_no_punct,
                asian_support: more.ter_asian_support,
                case_sensitive: more.ter_case_sensitive,
            }),
        })
    }
}

/// Scores what is more than one BLEU.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let systems = args.sys.len();
    ensure!(systems == 1 || !(args.multi_bleu || args.fairseq), "tokenised BLEU is of one --sys only");
    ensure!(systems == 1 || !args.exact, "--exact is of one --sys only");
    ensure!(
        systems > 1 || !args.more.is_paired(),
        "--paired-bs and --paired-ar compare systems: give --sys more than once"
    );
    ensure!(systems == 1 || !args.more.confidence, "use --paired-bs for the intervals of several systems");
    let cutter = args.references.cutter(args.config()?.tokenizer)?;
    let segments = read(args)?;
    let cut = cutter.map(|cutter| cut(&segments, &cutter, args.lowercase));
    let mut texts = Vec::new();
    let mut objects = Vec::new();
    for &name in &args.metrics {
        let metric = args.named(name)?;
        let segments = cut.as_ref().filter(|_| name == MetricName::Bleu).unwrap_or(&segments);
        let counted = (0..systems).map(|system| count(&metric, segments, system, systems));
        let counted = counted.collect::<Result<Vec<Counted>, NoReference>>()?;
        let (text, object) = match counted.as_slice() {
            [one] => single(args, name, one)?,
            _ => table(args, name, &counted)?,
        };
        texts.push(text);
        objects.push(object);
    }
    if args.exact {
        let mut exact = ExactMatch::default();
        segments.iter().for_each(|lines| exact.add(&lines[0], &lines[1..]));
        texts.push(exact_line(exact));
        match objects.as_mut_slice() {
            [one] => one["exact"] = exact_object(exact),
            _ => objects.push(json!({ "metric": "exact", "exact": exact_object(exact) })),
        }
    }
    let mut out = std::io::stdout().lock();
    match (args.json, objects.as_slice()) {
        (false, _) => texts.iter().try_for_each(|text| writeln!(out, "{text}"))?,
        (true, [object]) => writeln!(out, "{object}")?,
        (true, objects) => writeln!(out, "{}", json!(objects))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The lines of all systems and references, without blanks at their ends.
pub(super) fn read(args: &Args) -> anyhow::Result<Vec<Vec<String>>> {
    let mut files = args.open()?;
    let mut periods = match args.metrics.contains(&MetricName::Bleu) {
        true => args.periods()?,
        false => Periods::new(&[], false),
    };
    let mut segments = Vec::new();
    while let Some(mut lines) = files.next()? {
        // sacreBLEU's program does so as well; only chrF with white space can tell.
        let blank = |c: char| c.is_whitespace() || matches!(c, '\x1c'..='\x1f');
        lines.iter_mut().for_each(|line| line.truncate(line.trim_end_matches(blank).len()));
        periods.add(&lines);
        segments.push(lines);
    }
    periods.tell();
    if segments.is_empty() {
        bail!("there is nothing to score: {} has no lines", args.sys[0].display());
    }
    Ok(segments)
}

/// All lines as the words that a tokeniser finds by its file.
pub(super) fn cut(segments: &[Vec<String>], cutter: &LineCutter, lowercase: bool) -> Vec<Vec<String>> {
    let line = |line: &String| cutter.line(line, lowercase);
    segments.par_iter().map(|lines| lines.iter().map(line).collect()).collect()
}

fn count(
    metric: &Metric,
    segments: &[Vec<String>],
    system: usize,
    systems: usize,
) -> Result<Counted, NoReference> {
    let rows = segments.par_iter().map(|lines| metric.row(&lines[system], &lines[systems..]));
    let mut counted = Counted::new(*metric);
    for row in rows.collect::<Result<Vec<_>, _>>()? {
        counted.push(row, segments[0].len() - systems);
    }
    Ok(counted)
}

/// One system: sacreBLEU's line.
fn single(args: &Args, name: MetricName, counted: &Counted) -> anyhow::Result<(String, Value)> {
    let digits = args.width.into();
    let mut object = object(args, name, counted);
    object["score"] = json!(counted.score());
    let line = if args.more.confidence {
        let resampling = args.more.resampling();
        let interval = confidence(counted, resampling)?;
        object["confidence"] = json!({ "mean": interval.mean, "half_width": interval.half_width });
        counted.confidence_line(digits, resampling, interval)
    } else if args.score_only {
        format!("{:.digits$}", counted.score())
    } else {
        counted.line(digits)
    };
    object["line"] = json!(line);
    Ok((line, object))
}

/// Several systems: the signature, and below it a row for each.
fn table(args: &Args, name: MetricName, counted: &[Counted]) -> anyhow::Result<(String, Value)> {
    let digits = args.width.into();
    let resampling = args.more.resampling();
    let compared = if args.more.is_paired() {
        let compared = match resampling.method {
            Method::Bootstrap => paired_bootstrap(counted, resampling)?,
            Method::Randomization => paired_randomization(counted, resampling)?,
        };
        compared.into_iter().map(Some).collect()
    } else {
        vec![None; counted.len()]
    };
    let mut object = object(args, name, &counted[0]);
    // What follows from the counts of one system is no part of the comparison.
    for key in ["score", "precisions", "counts", "totals", "bp", "ratio", "hyp_len", "ref_len"] {
        object.as_object_mut().map(|object| object.remove(key));
    }
    let mut text =
        format!("{}|{}", counted[0].metric().name(), object["signature"].as_str().unwrap_or_default());
    let names: Vec<String> = args.sys.iter().map(|path| path.display().to_string()).collect();
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut rows = Vec::new();
    for ((system, counted), compared) in names.iter().zip(counted).zip(compared) {
        let score = counted.score();
        text += &format!("\n{system:<widest$}  {score:.digits$}");
        let mut row = json!({ "system": system, "score": score });
        if let Some(Comparison { interval, p_value, .. }) = compared {
            if let Some(interval) = interval {
                text += &format!(" ({:.digits$} ± {:.digits$})", interval.mean, interval.half_width);
                row["confidence"] = json!({ "mean": interval.mean, "half_width": interval.half_width });
            }
            row["p_value"] = json!(p_value);
            if let Some(p) = p_value {
                text += &format!(" (p = {p:.4}){}", if p > 0.05 { "" } else { "*" });
            }
        }
        rows.push(row);
    }
    object["systems"] = json!(rows);
    Ok((text, object))
}

/// Common fields of the JSON of a metric.
fn object(args: &Args, name: MetricName, counted: &Counted) -> Value {
    let lines = counted.rows().len();
    let mut object = match counted.bleu() {
        Some(bleu) => bleu_object(&bleu, lines as u64),
        None => json!({ "metric": if name == MetricName::Chrf { "chrf" } else { "ter" }, "lines": lines }),
    };
    let resampling = args.more.resamples().then(|| args.more.resampling());
    object["name"] = json!(counted.metric().name());
    object["signature"] = json!(counted.signature(resampling));
    if let Some(Resampling { samples, seed, .. }) = resampling {
        object["resampling"] = json!({ "samples": samples, "seed": seed });
    }
    object
}
