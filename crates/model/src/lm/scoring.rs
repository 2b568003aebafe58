//! ln p of the last tokens of blocks. Evaluation with a context window reads many more tokens than it scores (512 for 32
//! in the paper's protocol), so the vocabulary sees the rows that are scored only.

use std::collections::HashMap;

use mae_data::PackedBatch;
use mae_engine::ops::adaptive::{BandedIds, Bands};
use mae_engine::{Device, Ids, Replays, Segments, Tape, Tensor};

use super::{LanguageModel, LmShape};
use crate::pass::{ExpertMode, Pass};
use crate::{Model, Result};

/// Scores batches of blocks. On a GPU, passes over batches of one shape are captured once and replayed.
pub struct Scorer<'a> {
    model: &'a LanguageModel,
    mode: &'a ExpertMode,
    max_tokens: usize,
    rooms: HashMap<ScoreShape, ScoredBlocks>,
    passes: Replays<ScoreShape, Tensor>,
}

/// Room for a batch: the blocks, whose targets are the scored ones, and how many of these there are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ScoreShape {
    blocks: LmShape,
    scored: usize,
}

/// A batch on the model's device.
struct ScoredBlocks {
    previous: BandedIds,
    rows: Segments,
    /// The rows whose targets are scored, `[n]`.
    scored: Ids,
    /// Their targets, `[n]`.
    target: BandedIds,
}

impl ScoredBlocks {
    fn new(device: &Device, bands: &Bands, batch: &PackedBatch, rows: &[u32], targets: &[u32]) -> Self {
        Self {
            previous: BandedIds::from_host(device, bands, &batch.prev),
            rows: Segments::from_host(device, &batch.tgt_starts),
            scored: Ids::from_host(device, rows),
            target: BandedIds::from_host(device, bands, targets),
        }
    }

    fn with_room(device: &Device, bands: &Bands, shape: &ScoreShape) -> Self {
        let ScoreShape { blocks, scored } = shape;
        Self {
            previous: BandedIds::with_room(device, bands, blocks.rows, &blocks.previous),
            rows: Segments::with_room(device, blocks.blocks, blocks.rows, blocks.longest),
            scored: Ids::with_room(device, *scored),
            target: BandedIds::with_room(device, bands, *scored, &blocks.target),
        }
    }

    fn load(&mut self, batch: &PackedBatch, rows: &[u32], targets: &[u32]) {
        self.previous.load(&batch.prev);
        self.rows.load(&batch.tgt_starts);
        self.scored.load(rows);
        self.target.load(targets);
    }
}

impl<'a> Scorer<'a> {
    /// For batches of at most `max_tokens` tokens.
    pub fn new(model: &'a LanguageModel, mode: &'a ExpertMode, max_tokens: usize) -> Self {
        Self { model, mode, max_tokens, rooms: HashMap::new(), passes: Replays::default() }
    }

    /// ln p of every token of `batch` but the first `contexts[b]` of block b, which are only read.
    ///
    /// # Panics
    ///
    /// With [`ExpertMode::Sample`]: experts are drawn in training only.
    pub fn log_probs(&mut self, batch: &PackedBatch, contexts: &[usize]) -> Result<Vec<f32>> {
        let Self { model, mode, max_tokens, rooms, passes } = self;
        model.check_ids(batch)?;
        let (device, bands) = (model.params().device(), model.bands());
        let of_block = |(block, &context): (&[u32], &usize)| block[0] + context as u32..block[1];
        let rows: Vec<u32> = batch.tgt_starts.windows(2).zip(contexts).flat_map(of_block).collect();
        let targets: Vec<u32> = rows.iter().map(|&row| batch.tgt[row as usize]).collect();
        // Random experts are another list of numbers for each batch, which a captured pass would not see.
        let replayed = device.is_gpu() && !matches!(mode, ExpertMode::Random(_) | ExpertMode::Given(_));
        let found = if replayed {
            let shape = ScoreShape {
                blocks: LmShape::with_targets(batch, &targets, bands, *max_tokens),
                scored: LmShape::round(targets.len(), *max_tokens),
            };
            let room =
                rooms.entry(shape.clone()).or_insert_with(|| ScoredBlocks::with_room(device, bands, &shape));
            room.load(batch, &rows, &targets);
            passes.run(device, shape, || Ok(model.scores(mode, room)))?
        } else {
            let blocks = ScoredBlocks::new(device, bands, batch, &rows, &targets);
            model.scores(&mode.at(&batch.ids), &blocks)
        };
        let mut found = found.to_host();
        device.check()?;
        found.truncate(targets.len());
        Ok(found)
    }
}

impl LanguageModel {
    /// ln p of the scored targets, `[n, 1]`.
    fn scores(&self, mode: &ExpertMode, blocks: &ScoredBlocks) -> Tensor {
        let mut tape = Tape::evaluation(&self.params);
        let mut pass = Pass { tape: &mut tape, mode, probe: None };
        let features = self.features(&mut pass, &blocks.previous, &blocks.rows);
        let features = tape.take_rows(&features, &blocks.scored);
        self.words.loss(&mut tape, &features, &blocks.target, 1.0).log_probs
    }
}
