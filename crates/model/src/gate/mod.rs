//! Gates: what a gate reads, and how head weights come from it.
//!
//! An attention computes `concat_j(w_j·head_j)·W + b`. Two independent choices give w, one row per sentence or position:
//!
//! | choice | room | now |
//! |---|---|---|
//! | what the gate reads | [`input`] | mean of a sentence, running mean, mean of the source, the position itself |
//! | how weights come from it | [`experts`], [`sigmoid`], [`moh`], [`l0`] | softmax over experts times M, or one drawn expert; a sigmoid for each head; shared and routed heads; one number per head for all inputs |
//!
//! A new gate is a type that implements [`Gate`], in a file of its own, and a row of [`crate::system`]'s table. A gate may
//! have parameters (in the group [`GATE`](crate::groups::GATE)) or none, read its input or not, and draw random numbers
//! from the tape. A gate with a loss of its own (the balance loss of [`moh`], the penalty of [`l0`]) records that loss on the tape in
//! [`Gate::weigh`]: its gradient is added to the others', with the weight of the batch ([`Tape::share_losses`]).

pub mod experts;
pub mod input;
pub mod l0;
pub mod moh;
pub mod sigmoid;

use std::fmt::Debug;
use std::sync::Arc;

use mae_engine::ops::batch_norm::BatchNorm;
use mae_engine::ops::mixture::GateNetwork;
use mae_engine::{Segments, Tape, Tensor, Var};

use crate::pass::ExpertMode;
pub use input::GateInput;

/// Rule that turns the input of a gate into the head weights of an attention.
pub trait Gate: Debug + Send + Sync {
    /// Parts of its input that the gate needs in this mode.
    fn needs(&self, mode: &ExpertMode) -> Needs;

    /// Head weights of all rows; `None` where every head weighs 1.
    fn weigh(&self, tape: &mut Tape<'_>, rows: &Reading<'_>, mode: &ExpertMode) -> Option<Weighed>;

    /// Norm and network of a gate that is softmax(network(norm(input))) over its [experts](Gate::experts).
    fn network(&self) -> Option<(BatchNorm, GateNetwork)> {
        None
    }

    /// M `[E, H]` of a gate over experts.
    fn experts(&self) -> Option<&Tensor> {
        None
    }
}

/// Parts of its input that a gate needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: the input is not computed.
    Nothing,
    /// Its values; no gradient flows back.
    Values,
    /// Its values, and a way back for the gradient.
    Gradient,
}

/// Inputs of a gate in a pass.
pub struct Reading<'a> {
    /// Name of the attention.
    pub attention: &'a str,
    /// Number of rows.
    pub count: usize,
    /// The sentences, where a sentence has several rows.
    pub sentences: Option<&'a Segments>,
    input: Input,
}

/// Input of a gate, `[count, D]`.
enum Input {
    Nothing,
    Plain(Var),
}

impl Reading<'_> {
    /// Input of a gate, `[count, D]`.
    ///
    /// # Panics
    ///
    /// If the gate [needs](Gate::needs) no input.
    pub fn input(&self) -> &Var {
        match &self.input {
            Input::Plain(input) => input,
            Input::Nothing => panic!("a gate that reads its input needs values or a gradient"),
        }
    }

    /// The same for another tape, without a way back for a gradient; `None` where the input was not read.
    pub(crate) fn detached(&self) -> Option<Self> {
        let Self { attention, count, sentences, .. } = *self;
        match &self.input {
            Input::Plain(input) => {
                Some(Self { attention, count, sentences, input: Input::Plain(input.detach()) })
            }
            Input::Nothing => None,
        }
    }
}

/// Result of a gate.
pub struct Weighed {
    /// w, `[rows, H]`.
    pub weights: Var,
    /// Values for reports, `[rows, E]` or `[rows, H]`, without a gradient.
    pub values: Tensor,
}

/// A gate and what it reads.
#[derive(Clone, Debug)]
pub(crate) struct Gating {
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) input: GateInput,
}
