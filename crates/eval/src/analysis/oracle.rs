//! A choice of experts by an oracle: for each sentence and attention the best one, by half of the tokens.
//!
//! An oracle that sees the tokens that it is scored on finds gains in noise. So it chooses by the loss of the odd target
//! tokens (the first, third, …) and is scored on the even ones. Attentions are decided one after the other in the order of
//! the model, each with the choices before it in place (all choices at once would be Eᴬ); for each the oracle may keep the
//! mixture, and does so where no expert has a lower loss. That is (E + 1)·A + 2 passes over the sentences.

use std::collections::BTreeMap;

use mae_data::sampler::{Order, TooLong};
use mae_data::{BatchSampler, PackedBatch, ParallelDataset, SamplerOptions};
use mae_engine::{Tape, Tensor};
use mae_model::attention::Pass;
use mae_model::experts::Experts;
use mae_model::gate::GateInput;
use mae_model::pass::{Kind, Rows};
use mae_model::{ExpertMode, Model, Probe, Translator};
use serde::{Deserialize, Serialize};

use crate::Result;

/// Losses with the experts that an oracle chose, in bits per target token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Oracle {
    /// Sentences.
    pub sentences: u64,
    /// Loss of the mixture on the even tokens.
    pub mixture: f64,
    /// Loss on the even tokens with the experts chosen by the odd ones.
    pub chosen: f64,
    /// Loss of the mixture on the odd tokens.
    pub mixture_seen: f64,
    /// Loss on the odd tokens, by which the experts were chosen: a gain here may be noise.
    pub chosen_seen: f64,
    /// Share of sentences and attentions that keep the mixture.
    pub kept: f64,
}

/// Sums over sentences.
#[derive(Default)]
struct Sums {
    /// Tokens, odd and even.
    tokens: [u64; 2],
    mixture: [f64; 2],
    chosen: [f64; 2],
    kept: u64,
    choices: u64,
}

/// An attention that has experts.
struct Place {
    name: String,
    rows: Rows,
    kind: Kind,
}

/// Lets an oracle choose for at most `sentences` sentence pairs, evenly spread over the data set; `progress` gets the number
/// of pairs done. `None` for systems without experts.
pub fn split_half(
    model: &Translator,
    data: &ParallelDataset,
    sentences: usize,
    mut progress: impl FnMut(u64),
) -> Result<Option<Oracle>> {
    let config = model.config();
    let Some(experts) = config.experts() else { return Ok(None) };
    let positions = config.max_positions as u32;
    let options = SamplerOptions {
        max_tokens: positions.max(4096),
        max_positions: Some((positions, positions)),
        too_long: TooLong::Skip,
        ..SamplerOptions::default()
    };
    let count = sentences.min(data.len());
    let part: Vec<u32> = (0..count).map(|i| (i * data.len() / count) as u32).collect();
    let sampler = BatchSampler::among(&data.lengths(), &part, options)?;
    let (places, mut sums, mut done) = (places(model), Sums::default(), 0);
    for ids in sampler.ordered(Order::Given) {
        let packed = PackedBatch::from_pairs(data, &ids);
        choose(model, &packed, (&places, experts), &mut sums)?;
        done += ids.len() as u64;
        progress(done);
    }
    let bits = |sum: f64, half: usize| sum / sums.tokens[half].max(1) as f64 / std::f64::consts::LN_2;
    Ok(Some(Oracle {
        sentences: done,
        mixture: bits(sums.mixture[1], 1),
        chosen: bits(sums.chosen[1], 1),
        mixture_seen: bits(sums.mixture[0], 0),
        chosen_seen: bits(sums.chosen[0], 0),
        kept: sums.kept as f64 / sums.choices.max(1) as f64,
    }))
}

/// All attentions in the order of a pass.
fn places(model: &Translator) -> Vec<Place> {
    let config = model.config();
    let place = |name: String, kind: Kind| {
        let rows = GateInput::of(kind, &config.mixture).rows();
        Place { name, rows, kind }
    };
    let encoder =
        (0..config.encoder_layers).map(|l| place(format!("encoder.layers.{l}.self_attn"), Kind::Encoder));
    let decoder = (0..config.decoder_layers).flat_map(|l| {
        [("self_attn", Kind::Decoder), ("encoder_attn", Kind::Cross)]
            .map(|(part, kind)| place(format!("decoder.layers.{l}.{part}"), kind))
    });
    encoder.chain(decoder).collect()
}

/// Chooses for the sentences of a batch, and adds their losses.
fn choose(
    model: &Translator,
    packed: &PackedBatch,
    (places, experts): (&[Place], Experts),
    sums: &mut Sums,
) -> Result<()> {
    let device = model.params().device();
    let batch = model.upload(packed);
    let (heads, matrix) = (experts.heads, experts.matrix());
    let pass = |weights: &BTreeMap<String, Tensor>| -> Result<(Vec<[f64; 2]>, Probe)> {
        let (mode, mut probe) = (ExpertMode::Weights(weights.clone()), Probe::default());
        let mut tape = Tape::evaluation(model.params());
        let mut pass = Pass { tape: &mut tape, mode: &mode, probe: Some(&mut probe) };
        let found = model.loss(&mut pass, &batch, 0.0, 1.0).log_probs.to_host();
        device.check()?;
        Ok((halves(packed, &found), probe))
    };
    let mut chosen = BTreeMap::new();
    let (mixture, _) = pass(&chosen)?;
    for place in places {
        let rows_of = |b: usize| rows_of(place, packed, b);
        let all: usize = (0..packed.sentences()).map(|b| rows_of(b).len()).sum();
        let (mut best, probe) = pass(&chosen)?;
        let mut choice: Vec<Option<usize>> = vec![None; packed.sentences()];
        for expert in 0..experts.count() {
            let row = &matrix[expert * heads..][..heads];
            let mut with = chosen.clone();
            with.insert(place.name.clone(), Tensor::from_host(device, [all, heads], &row.repeat(all)));
            for (b, losses) in pass(&with)?.0.into_iter().enumerate() {
                if losses[0] < best[b][0] {
                    (best[b], choice[b]) = (losses, Some(expert));
                }
            }
        }
        sums.choices += choice.len() as u64;
        sums.kept += choice.iter().filter(|choice| choice.is_none()).count() as u64;
        if choice.iter().all(Option::is_none) {
            continue;
        }
        // Weights of sentences that keep the mixture: g·M, or 1 where there are no gates.
        let record = probe.gates.iter().find(|record| record.name == place.name);
        let mut weights = record.map_or_else(
            || vec![1.0; all * heads],
            |record| {
                let gates = record.gates.to_host();
                gates.chunks_exact(experts.count()).flat_map(|g| mixed(g, &matrix, heads)).collect()
            },
        );
        for (b, expert) in choice.iter().enumerate().filter_map(|(b, choice)| Some((b, (*choice)?))) {
            for row in rows_of(b) {
                weights[row * heads..][..heads].copy_from_slice(&matrix[expert * heads..][..heads]);
            }
        }
        chosen.insert(place.name.clone(), Tensor::from_host(device, [all, heads], &weights));
    }
    let (found, _) = pass(&chosen)?;
    for (b, (mixture, chosen)) in mixture.iter().zip(&found).enumerate() {
        let length = packed.tgt_sentence(b).len() as u64;
        for (half, tokens) in [length.div_ceil(2), length / 2].into_iter().enumerate() {
            sums.tokens[half] += tokens;
            sums.mixture[half] += mixture[half];
            sums.chosen[half] += chosen[half];
        }
    }
    Ok(())
}

/// The rows of an attention's gates that belong to the batch's sentence `b`.
fn rows_of(place: &Place, batch: &PackedBatch, b: usize) -> std::ops::Range<usize> {
    let starts = match (place.rows, place.kind) {
        (Rows::Sentences, _) => return b..b + 1,
        (Rows::Positions, Kind::Encoder) => &batch.src_starts,
        (Rows::Positions, Kind::Decoder | Kind::Cross) => &batch.tgt_starts,
    };
    starts[b] as usize..starts[b + 1] as usize
}

/// g·M.
fn mixed(gate: &[f32], matrix: &[f32], heads: usize) -> Vec<f32> {
    (0..heads).map(|head| gate.iter().enumerate().map(|(e, g)| g * matrix[e * heads + head]).sum()).collect()
}

/// For each sentence, −ln p of its odd tokens and of its even ones.
fn halves(batch: &PackedBatch, log_probs: &[f32]) -> Vec<[f64; 2]> {
    let of_sentence = |bounds: &[u32]| {
        let tokens = &log_probs[bounds[0] as usize..bounds[1] as usize];
        [0, 1].map(|half| -tokens.iter().skip(half).step_by(2).map(|&p| f64::from(p)).sum::<f64>())
    };
    batch.tgt_starts.windows(2).map(of_sentence).collect()
}
