//! The ops: methods of [`Tape`](crate::Tape), one room each.
//!
//! | op | formula | backward keeps |
//! |---|---|---|
//! | [`embed`] | dropout(scale·E\[id\] + position) | ids |
//! | [`linear`] | dropout(act(X·Wᵀ + b)) | X, Y |
//! | [`activation`] | dropout(act(X)) for swish and GELU | X |
//! | [`attention`] | softmax(QKᵀ/√K)·V per sentence and head, times head weights | Q, K, V, row log-sums |
//! | [`residual_norm`] | x + dropout(z), then layer norm; layer norm alone | the sum, row mean and scale |
//! | [`pool`] | mean over each sentence; causal running mean | boundaries |
//! | [`batch_norm`] | (x − mean)/√(var + ε)·γ + β over rows | x, column statistics |
//! | [`mixture`] | gate logits to head weights: w = softmax(l)·M, or one drawn row of M | gates |
//! | [`routing`] | logits of gates to head weights, most of a row's heads 0: shared and routed heads of MoH | the weights, softmax |
//! | [`sigmoid`] | logits of gates to head weights: w = scale·σ(l) | the weights |
//! | [`hard_concrete`] | one gate for each head, mostly 0 or 1: clip(1.2·σ(…) − 0.1, 0, 1), drawn in training | the gates |
//! | [`cross_entropy`] | label-smoothed loss of features against a vocabulary, logits never all in memory | gradient of the features |
//! | [`project`] | dropout(X·Wᵀ), or dropout(X·W) where one matrix serves both ways | X |
//! | `parameter` | a parameter block as a value | – |
//! | [`adaptive`] | input and softmax of a vocabulary cut into bands of falling width | rows of each band |
//! | [`custom`] | an op of another crate, computed on the host | its inputs |
//! | [`chances`] | whole rows of log-probabilities: means, rules, best ones, draws (inference only) | – |
//! | [`gated`] | one step of a projection and of a gate over the running mean of its input (inference only) | – |
//! | [`decode`] | one step of cached attention, rows by index, best continuations (inference only) | – |
//!
//! # How an op is built
//!
//! One folder, named after the op, and the name in the two lists below: its `mod` line, and its line of `rooms!`.
//!
//! | file | what is in it |
//! |---|---|
//! | `mod.rs` | the entry, a method of [`Tape`](crate::Tape): formula with shapes, checks, outputs, what the backward pass keeps, one recording; tests |
//! | `cpu.rs` | `forward` and `backward` on slices; the definition of the op |
//! | `cuda.rs` | its kernels with their parameters (`kernels!` of `cuda::kernel`); `forward` and `backward` on device memory: kernel calls and products |
//! | `<op>.cu` | its kernels |
//! | `suite.rs` | its cases of the kernel suite (feature `suite`), which compares a GPU with the CPU |
//!
//! The entry is the same for every device:
//!
//! 1. It checks shapes, takes a stream of random numbers if it needs one (in evaluation too, so that streams are
//!    numbered by the op's place in the model), and allocates the output.
//! 2. `match self.backend()` calls `cpu::forward` or `cuda::forward`.
//! 3. [`Tape::output`](crate::Tape) wraps the output, tracked if a free parameter lies upstream, and `record` leaves a
//!    node that calls `cpu::backward` or `cuda::backward`. Both ask [`Backward`](crate::tape) for the memory of a
//!    gradient: `input` and `param` lend a slice, `target` and `param_target` give an address, each with whether there
//!    is a contribution to add to. Nothing is computed for inputs that want no gradient.
//!
//! Rules: gradients are written or added to as the tape asks; no result depends on the number of threads; the backward
//! pass recomputes dropout masks from their stream; what changes from step to step is read from device memory, so that
//! a captured pass can be replayed.

pub mod activation;
pub mod adaptive;
pub mod attention;
pub mod batch_norm;
pub mod chances;
pub mod cross_entropy;
pub mod custom;
pub mod decode;
pub mod embed;
pub mod gated;
pub mod hard_concrete;
pub mod linear;
pub mod mixture;
mod parameter;
pub mod pool;
pub mod project;
pub mod residual_norm;
pub mod routing;
pub mod sigmoid;

use crate::rng::Dropout;

/// Registers what rooms have besides their op: kernel files, and cases of the kernel suite.
macro_rules! rooms {
    ($($op:ident: [$($file:ident),*];)*) => {
        /// Kernel files of all rooms.
        pub(crate) static KERNELS: &[&crate::cuda::kernel::KernelFile] = &[$($(&$op::cuda::$file,)*)*];

        /// The suite's cases of all rooms.
        #[cfg(feature = "suite")]
        pub(crate) fn cases() -> Vec<crate::suite::Case> {
            [$($op::suite::cases()),*].into_iter().flatten().collect()
        }
    };
}

rooms! {
    activation: [FILE];
    adaptive: [FILE];
    attention: [FORWARD, BACKWARD];
    batch_norm: [FILE];
    chances: [FILE];
    cross_entropy: [FILE];
    custom: [];
    decode: [FILE];
    embed: [FILE];
    gated: [FILE];
    hard_concrete: [FILE];
    linear: [FILE];
    mixture: [FILE];
    parameter: [FILE];
    pool: [FILE];
    project: [];
    residual_norm: [FILE];
    routing: [FILE];
    sigmoid: [FILE];
}

/// Scratch for the dropout factors of one row.
pub(crate) struct RowFactors {
    bits: Vec<u16>,
    pub(crate) factors: Vec<f32>,
}

impl RowFactors {
    pub(crate) fn new(cols: usize) -> Self {
        Self { bits: vec![0; cols], factors: vec![0.0; cols] }
    }

    /// The factors of `row`.
    #[inline(always)]
    pub(crate) fn of(&mut self, dropout: &Dropout, row: usize) -> &[f32] {
        dropout.factors(row as u32, &mut self.bits, &mut self.factors);
        &self.factors
    }
}

/// Scales a row by its dropout factors.
#[inline(always)]
pub(crate) fn drop_out_row(
    row: &mut [f32],
    dropout: &Option<Dropout>,
    factors: &mut RowFactors,
    index: usize,
) {
    if let Some(dropout) = dropout {
        row.iter_mut().zip(factors.of(dropout, index)).for_each(|(v, f)| *v *= f);
    }
}

/// Scales a matrix by its dropout factors.
pub(crate) fn drop_out(matrix: &mut [f32], cols: usize, dropout: &Option<Dropout>) {
    if dropout.is_none() {
        return;
    }
    crate::cpu::for_rows(
        matrix,
        cols,
        #[inline(always)]
        |first, rows| {
            let mut factors = RowFactors::new(cols);
            for (i, row) in rows.chunks_exact_mut(cols).enumerate() {
                drop_out_row(row, dropout, &mut factors, first + i);
            }
        },
    );
}
