//! A model with ever fewer heads: its loss when heads are left out in steps, the least important first, without training
//! it again (Michel et al., 2019).

use std::collections::BTreeMap;

use mae_data::Corpus;
use serde::Serialize;

use crate::Result;
use crate::batches::{self, TextLoss};
use crate::convert::HeadWeights;
use crate::importance::TextStatistics;
use crate::kind::{Config, Model};

/// Steps in which all heads are left out; the last is not taken.
pub const STEPS: usize = 10;

/// A model without some of its heads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pruned {
    /// Heads that are left out, of all attentions together.
    pub removed: usize,
    /// Loss on the text.
    pub loss: TextLoss,
}

/// A head: name of its attention, and its number.
pub type Head = (String, usize);

/// All heads, the least important first: importances of an attention divided by their L2 norm. Of equal ones, the first
/// of the pass.
pub fn order(statistics: &TextStatistics) -> Vec<Head> {
    let mut all: Vec<(f64, Head)> = Vec::new();
    for heads in &statistics.heads {
        let own = heads.normalised().into_iter().enumerate();
        all.extend(own.map(|(head, importance)| (importance, (heads.attention.clone(), head))));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.into_iter().map(|(_, head)| head).collect()
}

/// The loss on a text without the first heads of `order`: none, a tenth of them, two tenths, … nine tenths. The weights
/// of the heads that remain do not change, whatever the system. The model is as before afterwards.
pub fn curve<M: Model>(
    model: &mut M,
    text: &dyn Corpus,
    order: &[Head],
    mut done: impl FnMut(usize),
) -> Result<Vec<Pruned>> {
    let mut points: Vec<Pruned> = Vec::new();
    for step in 0..STEPS {
        let removed = (order.len() * step + STEPS / 2) / STEPS;
        let loss = match points.last() {
            Some(last) if last.removed == removed => last.loss,
            _ => without(model, &order[..removed], |model| batches::loss(model, text))?,
        };
        points.push(Pruned { removed, loss });
        done(step + 1);
    }
    Ok(points)
}

/// Calls `measure` with the model without some heads: what they add to the output of their attention is 0.
pub fn without<M: Model, R>(
    model: &mut M,
    heads: &[Head],
    measure: impl FnOnce(&M) -> Result<R>,
) -> Result<R> {
    let mut kept: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    for (attention, head) in heads {
        let ones = || vec![1.0; model.config().heads()];
        kept.entry(attention.clone()).or_insert_with(ones)[*head] = 0.0;
    }
    let projections: Vec<String> =
        kept.keys().map(|attention| format!("{attention}.out_proj.weight")).collect();
    let (weights, mut before) = (HeadWeights::Own(kept), Vec::new());
    for name in projections {
        let columns = *model.params().find(&name)?.shape.last().unwrap_or(&1);
        let values = model.params().get(&name)?;
        let mut fewer = values.clone();
        weights.fold(&name, &mut fewer, columns);
        model.params_mut().set(&name, &fewer)?;
        before.push((name, values));
    }
    let measured = measure(model);
    for (name, values) in before {
        model.params_mut().set(&name, &values)?;
    }
    measured
}
