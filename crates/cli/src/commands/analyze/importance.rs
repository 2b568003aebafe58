//! `--importance`: how much heads matter, and the loss when they are left out.

use std::io::Write;

use anyhow::Result;
use mae_data::Corpus;
use mae_model::Model;
use mae_model::importance::{self, HeadStatistics};
use mae_model::pass::Kind;
use mae_model::pruning::{self, Pruned, STEPS};
use serde::Serialize;

use crate::progress;

/// Heads of a model on a text.
#[derive(Serialize)]
pub(super) struct Importance {
    /// One per attention, in the order of a pass.
    attentions: Vec<OfAttention>,
    /// Heads of all attentions together.
    heads: usize,
    /// The loss without the least important heads: none, a tenth, … nine tenths of them.
    pruning: Vec<Pruned>,
}

/// Heads of an attention.
#[derive(Serialize)]
struct OfAttention {
    attention: String,
    kind: Kind,
    /// Mean of |w·∂L/∂w| over rows, in nats.
    importance: Vec<f64>,
    /// The same divided by its L2 norm.
    normalised: Vec<f64>,
}

/// Measures a model, which is as before afterwards.
pub(super) fn measure<M: Model>(model: &mut M, text: &dyn Corpus) -> Result<Importance> {
    let bar = progress::bar(1 + STEPS as u64, "Leaving heads out");
    let statistics = importance::of_text(model, text)?;
    bar.inc(1);
    let order = pruning::order(&statistics);
    let pruning = pruning::curve(model, text, &order, |_| bar.inc(1))?;
    bar.finish_and_clear();
    let of = |heads: &HeadStatistics| OfAttention {
        attention: heads.attention.clone(),
        kind: heads.kind,
        importance: heads.importances.clone(),
        normalised: heads.normalised(),
    };
    Ok(Importance { attentions: statistics.heads.iter().map(of).collect(), heads: order.len(), pruning })
}

/// Prints the two tables.
pub(super) fn print(out: &mut impl Write, found: &Importance) -> std::io::Result<()> {
    writeln!(
        out,
        "\nimportance of heads, |w·∂L/∂w| (Michel et al., 2019), divided by its L2 norm in each attention"
    )?;
    let columns = found.attentions.first().map_or(0, |attention| attention.normalised.len());
    let width = found.attentions.iter().map(|own| own.attention.len()).max().unwrap_or(0);
    let names: Vec<String> = (0..columns).map(|head| format!("{:>6}", format!("H{head}"))).collect();
    writeln!(out, "  {:<width$} {}", "attention", names.join(""))?;
    for OfAttention { attention, normalised, .. } in &found.attentions {
        let cells: Vec<String> = normalised.iter().map(|value| format!("{value:>6.2}")).collect();
        writeln!(out, "  {attention:<width$} {}", cells.join(""))?;
    }
    let Some(whole) = found.pruning.first() else { return Ok(()) };
    writeln!(
        out,
        "\nloss without the least important of {} heads, not trained again, bits per token ({} target tokens)",
        found.heads, whole.loss.tokens
    )?;
    writeln!(out, "  {:>10} {:>8} {:>10}", "heads out", "loss", "difference")?;
    for Pruned { removed, loss } in &found.pruning {
        writeln!(out, "  {removed:>10} {:>8.3} {:>+10.3}", loss.loss, loss.loss - whole.loss.loss)?;
    }
    Ok(())
}
