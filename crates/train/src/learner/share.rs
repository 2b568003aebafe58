//! Batches of an update, and the part of them that a rank takes.

use mae_data::{Corpus, PackedBatch};
use mae_engine::collective::Place;

/// Batches of an update: those of this rank, and the sizes of all. With K ranks, rank r takes the batches r, r + K, r + 2K
/// and so on.
#[derive(Debug)]
pub struct Share {
    /// Batches of this rank.
    pub own: Vec<PackedBatch>,
    /// Number of batches of all ranks.
    pub batches: usize,
    /// Their sentences or blocks.
    pub sentences: u64,
    /// Their source tokens.
    pub source_tokens: u64,
    /// Their target tokens.
    pub target_tokens: u64,
    /// Numbers of the sentences or blocks in the training set.
    pub ids: Vec<u32>,
}

impl Share {
    /// Of one process, which takes all batches.
    pub fn whole(own: Vec<PackedBatch>) -> Self {
        Self {
            batches: own.len(),
            sentences: own.iter().map(|batch| batch.sentences() as u64).sum(),
            source_tokens: own.iter().map(|batch| batch.src_tokens() as u64).sum(),
            target_tokens: own.iter().map(|batch| batch.tgt_tokens() as u64).sum(),
            ids: own.iter().flat_map(|batch| batch.ids.iter().copied()).collect(),
            own,
        }
    }

    /// Of the rank at `place`; `group` has the numbers of the sentences of each batch, `lengths` those of the training set.
    pub fn of(group: &[Vec<u32>], place: Place, data: &dyn Corpus, lengths: &[(u32, u32)]) -> Self {
        if place.is_alone() {
            return Self::whole(group.iter().map(|ids| data.pack(ids)).collect());
        }
        let ids: Vec<u32> = group.iter().flatten().copied().collect();
        let sum = |length: fn((u32, u32)) -> u32| {
            ids.iter().map(|&id| u64::from(length(lengths[id as usize]))).sum()
        };
        Self {
            own: group.iter().skip(place.rank).step_by(place.size).map(|ids| data.pack(ids)).collect(),
            batches: group.len(),
            sentences: ids.len() as u64,
            source_tokens: sum(|(source, _)| source),
            target_tokens: sum(|(_, target)| target),
            ids,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mae_data::vocab::VocabOptions;
    use mae_data::{ParallelDataset, Vocab};

    use super::*;

    #[test]
    fn every_batch_has_one_rank_and_all_ranks_know_the_sizes() {
        let lines: Vec<String> = (1..8).map(|n| vec!["a"; n].join(" ")).collect();
        let vocab = Arc::new(Vocab::from_counts([("a", 1)], VocabOptions::default()));
        let data = ParallelDataset::from_lines(&lines, &lines, vocab.clone(), vocab).unwrap();
        let group = [vec![0, 3], vec![1], vec![6, 2], vec![5], vec![4]];
        let whole = Share::of(&group, Place::ALONE, &data, &[]);
        for size in [2, 3, 7] {
            let mut numbers = vec![Vec::new(); group.len()];
            for rank in 0..size {
                let place = Place { rank, size, ..Place::ALONE };
                let share = Share::of(&group, place, &data, &Corpus::lengths(&data));
                assert_eq!(
                    (share.batches, share.sentences, share.source_tokens, share.target_tokens),
                    (whole.batches, whole.sentences, whole.source_tokens, whole.target_tokens)
                );
                assert_eq!(share.ids, whole.ids);
                for (round, batch) in share.own.iter().enumerate() {
                    numbers[round * size + rank] = batch.ids.clone();
                }
            }
            assert_eq!(numbers, group);
        }
    }
}
