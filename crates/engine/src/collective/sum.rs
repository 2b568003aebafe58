//! Sums in the order of ranks: each rank adds up one slice of the values, and all slices are collected.

use std::ops::Range;

use rayon::prelude::*;

use super::Collective;
use crate::Result;

/// Values that travel at once; memory for as many is needed besides the values.
const PIECE: usize = 1 << 24;
/// Values that one task adds.
const CHUNK: usize = 1 << 14;

/// A sum over ranks and rounds: `((v₀ + v₁) + v₂) + …` with the ranks of the first round, then those of the second.
/// Each rank holds a slice of it until it is finished.
#[derive(Default)]
pub struct OrderedSum {
    /// The slices of this rank, one for each piece.
    slices: Vec<Vec<f32>>,
    received: Vec<f32>,
    has_begun: bool,
}

impl OrderedSum {
    /// Begins anew.
    pub fn begin(&mut self) {
        self.has_begun = false;
    }

    /// Adds the values of the first `present` ranks, in their order. The values of the others are not used.
    pub fn add<C: Collective + ?Sized>(&mut self, ranks: &C, values: &[f32], present: usize) -> Result<()> {
        let place = ranks.place();
        self.slices.resize_with(values.len().div_ceil(PIECE), Vec::new);
        for (own, piece) in self.slices.iter_mut().zip(values.chunks(PIECE)) {
            let slices = slices_of(piece.len(), place.size);
            let length = slices[place.rank].len();
            if !self.has_begun {
                own.clear();
            }
            if place.is_alone() {
                accumulate(own, piece);
                continue;
            }
            self.received.resize(length * place.size, 0.0);
            ranks.exchange(piece, &slices, &mut self.received)?;
            if length > 0 {
                self.received.chunks_exact(length).take(present).for_each(|values| accumulate(own, values));
            }
        }
        self.has_begun = true;
        Ok(())
    }

    /// Writes the sum to `out`, on all ranks; the next one begins anew.
    pub fn finish<C: Collective + ?Sized>(&mut self, ranks: &C, out: &mut [f32]) -> Result<()> {
        let place = ranks.place();
        self.has_begun = false;
        for (own, piece) in self.slices.iter().zip(out.chunks_mut(PIECE)) {
            let slices = slices_of(piece.len(), place.size);
            piece[slices[place.rank].clone()].copy_from_slice(own);
            if !place.is_alone() {
                ranks.collect(piece, &slices)?;
            }
        }
        Ok(())
    }
}

/// Parts of `length` values, one for each of `size` ranks.
fn slices_of(length: usize, size: usize) -> Vec<Range<usize>> {
    (0..size).map(|rank| rank * length / size..(rank + 1) * length / size).collect()
}

/// Adds values to a sum; the first ones are taken over.
fn accumulate(sum: &mut Vec<f32>, values: &[f32]) {
    if sum.is_empty() {
        sum.extend_from_slice(values);
        return;
    }
    sum.par_chunks_mut(CHUNK).zip(values.par_chunks(CHUNK)).for_each(|(sum, values)| {
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Alone, Ending, Tcp};

    /// Values whose sum depends on the order.
    fn values(rank: usize, length: usize) -> Vec<f32> {
        (0..length).map(|i| ((i * 7919 + rank * 104_729) % 1000) as f32 * 1.1 - 300.3).collect()
    }

    fn in_order(parts: &[Vec<f32>]) -> Vec<u32> {
        let sum = |i: usize| parts[1..].iter().fold(parts[0][i], |sum, part| sum + part[i]);
        (0..parts[0].len()).map(|i| sum(i).to_bits()).collect()
    }

    #[test]
    fn sums_of_ranks_and_rounds_have_the_order_of_one_process() {
        for size in [2, 3, 4] {
            for length in [1, 2, 1009] {
                let expected = in_order(&(0..2 * size - 1).map(|n| values(n, length)).collect::<Vec<_>>());
                let sums = Tcp::among_threads(size, |ranks| {
                    let (mut sum, rank) = (OrderedSum::default(), ranks.place().rank);
                    sum.add(&ranks, &values(rank, length), size).unwrap();
                    // The last rank has nothing in the second round.
                    sum.add(&ranks, &values(size + rank, length), size - 1).unwrap();
                    let mut out = vec![0.0; length];
                    sum.finish(&ranks, &mut out).unwrap();
                    ranks.barrier().unwrap();
                    ranks.leave(Ending::Finished);
                    out.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
                });
                assert!(sums.iter().all(|sum| *sum == expected), "{size} ranks, {length} values");
            }
        }
    }

    #[test]
    fn one_process_adds_rounds_in_order() {
        let mut sum = OrderedSum::default();
        for _ in 0..2 {
            let parts: Vec<Vec<f32>> = (0..3).map(|n| values(n, 100)).collect();
            parts.iter().for_each(|part| sum.add(&Alone, part, 1).unwrap());
            let mut out = vec![0.0; 100];
            sum.finish(&Alone, &mut out).unwrap();
            assert_eq!(out.into_iter().map(f32::to_bits).collect::<Vec<_>>(), in_order(&parts));
        }
    }
}
