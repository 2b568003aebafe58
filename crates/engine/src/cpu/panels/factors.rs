//! Sums of the products of some rows of X with some strips of W, and what a cache is asked for meanwhile.

use std::ops::Range;

use super::Number;
use crate::cpu::gemm::streamed::kernel::{LANES, Lanes};
use crate::cpu::order::Strips;
use crate::cpu::{LINE, prefetch};

/// Columns that are multiplied between two requests to the cache.
pub(super) const EVERY: usize = 2;

/// What the second level of the cache is asked for while columns are multiplied.
#[derive(Clone, Copy)]
pub(super) enum Ahead {
    /// Nothing: the processor looks ahead by itself.
    Nothing,
    /// A part of the next strip, so many bytes at a time.
    Next { first: *const u8, step: usize },
    /// As many strips, side by side as those in use. What is asked for while columns are multiplied lies as many bytes
    /// behind their addresses as those columns do.
    Beside(Strips),
}

/// Rows of X and strips of W: addresses of their first values.
pub(super) struct Factors<W> {
    pub(super) x: *const f32,
    pub(super) w: *const W,
    /// Columns.
    pub(super) k: usize,
}

impl<W: Number> Factors<W> {
    /// Adds the products of some columns.
    ///
    /// # Safety
    ///
    /// The processor has the instructions of `L`; there are `M` rows and `WIDE` strips, which have these columns.
    #[inline(always)]
    pub(super) unsafe fn add<L: Lanes, const WIDE: usize, const M: usize>(
        &self,
        sums: &mut [[L; WIDE]; M],
        columns: Range<usize>,
        mut ahead: Ahead,
    ) {
        let mut depth = columns.start;
        // SAFETY: the caller answers for columns and instructions.
        unsafe {
            // Columns are written out: the instructions of a loop would take the place of others.
            while depth + 2 * EVERY <= columns.end {
                Self::ask::<WIDE, 0>(depth, &mut ahead);
                self.add_column(sums, depth);
                self.add_column(sums, depth + 1);
                Self::ask::<WIDE, 1>(depth, &mut ahead);
                self.add_column(sums, depth + EVERY);
                self.add_column(sums, depth + EVERY + 1);
                depth += 2 * EVERY;
            }
            for depth in depth..columns.end {
                self.add_column(sums, depth);
            }
        }
    }

    /// Asks for what comes ahead of `EVERY` columns: from column `depth` on, or those after them.
    #[inline(always)]
    fn ask<const WIDE: usize, const PART: usize>(depth: usize, ahead: &mut Ahead) {
        match ahead {
            Ahead::Nothing => {}
            Ahead::Next { first, step } => {
                prefetch(*first);
                *first = first.wrapping_add(*step);
            }
            Ahead::Beside(strips) => {
                let column = LANES * size_of::<W>();
                let lines = 2 * EVERY * column / LINE;
                let lines = if PART == 0 { 0..lines.div_ceil(2) } else { lines.div_ceil(2)..lines };
                for strip in 0..WIDE {
                    let at = strips.first.wrapping_add(strip * strips.apart + depth * column);
                    lines.clone().for_each(|line| prefetch(at.wrapping_add(line * LINE)));
                }
            }
        }
    }

    /// Adds the products of one column.
    ///
    /// # Safety
    ///
    /// As [`Self::add`].
    #[inline(always)]
    unsafe fn add_column<L: Lanes, const WIDE: usize, const M: usize>(
        &self,
        sums: &mut [[L; WIDE]; M],
        depth: usize,
    ) {
        // SAFETY: the caller answers for addresses and instructions.
        unsafe {
            let mut weights = [L::zero(); WIDE];
            for (strip, weights) in weights.iter_mut().enumerate() {
                *weights = W::load::<L>(self.w.add((strip * self.k + depth) * LANES));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = L::splat(self.x.add(row * self.k + depth));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = sum.add_product(x, weights);
                }
            }
        }
    }
}
