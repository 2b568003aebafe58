//! The translation model: embeddings, encoder, decoder, loss.

use std::borrow::Cow;

use mae_data::EOS;
use mae_data::batch::PackedBatch;
use mae_engine::ops::cross_entropy::{CrossEntropy, LossSums};
use mae_engine::ops::decode::Lineage;
use mae_engine::ops::embed::{self, Embedding, marian_sinusoids, sinusoids};
use mae_engine::{Device, GroupSet, Ids, ParamId, Params, ParamsBuilder, Segments, Tape, Tensor, Var};

use crate::config::{DecoderStart, ModelConfig, Positions, Sharing, SourceEnd};
use crate::groups::{self, REST, STATISTICS};
use crate::kind::Model;
use crate::pass::Pass;
use crate::stack::{Side, Stack};
use crate::{Error, Result, init};

/// An encoder-decoder with its parameters.
pub struct Translator {
    config: ModelConfig,
    params: Params,
    encoder: Stack,
    decoder: Stack,
    source_embedding: InputEmbedding,
    target_embedding: InputEmbedding,
    output_embedding: ParamId,
    output_bias: Option<ParamId>,
}

/// Embeddings of one side, and the position vectors that are added to them.
struct InputEmbedding {
    table: ParamId,
    positions: PositionTable,
}

/// Position vectors of one side.
enum PositionTable {
    Fixed(Tensor),
    Stored(ParamId),
}

/// A batch on the model's device.
pub struct DeviceBatch {
    /// Source tokens end to end, `[Ns]`.
    pub source: Ids,
    /// Source sentences.
    pub source_rows: Segments,
    /// Decoder input: targets moved right by one, the model's start symbol in front, `[Nt]`.
    pub previous: Ids,
    /// Target tokens end to end, `[Nt]`.
    pub target: Ids,
    /// Target sentences.
    pub target_rows: Segments,
    marks: Marks,
}

/// Marks of sentences as a model reads them. Batches hold an end mark after each source and in front of each target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// First symbol that the decoder reads.
    pub start: DecoderStart,
    /// End of source sentences.
    pub source_end: SourceEnd,
}

impl Marks {
    /// Source sentences, ids end to end and starts, as the encoder reads them.
    pub fn source<'a>(self, ids: &'a [u32], starts: &'a [u32]) -> (Cow<'a, [u32]>, Cow<'a, [u32]>) {
        if self.source_end == SourceEnd::Mark {
            return (Cow::Borrowed(ids), Cow::Borrowed(starts));
        }
        let (mut kept, mut kept_starts) = (Vec::with_capacity(ids.len()), vec![0]);
        for ends in starts.windows(2) {
            let sentence = &ids[ends[0] as usize..ends[1] as usize];
            kept.extend(match sentence {
                [before @ .., EOS] if !before.is_empty() => before,
                all => all,
            });
            kept_starts.push(kept.len() as u32);
        }
        (kept.into(), kept_starts.into())
    }

    /// The decoder's input of a batch.
    fn previous(self, batch: &PackedBatch) -> Cow<'_, [u32]> {
        if self.start == DecoderStart::Eos {
            return Cow::Borrowed(&batch.prev);
        }
        let mut previous = batch.prev.clone();
        for sentence in batch.tgt_starts.windows(2).filter(|ends| ends[0] < ends[1]) {
            previous[sentence[0] as usize] = self.start.id();
        }
        Cow::Owned(previous)
    }
}

/// Room for a batch, rounded up, so that many batches are alike and one captured pass serves them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Ns.
    source: usize,
    /// Nt.
    target: usize,
    /// B.
    sentences: usize,
    /// No sentence is longer.
    longest: usize,
}

impl BatchShape {
    /// Room for `batch` of a run whose batches have at most `max_tokens` tokens on a side. Rows are rounded up to a
    /// 32nd of that (at least 64), which wastes 1.5 % of them on average.
    pub fn around(batch: &PackedBatch, max_tokens: usize) -> Self {
        let unit = (max_tokens.next_power_of_two() / 32).max(64);
        let longest = Segments::longest_of(&batch.src_starts).max(Segments::longest_of(&batch.tgt_starts));
        Self {
            source: batch.src.len().next_multiple_of(unit),
            target: batch.tgt.len().next_multiple_of(unit),
            sentences: batch.sentences().next_power_of_two().max(32),
            longest: longest.next_power_of_two().max(64),
        }
    }
}

impl DeviceBatch {
    /// Room for batches of a shape, to be loaded, of a model with these marks.
    pub fn with_room(device: &Device, shape: BatchShape, marks: Marks) -> Self {
        let BatchShape { source, target, sentences, longest } = shape;
        Self {
            source: Ids::with_room(device, source),
            source_rows: Segments::with_room(device, sentences, source, longest),
            previous: Ids::with_room(device, target),
            target: Ids::with_room(device, target),
            target_rows: Segments::with_room(device, sentences, target, longest),
            marks,
        }
    }

    /// Takes another batch that fits.
    pub fn load(&mut self, batch: &PackedBatch) {
        let (source, starts) = self.marks.source(&batch.src, &batch.src_starts);
        self.source.load(&source);
        self.source_rows.load(&starts);
        self.previous.load(&self.marks.previous(batch));
        self.target.load(&batch.tgt);
        self.target_rows.load(&batch.tgt_starts);
    }

    /// Uploads a batch for a model with these marks.
    pub fn new(device: &Device, batch: &PackedBatch, marks: Marks) -> Self {
        let (source, starts) = marks.source(&batch.src, &batch.src_starts);
        Self {
            source: Ids::from_host(device, &source),
            source_rows: Segments::from_host(device, &starts),
            previous: Ids::from_host(device, &marks.previous(batch)),
            target: Ids::from_host(device, &batch.tgt),
            target_rows: Segments::from_host(device, &batch.tgt_starts),
            marks,
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
            return Err(Error::TwoDictionaries { source_types, target_types });
        }
        let mut params = ParamsBuilder::default();
        let positions = |params: &mut ParamsBuilder, side: &str| match config.positions {
            Positions::Fairseq => PositionTable::Fixed(sinusoids(device, config.max_positions, width)),
            Positions::Marian => PositionTable::Fixed(marian_sinusoids(device, config.max_positions, width)),
            Positions::Table => PositionTable::Stored(params.matrix(
                format!("{side}.embed_positions.weight"),
                [config.max_positions, width],
                STATISTICS,
            )),
        };
        let table = params.matrix("encoder.embed_tokens.weight".into(), [source_types, width], REST);
        let source_embedding = InputEmbedding { table, positions: positions(&mut params, "encoder") };
        let encoder = Stack::declare(&mut params, &config.stack(Side::Encoder), device)?;
        let table = match config.share_embeddings {
            Sharing::All => source_embedding.table,
            _ => params.matrix("decoder.embed_tokens.weight".into(), [target_types, width], REST),
        };
        let target_embedding = InputEmbedding { table, positions: positions(&mut params, "decoder") };
        let decoder = Stack::declare(&mut params, &config.stack(Side::Decoder), device)?;
        let output_embedding = match config.share_embeddings {
            Sharing::None => params.matrix("decoder.embed_out".into(), [target_types, width], REST),
            _ => target_embedding.table,
        };
        let output_bias = config
            .output_bias
            .then(|| params.vector("decoder.output_projection.bias".into(), target_types, REST));
        let params = params.finish_but(device, GroupSet::of(&[STATISTICS]));
        let config = config.clone();
        Ok(Self {
            config,
            params,
            encoder,
            decoder,
            source_embedding,
            target_embedding,
            output_embedding,
            output_bias,
        })
    }

    /// A model with fairseq's initial values.
    pub fn new(config: &ModelConfig, types: [usize; 2], device: &Device, seed: u64) -> Result<Self> {
        let mut model = Self::zeroed(config, types, device)?;
        init::initialise(&mut model.params, config.mixture.system, seed)?;
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

    /// Checks that ids are in the source dictionary.
    pub fn check_source(&self, source: &[u32]) -> Result<()> {
        Error::check_ids("source sentence", source, self.params.block(self.source_embedding.table).rows)
    }

    /// The encoder's output.
    pub fn encode(&self, pass: &mut Pass<'_, '_>, source: &Ids, rows: &Segments) -> Memory {
        let x = self.embed(pass.tape, &self.source_embedding, source, rows, None);
        Memory { output: self.encoder.forward(pass, x, rows, None), rows: rows.clone() }
    }

    /// The decoder's output for whole targets, `[Nt, D]`.
    pub fn features(&self, pass: &mut Pass<'_, '_>, batch: &DeviceBatch) -> Var {
        let memory = self.encode(pass, &batch.source, &batch.source_rows);
        let x = self.embed(pass.tape, &self.target_embedding, &batch.previous, &batch.target_rows, None);
        self.decoder.forward(pass, x, &batch.target_rows, Some((&memory.output, &memory.rows)))
    }

    /// Logits of features.
    pub fn logits(&self, tape: &mut Tape<'_>, features: &Var) -> Tensor {
        tape.logits(features, self.output_embedding, self.output_bias)
    }

    /// The matrix and the bias that logits come from.
    pub(crate) fn output(&self) -> (ParamId, Option<ParamId>) {
        (self.output_embedding, self.output_bias)
    }

    pub(crate) fn embed_targets(
        &self,
        tape: &mut Tape<'_>,
        ids: &Ids,
        rows: &Segments,
        after: &Lineage,
    ) -> Var {
        self.embed(tape, &self.target_embedding, ids, rows, Some(after))
    }

    /// What the decoder reads for the newest tokens of hypotheses: the start symbol for the end mark, which none of
    /// them holds but those that have not begun.
    pub(crate) fn previous_tokens<'a>(&self, tokens: &'a [u32]) -> Cow<'a, [u32]> {
        match self.config.decoder_start {
            DecoderStart::Eos => Cow::Borrowed(tokens),
            start => tokens.iter().map(|&token| if token == EOS { start.id() } else { token }).collect(),
        }
    }

    pub(crate) fn decoder(&self) -> &Stack {
        &self.decoder
    }

    fn embed(
        &self,
        tape: &mut Tape<'_>,
        input: &InputEmbedding,
        ids: &Ids,
        rows: &Segments,
        after: Option<&Lineage>,
    ) -> Var {
        let scale = match self.config.no_scale_embedding {
            true => 1.0,
            false => (self.config.encoder_embed_dim as f32).sqrt(),
        };
        let positions = match &input.positions {
            PositionTable::Fixed(table) => embed::Positions::Fixed(table),
            PositionTable::Stored(id) => embed::Positions::Stored(*id),
        };
        let embedding = Embedding { table: input.table, positions, scale, dropout: self.config.dropout };
        tape.embed(embedding, ids, rows, after)
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
        self.params.block(self.output_embedding).rows
    }

    fn check_ids(&self, batch: &PackedBatch) -> Result<()> {
        self.check_source(&batch.src)?;
        Error::check_ids("target sentence", &batch.tgt, self.params.block(self.target_embedding.table).rows)
    }

    fn shape(&self, batch: &PackedBatch, max_tokens: usize) -> BatchShape {
        BatchShape::around(batch, max_tokens)
    }

    fn upload(&self, batch: &PackedBatch) -> DeviceBatch {
        DeviceBatch::new(self.params().device(), batch, self.config.marks())
    }

    fn room(&self, shape: &BatchShape) -> DeviceBatch {
        DeviceBatch::with_room(self.params().device(), *shape, self.config.marks())
    }

    fn load(room: &mut DeviceBatch, batch: &PackedBatch) {
        room.load(batch);
    }

    fn loss(&self, pass: &mut Pass<'_, '_>, batch: &DeviceBatch, smoothing: f32, weight: f32) -> LossSums {
        let config = &self.config;
        pass.tape.share_losses(&batch.target_rows, weight, config.encoder_layers + 2 * config.decoder_layers);
        let features = self.features(pass, batch);
        let (vocabulary, bias) = (self.output_embedding, self.output_bias);
        let loss = CrossEntropy { vocabulary, bias, targets: &batch.target, smoothing, weight };
        pass.tape.cross_entropy(&features, loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_marks_of_sources_are_left_out_where_a_model_reads_none() {
        let (ids, starts) = ([5, 6, EOS, EOS, 7, EOS], [0, 3, 4, 6]);
        let (kept, all) = Marks::default().source(&ids, &starts);
        assert_eq!((&*kept, &*all), (&ids[..], &starts[..]));
        let marks = Marks { source_end: SourceEnd::None, ..Marks::default() };
        let (kept, starts) = marks.source(&ids, &starts);
        // An empty sentence keeps its mark.
        assert_eq!((&*kept, &*starts), (&[5, 6, EOS, 7][..], &[0, 2, 3, 4][..]));
    }
}
