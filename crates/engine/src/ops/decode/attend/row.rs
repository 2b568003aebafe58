//! One query, with all its heads, and the rows of keys and values that it attends to, four at a time. Rows are read as they
//! lie, all heads at once: they are often 2,048 or 4,096 bytes apart, and a cache keeps few of the same head.
//!
//! A score is the sum over 16 lanes, which are added in one fixed order, and values are added in the order of the rows. So
//! all kernels give the same bits.

use crate::cpu::gemm::streamed::Weight;
use crate::cpu::gemm::streamed::kernel::{GROUP, LANES, Lanes, Portable};
use crate::cpu::{math, prefetch_all};

/// A query and what it attends to.
pub(super) struct Row<'q, K, O, N> {
    pub(super) query: &'q [f32],
    /// Values of a head.
    pub(super) width: usize,
    /// Number of rows.
    pub(super) count: usize,
    /// Rows that begin with a key, whose value follows.
    pub(super) rows: K,
    /// True for heads that attend.
    pub(super) open: O,
    /// True for rows that are in the cache already.
    pub(super) near: N,
}

impl<'a, T, K, O, N> Row<'_, K, O, N>
where
    T: Weight,
    K: Fn(usize) -> &'a [T],
    O: Fn(usize) -> bool,
    N: Fn(usize) -> bool,
{
    /// Adds the outputs of the heads to `out`.
    pub(super) fn attend(&self, out: &mut [f32]) {
        // SAFETY: the processor has the instructions of the kernel.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx512f") {
                return x86::avx512(self, out);
            } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return x86::avx2(self, out);
            }
            self.attend_by::<Portable>(out);
        }
    }

    /// The same with the instructions of `L`, which the processor must have.
    #[inline(always)]
    unsafe fn attend_by<L: Lanes>(&self, out: &mut [f32]) {
        let Self { query, width, .. } = *self;
        assert!(width > 0 && query.len().is_multiple_of(width) && out.len() == query.len());
        if self.count == 0 {
            return;
        }
        // Whole vectors for each head: what there is no row for has no chance.
        let room = self.count.next_multiple_of(LANES);
        let mut chances = vec![f32::NEG_INFINITY; query.len() / width * room];
        // SAFETY: the caller answers for the instructions.
        unsafe {
            self.score::<L>(&mut chances, room);
            for (head, chances) in chances.chunks_exact_mut(room).enumerate() {
                if (self.open)(head) {
                    math::softmax(chances);
                }
            }
            self.add_values::<L>(&chances, room, out);
        }
    }

    /// Where column `from` of some rows is, from row `first` on; the last row stands in for those beyond it.
    #[inline(always)]
    fn group(&self, first: usize, from: usize) -> [*const T; GROUP] {
        let (d, mut group) = (self.query.len(), [std::ptr::null(); GROUP]);
        for (i, place) in group.iter_mut().enumerate() {
            *place = (self.rows)((first + i).min(self.count - 1))[from..from + d].as_ptr();
        }
        group
    }

    /// The products with the keys over √width, head by head.
    #[inline(always)]
    unsafe fn score<L: Lanes>(&self, scores: &mut [f32], room: usize) {
        let Self { query, width, count, .. } = *self;
        let scale = 1.0 / (width as f32).sqrt();
        for first in (0..count).step_by(GROUP) {
            for next in (first + GROUP..count).take(GROUP) {
                if !(self.near)(next) {
                    // Keys now, and values soon.
                    prefetch_all(&(self.rows)(next)[..2 * query.len()]);
                }
            }
            let keys = self.group(first, 0);
            for (head, query) in query.chunks_exact(width).enumerate() {
                if (self.open)(head) {
                    // SAFETY: the caller answers for the instructions; the keys of a head have as many values as its query.
                    let mut products = unsafe { products::<L, T>(query, keys, head * width) };
                    products.iter_mut().for_each(|product| *product *= scale);
                    products.iter_mut().skip(count - first).for_each(|beyond| *beyond = f32::NEG_INFINITY);
                    scores[head * room + first..][..GROUP].copy_from_slice(&products);
                }
            }
        }
    }

    /// Adds the values times their chances.
    #[inline(always)]
    unsafe fn add_values<L: Lanes>(&self, chances: &[f32], room: usize, out: &mut [f32]) {
        let width = self.width;
        for first in (0..self.count).step_by(GROUP) {
            let values = self.group(first, out.len());
            for (head, out) in out.chunks_exact_mut(width).enumerate() {
                if (self.open)(head) {
                    let chances =
                        chances[head * room + first..].first_chunk().expect("room is for whole groups");
                    // SAFETY: the caller answers for the instructions; the values of a head are as many as those of `out`.
                    unsafe { add_values::<L, T>(chances, values, head * width, out) };
                }
            }
        }
    }
}

/// The products of a query with as many values of four keys, from column `from` on.
///
/// # Safety
///
/// The keys have these values, and the processor has the instructions of `L`.
#[inline(always)]
unsafe fn products<L: Lanes, T: Weight>(query: &[f32], keys: [*const T; GROUP], from: usize) -> [f32; GROUP] {
    let whole = query.len() / LANES * LANES;
    // SAFETY: the caller answers for values and instructions.
    unsafe {
        let mut sums = [L::zero(); GROUP];
        for at in (0..whole).step_by(LANES) {
            let query = L::load(query.as_ptr().add(at));
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum = sum.add_product(query, T::load::<L>(key.add(from + at)));
            }
        }
        let mut products = L::sums(sums);
        for (at, query) in query.iter().enumerate().skip(whole) {
            for (product, key) in products.iter_mut().zip(keys) {
                *product = query.mul_add((*key.add(from + at)).get(), *product);
            }
        }
        products
    }
}

/// Adds as many values of four rows as `out` has, from column `from` on, times their chances, one row after the other.
///
/// # Safety
///
/// The rows have these values, and the processor has the instructions of `L`.
#[inline(always)]
unsafe fn add_values<L: Lanes, T: Weight>(
    chances: &[f32; GROUP],
    values: [*const T; GROUP],
    from: usize,
    out: &mut [f32],
) {
    let whole = out.len() / LANES * LANES;
    // SAFETY: the caller answers for values and instructions.
    unsafe {
        let mut factors = [L::zero(); GROUP];
        for (factor, chance) in factors.iter_mut().zip(chances) {
            *factor = L::splat(chance);
        }
        for at in (0..whole).step_by(LANES) {
            let mut sum = L::load(out.as_ptr().add(at));
            for (factor, value) in factors.into_iter().zip(values) {
                sum = sum.add_product(factor, T::load::<L>(value.add(from + at)));
            }
            sum.store(out.as_mut_ptr().add(at));
        }
        for (at, out) in out.iter_mut().enumerate().skip(whole) {
            for (chance, value) in chances.iter().zip(values) {
                *out = chance.mul_add((*value.add(from + at)).get(), *out);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Row, Weight};
    use crate::cpu::gemm::streamed::x86::{Avx2, Avx512};

    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512<'a, T, K, O, N>(row: &Row<'_, K, O, N>, out: &mut [f32])
    where
        T: Weight,
        K: Fn(usize) -> &'a [T],
        O: Fn(usize) -> bool,
        N: Fn(usize) -> bool,
    {
        // SAFETY: the processor has AVX-512.
        unsafe { row.attend_by::<Avx512<false>>(out) }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2<'a, T, K, O, N>(row: &Row<'_, K, O, N>, out: &mut [f32])
    where
        T: Weight,
        K: Fn(usize) -> &'a [T],
        O: Fn(usize) -> bool,
        N: Fn(usize) -> bool,
    {
        // SAFETY: the processor has AVX2 and FMA.
        unsafe { row.attend_by::<Avx2>(out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::cpu::panels::{Half, Number};

    fn check<T: Number>() {
        let stream = Rng::new(4, 0).stream(0);
        for (count, heads, width) in [(1, 2, 64), (4, 1, 16), (7, 3, 37), (30, 2, 5), (0, 1, 8)] {
            let d = heads * width;
            let values: Vec<f32> = (0..(2 * count + 1) * d).map(|i| stream.normal(i as u32, 0)).collect();
            let (query, rows) = values.split_at(d);
            let rows: Vec<T> = rows.iter().map(|&v| T::round(v)).collect();
            let row = |j: usize| &rows[2 * j * d..][..2 * d];
            let of = Row { query, width, count, rows: row, open: |head| head != 1, near: |j| j % 2 == 0 };
            let [mut plain, mut found] = [0; 2].map(|_| vec![0.0; d]);
            // SAFETY: every processor has the instructions of plain Rust.
            unsafe { of.attend_by::<Portable>(&mut plain) };
            of.attend(&mut found);
            assert_eq!(found, plain, "{heads} heads of {width}, {count} rows");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                found.fill(0.0);
                // SAFETY: the processor has AVX2 and FMA.
                unsafe { x86::avx2(&of, &mut found) };
                assert_eq!(found, plain, "{heads} heads of {width}, {count} rows, AVX2");
            }
            for (column, found) in found.into_iter().enumerate() {
                let (head, get) = (column / width, |j: usize, column: usize| f64::from(row(j)[column].get()));
                let score = |j: usize| -> f64 {
                    let products =
                        (head * width..(head + 1) * width).map(|v| f64::from(query[v]) * get(j, v));
                    products.sum::<f64>() / (width as f64).sqrt()
                };
                let sum_of =
                    |f: &dyn Fn(usize) -> f64| (0..count).map(|j| score(j).exp() * f(j)).sum::<f64>();
                let want = match head == 1 || count == 0 {
                    true => 0.0,
                    false => sum_of(&|j| get(j, d + column)) / sum_of(&|_| 1.0),
                };
                assert!((f64::from(found) - want).abs() < 1e-5, "column {column}: {found} for {want}");
            }
        }
    }

    #[test]
    fn all_kernels_give_the_same_bits_and_those_of_the_formula() {
        check::<f32>();
        check::<Half>();
    }
}
