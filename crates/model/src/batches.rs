//! A model over a whole text, batch by batch, in the text's order.

use mae_data::sampler::{Order, TooLong};
use mae_data::{BatchSampler, Corpus, PackedBatch, SamplerOptions};
use mae_engine::Tape;
use serde::Serialize;

use crate::kind::{Config, Model};
use crate::pass::{ExpertMode, Pass};
use crate::{Error, Result};

/// Target or source tokens of a batch at most, where no sentence is longer.
const MAX_TOKENS: u32 = 4096;

/// Loss of a model on a text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TextLoss {
    /// Bits per target token.
    pub loss: f64,
    /// Target tokens, end marks counted.
    pub tokens: u64,
    /// Sentence pairs or blocks that were left out because they are longer than the model's positions.
    pub skipped: u64,
}

/// The loss of a model on a text, in evaluation.
pub fn loss<M: Model>(model: &M, text: &dyn Corpus) -> Result<TextLoss> {
    over(model, text, |batch| {
        let on_device = model.upload(batch);
        let mut tape = Tape::evaluation(model.params());
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: None };
        Ok(model.loss(&mut pass, &on_device, 0.0, 1.0).nll())
    })
}

/// Calls `nll` with every batch of a text, for its loss in nats.
pub(crate) fn over<M: Model>(
    model: &M,
    text: &dyn Corpus,
    mut nll: impl FnMut(&PackedBatch) -> Result<f64>,
) -> Result<TextLoss> {
    let positions = model.config().max_positions() as u32;
    let options = SamplerOptions {
        max_tokens: positions.max(MAX_TOKENS),
        max_positions: Some((positions, positions)),
        too_long: TooLong::Skip,
        ..SamplerOptions::default()
    };
    let sampler = BatchSampler::new(&text.lengths(), options)?;
    let (mut sum, mut tokens) = (0.0, 0);
    for ids in sampler.ordered(Order::Given) {
        let batch = text.pack(&ids);
        model.check_ids(&batch)?;
        sum += nll(&batch)?;
        tokens += batch.tgt_tokens() as u64;
    }
    model.params().device().check()?;
    match tokens {
        0 => Err(Error::EmptyText),
        _ if !sum.is_finite() => Err(Error::NotFinite),
        _ => {
            let loss = sum / tokens as f64 / std::f64::consts::LN_2;
            Ok(TextLoss { loss, tokens, skipped: sampler.skipped().count })
        }
    }
}
