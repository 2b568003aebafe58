//! Heads out of a plain model: rows of the projections to queries, keys and values, columns of the output projection.

use super::fold::names;
use super::{Convertible, Ranking, Removal, Removed};
use crate::Result;
use crate::importance::TextStatistics;
use crate::kind::Config;

/// The heads of each attention that come first in the ranking.
pub(super) fn weakest(statistics: &TextStatistics, removal: Removal) -> Vec<Removed> {
    let of_attention = |head: &crate::importance::HeadStatistics| {
        let values = match removal.by {
            Ranking::Importance => &head.importances,
            Ranking::Weight => &head.weights,
        };
        let mut order: Vec<usize> = (0..values.len()).collect();
        // Of equal heads the last: the order is stable.
        order.reverse();
        order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
        order.truncate(removal.heads);
        order.sort_unstable();
        Removed { attention: head.attention.clone(), heads: order }
    };
    statistics.heads.iter().map(of_attention).collect()
}

/// A plain model without these heads.
pub(super) fn without<M: Convertible>(plain: &M, removed: &[Removed]) -> Result<M> {
    let heads = plain.config().heads();
    let fewer = removed.first().map_or(0, |removed| removed.heads.len());
    let width = |name: &str| -> Result<usize> {
        Ok(plain.params().find(&format!("{name}.q_proj.bias"))?.shape[0] / heads)
    };
    let head_dim = match removed.first() {
        Some(first) => width(&first.attention)?,
        None => plain.head_dim(),
    };
    let mut model = plain.rebuilt(plain.config().mixture().clone(), heads - fewer, head_dim)?;
    for (name, _) in names(plain) {
        let values = plain.params().get(&name)?;
        let own = name.rsplit_once("_proj.").and_then(|(place, kind)| {
            let (attention, part) = place.rsplit_once('.')?;
            Some((removed.iter().find(|removed| removed.attention == attention)?, part, kind))
        });
        let values = match own {
            Some((own, "out", "weight")) => {
                // A row of the output projection has `head_dim` values for each head.
                kept(&values, head_dim, |run| !own.heads.contains(&(run % heads)))
            }
            Some((own, "q" | "k" | "v", kind)) => {
                let cols = if kind == "weight" { values.len() / (heads * head_dim) } else { 1 };
                kept(&values, head_dim * cols, |run| !own.heads.contains(&run))
            }
            _ => values,
        };
        model.params_mut().set(&name, &values)?;
    }
    Ok(model)
}

/// The runs of `length` values that `keep` names.
fn kept(values: &[f32], length: usize, keep: impl Fn(usize) -> bool) -> Vec<f32> {
    let runs = values.chunks_exact(length).enumerate().filter(|(run, _)| keep(*run));
    runs.flat_map(|(_, run)| run).copied().collect()
}
