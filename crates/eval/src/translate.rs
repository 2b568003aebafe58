//! A whole set of sources to text.

use mae_data::sampler::{Order, TooLong};
use mae_data::{
    BatchSampler, EOS, PackedBatch, SamplerOptions, Segmentation, Sentences, Vocab, segmentation,
};
use mae_decode::{SearchOptions, Searcher};
use mae_model::{ExpertMode, Translator};
use mae_train::Result;

/// Rows of a decoding step at most: sentences times beam.
const MAX_ROWS: usize = 640;

/// The best translation of each source, the pieces that `codes` made joined, in order. A source longer than the model's positions gives
/// an empty line.
pub fn translate(
    model: &Translator,
    sources: &Sentences,
    (vocab, codes): (&Vocab, Option<&Segmentation>),
    options: &SearchOptions,
    mode: &ExpertMode,
) -> Result<Vec<String>> {
    let lengths: Vec<(u32, u32)> = (0..sources.len()).map(|i| (sources.size(i) as u32, 0)).collect();
    let positions = model.config().max_positions as u32;
    let sampler = BatchSampler::new(
        &lengths,
        SamplerOptions {
            max_tokens: positions.max(4096),
            max_sentences: Some((MAX_ROWS / options.beam.max(1)).max(1) as u32),
            max_positions: Some((positions, positions)),
            too_long: TooLong::Skip,
            seed: 0,
        },
    )?;
    let mut lines = vec![String::new(); sources.len()];
    let mut searcher = Searcher::new(model, options, mode);
    for ids in sampler.ordered(Order::LongestFirst) {
        let found = searcher.search(&PackedBatch::from_sources(sources, &ids))?;
        for (id, hypotheses) in ids.iter().zip(found) {
            if let Some(best) = hypotheses.first() {
                lines[*id as usize] = text(vocab, codes, &best.tokens);
            }
        }
    }
    Ok(lines)
}

/// Ids as text, without the end mark, the pieces that `codes` made joined.
pub fn text(vocab: &Vocab, codes: Option<&Segmentation>, ids: &[u32]) -> String {
    let words: Vec<&str> = ids.iter().filter(|&&id| id != EOS).map(|&id| vocab.symbol(id)).collect();
    segmentation::join(codes, &words.join(" "))
}
