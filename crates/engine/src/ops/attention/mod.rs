//! Packed multi-head attention with head weights.
//!
//! For sentence b and head j, with the rows of that sentence: `O_j = w_j·(dropout(softmax(Q_j·K_jᵀ/√K))·V_j)`, the
//! softmax over the sentence's keys (causal: over those not after the query). A head of weight 0 is not computed.
//! Backward keeps the inputs and one log-sum per row and head; probabilities are made again.

mod cpu;
#[cfg(test)]
mod tests;

use crate::rng::Dropout;
use crate::{Segments, Tape, Tensor, Var};

/// Queries, keys and values, H·K = D columns each.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// One matrix `[N, 3D]`: queries, keys, values side by side (self-attention).
    Packed(Var),
    /// Queries `[Nq, D]`; keys and values side by side `[Nk, 2D]`.
    Apart(Var, Var),
}

/// The weights w of the heads.
#[derive(Clone, Debug)]
pub enum HeadWeights {
    /// All 1: plain attention.
    One,
    /// `[B, H]`, one row per sentence.
    PerSentence(Var),
    /// `[Nq, H]`, one row per query.
    PerRow(Var),
}

/// The rest of what attention needs.
#[derive(Clone, Debug)]
pub struct Attention {
    /// H.
    pub heads: usize,
    /// Whether a query sees only keys up to its own place.
    pub causal: bool,
    /// Dropout of the probabilities.
    pub dropout: f32,
    /// Sentences of the queries.
    pub queries: Segments,
    /// Sentences of the keys, as many.
    pub keys: Segments,
    /// w.
    pub weights: HeadWeights,
}

/// [`Attention`] with the numbers that both directions share.
pub(crate) struct Plan {
    pub(crate) heads: usize,
    /// D.
    pub(crate) width: usize,
    pub(crate) causal: bool,
    pub(crate) dropout: Option<Dropout>,
    pub(crate) queries: Segments,
    pub(crate) keys: Segments,
    pub(crate) weights: HeadWeights,
}

impl Plan {
    pub(crate) fn head_width(&self) -> usize {
        self.width / self.heads
    }

    /// Weight of `head` for the query at packed `row` of `sentence`.
    #[inline(always)]
    fn weight(&self, sentence: usize, row: usize, head: usize) -> f32 {
        match &self.weights {
            HeadWeights::One => 1.0,
            HeadWeights::PerSentence(w) => w.tensor().row(sentence)[head],
            HeadWeights::PerRow(w) => w.tensor().row(row)[head],
        }
    }

    pub(crate) fn tracked_weights(&self) -> Option<&Var> {
        match &self.weights {
            HeadWeights::PerSentence(w) | HeadWeights::PerRow(w) if w.tracked() => Some(w),
            _ => None,
        }
    }
}

impl Inputs {
    fn width(&self) -> usize {
        match self {
            Self::Packed(qkv) => qkv.cols() / 3,
            Self::Apart(q, _) => q.cols(),
        }
    }

    pub(crate) fn tracked(&self) -> bool {
        match self {
            Self::Packed(qkv) => qkv.tracked(),
            Self::Apart(q, kv) => q.tracked() || kv.tracked(),
        }
    }

    fn check(&self, plan: &Plan) {
        let (queries, keys) = (plan.queries.rows(), plan.keys.rows());
        match self {
            Self::Packed(qkv) => {
                assert_eq!(qkv.cols() % 3, 0, "attention: packed input must have 3·D columns");
                assert!(qkv.rows() == queries && qkv.rows() == keys, "attention: rows and segments disagree");
            }
            Self::Apart(q, kv) => {
                assert_eq!(kv.cols(), 2 * q.cols(), "attention: keys and values must have 2·D columns");
                assert!(q.rows() == queries && kv.rows() == keys, "attention: rows and segments disagree");
            }
        }
        assert_eq!(plan.width % plan.heads, 0, "attention: {} columns, {} heads", plan.width, plan.heads);
        assert_eq!(plan.queries.count(), plan.keys.count(), "attention: as many query as key sentences");
        let rows = match &plan.weights {
            HeadWeights::One => return,
            HeadWeights::PerSentence(w) => (w, plan.queries.count()),
            HeadWeights::PerRow(w) => (w, queries),
        };
        assert_eq!(
            [rows.0.rows(), rows.0.cols()],
            [rows.1, plan.heads],
            "attention: shape of the head weights"
        );
    }
}

impl Tape<'_> {
    /// Attention of packed sentences: `[Nq, D]`, heads weighted and side by side.
    pub fn attention(&mut self, inputs: &Inputs, attention: Attention) -> Var {
        let Attention { heads, causal, dropout, queries, keys, weights } = attention;
        let dropout = self.next_dropout(dropout);
        let plan = Plan { heads, width: inputs.width(), causal, dropout, queries, keys, weights };
        inputs.check(&plan);
        if let Some(gpu) = self.gpu() {
            return crate::cuda::ops::attention::attention(self, &gpu, inputs, plan);
        }
        let rows = plan.queries.rows();
        let mut out = self.device().scratch(rows * plan.width);
        let mut log_sums = self.device().scratch(rows * heads);
        cpu::forward(&plan, inputs, &mut out, &mut log_sums);

        let tracked = inputs.tracked() || plan.tracked_weights().is_some();
        let out = self.output([rows, plan.width], out, tracked);
        let log_sums = Tensor::new([rows, heads], log_sums);
        let inputs = inputs.clone();
        self.record(&out, move |backward, d_out| {
            let device = backward.device().clone();
            let mut d_weights = plan.tracked_weights().map(|w| device.zeros(w.values().len()));
            match &inputs {
                Inputs::Packed(qkv) => {
                    let mut d_qkv = device.zeros(qkv.values().len());
                    let sinks = cpu::packed_sinks(&plan, &mut d_qkv);
                    cpu::backward(&plan, &inputs, &log_sums, &d_out, sinks, d_weights.as_deref_mut());
                    backward.give(qkv, d_qkv);
                }
                Inputs::Apart(q, kv) => {
                    let (mut d_q, mut d_kv) =
                        (device.zeros(q.values().len()), device.zeros(kv.values().len()));
                    let sinks = cpu::apart_sinks(&plan, &mut d_q, &mut d_kv);
                    cpu::backward(&plan, &inputs, &log_sums, &d_out, sinks, d_weights.as_deref_mut());
                    backward.give(q, d_q);
                    backward.give(kv, d_kv);
                }
            }
            if let (Some(w), Some(d_weights)) = (plan.tracked_weights(), d_weights) {
                backward.give(w, d_weights);
            }
        });
        out
    }
}
