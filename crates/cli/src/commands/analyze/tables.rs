//! What was found, for the terminal.

use std::io::{Result, Write};

use mae_eval::analysis::one_expert::{Metric, OneExpert, Spread};
use mae_eval::analysis::text::TextRead;
use mae_eval::analysis::{Analysis, AttentionReport, Rows};

use super::Found;

/// Words per expert on the terminal; the JSON and the page have them all.
const WORDS: usize = 5;

/// Prints all tables.
pub(super) fn print(out: &mut impl Write, found: &Found) -> Result<()> {
    let analysis = &found.analysis;
    let Analysis { experts, heads, sentences, skipped, uniform_entropy, .. } = analysis;
    let place = found.split.as_ref().map_or(found.data.clone(), |split| format!("{} {split}", found.data));
    let read = match &analysis.text {
        Some(text) => format!("{} tokens", text.measure.tokens),
        None => format!("{sentences} sentence pairs"),
    };
    writeln!(
        out,
        "{}: {:?}, {heads} heads, {experts} experts per attention; {place}: {read}",
        found.model, found.system
    )?;
    if let Some(text) = &analysis.text {
        text_read(out, text)?;
    }
    if *skipped > 0 {
        writeln!(out, "  {skipped} pairs are longer than model.max_positions and are left out")?;
    }
    if analysis.attentions.is_empty() {
        writeln!(
            out,
            "no gates: all experts weigh alike, entropy ln {experts} = {uniform_entropy:.3} nats everywhere"
        )?;
    } else {
        entropies(out, analysis)?;
        shares(out, analysis, "share of rows that each expert leads, % (argmax)", |report| &report.leads)?;
        shares(out, analysis, "mean gate of each expert, %", |report| &report.mean_gate)?;
        head_weights(out, analysis)?;
        words(out, analysis)?;
        writeln!(out, "\n{}", analysis.collapse.words)?;
        writeln!(out, "  ({})", analysis.collapse.rule)?;
    }
    if let Some(scores) = &found.one_expert {
        one_expert(out, scores)?;
    }
    Ok(())
}

/// How a text was read: numbers that depend on it are worth nothing without.
fn text_read(out: &mut impl Write, text: &TextRead) -> Result<()> {
    let TextRead { measure, tokens_per_sample, context_window, .. } = text;
    writeln!(
        out,
        "  read in blocks of {tokens_per_sample} with {context_window} tokens of context; each token counts once, ends of {} \
         lines counted ({} tokens are <unk>)",
        measure.lines, measure.unknown
    )?;
    writeln!(
        out,
        "  mixture: perplexity per token {:.2}, per word {:.2} ({} words)",
        text.ppl_per_token, text.ppl_per_word, measure.words
    )
}

fn entropies(out: &mut impl Write, analysis: &Analysis) -> Result<()> {
    writeln!(
        out,
        "\ngate entropy in nats (ln {} = {:.3} is a gate without favourites)",
        analysis.experts, analysis.uniform_entropy
    )?;
    writeln!(
        out,
        "  {:<12} {:>8} {:>12} {:>15} {:>12}  rows",
        "attention", "entropy", "information", "experts in use", "sharing"
    )?;
    for report in &analysis.attentions {
        let rows = match report.rows {
            Rows::Sentences => "sentences",
            Rows::Positions if analysis.text.is_some() => "positions",
            Rows::Positions => "target positions",
        };
        writeln!(
            out,
            "  {:<12} {:>8.3} {:>12.3} {:>15.2} {:>12}  {} {rows}",
            report.label,
            report.entropy,
            report.information,
            report.experts_in_use,
            report.sharing.name(),
            report.count
        )?;
    }
    let means = &analysis.entropy;
    for (name, mean) in
        [("encoder", means.encoder), ("decoder", means.decoder), ("cross", means.cross), ("all", means.all)]
    {
        // A language model has one stack only.
        let alone = analysis.text.is_some() && name != "all";
        if let Some(mean) = mean.filter(|_| !alone) {
            writeln!(out, "  {:<12} {mean:>8.3}", format!("mean {name}"))?;
        }
    }
    Ok(())
}

fn shares(
    out: &mut impl Write,
    analysis: &Analysis,
    title: &str,
    of: impl Fn(&AttentionReport) -> &[f64],
) -> Result<()> {
    writeln!(out, "\n{title}")?;
    let names: Vec<String> = (0..analysis.experts).map(|e| format!("{:>5}", format!("E{e}"))).collect();
    writeln!(out, "  {:<12} {}", "attention", names.join(""))?;
    for report in &analysis.attentions {
        let cells: Vec<String> = of(report).iter().map(|share| format!("{:>5.1}", 100.0 * share)).collect();
        writeln!(out, "  {:<12} {}", report.label, cells.join(""))?;
    }
    Ok(())
}

fn head_weights(out: &mut impl Write, analysis: &Analysis) -> Result<()> {
    writeln!(out, "\nhead weights w = g·M, mean ± deviation over rows (1 is plain attention)")?;
    let names: Vec<String> = (0..analysis.heads).map(|h| format!("{:>13}", format!("H{h}"))).collect();
    writeln!(out, "  {:<12} {}", "attention", names.join(""))?;
    for report in &analysis.attentions {
        let cells: Vec<String> =
            report.head_weights.iter().map(|w| format!("  {:.2} ± {:.2}", w.mean, w.deviation)).collect();
        writeln!(out, "  {:<12} {}", report.label, cells.join(""))?;
    }
    Ok(())
}

fn words(out: &mut impl Write, analysis: &Analysis) -> Result<()> {
    let Some(first) = analysis.attentions.first() else { return Ok(()) };
    writeln!(
        out,
        "\nwords that go with the experts of {} (PMI in nats; words that come at least {} times; other attentions: \
         --html, --json)",
        first.label, analysis.min_count
    )?;
    for (e, words) in first.words.iter().enumerate() {
        let named: Vec<String> =
            words.iter().take(WORDS).map(|word| format!("{} {:.2}", word.word, word.pmi)).collect();
        writeln!(out, "  E{e:<3} {}", if named.is_empty() { "none".into() } else { named.join(", ") })?;
    }
    Ok(())
}

fn one_expert(out: &mut impl Write, scores: &OneExpert) -> Result<()> {
    let (unit, meaning) = match scores.metric {
        Metric::Bleu { beam } => {
            ("BLEU", format!("BLEU, fairseq's, on whitespace tokens with pieces joined; beam {beam}"))
        }
        Metric::PerplexityPerWord => {
            ("perplexity", "perplexity per word, lower is better; random ones are drawn per block".to_owned())
        }
    };
    writeln!(out, "\none expert per attention ({meaning})")?;
    writeln!(out, "  {:<34} {:>14} {:>12}", "experts", unit, "difference")?;
    writeln!(out, "  {:<34} {:>14.2}", "mixture", scores.mixture)?;
    if let Some(argmax) = scores.argmax {
        writeln!(out, "  {:<34} {argmax:>14.2} {:>+12.2}", "the gates' favourite", argmax - scores.mixture)?;
    }
    if let Some(Spread { mean, deviation }) = Spread::of(&scores.random) {
        writeln!(
            out,
            "  {:<34} {:>14} {:>+12.2}",
            format!("random, {} draws", scores.random.len()),
            format!("{mean:.2} ± {deviation:.2}"),
            mean - scores.mixture
        )?;
    }
    Ok(())
}
