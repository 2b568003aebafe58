//! Scores of keys: the products of a query with them, head by head, four keys at a time.
//!
//! A score is the sum over 16 lanes, which are added in one fixed order, so that all kernels give the same bits.

use super::super::kept::Kept;
use crate::cpu::gemm::streamed::kernel::{GROUP, LANES, Lanes, Portable};
use crate::cpu::prefetch_all;

/// A query and the keys that it is multiplied with.
pub(super) struct Scores<'q, K, O> {
    pub(super) query: &'q [f32],
    /// Values of a head.
    pub(super) width: usize,
    /// Number of keys.
    pub(super) count: usize,
    /// Rows that begin with a key, whose value follows.
    pub(super) rows: K,
    /// True for heads that have scores.
    pub(super) open: O,
}

impl<'a, T: Kept, K: Fn(usize) -> &'a [T], O: Fn(usize) -> bool> Scores<'_, K, O> {
    /// The products with the keys over √width, `count` for each head.
    pub(super) fn compute(&self, scores: &mut [f32]) {
        // SAFETY: the processor has the instructions of the kernel.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx512f") {
                return x86::avx512(self, scores);
            } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return x86::avx2(self, scores);
            }
            self.compute_by::<Portable>(scores);
        }
    }

    /// The same with the instructions of `L`, which the processor must have.
    #[inline(always)]
    unsafe fn compute_by<L: Lanes>(&self, scores: &mut [f32]) {
        let Self { query, width, count, .. } = *self;
        assert!(
            width > 0 && query.len().is_multiple_of(width) && scores.len() == query.len() / width * count
        );
        let scale = 1.0 / (width as f32).sqrt();
        for first in (0..count).step_by(GROUP) {
            let some = GROUP.min(count - first);
            for next in (first + GROUP..count).take(GROUP) {
                // Keys now, and values soon.
                prefetch_all(&(self.rows)(next)[..2 * query.len()]);
            }
            // The last key stands in for those beyond it.
            let keys: [&[T]; GROUP] =
                std::array::from_fn(|i| &(self.rows)(first + i.min(some - 1))[..query.len()]);
            for (head, query) in query.chunks_exact(width).enumerate() {
                if (self.open)(head) {
                    let keys = keys.map(|key| &key[head * width..][..width]);
                    // SAFETY: the caller answers for the instructions.
                    let products = unsafe { products::<L, T>(query, keys) };
                    let scores = &mut scores[head * count + first..][..some];
                    scores.iter_mut().zip(products).for_each(|(score, product)| *score = scale * product);
                }
            }
        }
    }
}

/// The products of a query with four keys of as many values.
#[inline(always)]
unsafe fn products<L: Lanes, T: Kept>(query: &[f32], keys: [&[T]; GROUP]) -> [f32; GROUP] {
    let whole = query.len() / LANES * LANES;
    // SAFETY: the caller answers for the instructions; query and keys have values up to `whole`.
    let mut products = unsafe {
        let mut sums = [L::zero(); GROUP];
        for at in (0..whole).step_by(LANES) {
            let query = L::load(query.as_ptr().add(at));
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum = sum.add_product(query, T::load::<L>(key.as_ptr().add(at)));
            }
        }
        L::sums(sums)
    };
    for (product, key) in products.iter_mut().zip(keys) {
        for (query, key) in query[whole..].iter().zip(&key[whole..]) {
            *product = query.mul_add(key.get(), *product);
        }
    }
    products
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Kept, Scores};
    use crate::cpu::gemm::streamed::x86::{Avx2, Avx512};

    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512<'a, T: Kept, K: Fn(usize) -> &'a [T], O: Fn(usize) -> bool>(
        of: &Scores<'_, K, O>,
        scores: &mut [f32],
    ) {
        // SAFETY: the processor has AVX-512.
        unsafe { of.compute_by::<Avx512<false>>(scores) }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2<'a, T: Kept, K: Fn(usize) -> &'a [T], O: Fn(usize) -> bool>(
        of: &Scores<'_, K, O>,
        scores: &mut [f32],
    ) {
        // SAFETY: the processor has AVX2 and FMA.
        unsafe { of.compute_by::<Avx2>(scores) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::device::to_bf16;

    fn check<T: Kept>(round: fn(f32) -> T) {
        let stream = Rng::new(4, 0).stream(0);
        for (count, heads, width) in [(1, 2, 64), (4, 1, 16), (7, 3, 37), (30, 2, 5), (0, 1, 8)] {
            let d = heads * width;
            let values: Vec<f32> = (0..(2 * count + 1) * d).map(|i| stream.normal(i as u32, 0)).collect();
            let (query, rows) = values.split_at(d);
            let rows: Vec<T> = rows.iter().map(|&v| round(v)).collect();
            let row = |j: usize| &rows[2 * j * d..][..2 * d];
            let of = Scores { query, width, count, rows: row, open: |head| head != 1 };
            let (mut plain, mut found) = (vec![7.0; heads * count], vec![7.0; heads * count]);
            // SAFETY: every processor has the instructions of plain Rust.
            unsafe { of.compute_by::<Portable>(&mut plain) };
            of.compute(&mut found);
            assert_eq!(found, plain, "{heads} heads of {width}, {count} keys");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                found.fill(7.0);
                // SAFETY: the processor has AVX2 and FMA.
                unsafe { x86::avx2(&of, &mut found) };
                assert_eq!(found, plain, "{heads} heads of {width}, {count} keys, AVX2");
            }
            for (i, found) in found.into_iter().enumerate() {
                let (head, j) = (i / count, i % count);
                let of_head = |values: usize| head * width + values;
                let want: f64 = (0..width)
                    .map(|v| f64::from(query[of_head(v)]) * f64::from(row(j)[of_head(v)].get()))
                    .sum();
                let want = if head == 1 { 7.0 } else { want / (width as f64).sqrt() };
                assert!((f64::from(found) - want).abs() < 1e-5, "head {head}, key {j}: {found} for {want}");
            }
        }
    }

    #[test]
    fn all_kernels_give_the_same_bits_and_those_of_the_formula() {
        check(|value| value);
        check(to_bf16);
    }
}
