//! Gates out of a model: head weights go into the output projections.

use super::{ConversionFault, Convertible, Fold};
use crate::config::Mixture;
use crate::importance::TextStatistics;
use crate::kind::{Config, Model};
use crate::system::System;
use crate::{Result, groups};

/// Weights of the heads of an attention, by its name.
pub(super) type Weights = Box<dyn Fn(&str) -> Option<Vec<f32>>>;

/// Weights that heads get for good; `None` where all are 1.
pub(super) fn weights<M: Model>(
    model: &M,
    fold: Fold,
    statistics: Option<&TextStatistics>,
) -> Result<Weights> {
    let mixture = model.config().mixture();
    let system = mixture.system;
    match fold {
        Fold::Uniform if is_neutral(model)? => Ok(Box::new(|_| None)),
        Fold::Uniform => Err(ConversionFault::TrainedGates { system: system.title() }.into()),
        Fold::Expert(expert) => {
            let heads = model.config().heads();
            let experts = mixture.experts(heads);
            let matrix = experts.map(|experts| experts.matrix()).unwrap_or_default();
            let Some(row) = matrix.chunks_exact(heads).nth(expert).map(<[f32]>::to_vec) else {
                let experts = matrix.len() / heads;
                return Err(ConversionFault::NoExpert { system: system.title(), expert, experts }.into());
            };
            Ok(Box::new(move |_| Some(row.clone())))
        }
        Fold::Mean => {
            let statistics = statistics.ok_or(ConversionFault::NoText)?;
            let means: Vec<(String, Vec<f32>)> = statistics
                .heads
                .iter()
                .map(|head| (head.attention.clone(), head.weights.iter().map(|&w| w as f32).collect()))
                .collect();
            Ok(Box::new(move |attention| {
                means.iter().find(|(name, _)| name == attention).map(|(_, weights)| weights.clone())
            }))
        }
    }
}

/// Returns true if every head weighs 1 whatever the input.
fn is_neutral<M: Model>(model: &M) -> Result<bool> {
    let Some(layer) = model.config().mixture().system.neutral_layer() else { return Ok(true) };
    let part = format!(".gate.{layer}.");
    for parameter in model.params().named().filter(|p| p.name.contains(&part)) {
        if model.params().get(parameter.name)?.iter().any(|value| *value != 0.0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The same model without gates: the columns of the output projections that belong to head j times w_j.
pub(super) fn plain<M: Convertible>(model: &M, weights: &Weights) -> Result<M> {
    let (heads, mixture) = (model.config().heads(), model.config().mixture().clone());
    let mut plain = model.rebuilt(Mixture { system: System::BASE, ..mixture }, heads, model.head_dim())?;
    for (name, _) in names(&plain) {
        let mut values = model.params().get(&name)?;
        let attention = name.strip_suffix(".out_proj.weight");
        if let Some(weights) = attention.and_then(weights) {
            let cols = model.params().find(&name)?.shape[1];
            for row in values.chunks_exact_mut(cols) {
                for (columns, weight) in row.chunks_exact_mut(cols / heads).zip(&weights) {
                    columns.iter_mut().for_each(|value| *value *= weight);
                }
            }
        }
        plain.params_mut().set(&name, &values)?;
    }
    Ok(plain)
}

/// Names of all parameters with whether they are of gates.
pub(super) fn names<M: Model>(model: &M) -> Vec<(String, bool)> {
    let of_gate = |name: &str, group| group == groups::GATE || name.contains(".gate.");
    model.params().named().map(|p| (p.name.to_owned(), of_gate(p.name, p.group))).collect()
}
