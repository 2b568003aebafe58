//! A whole set of sources to text.

use mae_data::pairs::cut_to;
use mae_data::sampler::{Order, TooLong};
use mae_data::{
    BatchSampler, EOS, MemoryDataset, PackedBatch, SamplerOptions, Segmentation, Sentences, UNK, Vocab,
    segmentation,
};
use mae_model::{ExpertMode, Translator};
use mae_train::Result;
use mae_translate::{SearchOptions, Searcher};

/// Rows of a decoding step at most: sentences times beam.
const MAX_ROWS: usize = 640;

/// The best translation of each source, the pieces that `codes` made joined, in order. A source longer than the model's positions is
/// cut; an empty one gives an empty line.
pub fn translate(
    model: &Translator,
    sources: &Sentences,
    (vocab, codes): (&Vocab, Option<&Segmentation>),
    options: &SearchOptions,
    mode: &ExpertMode,
) -> Result<Vec<String>> {
    let positions = model.config().max_positions;
    let fitting = (0..sources.len()).any(|i| sources.size(i) > positions).then(|| cut(sources, positions));
    let (sources, positions) = (fitting.as_ref().unwrap_or(sources), positions as u32);
    let lengths: Vec<(u32, u32)> = (0..sources.len()).map(|i| (sources.size(i) as u32, 0)).collect();
    // The end mark alone is an empty line.
    let worded: Vec<u32> = (0..sources.len() as u32).filter(|&i| lengths[i as usize].0 > 1).collect();
    let sampler = BatchSampler::among(
        &lengths,
        &worded,
        SamplerOptions {
            max_tokens: positions.max(4096),
            max_sentences: Some((MAX_ROWS / options.beam.max(1)).max(1) as u32),
            max_positions: Some((positions, positions)),
            too_long: TooLong::Error,
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

/// Sentences of at most `most` tokens, the last of which is the end mark.
fn cut(sentences: &Sentences, most: usize) -> Sentences {
    let mut fitting = MemoryDataset::default();
    (0..sentences.len()).for_each(|i| fitting.push(&cut_to(&sentences.get(i), most)));
    fitting.into()
}

/// The pieces of a reference, without the end mark. An unknown one must not match `<unk>` in a translation: as fairseq, we write
/// it `<<unk>>`.
pub fn reference_pieces(vocab: &Vocab, ids: &[u32]) -> String {
    let words = ids.iter().filter(|&&id| id != EOS);
    let words = words.map(|&id| if id == UNK { "<<unk>>" } else { vocab.symbol(id) });
    words.collect::<Vec<_>>().join(" ")
}

/// Ids as text, without the end mark, the pieces that `codes` made joined.
pub fn text(vocab: &Vocab, codes: Option<&Segmentation>, ids: &[u32]) -> String {
    let words: Vec<&str> = ids.iter().filter(|&&id| id != EOS).map(|&id| vocab.symbol(id)).collect();
    segmentation::join(codes, &words.join(" "))
}

#[cfg(test)]
mod tests {
    use mae_data::vocab::VocabOptions;

    use super::*;

    #[test]
    fn unknown_words_of_references_match_nothing_and_long_sentences_end() {
        let vocab = Vocab::from_counts([("a", 2), ("b", 1)], VocabOptions::default());
        let ids = vocab.encode_line("a c b");
        assert_eq!(reference_pieces(&vocab, &ids), "a <<unk>> b");
        assert_eq!(text(&vocab, None, &ids), "a <unk> b");
        let sentences: Sentences = [&ids[..], &[EOS]].into_iter().collect::<MemoryDataset>().into();
        let fitting = cut(&sentences, 2);
        assert_eq!((&*fitting.get(0), &*fitting.get(1)), (&[ids[0], EOS][..], &[EOS][..]));
    }
}
