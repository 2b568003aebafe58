//! Packed multi-head attention with head weights.
//!
//! For sentence b and head j, with the rows of that sentence: `O_j = w_j·(dropout(softmax(Q_j·K_jᵀ/√K))·V_j)`, the
//! softmax over the sentence's keys (causal: over those not after the query). A head of weight 0 is not computed.
//! Backward keeps the inputs and one log-sum per row and head; probabilities are made again.

mod cpu;
pub(crate) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;
#[cfg(test)]
mod tests;
pub(crate) mod tiles;

use crate::device::{Backend, Buffer};
use crate::rng::Dropout;
use crate::tape::Backward;
use crate::{Part, Segments, Tape, Tensor, Var};

/// Queries, keys and values, H·K = D columns each.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// One matrix `[N, 3D]`: queries, keys, values side by side (self-attention).
    Packed(Var),
    /// Queries `[Nq, D]`; keys and values side by side `[Nk, 2D]`.
    Apart(Var, Var),
    /// The same, with keys and values made together with those of other attentions.
    Shared(Var, Part),
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
    /// If set, a query sees only keys up to its own place.
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
struct Plan {
    heads: usize,
    /// D.
    width: usize,
    causal: bool,
    dropout: Option<Dropout>,
    queries: Segments,
    keys: Segments,
    weights: HeadWeights,
}

impl Plan {
    fn head_width(&self) -> usize {
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

    fn tracked_weights(&self) -> Option<&Var> {
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
            Self::Apart(q, _) | Self::Shared(q, _) => q.cols(),
        }
    }

    fn tracked(&self) -> bool {
        match self {
            Self::Packed(qkv) => qkv.tracked(),
            Self::Apart(q, kv) => q.tracked() || kv.tracked(),
            Self::Shared(q, kv) => q.tracked() || kv.whole().tracked(),
        }
    }

    /// Where keys and values do not lie beside the queries: their matrix, and their first column there.
    fn keys_and_values(&self) -> Option<(&Var, usize)> {
        match self {
            Self::Packed(_) => None,
            Self::Apart(_, kv) => Some((kv, 0)),
            Self::Shared(_, part) => Some((part.whole(), part.first_column())),
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
            Self::Shared(q, kv) => {
                assert_eq!(kv.cols(), 2 * q.cols(), "attention: keys and values must have 2·D columns");
                let rows = [q.rows(), kv.whole().rows()];
                assert_eq!(rows, [queries, keys], "attention: rows and segments disagree");
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

/// The op with its inputs and what else the backward pass needs.
struct Op {
    plan: Plan,
    inputs: Inputs,
    out: Tensor,
    /// ln Σ exp of the scores, `[Nq, H]`.
    log_sums: Tensor,
    /// A bit for each probability that dropout kept, where a GPU does not make them again.
    mask: Option<Buffer>,
}

/// Gradients of the inputs, to be written.
struct Gradients {
    /// Of the packed matrix, or of the queries.
    first: Buffer,
    /// Of the matrix of keys and values, where they are apart.
    second: Option<Buffer>,
    weights: Option<Buffer>,
}

impl Gradients {
    fn of(backward: &mut Backward<'_>, op: &Op) -> Self {
        let device = backward.device();
        let like = |var: &Var| device.scratch(var.tensor().count());
        let (first, second) = match &op.inputs {
            Inputs::Packed(qkv) => (like(qkv), None),
            Inputs::Apart(q, kv) => (like(q), Some(like(kv))),
            Inputs::Shared(q, kv) => (like(q), Some(backward.take_parts(kv))),
        };
        let weights = op.plan.tracked_weights().map(|w| device.scratch_floats(w.tensor().count()));
        Self { first, second, weights }
    }

    fn give(self, backward: &mut Backward<'_>, op: &Op) {
        let (Inputs::Packed(first) | Inputs::Apart(first, _) | Inputs::Shared(first, _)) = &op.inputs;
        backward.give(first, self.first);
        match (&op.inputs, self.second) {
            (Inputs::Apart(_, kv), Some(second)) => backward.give(kv, second),
            (Inputs::Shared(_, kv), Some(second)) => backward.give_part(kv, second),
            _ => {}
        }
        if let (Some(weights), Some(gradient)) = (op.plan.tracked_weights(), self.weights) {
            backward.give(weights, gradient);
        }
    }
}

impl Tape<'_> {
    /// Attention of packed sentences: `[Nq, D]`, heads weighted and side by side.
    pub fn attention(&mut self, inputs: &Inputs, attention: Attention) -> Var {
        let Attention { heads, causal, dropout, queries, keys, weights } = attention;
        let dropout = self.next_dropout(dropout);
        let plan = Plan { heads, width: inputs.width(), causal, dropout, queries, keys, weights };
        inputs.check(&plan);
        let tracked = inputs.tracked() || plan.tracked_weights().is_some();
        let (device, rows, width) = (self.device(), plan.queries.rows(), plan.width);
        let mut out = device.scratch(rows * width);
        let mut log_sums = device.scratch_floats(rows * heads);
        let mask = match self.backend() {
            Backend::Cpu => {
                cpu::forward(&plan, inputs, &mut out, &mut log_sums);
                None
            }
            Backend::Gpu(gpu) => {
                let mask = tracked.then(|| cuda::mask(device, &plan)).flatten();
                cuda::forward(gpu, &plan, inputs, &out, &log_sums, mask.as_ref());
                mask
            }
        };
        let out = self.output([rows, width], out, tracked);
        let log_sums = Tensor::new([rows, heads], log_sums);
        let op = Op { plan, inputs: inputs.clone(), out: out.tensor().clone(), log_sums, mask };
        self.record(&out, move |backward, d_out| {
            let mut gradients = Gradients::of(backward, &op);
            match backward.backend() {
                Backend::Cpu => cpu::backward(&op, &d_out, &mut gradients),
                Backend::Gpu(gpu) => cuda::backward(gpu, &op, &d_out, &gradients),
            }
            gradients.give(backward, &op);
        });
        out
    }
}
