//! Translating and scoring an input, with results printed in order.

use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::ProgressBar;
use mae_eval::bleu::{BleuConfig, BleuStats};
use mae_translate::{Group, GroupOptions, Pipeline};

use super::input::Input;
use super::output::Printer;

/// Results of an input.
pub struct Done {
    /// Tokens of the best translations.
    pub tokens: usize,
    /// Counts for BLEU, if there are references.
    pub bleu: Option<BleuStats>,
}

/// Translates all of `input` and prints it in order.
pub fn translate(
    pipeline: &mut Pipeline<'_>,
    options: &GroupOptions,
    input: &Input<'_>,
    printer: &mut Printer,
    bar: &ProgressBar,
) -> anyhow::Result<Done> {
    let mut bleu = input.references.as_ref().map(|_| BleuStats::new(BleuConfig::fairseq()));
    let mut tokens = 0;
    let group = Group { sources: &input.data.src, prefixes: input.prefixes.as_deref(), first: input.first };
    pipeline.translate(group, options, &mut |done| bar.inc(done as u64), |i, found| {
        let best = &found.hypotheses[0].tokens;
        tokens += best.len();
        if let (Some(bleu), Some(references)) = (&mut bleu, &input.references) {
            bleu.add(&printer.text(input, best), &references[i..=i])?;
        }
        printer.translation(input, i, &found)
    })?;
    bar.finish_and_clear();
    Ok(Done { tokens, bleu })
}

/// Scores the references of `input` and prints the scores in order.
pub fn score(
    pipeline: &Pipeline<'_>,
    options: &GroupOptions,
    input: &Input<'_>,
    printer: &mut Printer,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    if input.references.is_none() {
        bail!("--score-reference needs references; give them with --target FILE");
    }
    let (mut tokens, begin) = (0, Instant::now());
    let pairs = (&input.data, input.first);
    pipeline.score(pairs, &options.mode, &mut |done| bar.inc(done as u64), |i, log_probs| {
        tokens += log_probs.len();
        printer.score(input, i, &log_probs)
    })?;
    bar.finish_and_clear();
    report_speed("Scored", input.len(), tokens, begin.elapsed());
    Ok(())
}

/// Prints fairseq's closing line on standard error.
pub fn report_speed(done: &str, sentences: usize, tokens: usize, took: Duration) {
    let seconds = took.as_secs_f64();
    let rate = |count: usize| count as f64 / seconds.max(1e-9);
    eprintln!(
        "{done} {sentences} sentences ({tokens} tokens) in {seconds:.1}s ({:.2} sentences/s, {:.2} tokens/s)",
        rate(sentences),
        rate(tokens)
    );
}
