//! Text to token ids that fit into a model, and token ids to text.

use mae_data::pairs::cut_to;
use mae_data::{EOS, MemoryDataset, Segmentation, UNK, Vocab, segmentation};

/// Form of a text that is to be translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextForm {
    /// Plain lines: they go through the rules of the model folder, if it has any, and its codes or tokeniser cut them
    /// into pieces. Translations are plain lines.
    #[default]
    Lines,
    /// Lines that went through such rules already; they are cut into pieces. Translations are such lines.
    Tokens,
    /// Pieces with blanks between, as the dictionary has them.
    Pieces,
}

/// Sentences cut to the positions of a model, with counts for each.
#[derive(Clone, Debug, Default)]
pub struct Fitted {
    /// Token ids, each sentence ending in the end mark.
    pub sentences: MemoryDataset,
    /// Counts of each sentence.
    pub counts: Vec<TokenCounts>,
}

/// Tokens of a sentence, end mark not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// All tokens, with those that were cut off.
    pub tokens: usize,
    /// Tokens that the dictionary does not have, with those that were cut off.
    pub unknown: usize,
    /// Tokens at the end that were cut off.
    pub cut: usize,
}

impl Fitted {
    /// Cuts sentences to at most `limit` tokens, the end mark counted.
    pub fn new<S: AsRef<[u32]>>(sentences: impl IntoIterator<Item = S>, limit: usize) -> Self {
        let mut fitted = Self::default();
        for sentence in sentences {
            let ids = sentence.as_ref();
            let short = cut_to(ids, limit);
            fitted.counts.push(TokenCounts {
                tokens: ids.len().saturating_sub(1),
                unknown: ids.iter().filter(|&&id| id == UNK).count(),
                cut: ids.len() - short.len(),
            });
            fitted.sentences.push(&short);
        }
        fitted
    }

    /// Looks pieces up in a dictionary and cuts the sentences to at most `limit` tokens.
    pub fn encode<S: AsRef<str> + Sync>(vocab: &Vocab, pieces: &[S], limit: usize) -> Self {
        let (encoded, _) = MemoryDataset::encode(vocab, pieces);
        Self::new((0..encoded.len()).map(|i| encoded.get(i)), limit)
    }
}

/// Joins the pieces of token ids to text, marks of beginning and end left out: what `codes` undoes, or `@@ `.
pub fn text(vocab: &Vocab, codes: Option<&Segmentation>, ids: &[u32]) -> String {
    segmentation::join(codes, &vocab.string(ids))
}

/// Joins the pieces of a language model's token ids to text; all tokens but end marks are part of it.
pub fn lm_text(vocab: &Vocab, codes: Option<&Segmentation>, ids: &[u32]) -> String {
    let words: Vec<&str> = ids.iter().filter(|&&id| id != EOS).map(|&id| vocab.symbol(id)).collect();
    segmentation::join(codes, &words.join(" "))
}

/// The pieces of a reference, without the end mark. An unknown one must not match `<unk>` in a translation:
/// as fairseq does, it is written `<<unk>>`.
pub fn reference_pieces(vocab: &Vocab, ids: &[u32]) -> String {
    let words = ids.iter().filter(|&&id| id != EOS);
    let words = words.map(|&id| if id == UNK { "<<unk>>" } else { vocab.symbol(id) });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use mae_data::vocab::VocabOptions;

    use super::*;

    #[test]
    fn unknown_words_of_references_match_nothing() {
        let vocab = Vocab::from_counts([("a", 2), ("b", 1)], VocabOptions::default());
        let ids = vocab.encode_line("a c b");
        assert_eq!(reference_pieces(&vocab, &ids), "a <<unk>> b");
        assert_eq!(text(&vocab, None, &ids), "a <unk> b");
    }

    #[test]
    fn long_sentences_are_cut_and_counted() {
        let vocab = Vocab::from_counts([("a", 2), ("b", 1)], VocabOptions::default());
        let fitted = Fitted::encode(&vocab, &["a c b", "", "a"], 2);
        let a = vocab.id("a").unwrap();
        let sentences: Vec<&[u32]> = (0..3).map(|i| fitted.sentences.get(i)).collect();
        assert_eq!(sentences, [&[a, EOS][..], &[EOS], &[a, EOS]]);
        let counts = |tokens, unknown, cut| TokenCounts { tokens, unknown, cut };
        assert_eq!(fitted.counts, [counts(3, 1, 2), counts(0, 0, 0), counts(1, 0, 0)]);
    }
}
