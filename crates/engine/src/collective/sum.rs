//! Sums in the order of ranks: each rank adds up one slice of the values, and all slices are collected.
//!
//! Values travel as they are, or rounded to bfloat16, two in a word: half the bytes. Sums are f32 in either case.

use std::ops::Range;

use rayon::prelude::*;

use super::Collective;
use crate::Result;
use crate::device::to_bf16;

/// Values that travel at once; memory for as many is needed besides the values.
pub(super) const PIECE: usize = 1 << 24;
/// Values that one task adds.
const CHUNK: usize = 1 << 14;

/// Numbers in which values travel between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// As they are: K ranks make the bits of one process.
    #[default]
    F32,
    /// Rounded to bfloat16 on the way to the rank that adds them up, and as sums on the way back. All ranks get the same
    /// sums, those of every run; they are not those of one process.
    Bf16,
}

/// A sum over ranks and rounds: `((v₀ + v₁) + v₂) + …` with the ranks of the first round, then those of the second.
/// Each rank holds a slice of it until it is finished.
#[derive(Default)]
pub struct OrderedSum {
    /// The slices of this rank, one for each piece.
    slices: Vec<Vec<f32>>,
    received: Vec<f32>,
    has_begun: bool,
    transport: Transport,
    /// Adds on the calling thread alone.
    is_serial: bool,
    /// Of a piece, as it travels.
    packed: Vec<f32>,
}

impl OrderedSum {
    /// A sum of values that travel in these numbers.
    pub fn by(transport: Transport) -> Self {
        Self { transport, ..Self::default() }
    }

    /// The same without the help of other threads, for a thread that those may wait for.
    pub(super) fn serial(transport: Transport) -> Self {
        Self { transport, is_serial: true, ..Self::default() }
    }

    /// Begins anew.
    pub fn begin(&mut self) {
        self.has_begun = false;
    }

    /// Adds the values of the first `present` ranks, in their order. The values of the others are not used.
    pub fn add<C: Collective + ?Sized>(&mut self, ranks: &C, values: &[f32], present: usize) -> Result<()> {
        for (number, piece) in values.chunks(PIECE).enumerate() {
            self.add_piece(ranks, (number, !self.has_begun), piece, present)?;
        }
        self.has_begun = true;
        Ok(())
    }

    /// Adds the values of one piece; `begins`: to nothing.
    pub(super) fn add_piece<C: Collective + ?Sized>(
        &mut self,
        ranks: &C,
        (number, begins): (usize, bool),
        piece: &[f32],
        present: usize,
    ) -> Result<()> {
        let place = ranks.place();
        if self.slices.len() <= number {
            self.slices.resize_with(number + 1, Vec::new);
        }
        let (own, is_serial) = (&mut self.slices[number], self.is_serial);
        if begins {
            own.clear();
        }
        if place.is_alone() {
            accumulate(own, piece, is_serial);
            return Ok(());
        }
        let slices = slices_of(piece.len(), place.size);
        let length = slices[place.rank].len();
        match self.transport {
            Transport::F32 => {
                self.received.resize(length * place.size, 0.0);
                ranks.exchange(piece, &slices, &mut self.received)?;
                if length > 0 {
                    let parts = self.received.chunks_exact(length);
                    parts.take(present).for_each(|values| accumulate(own, values, is_serial));
                }
            }
            Transport::Bf16 => {
                let words = pack(piece, &slices, &mut self.packed);
                let length_in_words = words[place.rank].len();
                self.received.resize(length_in_words * place.size, 0.0);
                ranks.exchange(&self.packed, &words, &mut self.received)?;
                let mut values = vec![0.0; length];
                for rank in 0..present.min(place.size) {
                    unpack(&self.received[rank * length_in_words..][..length_in_words], &mut values);
                    accumulate(own, &values, is_serial);
                }
            }
        }
        Ok(())
    }

    /// Writes the sum to `out`, on all ranks; the next one begins anew.
    pub fn finish<C: Collective + ?Sized>(&mut self, ranks: &C, out: &mut [f32]) -> Result<()> {
        self.has_begun = false;
        let mut pieces = out.chunks_mut(PIECE).enumerate();
        pieces.try_for_each(|(number, piece)| self.finish_piece(ranks, number, piece))
    }

    /// Writes the sum of one piece to `out`, on all ranks.
    pub(super) fn finish_piece<C: Collective + ?Sized>(
        &mut self,
        ranks: &C,
        number: usize,
        out: &mut [f32],
    ) -> Result<()> {
        let place = ranks.place();
        let slices = slices_of(out.len(), place.size);
        out[slices[place.rank].clone()].copy_from_slice(&self.slices[number]);
        match self.transport {
            _ if place.is_alone() => {}
            Transport::F32 => ranks.collect(out, &slices)?,
            Transport::Bf16 => {
                let words = pack(out, &slices, &mut self.packed);
                ranks.collect(&mut self.packed, &words)?;
                for (slice, words) in slices.into_iter().zip(words) {
                    unpack(&self.packed[words], &mut out[slice]);
                }
            }
        }
        Ok(())
    }
}

/// Parts of `length` values, one for each of `size` ranks.
pub(super) fn slices_of(length: usize, size: usize) -> Vec<Range<usize>> {
    (0..size).map(|rank| rank * length / size..(rank + 1) * length / size).collect()
}

/// Rounds the values of each slice to bfloat16 and writes them to `packed`, two in a word, the first in the low half.
/// Returns the words of each slice, which begins with a new one.
fn pack(values: &[f32], slices: &[Range<usize>], packed: &mut Vec<f32>) -> Vec<Range<usize>> {
    packed.clear();
    let word = |pair: &[f32]| {
        let high = pair.get(1).map_or(0, |&value| to_bf16(value));
        f32::from_bits(u32::from(to_bf16(pair[0])) | u32::from(high) << 16)
    };
    let words = |slice: &Range<usize>| {
        let first = packed.len();
        packed.extend(values[slice.clone()].chunks(2).map(word));
        first..packed.len()
    };
    slices.iter().map(words).collect()
}

/// The values of the words of a slice.
fn unpack(words: &[f32], values: &mut [f32]) {
    for (pair, word) in values.chunks_mut(2).zip(words) {
        let halves = [word.to_bits() << 16, word.to_bits() & 0xffff_0000];
        pair.iter_mut().zip(halves).for_each(|(value, bits)| *value = f32::from_bits(bits));
    }
}

/// Adds values to a sum; the first ones are taken over.
fn accumulate(sum: &mut Vec<f32>, values: &[f32], is_serial: bool) {
    if sum.is_empty() {
        sum.extend_from_slice(values);
        return;
    }
    let add = |(sum, values): (&mut [f32], &[f32])| {
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    };
    match is_serial {
        true => add((sum, values)),
        false => sum.par_chunks_mut(CHUNK).zip(values.par_chunks(CHUNK)).for_each(add),
    }
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

    /// Sums of two rounds in which the last rank has nothing in the second, as each rank gets them.
    fn sums(size: usize, length: usize, transport: Transport) -> Vec<Vec<u32>> {
        Tcp::among_threads(size, |ranks| {
            let (mut sum, rank) = (OrderedSum::by(transport), ranks.place().rank);
            let mut out = vec![0.0; length];
            // Twice: nothing of the first time is left.
            for _ in 0..2 {
                sum.add(&ranks, &values(rank, length), size).unwrap();
                sum.add(&ranks, &values(size + rank, length), size - 1).unwrap();
                sum.finish(&ranks, &mut out).unwrap();
            }
            ranks.barrier().unwrap();
            ranks.leave(Ending::Finished);
            out.into_iter().map(f32::to_bits).collect()
        })
    }

    #[test]
    fn sums_of_ranks_and_rounds_have_the_order_of_one_process() {
        for size in [2, 3, 4] {
            for length in [1, 2, 1009] {
                let expected = in_order(&(0..2 * size - 1).map(|n| values(n, length)).collect::<Vec<_>>());
                let sums = sums(size, length, Transport::F32);
                assert!(sums.iter().all(|sum| *sum == expected), "{size} ranks, {length} values");
            }
        }
    }

    /// Rounded on the way there and back, the sum in between is that of f32 in rank order; all ranks get the same.
    #[test]
    fn sums_travel_in_bfloat16() {
        let round = |value: f32| f32::from_bits(u32::from(to_bf16(value)) << 16);
        for size in [2, 3] {
            for length in [0, 1, 2, 7, 1009] {
                let parts: Vec<Vec<f32>> =
                    (0..2 * size - 1).map(|n| values(n, length).into_iter().map(round).collect()).collect();
                let expected: Vec<u32> =
                    in_order(&parts).into_iter().map(|bits| round(f32::from_bits(bits)).to_bits()).collect();
                let sums = sums(size, length, Transport::Bf16);
                assert!(sums.iter().all(|sum| *sum == expected), "{size} ranks, {length} values");
            }
        }
    }

    #[test]
    fn values_that_are_not_finite_stay_so() {
        let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1.0];
        let (mut packed, mut out) = (Vec::new(), [0.0; 5]);
        let words = pack(&values, &[0..3, 3..5], &mut packed);
        assert_eq!(words, [0..2, 2..3]);
        unpack(&packed[0..2], &mut out[0..3]);
        unpack(&packed[2..3], &mut out[3..5]);
        assert!(out[0].is_nan() && out[3].is_sign_negative());
        assert_eq!(out[1..], values[1..]);
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
