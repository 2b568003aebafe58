//! Tables for the terminal.

use std::io::{Result, Write};

use mae_eval::analysis::one_expert::{Metric, OneExpert, Spread};
use mae_eval::analysis::pmi::Association;
use mae_eval::analysis::text::TextRead;
use mae_eval::analysis::{Analysis, AttentionReport, GateValues, Kind, Means, Rows};

use super::Found;
use mae_model::system::Mixes;

/// Words per expert on the terminal; the JSON and the page have them all.
const WORDS: usize = 5;

/// Prints all tables.
pub(super) fn print(out: &mut impl Write, found: &Found) -> Result<()> {
    let analysis = &found.analysis;
    let Analysis { gates, experts, heads, sentences, skipped, uniform_entropy, .. } = analysis;
    let place = found.split.as_ref().map_or(found.data.clone(), |split| format!("{} {split}", found.data));
    let read = match &analysis.text {
        Some(text) => format!("{} tokens", text.measure.tokens),
        None => format!("{sentences} sentence pairs"),
    };
    let mixed = match gates {
        _ if found.system.mixes() == Mixes::Nothing => format!("{heads} heads per attention"),
        GateValues::Probabilities => format!("{heads} heads, {experts} experts per attention"),
        GateValues::Weights => format!("{heads} heads with a weight each per attention"),
    };
    writeln!(out, "{}: {}, {mixed}; {place}: {read}", found.model, found.system)?;
    if let Some(text) = &analysis.text {
        text_read(out, text)?;
    }
    if *skipped > 0 {
        writeln!(out, "  {skipped} pairs are longer than model.max_positions and are left out")?;
    }
    match (uniform_entropy, gates) {
        _ if found.system.mixes() == Mixes::Nothing => {}
        (Some(entropy), _) if analysis.attentions.is_empty() => writeln!(
            out,
            "no gates: all experts weigh alike, entropy ln {experts} = {entropy:.3} nats everywhere"
        )?,
        (Some(entropy), GateValues::Probabilities) => {
            entropies(out, analysis, *entropy)?;
            shares(out, analysis, "share of rows that each expert leads, % (argmax)", |report| {
                &report.leads
            })?;
            shares(out, analysis, "mean gate of each expert, %", |report| &report.mean_gate)?;
            head_weights(out, analysis)?;
            tags(out, analysis)?;
            words(out, analysis)?;
            writeln!(out, "\n{}", analysis.collapse.words)?;
            writeln!(out, "  ({})", analysis.collapse.rule)?;
        }
        _ => {
            writeln!(
                out,
                "gates are weights of heads and no probabilities: entropy and experts in use are not defined"
            )?;
            head_weights(out, analysis)?;
            heads_in_use(out, analysis)?;
            shares(out, analysis, "share of rows in which each head weighs most, %", |report| &report.leads)?;
            words(out, analysis)?;
        }
    }
    if let Some(scores) = &found.one_expert {
        one_expert(out, scores)?;
    }
    if let Some(importance) = &found.importance {
        super::importance::print(out, importance)?;
    }
    Ok(())
}

/// Reading of a text, on which its numbers depend.
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

/// The letter before the number of a column: of an expert or of a head.
fn letter(analysis: &Analysis) -> char {
    match analysis.gates {
        GateValues::Probabilities => 'E',
        GateValues::Weights => 'H',
    }
}

/// The rows of an attention in words.
fn rows(analysis: &Analysis, report: &AttentionReport) -> &'static str {
    match (report.rows, report.kind) {
        (Rows::Sentences, _) => "sentences",
        (Rows::Positions, _) if analysis.text.is_some() => "positions",
        (Rows::Positions, Kind::Encoder) => "source positions",
        (Rows::Positions, Kind::Decoder | Kind::Cross) => "target positions",
    }
}

/// A part of means.
type Part = fn(&Means) -> Option<f64>;

fn entropies(out: &mut impl Write, analysis: &Analysis, uniform: f64) -> Result<()> {
    writeln!(
        out,
        "\ngate entropy in nats (ln {} = {uniform:.3} is a gate without favourites)",
        analysis.experts
    )?;
    writeln!(
        out,
        "  {:<12} {:>8} {:>10} {:>12} {:>10} {:>15} {:>12}  rows",
        "attention", "entropy", "untrained", "information", "untrained", "experts in use", "sharing"
    )?;
    for report in &analysis.attentions {
        let (Some(entropy), Some(information), Some(in_use), Some(sharing)) =
            (report.entropy, report.information, report.experts_in_use, report.sharing)
        else {
            continue;
        };
        let untrained = report.untrained.as_ref();
        writeln!(
            out,
            "  {:<12} {entropy:>8.3} {:>10} {information:>12.4} {:>10} {in_use:>15.2} {:>12}  {} {}",
            report.label,
            decimals(untrained.and_then(|gates| gates.entropy), 3),
            decimals(untrained.and_then(|gates| gates.information), 4),
            sharing.name(),
            report.count,
            rows(analysis, report)
        )?;
    }
    let Analysis { entropy, information, untrained_entropy, untrained_information, .. } = analysis;
    let parts: [(&str, Part); 4] = [
        ("encoder", |means| means.encoder),
        ("decoder", |means| means.decoder),
        ("cross", |means| means.cross),
        ("all", |means| means.all),
    ];
    for (name, of) in parts {
        // A language model has one stack only.
        if analysis.text.is_some() && name != "all" || of(entropy).is_none() {
            continue;
        }
        writeln!(
            out,
            "  {:<12} {:>8} {:>10} {:>12} {:>10}",
            format!("mean {name}"),
            decimals(of(entropy), 3),
            decimals(of(untrained_entropy), 3),
            decimals(of(information), 4),
            decimals(of(untrained_information), 4)
        )?;
    }
    writeln!(
        out,
        "  (untrained: the gates before their training, on the same inputs; information: of an input about its expert)"
    )
}

/// A number, or a dash where there is none.
fn decimals(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".into(), |value| format!("{value:.digits$}"))
}

/// Gates by tag: what they tell of it, and the mean gate of each tag where they tell most.
fn tags(out: &mut impl Write, analysis: &Analysis) -> Result<()> {
    let Some(names) = &analysis.tags else { return Ok(()) };
    writeln!(out, "\ninformation of gates about tags, I(tag; expert) in nats")?;
    writeln!(out, "  {:<12} {:>8} {:>10}", "attention", "trained", "untrained")?;
    for report in &analysis.attentions {
        let untrained = report.untrained.as_ref().and_then(|gates| gates.tags.as_ref());
        writeln!(
            out,
            "  {:<12} {:>8} {:>10}",
            report.label,
            decimals(report.tags.as_ref().map(|tags| tags.information), 4),
            decimals(untrained.map(|tags| tags.information), 4)
        )?;
    }
    let told = analysis.attentions.iter().filter_map(|report| Some((report, report.tags.as_ref()?)));
    let Some((report, most)) = told.max_by(|a, b| a.1.information.total_cmp(&b.1.information)) else {
        return Ok(());
    };
    writeln!(out, "\nmean gate of each tag in {}, where gates tell most, %", report.label)?;
    let columns: Vec<String> =
        (0..report.mean_gate.len()).map(|e| format!("{:>6}", format!("{}{e}", letter(analysis)))).collect();
    writeln!(out, "  {:<16} {:>8}{}", "tag", "rows", columns.join(""))?;
    for ((name, rows), gate) in names.iter().zip(&most.rows).zip(&most.mean_gates) {
        let cells: Vec<String> = gate.iter().map(|g| format!("{:>6.1}", 100.0 * g)).collect();
        writeln!(out, "  {name:<16} {rows:>8}{}", cells.join(""))?;
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
    let (letter, columns) =
        (letter(analysis), analysis.attentions.first().map_or(0, |report| of(report).len()));
    let names: Vec<String> = (0..columns).map(|e| format!("{:>5}", format!("{letter}{e}"))).collect();
    writeln!(out, "  {:<12} {}", "attention", names.join(""))?;
    for report in &analysis.attentions {
        let cells: Vec<String> = of(report).iter().map(|share| format!("{:>5.1}", 100.0 * share)).collect();
        writeln!(out, "  {:<12} {}", report.label, cells.join(""))?;
    }
    Ok(())
}

fn head_weights(out: &mut impl Write, analysis: &Analysis) -> Result<()> {
    let formula = match analysis.gates {
        GateValues::Probabilities => "w = g·M, ",
        GateValues::Weights => "w, ",
    };
    writeln!(out, "\nhead weights {formula}mean ± deviation over rows (1 is plain attention)")?;
    let names: Vec<String> = (0..analysis.heads).map(|h| format!("{:>13}", format!("H{h}"))).collect();
    writeln!(out, "  {:<12} {}", "attention", names.join(""))?;
    for report in &analysis.attentions {
        let cells: Vec<String> =
            report.head_weights.iter().map(|w| format!("  {:.2} ± {:.2}", w.mean, w.deviation)).collect();
        let count = match analysis.gates {
            GateValues::Probabilities => String::new(),
            GateValues::Weights => format!("   {} {}", report.count, rows(analysis, report)),
        };
        writeln!(out, "  {:<12} {}{count}", report.label, cells.join(""))?;
    }
    Ok(())
}

/// Rows that use each head, where some weigh 0.
fn heads_in_use(out: &mut impl Write, analysis: &Analysis) -> Result<()> {
    let used = |report: &AttentionReport| report.head_weights.iter().map(|w| w.used).collect::<Vec<f64>>();
    let all: Vec<Vec<f64>> = analysis.attentions.iter().map(used).collect();
    if all.iter().flatten().all(|&used| used == 1.0) {
        return Ok(());
    }
    let (heads, closed) =
        (all.iter().flatten().count(), all.iter().flatten().filter(|&&used| used == 0.0).count());
    writeln!(
        out,
        "\nshare of rows in which each head weighs more than 0, % ({closed} of {heads} heads are never used)"
    )?;
    let names: Vec<String> = (0..analysis.heads).map(|h| format!("{:>6}", format!("H{h}"))).collect();
    writeln!(out, "  {:<12} {}", "attention", names.join(""))?;
    for (report, used) in analysis.attentions.iter().zip(&all) {
        let cells: Vec<String> = used.iter().map(|share| format!("{:>6.1}", 100.0 * share)).collect();
        writeln!(out, "  {:<12} {}", report.label, cells.join(""))?;
    }
    Ok(())
}

fn words(out: &mut impl Write, analysis: &Analysis) -> Result<()> {
    let Some(first) = analysis.attentions.first() else { return Ok(()) };
    writeln!(
        out,
        "\nwords that go with the {} of {}, by log-likelihood ratio G² (words that come at least {} times; other attentions: \
         --html, --json); below each, the words of the gate before its training",
        match analysis.gates {
            GateValues::Probabilities => "experts",
            GateValues::Weights => "heads that weigh most",
        },
        first.label,
        analysis.min_count
    )?;
    let letter = letter(analysis);
    let listed = |words: &[Association]| -> String {
        let named: Vec<String> =
            words.iter().take(WORDS).map(|word| format!("{} {:.0}", word.word, word.llr)).collect();
        if named.is_empty() { "none".into() } else { named.join(", ") }
    };
    for (e, words) in first.words.iter().enumerate() {
        writeln!(out, "  {letter}{e:<3} {}", listed(words))?;
        if let Some(untrained) = &first.untrained {
            writeln!(out, "       untrained: {}", listed(&untrained.words[e]))?;
        }
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
