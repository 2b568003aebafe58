//! The kernel, for vectors of any kind.

use super::{PANEL, Part, Weight};

/// Rows of W that are multiplied at a time.
pub(crate) const GROUP: usize = 4;
/// Most rows of X that are multiplied at a time: their sums, 4 each, fill the registers of AVX-512.
pub(in crate::cpu) const MAX_ROWS: usize = 6;
/// Values in a vector.
pub(crate) const LANES: usize = 16;

/// 16 sums. Methods are unsafe because the processor must have the instructions.
pub(crate) trait Lanes: Copy {
    /// Rows of X whose sums fit into registers.
    const ROWS: usize;

    /// Zeros.
    unsafe fn zero() -> Self;
    /// The 16 values at `at`.
    unsafe fn load(at: *const f32) -> Self;
    /// The 16 values whose upper halves are at `at`, and whose lower halves are 0.
    unsafe fn widen(at: *const u16) -> Self;
    /// 256 times the 16 whole numbers of 24 bits at `at`.
    unsafe fn expand(at: *const [u8; 3]) -> Self;
    /// The 16 whole numbers at `at`.
    unsafe fn convert(at: *const i8) -> Self;
    /// The value at `at` in all lanes.
    unsafe fn splat(at: *const f32) -> Self;
    /// Writes the 16 values to `at`.
    unsafe fn store(self, at: *mut f32);
    /// `self + a·b`, rounded once.
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
    /// The sum of the lanes of each vector: in each four `(l₀ + l₂) + (l₁ + l₃)`, then the fours in the same way.
    unsafe fn sums(four: [Self; GROUP]) -> [f32; GROUP];
    /// Asks for the cache line at `at`, which may lie anywhere.
    unsafe fn prefetch(at: *const u8);
}

/// Without vector instructions.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; LANES]);

impl Lanes for Portable {
    const ROWS: usize = 1;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; LANES])
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller gives the address of 16 values.
        Self(unsafe { at.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn widen(at: *const u16) -> Self {
        // SAFETY: the caller gives the address of 16 values.
        let halves = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        Self(halves.map(|half| f32::from_bits(u32::from(half) << 16)))
    }

    #[inline(always)]
    unsafe fn expand(at: *const [u8; 3]) -> Self {
        // SAFETY: the caller gives the address of 16 values.
        let numbers = unsafe { at.cast::<[[u8; 3]; LANES]>().read_unaligned() };
        Self(numbers.map(|[low, middle, high]| i32::from_le_bytes([0, low, middle, high]) as f32))
    }

    #[inline(always)]
    unsafe fn convert(at: *const i8) -> Self {
        // SAFETY: the caller gives the address of 16 values.
        Self(unsafe { at.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from))
    }

    #[inline(always)]
    unsafe fn splat(at: *const f32) -> Self {
        // SAFETY: the caller gives the address of a value.
        Self([unsafe { *at }; LANES])
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller gives the address of room for 16 values.
        unsafe { at.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|l| a.0[l].mul_add(b.0[l], self.0[l])))
    }

    #[inline(always)]
    unsafe fn sums(four: [Self; GROUP]) -> [f32; GROUP] {
        four.map(|Self(lanes)| {
            let four = |l: [f32; 4]| (l[0] + l[2]) + (l[1] + l[3]);
            let (fours, _) = lanes.as_chunks::<4>();
            four([four(fours[0]), four(fours[1]), four(fours[2]), four(fours[3])])
        })
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
}

/// Computes a part of Y.
///
/// # Safety
///
/// The processor has the instructions of `L`; the part lies inside X, W and Y, and nobody else writes to it.
#[inline(always)]
pub(super) unsafe fn compute<L: Lanes, W: Weight>(part: &Part<'_, W>) {
    for first in part.cols.clone().step_by(PANEL) {
        let panel = first..part.cols.end.min(first + PANEL);
        for row in part.rows.clone().step_by(L::ROWS) {
            let rows = L::ROWS.min(part.rows.end - row);
            for col in panel.clone().step_by(GROUP) {
                // SAFETY: the caller answers for instructions and sizes; rows and columns lie inside the part.
                unsafe {
                    match rows {
                        1 => block::<L, W, 1>(part, row, col, panel.end),
                        2 => block::<L, W, 2>(part, row, col, panel.end),
                        3 => block::<L, W, 3>(part, row, col, panel.end),
                        4 => block::<L, W, 4>(part, row, col, panel.end),
                        5 => block::<L, W, 5>(part, row, col, panel.end),
                        _ => block::<L, W, MAX_ROWS>(part, row, col, panel.end),
                    }
                }
            }
        }
    }
}

/// Computes columns `col..col + 4`, as far as they lie before `end`, of `M` rows.
///
/// # Safety
///
/// As [`compute`].
#[inline(always)]
unsafe fn block<L: Lanes, W: Weight, const M: usize>(part: &Part<'_, W>, row: usize, col: usize, end: usize) {
    let (k, cols) = (part.k, GROUP.min(end - col));
    // A group at the edge multiplies its last row of W several times.
    let places: [usize; GROUP] = std::array::from_fn(|i| (col + i.min(cols - 1)) * k);
    // The first rows bring W into the cache for the others.
    let asks = row == part.rows.start && col + 2 * GROUP < part.cols.end;
    let mut tails = [[0.0; GROUP]; M];
    let whole = k / LANES * LANES;
    // SAFETY: rows of X and W have k values each and lie inside their slices, as do the values of Y that are written.
    unsafe {
        let (x, w) = (part.x.as_ptr().add(row * k), places.map(|at| part.w.as_ptr().add(at)));
        let mut sums = [[L::zero(); GROUP]; M];
        for at in (0..whole).step_by(LANES) {
            // A loop, as closures are not compiled for the instructions of this function.
            let mut weights = [L::zero(); GROUP];
            for (weights, w) in weights.iter_mut().zip(w) {
                // The same place two groups later.
                if asks {
                    L::prefetch(w.add(at).wrapping_add(2 * GROUP * k).cast());
                }
                *weights = W::load::<L>(w.add(at));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = L::load(x.add(i * k + at));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = sum.add_product(x, weights);
                }
            }
        }
        if whole < k {
            for (i, tails) in tails.iter_mut().enumerate() {
                for (tail, w) in tails.iter_mut().zip(w) {
                    for at in whole..k {
                        *tail = (*x.add(i * k + at)).mul_add((*w.add(at)).get(), *tail);
                    }
                }
            }
        }
        // By reference: arrays that are moved into loops are copied in memory.
        for (i, (sums, tails)) in sums.iter().zip(&tails).enumerate() {
            let sums = L::sums(*sums);
            let y = part.y.0.add((row + i) * part.n + col);
            if cols == GROUP && whole == k {
                y.cast::<[f32; GROUP]>().write_unaligned(sums);
                continue;
            }
            for (c, (sum, tail)) in sums.iter().zip(tails).enumerate() {
                if c < cols {
                    *y.add(c) = if whole < k { sum + tail } else { *sum };
                }
            }
        }
    }
}
