//! Statistics of heads over a text: their mean weight, and their importance.
//!
//! The importance of head j of an attention is Michel et al.'s (2019), the mean of |w_j·∂L/∂w_j| over all rows, where w_j
//! is the weight of the head (1 in plain attention) and L the summed loss of a batch: how much the loss changes, to first
//! order, if the head is left out. Rows are tokens, or sentences where gates weigh whole sentences. To compare attentions,
//! importances are divided by their L2 norm over the heads of an attention.

use std::sync::{Arc, Mutex, PoisonError};

use mae_data::{Corpus, PackedBatch};
use mae_engine::ops::attention::HeadWeights;
use mae_engine::{Tape, Tensor, Var};

use crate::batches::{self, TextLoss};
use crate::kind::Model;
use crate::pass::{ExpertMode, Kind, Pass, Probe};
use crate::{Error, Result};

/// Statistics of the heads of one attention.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadStatistics {
    /// Name of the attention, `encoder.layers.0.self_attn`.
    pub attention: String,
    /// Kind of the attention.
    pub kind: Kind,
    /// Number of rows: tokens, or sentences where gates weigh whole sentences.
    pub rows: u64,
    /// For each head, its mean weight; 1 in plain attention.
    pub weights: Vec<f64>,
    /// For each head, the mean of |w·∂L/∂w|, in nats.
    pub importances: Vec<f64>,
}

impl HeadStatistics {
    /// Importances divided by their L2 norm; zeros where nothing depends on any head.
    pub fn normalised(&self) -> Vec<f64> {
        let norm = self.importances.iter().map(|i| i * i).sum::<f64>().sqrt();
        self.importances.iter().map(|i| if norm > 0.0 { i / norm } else { 0.0 }).collect()
    }
}

/// Statistics of all heads of a model over a text, and its loss.
#[derive(Clone, Debug, PartialEq)]
pub struct TextStatistics {
    /// One per attention, in the order of a pass.
    pub heads: Vec<HeadStatistics>,
    /// Loss on the text.
    pub loss: TextLoss,
}

/// Runs a model over a text, in evaluation, and walks back: statistics of its heads. Head weights are those of the
/// mixture, or 1.
pub fn of_text<M: Model>(model: &M, text: &dyn Corpus) -> Result<TextStatistics> {
    let meter = HeadMeter::default();
    model.params().check_unpacked()?;
    let mut gradients = model.params().gradients();
    let loss = batches::over(model, text, |batch: &PackedBatch| {
        let on_device = model.upload(batch);
        let mut tape = Tape::observing(model.params(), &mut gradients);
        let mut probe = Probe { heads: Some(meter.clone()), ..Probe::default() };
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: Some(&mut probe) };
        let nll = model.loss(&mut pass, &on_device, 0.0, 1.0).nll();
        tape.backward();
        Ok(nll)
    })?;
    let heads = meter.found();
    if heads.iter().flat_map(|head| &head.importances).any(|value| !value.is_finite()) {
        return Err(Error::NotFinite);
    }
    Ok(TextStatistics { heads, loss })
}

/// Collects statistics of heads in the passes of a [`Probe`]. Clones collect together.
#[derive(Clone, Default)]
pub struct HeadMeter(Arc<Mutex<Vec<Sums>>>);

/// Sums over the rows of one attention.
struct Sums {
    attention: String,
    kind: Kind,
    rows: u64,
    weights: Vec<f64>,
    importances: Vec<f64>,
}

impl HeadMeter {
    /// Head weights of an attention, `[rows, heads]`, that are noted with their gradients on the walk back. Needs a tape
    /// that [observes](Tape::observing) or trains.
    pub(crate) fn metered(
        &self,
        tape: &mut Tape<'_>,
        (attention, kind): (&str, Kind),
        weights: HeadWeights,
        [rows, heads]: [usize; 2],
    ) -> HeadWeights {
        let (by_sentence, weights) = match weights {
            HeadWeights::PerSentence(weights) => (true, weights),
            HeadWeights::PerRow(weights) => (false, weights),
            HeadWeights::One => {
                let ones = Tensor::from_host(tape.device(), [rows, heads], &vec![1.0; rows * heads]);
                (false, Var::constant(ones))
            }
        };
        let (meter, attention, values) = (self.clone(), attention.to_owned(), weights.tensor().to_host());
        let see = move |gradient: Vec<f32>| meter.note(attention, kind, &values, &gradient, heads);
        let weights = tape.observe(&weights, see);
        if by_sentence { HeadWeights::PerSentence(weights) } else { HeadWeights::PerRow(weights) }
    }

    fn note(&self, attention: String, kind: Kind, weights: &[f32], gradient: &[f32], heads: usize) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|sums| sums.attention == attention);
        let at = found.unwrap_or_else(|| {
            let (weights, importances) = (vec![0.0; heads], vec![0.0; heads]);
            all.push(Sums { attention, kind, rows: 0, weights, importances });
            all.len() - 1
        });
        let sums = &mut all[at];
        for (weights, gradient) in weights.chunks_exact(heads).zip(gradient.chunks_exact(heads)) {
            sums.rows += 1;
            for j in 0..heads {
                let weight = f64::from(weights[j]);
                sums.weights[j] += weight;
                sums.importances[j] += (weight * f64::from(gradient[j])).abs();
            }
        }
    }

    /// The statistics so far. The walk back goes from the last attention to the first.
    fn found(&self) -> Vec<HeadStatistics> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = |sums: &[f64], rows: u64| sums.iter().map(|sum| sum / rows.max(1) as f64).collect();
        let of = |sums: &Sums| HeadStatistics {
            attention: sums.attention.clone(),
            kind: sums.kind,
            rows: sums.rows,
            weights: mean(&sums.weights, sums.rows),
            importances: mean(&sums.importances, sums.rows),
        };
        all.iter().rev().map(of).collect()
    }
}
