//! Gates of sentences that were translated.

use mae_data::{EOS, PackedBatch};
use mae_engine::Tape;
use mae_model::attention::Pass;
use mae_model::pass::{Kind, Rows};
use mae_model::{ExpertMode, Model, Probe, Translator};

use crate::error::Result;
use crate::hypothesis::Hypothesis;

/// The gates of one attention for one sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Gates {
    /// Name of the attention, such as `encoder.layers.0.self_attn`.
    pub attention: String,
    /// Kind of the attention.
    pub kind: Kind,
    /// Probabilities of the experts, or weights of the heads where a system has no experts.
    pub rows: GateRows,
}

impl Gates {
    /// Number of the attention's layer, from 0.
    pub fn layer(&self) -> usize {
        self.attention.split('.').find_map(|part| part.parse().ok()).unwrap_or(0)
    }
}

/// The gates of one attention: probabilities of experts, or weights of heads.
#[derive(Clone, Debug, PartialEq)]
pub enum GateRows {
    /// One gate for the whole sentence.
    Sentence(Vec<f32>),
    /// One gate per token: of the source in the encoder; in the decoder that with which the token of the
    /// translation was predicted.
    Tokens(Vec<Vec<f32>>),
}

impl GateRows {
    /// The gates, one or one per token.
    pub fn rows(&self) -> &[Vec<f32>] {
        match self {
            Self::Sentence(row) => std::slice::from_ref(row),
            Self::Tokens(rows) => rows,
        }
    }
}

/// The gates of a sentence and of its translations; none for systems without gates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentenceGates {
    /// Of the encoder.
    pub encoder: Vec<Gates>,
    /// Of the decoder, for each hypothesis: self-attention and attention to the source of each layer.
    pub hypotheses: Vec<Vec<Gates>>,
}

/// Computes the gates of every sentence of a batch with the translations that were found, by one full pass.
/// Causal gates are those of the search; gates over the whole target read more in a full pass than in a
/// search.
pub fn gates_of(
    model: &Translator,
    batch: &PackedBatch,
    found: &[Vec<Hypothesis>],
    mode: &ExpertMode,
) -> Result<Vec<SentenceGates>> {
    let pairs = pairs(batch, found);
    let mut gates: Vec<SentenceGates> = found
        .iter()
        .map(|hypotheses| SentenceGates {
            hypotheses: vec![Vec::new(); hypotheses.len()],
            ..SentenceGates::default()
        })
        .collect();
    if pairs.ids.is_empty() || !model.config().mixture.system.is_gated() {
        return Ok(gates);
    }
    let device = model.params().device();
    let (mut tape, mut probe) = (Tape::evaluation(model.params()), Probe::default());
    let mode = mode.at(&pairs.ids);
    let mut pass = Pass { tape: &mut tape, mode: &mode, probe: Some(&mut probe) };
    model.features(&mut pass, &model.upload(&pairs));
    for record in &probe.gates {
        let (values, experts) = (record.gates.to_host(), record.gates.cols());
        let of_encoder = record.kind == Kind::Encoder;
        let starts = if of_encoder { &pairs.src_starts } else { &pairs.tgt_starts };
        let mut pair = 0;
        for (sentence, hypotheses) in gates.iter_mut().zip(found) {
            for rank in 0..hypotheses.len() {
                let rows = match record.rows {
                    Rows::Sentences => pair..pair + 1,
                    Rows::Positions => starts[pair] as usize..starts[pair + 1] as usize,
                };
                pair += 1;
                let values = &values[rows.start * experts..rows.end * experts];
                let rows = match record.rows {
                    Rows::Sentences => GateRows::Sentence(values.to_vec()),
                    Rows::Positions => {
                        GateRows::Tokens(values.chunks_exact(experts).map(<[f32]>::to_vec).collect())
                    }
                };
                let own = Gates { attention: record.name.clone(), kind: record.kind, rows };
                match (of_encoder, rank) {
                    (false, _) => sentence.hypotheses[rank].push(own),
                    (true, 0) => sentence.encoder.push(own),
                    // The encoder reads the same source for all of them.
                    (true, _) => {}
                }
            }
        }
    }
    device.check()?;
    Ok(gates)
}

/// Every source once for each of its translations.
fn pairs(batch: &PackedBatch, found: &[Vec<Hypothesis>]) -> PackedBatch {
    let mut pairs = PackedBatch { src_starts: vec![0], tgt_starts: vec![0], ..PackedBatch::default() };
    for (sentence, hypotheses) in found.iter().enumerate() {
        for hypothesis in hypotheses {
            pairs.src.extend(batch.src_sentence(sentence));
            pairs.src_starts.push(pairs.src.len() as u32);
            let before_end = hypothesis.tokens.len().saturating_sub(1);
            pairs.prev.push(EOS);
            pairs.prev.extend(&hypothesis.tokens[..before_end]);
            pairs.tgt.extend(&hypothesis.tokens);
            pairs.tgt_starts.push(pairs.tgt.len() as u32);
            pairs.ids.push(batch.ids[sentence]);
        }
    }
    pairs
}
