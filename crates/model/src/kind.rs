//! What the kinds of models have in common: all that training and files ask of them.

use std::fmt::Debug;
use std::hash::Hash;

use mae_data::PackedBatch;
use mae_engine::Params;
use mae_engine::ops::cross_entropy::LossSums;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::Mixture;
use crate::folder::Task;
use crate::lm::{LmBatch, LmConfig, LmShape};
use crate::pass::Pass;
use crate::{BatchShape, DeviceBatch, LanguageModel, ModelConfig, Result, Translator};

/// Sizes and choices of a kind of model: `[model]` of a configuration.
pub trait Config: Clone + Debug + PartialEq + Serialize + DeserializeOwned {
    /// What such models are for.
    const TASK: Task;
    /// The architecture where none is named.
    const DEFAULT_ARCH: &'static str;

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

impl Config for ModelConfig {
    const TASK: Task = Task::Translation;
    const DEFAULT_ARCH: &'static str = "transformer_iwslt_de_en";

    fn named(arch: &str) -> Result<Self> {
        Self::arch(arch)
    }

    fn name(&self) -> &str {
        &self.arch
    }

    fn check(&self) -> Result<()> {
        self.check()
    }

    fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    fn heads(&self) -> usize {
        self.encoder_attention_heads
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("encoder_layers", self.encoder_layers.to_string()),
            ("decoder_layers", self.decoder_layers.to_string()),
            ("encoder_embed_dim", self.encoder_embed_dim.to_string()),
            ("encoder_ffn_embed_dim", self.encoder_ffn_embed_dim.to_string()),
            ("encoder_attention_heads", self.encoder_attention_heads.to_string()),
            ("norm", format!("{:?}", self.norm).to_lowercase()),
            ("share_embeddings", format!("{:?}", self.share_embeddings).to_lowercase()),
        ]
    }
}

impl Config for LmConfig {
    const TASK: Task = Task::LanguageModeling;
    const DEFAULT_ARCH: &'static str = "transformer_lm_wiki103";

    fn named(arch: &str) -> Result<Self> {
        Self::arch(arch)
    }

    fn name(&self) -> &str {
        &self.arch
    }

    fn check(&self) -> Result<()> {
        self.check()
    }

    fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    fn heads(&self) -> usize {
        self.decoder_attention_heads
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("decoder_layers", self.decoder_layers.to_string()),
            ("decoder_embed_dim", self.decoder_embed_dim.to_string()),
            ("decoder_ffn_embed_dim", self.decoder_ffn_embed_dim.to_string()),
            ("decoder_attention_heads", self.decoder_attention_heads.to_string()),
            ("adaptive_softmax_cutoff", format!("{:?}", self.adaptive_softmax_cutoff)),
            ("adaptive_softmax_factor", self.adaptive_softmax_factor.to_string()),
            ("tie_adaptive_weights", self.tie_adaptive_weights.to_string()),
            ("tie_adaptive_proj", self.tie_adaptive_proj.to_string()),
            ("final_norm", self.final_norm.to_string()),
        ]
    }
}

impl Model for Translator {
    type Config = ModelConfig;
    type Batch = DeviceBatch;
    type Shape = BatchShape;
    const SAMPLES: &'static str = "sentences";

    fn config(&self) -> &ModelConfig {
        self.config()
    }

    fn params(&self) -> &Params {
        self.params()
    }

    fn params_mut(&mut self) -> &mut Params {
        self.params_mut()
    }

    fn target_types(&self) -> usize {
        self.target_types()
    }

    fn check_ids(&self, batch: &PackedBatch) -> Result<()> {
        self.check_ids(batch)
    }

    fn shape(&self, batch: &PackedBatch, max_tokens: usize) -> BatchShape {
        BatchShape::around(batch, max_tokens)
    }

    fn upload(&self, batch: &PackedBatch) -> DeviceBatch {
        DeviceBatch::new(self.params().device(), batch)
    }

    fn room(&self, shape: &BatchShape) -> DeviceBatch {
        DeviceBatch::with_room(self.params().device(), *shape)
    }

    fn load(room: &mut DeviceBatch, batch: &PackedBatch) {
        room.load(batch);
    }

    fn loss(&self, pass: &mut Pass<'_, '_>, batch: &DeviceBatch, smoothing: f32, weight: f32) -> LossSums {
        self.loss(pass, batch, smoothing, weight)
    }
}

impl Model for LanguageModel {
    type Config = LmConfig;
    type Batch = LmBatch;
    type Shape = LmShape;
    const SAMPLES: &'static str = "blocks";

    fn config(&self) -> &LmConfig {
        self.config()
    }

    fn params(&self) -> &Params {
        self.params()
    }

    fn params_mut(&mut self) -> &mut Params {
        self.params_mut()
    }

    fn target_types(&self) -> usize {
        self.bands().types()
    }

    fn check_ids(&self, batch: &PackedBatch) -> Result<()> {
        self.check_ids(batch)
    }

    fn shape(&self, batch: &PackedBatch, max_tokens: usize) -> LmShape {
        LmShape::around(batch, self.bands(), max_tokens)
    }

    fn upload(&self, batch: &PackedBatch) -> LmBatch {
        LmBatch::new(self.params().device(), self.bands(), batch)
    }

    fn room(&self, shape: &LmShape) -> LmBatch {
        LmBatch::with_room(self.params().device(), self.bands(), shape)
    }

    fn load(room: &mut LmBatch, batch: &PackedBatch) {
        room.load(batch);
    }

    fn loss(&self, pass: &mut Pass<'_, '_>, batch: &LmBatch, _smoothing: f32, weight: f32) -> LossSums {
        self.loss(pass, batch, weight)
    }
}
