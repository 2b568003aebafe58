//! The interface of both kinds of models, for training and files.

use std::fmt::Debug;
use std::hash::Hash;

use mae_data::PackedBatch;
use mae_engine::Params;
use mae_engine::ops::cross_entropy::LossSums;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::config::Mixture;
use crate::folder::Task;
use crate::pass::Pass;
use crate::stack::StackConfig;

/// Sizes and choices of a kind of model: `[model]` of a configuration.
pub trait Config: Clone + Debug + PartialEq + Serialize + DeserializeOwned {
    /// What such models are for.
    const TASK: Task;
    /// The architecture where none is named.
    const DEFAULT_ARCH: &'static str;
    /// Keys that files hold only where their value is not this one.
    const UNWRITTEN: &'static [(&'static str, &'static str)];

    /// A named architecture.
    fn named(arch: &str) -> Result<Self>;
    /// The architecture this began as.
    fn name(&self) -> &str;
    /// All faults at once.
    fn check(&self) -> Result<()>;
    /// How heads are mixed.
    fn mixture(&self) -> &Mixture;
    /// H.
    fn heads(&self) -> usize;
    /// Tokens of the longest sentence or block.
    fn max_positions(&self) -> usize;
    /// Its stacks of layers.
    fn stacks(&self) -> Vec<StackConfig<'_>>;
    /// Keys that decide what parameters there are besides gates, and what they compute, with their values.
    fn sizes(&self) -> Vec<(&'static str, String)>;
}

/// A model that can be trained and saved.
pub trait Model {
    /// Its sizes and choices.
    type Config: Config;
    /// A batch on its device.
    type Batch;
    /// Room for a batch, rounded up; batches of one shape are computed by the same captured pass.
    type Shape: Clone + Debug + Eq + Hash;
    /// What a batch is made of, for messages.
    const SAMPLES: &'static str;

    /// Sizes and choices.
    fn config(&self) -> &Self::Config;
    /// The parameters.
    fn params(&self) -> &Params;
    /// The parameters, to be changed.
    fn params_mut(&mut self) -> &mut Params;
    /// Types that it can predict.
    fn target_types(&self) -> usize;
    /// An error if a batch holds ids that the model has no embedding for.
    fn check_ids(&self, batch: &PackedBatch) -> Result<()>;
    /// Room for `batch` of a run whose batches have at most `max_tokens` tokens.
    fn shape(&self, batch: &PackedBatch, max_tokens: usize) -> Self::Shape;
    /// Uploads a batch.
    fn upload(&self, batch: &PackedBatch) -> Self::Batch;
    /// Room for batches of a shape, to be loaded.
    fn room(&self, shape: &Self::Shape) -> Self::Batch;
    /// Takes another batch that fits.
    fn load(room: &mut Self::Batch, batch: &PackedBatch);
    /// The loss of a batch, with label smoothing where the model knows it; `weight` scales its gradient.
    fn loss(&self, pass: &mut Pass<'_, '_>, batch: &Self::Batch, smoothing: f32, weight: f32) -> LossSums;
}
