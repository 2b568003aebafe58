//! `mae score --sentence-level`: a score for each line.

use std::io::Write;

use anyhow::ensure;
use mae_eval::bleu::BleuConfig;
use mae_eval::metric::{Counted, Metric};
use rayon::prelude::*;
use serde_json::json;

use super::metrics::{cut, read};
use super::{Args, bleu_object};

use crate::exit::ExitCode;

/// Prints a line or a JSON object for each segment.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.sys.len() == 1, "--sentence-level is of one --sys only");
    let [name] = args.metrics[..] else {
        anyhow::bail!("--sentence-level is of one metric only; name it with --metric")
    };
    let metric = match args.named(name)? {
        Metric::Bleu(config) => Metric::Bleu(BleuConfig { effective_order: true, ..config }),
        other => other,
    };
    let mut segments = read(args)?;
    if let Metric::Bleu(config) = metric
        && let Some(cutter) = args.references.cutter(config.tokenizer)?
    {
        segments = cut(&segments, &cutter, config.lowercase);
    }
    let lines = segments.par_iter().map(|lines| {
        let mut counted = Counted::new(metric);
        counted.add(&lines[0], &lines[1..])?;
        Ok(line(args, &counted))
    });
    let mut out = std::io::stdout().lock();
    for line in lines.collect::<anyhow::Result<Vec<_>>>()? {
        writeln!(out, "{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn line(args: &Args, counted: &Counted) -> String {
    let digits = args.width.into();
    if args.json {
        let mut object = counted.bleu().map_or_else(|| json!({}), |bleu| bleu_object(&bleu, 1));
        object["name"] = json!(counted.metric().name());
        object["score"] = json!(counted.score());
        object["signature"] = json!(counted.signature(None));
        object.to_string()
    } else if args.score_only {
        format!("{:.digits$}", counted.score())
    } else {
        counted.line(digits)
    }
}
