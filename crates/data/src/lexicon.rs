//! Lexical tables: the probability of target words given source words, learned from sentence pairs by IBM model 1
//! (Brown et al., 1993).
//!
//! Every target word of a sentence comes from one word of its source, or from none. Probabilities begin equal, and each
//! round of expectation maximisation shares every target word out among the words of its source. The result does not
//! depend on the threads.

use rayon::prelude::*;

use crate::pairs::ParallelDataset;
use crate::vocab::EOS;

/// Settings of the learning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LexiconOptions {
    /// Rounds of expectation maximisation (5).
    pub rounds: usize,
    /// Sentence pairs that are read, from the first on (all).
    pub pairs: Option<usize>,
    /// Targets that are kept for each source word, the likeliest (100).
    pub best: usize,
    /// Least probability of a pair that is kept (0.0001).
    pub least: f32,
}

impl Default for LexiconOptions {
    fn default() -> Self {
        Self { rounds: 5, pairs: None, best: 100, least: 1e-4 }
    }
}

/// A target word with its probability given a source word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Translation {
    /// Id of the source word.
    pub source: u32,
    /// Id of the target word.
    pub target: u32,
    /// p(target | source).
    pub probability: f32,
}

/// Learns the table of sentence pairs: for each source word in order of its id, its likeliest targets, the likeliest
/// first. `progress` gets the number of each finished round, from 1.
pub fn learn(
    data: &ParallelDataset,
    options: &LexiconOptions,
    progress: &mut dyn FnMut(usize),
) -> Vec<Translation> {
    let corpus = Corpus::new(data, options.pairs);
    let mut table = Table::new(&corpus);
    for round in 1..=options.rounds {
        table.learn(&corpus);
        progress(round);
    }
    table.likeliest(options)
}

/// Sentence pairs without end marks. Id 0 of the source stands for no word, and begins every sentence.
struct Corpus {
    sources: Vec<Vec<u32>>,
    targets: Vec<Vec<u32>>,
    types: [usize; 2],
    /// Sentences that a source id is in, once for each time.
    places: Vec<Vec<u32>>,
}

const NOTHING: u32 = 0;

impl Corpus {
    fn new(data: &ParallelDataset, most: Option<usize>) -> Self {
        let count = most.unwrap_or(usize::MAX).min(data.len());
        let words = |ids: Vec<u32>| ids.into_iter().filter(|&id| id != EOS);
        let source = |i| std::iter::once(NOTHING).chain(words(data.src.get(i))).collect::<Vec<u32>>();
        let sources: Vec<Vec<u32>> = (0..count).map(source).collect();
        let targets = (0..count).map(|i| words(data.tgt.get(i)).collect()).collect();
        let types = [data.src_vocab.len(), data.tgt_vocab.len()];
        let mut places = vec![Vec::new(); types[0]];
        for (i, source) in sources.iter().enumerate() {
            source.iter().for_each(|&id| places[id as usize].push(i as u32));
        }
        Self { sources, targets, types, places }
    }
}

/// Target ids that occur with a source id, in order, and their probabilities.
#[derive(Default)]
struct Row {
    targets: Vec<u32>,
    probabilities: Vec<f32>,
}

impl Row {
    fn probability(&self, target: u32) -> f32 {
        self.targets.binary_search(&target).map_or(0.0, |at| self.probabilities[at])
    }
}

struct Table(Vec<Row>);

impl Table {
    /// All pairs that occur, equally likely.
    fn new(corpus: &Corpus) -> Self {
        let row = |places: &Vec<u32>| {
            let mut seen = vec![false; corpus.types[1]];
            for &place in places {
                corpus.targets[place as usize].iter().for_each(|&target| seen[target as usize] = true);
            }
            let targets: Vec<u32> = (0..corpus.types[1] as u32).filter(|&id| seen[id as usize]).collect();
            let probabilities = vec![1.0 / targets.len().max(1) as f32; targets.len()];
            Row { targets, probabilities }
        };
        Self(corpus.places.par_iter().map(row).collect())
    }

    /// One round.
    fn learn(&mut self, corpus: &Corpus) {
        // How much all words of the source speak for each target word.
        let totals = corpus.sources.par_iter().zip(&corpus.targets).map(|(source, targets)| {
            let total =
                |&target: &u32| source.iter().map(|&id| self.0[id as usize].probability(target)).sum();
            targets.iter().map(total).collect::<Vec<f32>>()
        });
        let totals: Vec<Vec<f32>> = totals.collect();
        self.0.par_iter_mut().zip(&corpus.places).for_each_init(
            || (vec![0.0f64; corpus.types[1]], vec![0.0f32; corpus.types[1]]),
            |(counts, spread), (row, places)| {
                for (&target, probability) in row.targets.iter().zip(&row.probabilities) {
                    spread[target as usize] = *probability;
                }
                for &place in places {
                    let both = corpus.targets[place as usize].iter().zip(&totals[place as usize]);
                    for (&target, total) in both.filter(|(_, total)| **total > 0.0) {
                        counts[target as usize] += f64::from(spread[target as usize] / total);
                    }
                }
                let sum: f64 = row.targets.iter().map(|&target| counts[target as usize]).sum();
                for (&target, probability) in row.targets.iter().zip(&mut row.probabilities) {
                    *probability = if sum > 0.0 { (counts[target as usize] / sum) as f32 } else { 0.0 };
                    counts[target as usize] = 0.0;
                }
            },
        );
    }

    fn likeliest(&self, options: &LexiconOptions) -> Vec<Translation> {
        let row = |(source, row): (usize, &Row)| {
            let mut found: Vec<Translation> = row
                .targets
                .iter()
                .zip(&row.probabilities)
                .filter(|(_, probability)| **probability >= options.least)
                .map(|(&target, &probability)| Translation { source: source as u32, target, probability })
                .collect();
            found.sort_by(|a, b| b.probability.total_cmp(&a.probability).then(a.target.cmp(&b.target)));
            found.truncate(options.best);
            found
        };
        self.0.par_iter().enumerate().skip(1).flat_map_iter(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pairs::MemoryDataset;
    use crate::vocab::Vocab;

    /// The example of the literature: only `haus` is in all sentences with `house`.
    fn data() -> ParallelDataset {
        let pairs = [("das haus", "the house"), ("das buch", "the book"), ("ein buch", "a book")];
        let vocab = |lines: &[&str]| {
            let words = lines.iter().flat_map(|line| line.split(' ')).map(|word| (word, 1));
            Arc::new(Vocab::from_counts(words, Default::default()))
        };
        let (sources, targets) = (pairs.map(|pair| pair.0), pairs.map(|pair| pair.1));
        let (src_vocab, tgt_vocab) = (vocab(&sources), vocab(&targets));
        let src = MemoryDataset::encode(&src_vocab, &sources).0.into();
        let tgt = MemoryDataset::encode(&tgt_vocab, &targets).0.into();
        ParallelDataset { src, tgt, src_vocab, tgt_vocab }
    }

    #[test]
    fn words_find_their_translations() {
        let data = data();
        let mut rounds = Vec::new();
        let options = LexiconOptions { rounds: 20, ..Default::default() };
        let table = learn(&data, &options, &mut |round| rounds.push(round));
        assert_eq!(rounds, (1..=20).collect::<Vec<_>>());
        for (source, target) in [("das", "the"), ("buch", "book"), ("haus", "house"), ("ein", "a")] {
            let (source, target) = (data.src_vocab.id(source).unwrap(), data.tgt_vocab.id(target).unwrap());
            let best = table.iter().find(|pair| pair.source == source).unwrap();
            assert_eq!(best.target, target, "{best:?}");
            assert!(best.probability > 0.8, "{best:?}");
            let sum: f32 =
                table.iter().filter(|pair| pair.source == source).map(|pair| pair.probability).sum();
            assert!(sum <= 1.0 + 1e-5, "{sum}");
        }
    }

    #[test]
    fn limits_hold_and_threads_change_nothing() {
        let data = data();
        let options = LexiconOptions { best: 1, pairs: Some(2), ..Default::default() };
        let table = learn(&data, &options, &mut |_| {});
        // `ein` and `a` are in the third pair.
        assert_eq!(table.len(), 3, "{table:?}");
        for threads in [1, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| learn(&data, &options, &mut |_| {})), table);
        }
    }
}
