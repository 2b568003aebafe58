//! Gates out of a model: head weights go into the output projections.

use std::collections::BTreeMap;

use mae_data::Corpus;

use super::{ConversionFault, Convertible, Fold};
use crate::batches::{self, TextLoss};
use crate::config::Mixture;
use crate::importance::{self, TextStatistics};
use crate::kind::{Config, Model};
use crate::system::System;
use crate::{Result, groups};

/// Weights that heads get for good.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum HeadWeights {
    /// 1: what models without gates have, and gates that have not been trained.
    #[default]
    Ones,
    /// The same ones in all attentions: those of an expert.
    Same(Vec<f32>),
    /// Those of each attention by its name, `encoder.layers.0.self_attn`; others weigh 1.
    Own(BTreeMap<String, Vec<f32>>),
}

impl HeadWeights {
    /// The weights of one expert of a mixture over `heads` heads.
    pub fn expert(mixture: &Mixture, heads: usize, expert: usize) -> Result<Self> {
        let matrix = mixture.experts(heads).map(|experts| experts.matrix()).unwrap_or_default();
        match matrix.chunks_exact(heads).nth(expert) {
            Some(row) => Ok(Self::Same(row.to_vec())),
            None => {
                let (system, experts) = (mixture.system.title(), matrix.len() / heads);
                Err(ConversionFault::NoExpert { system, expert, experts }.into())
            }
        }
    }

    /// The mean weights on a text.
    pub fn mean(statistics: &TextStatistics) -> Self {
        let narrow = |weights: &[f64]| weights.iter().map(|&weight| weight as f32).collect();
        let heads = statistics.heads.iter();
        Self::Own(heads.map(|head| (head.attention.clone(), narrow(&head.weights))).collect())
    }

    /// Multiplies the weights into the values of a parameter, in rows of `columns` values, if it is an output projection:
    /// the columns of head j times w_j. Other parameters stay.
    pub fn fold(&self, parameter: &str, values: &mut [f32], columns: usize) {
        let Some(attention) = parameter.strip_suffix(".out_proj.weight") else { return };
        let weights = match self {
            Self::Ones => return,
            Self::Same(weights) => weights,
            Self::Own(all) => match all.get(attention) {
                Some(weights) => weights,
                None => return,
            },
        };
        for row in values.chunks_exact_mut(columns) {
            for (own, weight) in row.chunks_exact_mut(columns / weights.len()).zip(weights) {
                own.iter_mut().for_each(|value| *value *= weight);
            }
        }
    }
}

/// The mean weights of a model's heads on a text, and its loss there: with its gates, and with these weights.
pub fn mean_weights<M: Convertible>(model: &M, text: &dyn Corpus) -> Result<(HeadWeights, [TextLoss; 2])> {
    let statistics = importance::of_text(model, text)?;
    let weights = HeadWeights::mean(&statistics);
    let folded = batches::loss(&plain(model, &weights)?, text)?;
    Ok((weights, [statistics.loss, folded]))
}

/// Weights that heads get for good.
pub(super) fn weights<M: Model>(
    model: &M,
    fold: Fold,
    statistics: Option<&TextStatistics>,
) -> Result<HeadWeights> {
    let mixture = model.config().mixture();
    match fold {
        Fold::Uniform if is_neutral(model)? => Ok(HeadWeights::Ones),
        Fold::Uniform => Err(ConversionFault::TrainedGates { system: mixture.system.title() }.into()),
        Fold::Expert(expert) => HeadWeights::expert(mixture, model.config().heads(), expert),
        Fold::Mean => Ok(HeadWeights::mean(statistics.ok_or(ConversionFault::NoText)?)),
    }
}

/// Returns true if every head weighs 1 whatever the input.
fn is_neutral<M: Model>(model: &M) -> Result<bool> {
    let system = model.config().mixture().system;
    let Some(layer) = system.neutral_layer() else { return Ok(!system.is_gated()) };
    let part = format!(".gate.{layer}.");
    for parameter in model.params().named().filter(|p| p.name.contains(&part)) {
        if model.params().get(parameter.name)?.iter().any(|value| *value != 0.0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The same model without gates: the columns of the output projections that belong to head j times w_j.
pub(super) fn plain<M: Convertible>(model: &M, weights: &HeadWeights) -> Result<M> {
    let (heads, mixture) = (model.config().heads(), model.config().mixture().clone());
    let mut plain = model.rebuilt(Mixture { system: System::BASE, ..mixture }, heads, model.head_dim())?;
    for (name, _) in names(&plain) {
        let mut values = model.params().get(&name)?;
        let columns = *model.params().find(&name)?.shape.last().unwrap_or(&1);
        weights.fold(&name, &mut values, columns);
        plain.params_mut().set(&name, &values)?;
    }
    Ok(plain)
}

/// Names of all parameters with whether they are of gates.
pub(super) fn names<M: Model>(model: &M) -> Vec<(String, bool)> {
    let of_gate = |name: &str, group| group == groups::GATE || name.contains(".gate.");
    model.params().named().map(|p| (p.name.to_owned(), of_gate(p.name, p.group))).collect()
}
