//! The vocabulary of a language model: one table, or bands of falling width.

use mae_engine::ops::adaptive::{
    AdaptiveEmbedding, AdaptiveSoftmax, BandedIds, Bands, InputBand, Orientation, Tail,
};
use mae_engine::ops::cross_entropy::{CrossEntropy, LossSums};
use mae_engine::ops::decode::Lineage;
use mae_engine::ops::embed::{Embedding, Positions};
use mae_engine::{ParamId, ParamsBuilder, Segments, Tape, Tensor, Var};

use super::LmConfig;
use crate::groups::REST;

pub(super) struct Words {
    bands: Bands,
    tables: Tables,
}

enum Tables {
    /// E `[V, D]`, for input and output.
    Plain(ParamId),
    Adaptive {
        input: Vec<InputBand>,
        head: ParamId,
        tails: Vec<Tail>,
        dropout: f32,
    },
}

impl Words {
    /// Declares `decoder.embed_tokens.*` and `decoder.adaptive_softmax.*`.
    pub(super) fn declare(params: &mut ParamsBuilder, config: &LmConfig, types: usize) -> Self {
        let (cutoffs, width) = (&config.adaptive_softmax_cutoff, config.decoder_embed_dim);
        let bands = Bands::new(cutoffs, types);
        if cutoffs.is_empty() {
            let table = params.matrix("decoder.embed_tokens.weight".into(), [types, width], REST);
            return Self { bands, tables: Tables::Plain(table) };
        }
        let (tails, words) = (cutoffs.len(), bands.range(0).len());
        let head_rows = words + tails;
        let mut input = Vec::new();
        let mut head = None;
        for band in 0..bands.count() {
            let (size, inner) = (bands.range(band).len(), config.band_width(band));
            let name = |part: usize| format!("decoder.embed_tokens.embeddings.{band}.{part}.weight");
            let table = if band == 0 && config.tie_adaptive_weights {
                // The head reads the words of the first band and its own classes as one matrix.
                let classes = "decoder.adaptive_softmax.head.class_proj.weight".to_owned();
                let parts = vec![(name(0), vec![words, width]), (classes, vec![tails, width])];
                *head.insert(params.block(parts, width, REST))
            } else {
                params.matrix(name(0), [size, inner], REST)
            };
            let projection = params.matrix(name(1), [width, inner], REST);
            input.push(InputBand { table, projection });
        }
        let head = head.unwrap_or_else(|| {
            params.matrix("decoder.adaptive_softmax.head.weight".into(), [head_rows, width], REST)
        });
        let mut tail = |index: usize| {
            let (size, inner) = (bands.range(index + 1).len(), config.band_width(index + 1));
            let name = |part: usize| format!("decoder.adaptive_softmax.tail.{index}.{part}.weight");
            let tied = input[index + 1];
            let (projection, orientation) = if config.tie_adaptive_proj {
                (tied.projection, Orientation::Transposed)
            } else {
                (params.matrix(name(0), [inner, width], REST), Orientation::Straight)
            };
            let vocabulary = match config.tie_adaptive_weights {
                true => tied.table,
                false => params.matrix(name(2), [size, inner], REST),
            };
            Tail { projection, orientation, vocabulary }
        };
        let tails = (0..tails).map(&mut tail).collect();
        let dropout = config.adaptive_softmax_dropout;
        Self { bands, tables: Tables::Adaptive { input, head, tails, dropout } }
    }

    pub(super) fn bands(&self) -> &Bands {
        &self.bands
    }

    pub(super) fn embed(
        &self,
        tape: &mut Tape<'_>,
        positions: &Tensor,
        dropout: f32,
        ids: &BandedIds,
        rows: &Segments,
        after: Option<&Lineage>,
    ) -> Var {
        let scale = (positions.cols() as f32).sqrt();
        match &self.tables {
            Tables::Plain(table) => {
                let positions = Positions::Fixed(positions);
                let embedding = Embedding { table: *table, positions, scale, dropout };
                tape.embed(embedding, ids.ids(0), rows, after)
            }
            Tables::Adaptive { input, .. } => {
                let embedding = AdaptiveEmbedding { bands: input, positions, scale, dropout };
                tape.adaptive_embed(embedding, ids, rows, after)
            }
        }
    }

    pub(super) fn loss(&self, tape: &mut Tape<'_>, x: &Var, targets: &BandedIds, weight: f32) -> LossSums {
        match &self.tables {
            Tables::Plain(table) => {
                let targets = targets.ids(0);
                tape.cross_entropy(
                    x,
                    CrossEntropy { vocabulary: *table, bias: None, targets, smoothing: 0.0, weight },
                )
            }
            Tables::Adaptive { head, tails, dropout, .. } => {
                let softmax = AdaptiveSoftmax { head: *head, tails, dropout: *dropout };
                tape.adaptive_loss(x, softmax, targets, weight)
            }
        }
    }

    pub(super) fn logits(&self, tape: &mut Tape<'_>, x: &Var) -> Tensor {
        match &self.tables {
            Tables::Plain(table) => tape.logits(x, *table, None),
            Tables::Adaptive { head, tails, dropout, .. } => {
                let softmax = AdaptiveSoftmax { head: *head, tails, dropout: *dropout };
                tape.adaptive_log_probs(x, softmax, &self.bands)
            }
        }
    }
}
