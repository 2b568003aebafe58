//! Words of a binarised text cut anew for each epoch: BPE dropout while training (Provilkov et al. 2020).
//!
//! The pieces of a word spell it, so a binarised text, its dictionaries and its merges are enough: each word is put
//! together and cut again with merges skipped at random. A word stays as it is if a piece of it is unknown, or if the
//! dictionary lacks a piece of its new form; a sentence stays as it is if it would become longer than allowed. The
//! result depends on (seed, epoch, sentence, side) alone, so a resumed run draws the same.

use std::sync::Arc;

use rayon::prelude::*;

use crate::bpe::{Bpe, SEPARATOR};
use crate::error::Result;
use crate::options::OptionFault;
use crate::pairs::{MemoryDataset, ParallelDataset, Sentences};
use crate::sampler::Rng;
use crate::segmentation::{Segmentation, Segmenter};
use crate::vocab::{SPECIALS, Vocab};

/// Cuts the words of parallel texts anew.
pub struct Redraw {
    segmenters: [Arc<Segmenter>; 2],
    probability: f64,
    seed: u64,
    longest: usize,
}

impl Redraw {
    /// Skips each merge at each step with this probability. Sentences get at most `longest` tokens, `EOS` counted. Fails
    /// without merges, and if the probability is none.
    pub fn new(
        segmentation: Option<&Segmentation>,
        probability: f64,
        seed: u64,
        longest: usize,
    ) -> Result<Self> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(OptionFault::DropoutProbability(probability).into());
        }
        let segmenters = segmentation.map(Segmentation::segmenters);
        match segmenters {
            Some(segmenters @ [_, _])
                if segmenters.iter().all(|side| matches!(**side, Segmenter::Bpe(_))) =>
            {
                Ok(Self { segmenters, probability, seed, longest })
            }
            _ => Err(OptionFault::NoMergesToSkip.into()),
        }
    }

    /// The text of an epoch, in memory.
    pub fn pairs(&self, data: &ParallelDataset, epoch: u64) -> ParallelDataset {
        // Streams from the start are those of the shuffles.
        let seed = Rng::new(self.seed, u64::MAX - epoch).next();
        let side = |sentences: &Sentences, vocab: &Vocab, side: usize| match &*self.segmenters[side] {
            Segmenter::Bpe(bpe) => self.side(sentences, vocab, bpe, (seed, side as u64)),
            Segmenter::Tokenizer(_) | Segmenter::SentencePiece(_) => {
                unreachable!("only merges are accepted")
            }
        };
        ParallelDataset {
            src: side(&data.src, &data.src_vocab, 0).into(),
            tgt: side(&data.tgt, &data.tgt_vocab, 1).into(),
            src_vocab: data.src_vocab.clone(),
            tgt_vocab: data.tgt_vocab.clone(),
        }
    }

    fn side(
        &self,
        sentences: &Sentences,
        vocab: &Vocab,
        bpe: &Bpe,
        (seed, side): (u64, u64),
    ) -> MemoryDataset {
        let cut = |i: usize| {
            let ids = sentences.get(i);
            let mut random = Rng::new(seed, 2 * i as u64 + side);
            let drawn = cut(&ids, vocab, bpe, &mut || random.unit() < self.probability);
            if drawn.len() > self.longest { ids } else { drawn }
        };
        let cut: Vec<Vec<u32>> = (0..sentences.len()).into_par_iter().with_min_len(64).map(cut).collect();
        cut.into_iter().collect()
    }
}

/// A sentence with its words cut anew.
fn cut(ids: &[u32], vocab: &Vocab, bpe: &Bpe, dropped: &mut impl FnMut() -> bool) -> Vec<u32> {
    let mut out = Vec::with_capacity(ids.len() * 3 / 2);
    let (mut word, mut piece) = (String::new(), String::new());
    let mut start = 0;
    for (i, &id) in ids.iter().enumerate() {
        let symbol = vocab.symbol(id);
        let special = (id as usize) < SPECIALS.len();
        match symbol.strip_suffix(SEPARATOR) {
            Some(part) if !special && i + 1 < ids.len() => word.push_str(part),
            _ => {
                word.push_str(symbol);
                let old = &ids[start..=i];
                let known = !old.iter().any(|&id| (id as usize) < SPECIALS.len());
                if !known || !push_new(&word, vocab, bpe, dropped, (&mut out, &mut piece)) {
                    out.extend_from_slice(old);
                }
                word.clear();
                start = i + 1;
            }
        }
    }
    out
}

/// Appends the ids of a word that is cut anew; changes nothing and returns false if one has none.
fn push_new(
    word: &str,
    vocab: &Vocab,
    bpe: &Bpe,
    dropped: &mut impl FnMut() -> bool,
    (out, piece): (&mut Vec<u32>, &mut String),
) -> bool {
    let before = out.len();
    let pieces = bpe.encode_word_dropping(word, dropped);
    for (i, text) in pieces.iter().enumerate() {
        let id = if i + 1 == pieces.len() {
            vocab.id(text)
        } else {
            piece.clear();
            piece.push_str(text);
            piece.push_str(SEPARATOR);
            vocab.id(piece)
        };
        match id {
            Some(id) => out.push(id),
            None => {
                out.truncate(before);
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::{Codes, Version};
    use crate::vocab::VocabOptions;

    const LINES: [&str; 4] = ["abab cab", "ab a x", "bx abab", "cab cab cab cab"];

    fn codes() -> Codes {
        let merges = [("a", "b</w>"), ("a", "b"), ("c", "ab</w>"), ("ab", "ab</w>")];
        let merges = merges.map(|(left, right)| (left.into(), right.into())).to_vec();
        Codes { version: Version::V0_2, merges }
    }

    fn data(extra: &[&str]) -> ParallelDataset {
        let bpe = Bpe::new(&codes());
        let lines = bpe.segment_lines(&LINES);
        let symbols = ["abab", "cab", "ab", "a", "b@@"].iter().chain(extra).map(|&symbol| (symbol, 1));
        let vocab = Arc::new(Vocab::from_counts(symbols, VocabOptions::default()));
        ParallelDataset::from_lines(&lines, &lines, vocab.clone(), vocab).unwrap()
    }

    fn drawn(data: &ParallelDataset, probability: f64, longest: usize, epoch: u64) -> Vec<String> {
        let redraw = Redraw::new(Some(&codes().into()), probability, 7, longest).unwrap();
        let drawn = redraw.pairs(data, epoch);
        let sides = [&drawn.src, &drawn.tgt];
        sides.iter().flat_map(|side| (0..side.len()).map(|i| drawn.src_vocab.string(&side.get(i)))).collect()
    }

    const CHARACTERS: [&str; 5] = ["a@@", "c@@", "b", "c", "ab@@"];

    #[test]
    fn none_changes_nothing_and_all_gives_characters() {
        let data = data(&CHARACTERS);
        let plain = ["abab cab", "ab a <unk>", "b@@ <unk> abab", "cab cab cab cab"];
        assert_eq!(drawn(&data, 0.0, 99, 1), [plain, plain].concat());
        let characters = ["a@@ b@@ a@@ b c@@ a@@ b", "a@@ b a <unk>"];
        assert_eq!(drawn(&data, 1.0, 99, 1)[..2], characters);
        // Longer than allowed: the sentence stays.
        assert_eq!(drawn(&data, 1.0, 8, 1)[3], plain[3]);
        assert_eq!(drawn(&data, 1.0, 8, 1)[0], characters[0]);
    }

    #[test]
    fn a_draw_depends_on_epoch_sentence_and_side_alone() {
        let data = data(&CHARACTERS);
        let epochs: Vec<_> = (1..30).map(|epoch| drawn(&data, 0.5, 99, epoch)).collect();
        assert_eq!(drawn(&data, 0.5, 99, 3), epochs[2]);
        assert!(epochs.iter().any(|lines| *lines != epochs[0]));
        assert!(epochs.iter().any(|lines| lines[..4] != lines[4..]));
        let joined = |line: &String| line.replace("@@ ", "");
        for lines in epochs {
            let words = ["abab cab", "ab a <unk>", "b<unk> abab", "cab cab cab cab"];
            assert_eq!(lines.iter().map(joined).collect::<Vec<_>>(), [words, words].concat());
        }
    }

    #[test]
    fn words_whose_pieces_the_dictionary_lacks_stay() {
        let data = data(&[]);
        let plain = ["abab cab", "ab a <unk>", "b@@ <unk> abab", "cab cab cab cab"];
        assert_eq!(drawn(&data, 1.0, 99, 1), [plain, plain].concat());
    }

    #[test]
    fn text_without_merges_is_refused() {
        let error = |segmentation: Option<&Segmentation>, p| {
            Redraw::new(segmentation, p, 1, 9).err().expect("an error").to_string()
        };
        assert!(error(None, 0.1).contains("merges"));
        assert!(error(Some(&codes().into()), 1.5).contains("1.5"));
    }
}
