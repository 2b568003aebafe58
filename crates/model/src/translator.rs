//! The translation model: embeddings, encoder, decoder, loss.

use mae_data::batch::PackedBatch;
use mae_engine::ops::cross_entropy::{CrossEntropy, LossSums};
use mae_engine::ops::embed::{Embedding, sinusoids};
use mae_engine::{Device, Ids, ParamId, Params, ParamsBuilder, Segments, Tape, Tensor, Var};

use crate::attention::Pass;
pub use crate::attention::{GateRecord, Probe};
use crate::config::{ModelConfig, Sharing};
use crate::groups::{self, REST};
use crate::stack::{Side, Stack};
use crate::{Error, Result, init};

/// An encoder-decoder with its parameters.
pub struct Translator {
    config: ModelConfig,
    params: Params,
    encoder: Stack,
    decoder: Stack,
    positions: Tensor,
    source_embedding: ParamId,
    target_embedding: ParamId,
    output_embedding: ParamId,
}

/// A batch on the model's device.
pub struct DeviceBatch {
    /// Source tokens end to end, `[Ns]`.
    pub source: Ids,
    /// Source sentences.
    pub source_rows: Segments,
    /// Decoder input: targets moved right by one, the end mark in front, `[Nt]`.
    pub previous: Ids,
    /// Target tokens end to end, `[Nt]`.
    pub target: Ids,
    /// Target sentences.
    pub target_rows: Segments,
}

impl DeviceBatch {
    /// Uploads a batch.
    pub fn new(device: &Device, batch: &PackedBatch) -> Self {
        Self {
            source: Ids::from_host(device, &batch.src),
            source_rows: Segments::from_host(device, &batch.src_starts),
            previous: Ids::from_host(device, &batch.prev),
            target: Ids::from_host(device, &batch.tgt),
            target_rows: Segments::from_host(device, &batch.tgt_starts),
        }
    }
}

/// The encoder's output and whose rows are whose.
pub struct Memory {
    /// `[Ns, D]`.
    pub output: Var,
    /// Source sentences.
    pub rows: Segments,
}

impl Translator {
    /// A model with all parameters zero: to be initialised or loaded.
    pub fn zeroed(config: &ModelConfig, types: [usize; 2], device: &Device) -> Result<Self> {
        config.check()?;
        let [source_types, target_types] = types;
        let width = config.encoder_embed_dim;
        if config.share_embeddings == Sharing::All && source_types != target_types {
            let fault = format!(
                "share_embeddings = \"all\" with {source_types} source and {target_types} target types"
            );
            return Err(Error::Config(vec![format!(
                "{fault}: one dictionary is needed (preprocess --joined-dictionary)"
            )]));
        }
        let table = config.experts().matrix();
        let experts = Tensor::from_host(
            device,
            [table.len() / config.encoder_attention_heads, config.encoder_attention_heads],
            &table,
        );
        let mut params = ParamsBuilder::default();
        let source_embedding =
            params.matrix("encoder.embed_tokens.weight".into(), [source_types, width], REST);
        let encoder = Stack::declare(&mut params, Side::Encoder, config, &experts);
        let target_embedding = match config.share_embeddings {
            Sharing::All => source_embedding,
            _ => params.matrix("decoder.embed_tokens.weight".into(), [target_types, width], REST),
        };
        let decoder = Stack::declare(&mut params, Side::Decoder, config, &experts);
        let output_embedding = match config.share_embeddings {
            Sharing::None => params.matrix("decoder.embed_out".into(), [target_types, width], REST),
            _ => target_embedding,
        };
        let params = params.finish(device);
        let positions = sinusoids(device, config.max_positions, width);
        let config = config.clone();
        Ok(Self {
            config,
            params,
            encoder,
            decoder,
            positions,
            source_embedding,
            target_embedding,
            output_embedding,
        })
    }

    /// A model with fairseq's initial values.
    pub fn new(config: &ModelConfig, types: [usize; 2], device: &Device, seed: u64) -> Result<Self> {
        let mut model = Self::zeroed(config, types, device)?;
        init::initialise(&mut model.params, seed)?;
        Ok(model)
    }

    /// Sizes and choices.
    pub fn config(&self) -> &ModelConfig {
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

    /// Types of the target dictionary.
    pub fn target_types(&self) -> usize {
        self.params.block(self.output_embedding).rows
    }

    /// The encoder's output.
    pub fn encode(&self, pass: &mut Pass<'_, '_>, source: &Ids, rows: &Segments) -> Memory {
        let x = self.embed(pass.tape, self.source_embedding, source, rows, 0);
        Memory { output: self.encoder.forward(pass, x, rows, None), rows: rows.clone() }
    }

    /// The decoder's output for whole targets, `[Nt, D]`.
    pub fn features(&self, pass: &mut Pass<'_, '_>, batch: &DeviceBatch) -> Var {
        let memory = self.encode(pass, &batch.source, &batch.source_rows);
        let x = self.embed(pass.tape, self.target_embedding, &batch.previous, &batch.target_rows, 0);
        self.decoder.forward(pass, x, &batch.target_rows, Some((&memory.output, &memory.rows)))
    }

    /// The loss of a batch; `weight` scales its gradient.
    pub fn loss(
        &self,
        pass: &mut Pass<'_, '_>,
        batch: &DeviceBatch,
        smoothing: f32,
        weight: f32,
    ) -> LossSums {
        let features = self.features(pass, batch);
        let loss =
            CrossEntropy { vocabulary: self.output_embedding, targets: &batch.target, smoothing, weight };
        pass.tape.cross_entropy(&features, loss)
    }

    /// Logits of features.
    pub fn logits(&self, tape: &mut Tape<'_>, features: &Var) -> Tensor {
        tape.logits(features, self.output_embedding)
    }

    pub(crate) fn embed_targets(
        &self,
        tape: &mut Tape<'_>,
        ids: &Ids,
        rows: &Segments,
        offset: usize,
    ) -> Var {
        self.embed(tape, self.target_embedding, ids, rows, offset)
    }

    pub(crate) fn decoder(&self) -> &Stack {
        &self.decoder
    }

    fn embed(&self, tape: &mut Tape<'_>, table: ParamId, ids: &Ids, rows: &Segments, offset: usize) -> Var {
        let scale = (self.config.encoder_embed_dim as f32).sqrt();
        let embedding = Embedding { table, positions: &self.positions, scale, dropout: self.config.dropout };
        tape.embed(embedding, ids, rows, offset)
    }
}
