//! The language model: a decoder without a memory over a stream of tokens (fairseq's `transformer_lm`).
//!
//! | room | what is in it |
//! |---|---|
//! | [`config`] | sizes and choices; architectures by name |
//! | `words` | the vocabulary, plain or cut into bands: embeddings, loss, log-probabilities |
//! | [`scoring`] | log-probabilities of the last tokens of blocks, for evaluation |
//! | [`stepping`] | one token at a time, with cached keys, values and gate inputs |
//! | [`folder`] | its files |

pub mod config;
pub mod folder;
pub mod scoring;
pub mod stepping;
mod words;

use mae_data::batch::PackedBatch;
use mae_engine::ops::adaptive::{BandedIds, Bands};
use mae_engine::ops::cross_entropy::LossSums;
use mae_engine::ops::decode::Lineage;
use mae_engine::ops::embed::sinusoids;
use mae_engine::{Device, Params, ParamsBuilder, Segments, Tape, Tensor, Var};

use crate::kind::Model;
use crate::pass::Pass;
use crate::stack::Stack;
use crate::{Error, Result, groups, init};
pub use config::LmConfig;
pub use folder::LmFolder;
pub use scoring::Scorer;
pub use stepping::LmState;
use words::Words;

/// A language model with its parameters.
pub struct LanguageModel {
    config: LmConfig,
    params: Params,
    decoder: Stack,
    words: Words,
    positions: Tensor,
}

/// A batch of blocks on the model's device.
pub struct LmBatch {
    /// What the model reads: `target` moved right by one, `[N]`.
    pub previous: BandedIds,
    /// What it is to predict, `[N]`.
    pub target: BandedIds,
    /// The blocks.
    pub rows: Segments,
}

/// Room for a batch, rounded up, so that many batches are alike and one captured pass serves them all. The rows of each
/// band are part of it: how many of a batch's tokens are rare changes little from batch to batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LmShape {
    rows: usize,
    blocks: usize,
    longest: usize,
    previous: Vec<usize>,
    target: Vec<usize>,
}

impl LmShape {
    /// Room for `batch` of a run whose batches have at most `max_tokens` tokens. Rows are rounded up to a 32nd of that
    /// (at least 64).
    pub fn around(batch: &PackedBatch, bands: &Bands, max_tokens: usize) -> Self {
        Self::with_targets(batch, &batch.tgt, bands, max_tokens)
    }

    /// The same where only `targets` are scored.
    fn with_targets(batch: &PackedBatch, targets: &[u32], bands: &Bands, max_tokens: usize) -> Self {
        let longest = Segments::longest_of(&batch.tgt_starts);
        // A band without tokens has room too: its products must run, to leave a gradient of 0.
        let round =
            |ids: &[u32]| bands.counts(ids).into_iter().map(|n| Self::round(n.max(1), max_tokens)).collect();
        Self {
            rows: Self::round(batch.prev.len(), max_tokens),
            blocks: (batch.tgt_starts.len() - 1).next_power_of_two(),
            longest: longest.next_power_of_two().max(64),
            previous: round(&batch.prev),
            target: round(targets),
        }
    }

    fn round(rows: usize, max_tokens: usize) -> usize {
        rows.next_multiple_of((max_tokens.next_power_of_two() / 32).max(64))
    }
}

impl LmBatch {
    /// Uploads a batch of targets without sources.
    pub fn new(device: &Device, bands: &Bands, batch: &PackedBatch) -> Self {
        Self {
            previous: BandedIds::from_host(device, bands, &batch.prev),
            target: BandedIds::from_host(device, bands, &batch.tgt),
            rows: Segments::from_host(device, &batch.tgt_starts),
        }
    }

    /// Room for batches of a shape, to be loaded.
    pub fn with_room(device: &Device, bands: &Bands, shape: &LmShape) -> Self {
        Self {
            previous: BandedIds::with_room(device, bands, shape.rows, &shape.previous),
            target: BandedIds::with_room(device, bands, shape.rows, &shape.target),
            rows: Segments::with_room(device, shape.blocks, shape.rows, shape.longest),
        }
    }

    /// Takes another batch that fits.
    pub fn load(&mut self, batch: &PackedBatch) {
        self.previous.load(&batch.prev);
        self.target.load(&batch.tgt);
        self.rows.load(&batch.tgt_starts);
    }
}

impl LanguageModel {
    /// A model with all parameters zero: to be initialised or loaded. `types` is the dictionary's size.
    pub fn zeroed(config: &LmConfig, types: usize, device: &Device) -> Result<Self> {
        let (params, decoder, words) = Self::declare(config, types, device)?;
        let params = params.finish(device);
        let positions = sinusoids(device, config.max_positions, config.decoder_embed_dim);
        Ok(Self { config: config.clone(), params, decoder, words, positions })
    }

    /// A model with fairseq's initial values.
    pub fn new(config: &LmConfig, types: usize, device: &Device, seed: u64) -> Result<Self> {
        let mut model = Self::zeroed(config, types, device)?;
        init::initialise(&mut model.params, config.mixture.system, seed)?;
        Ok(model)
    }

    /// Number of trained parameters that such a model would have.
    pub fn size_of(config: &LmConfig, types: usize) -> Result<usize> {
        Ok(Self::declare(config, types, &Device::cpu())?.0.count(groups::trained()))
    }

    fn declare(config: &LmConfig, types: usize, device: &Device) -> Result<(ParamsBuilder, Stack, Words)> {
        config.check()?;
        config.check_types(types)?;
        let mut params = ParamsBuilder::default();
        let words = Words::declare(&mut params, config, types);
        let decoder = Stack::declare(&mut params, &config.stack(), device)?;
        Ok((params, decoder, words))
    }

    /// Sizes and choices.
    pub fn config(&self) -> &LmConfig {
        &self.config
    }

    /// The parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The parameters, to be changed.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    /// Number of trained parameters.
    pub fn size(&self) -> usize {
        self.params.count(groups::trained())
    }

    /// How the vocabulary is cut; one band where it is not.
    pub fn bands(&self) -> &Bands {
        self.words.bands()
    }

    /// Features of whole blocks, `[N, D]`.
    pub fn features(&self, pass: &mut Pass<'_, '_>, previous: &BandedIds, rows: &Segments) -> Var {
        let x = self.embed(pass.tape, previous, rows, None);
        self.decoder.forward(pass, x, rows, None)
    }

    /// The loss of a batch; `weight` scales its gradient. Holds ln p of every target as well.
    pub fn loss(&self, pass: &mut Pass<'_, '_>, batch: &LmBatch, weight: f32) -> LossSums {
        pass.tape.share_losses(&batch.rows, weight, self.config.decoder_layers);
        let features = self.features(pass, &batch.previous, &batch.rows);
        self.words.loss(pass.tape, &features, &batch.target, weight)
    }

    /// Numbers `[N, V]` whose softmax is the distribution of the next word: logits of a plain vocabulary, ln p of one
    /// with bands.
    pub fn logits(&self, tape: &mut Tape<'_>, features: &Var) -> Tensor {
        self.words.logits(tape, features)
    }

    fn embed(&self, tape: &mut Tape<'_>, ids: &BandedIds, rows: &Segments, after: Option<&Lineage>) -> Var {
        self.words.embed(tape, &self.positions, self.config.dropout, ids, rows, after)
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
        Error::check_ids("block", batch.prev.iter().chain(&batch.tgt), self.bands().types())
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
