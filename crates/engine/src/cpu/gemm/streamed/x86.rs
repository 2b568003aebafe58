//! Vectors of AVX-512 and AVX2.

use std::arch::x86_64::*;

use super::kernel::{GROUP, Lanes, MAX_ROWS, compute};
use super::{Kernel, Part, Weight};

/// The fastest kernel of this processor, if it has one of these.
pub(super) fn fastest<W: Weight>() -> Option<Kernel<W>> {
    if is_x86_feature_detected!("avx512f") {
        Some(avx512)
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        Some(avx2)
    } else {
        None
    }
}

/// The kernels of this processor.
#[cfg(test)]
pub(super) fn kernels<W: Weight>() -> Vec<(&'static str, Kernel<W>)> {
    let mut kernels: Vec<(&'static str, Kernel<W>)> = Vec::new();
    if is_x86_feature_detected!("avx512f") {
        kernels.push(("AVX-512", avx512));
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        kernels.push(("AVX2", avx2));
    }
    kernels
}

#[target_feature(enable = "avx512f")]
unsafe fn avx512<W: Weight>(part: &Part<'_, W>) {
    // SAFETY: the caller answers for the part; the processor has AVX-512.
    unsafe { compute::<Avx512, W>(part) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<W: Weight>(part: &Part<'_, W>) {
    // SAFETY: the caller answers for the part; the processor has AVX2 and FMA.
    unsafe { compute::<Avx2, W>(part) }
}

#[derive(Clone, Copy)]
pub(in crate::cpu) struct Avx512(__m512);

impl Lanes for Avx512 {
    const ROWS: usize = MAX_ROWS;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the processor has AVX-512, here and below: `kernels` has asked.
        Self(unsafe { _mm512_setzero_ps() })
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller gives the address of 16 values.
        Self(unsafe { _mm512_loadu_ps(at) })
    }

    #[inline(always)]
    unsafe fn widen(at: *const u16) -> Self {
        // SAFETY: the caller gives the address of 16 values.
        let halves = unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast())) };
        // SAFETY: as above.
        Self(unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves)) })
    }

    #[inline(always)]
    unsafe fn splat(at: *const f32) -> Self {
        // SAFETY: the caller gives the address of a value.
        Self(unsafe { _mm512_set1_ps(*at) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller gives the address of room for 16 values.
        unsafe { _mm512_storeu_ps(at, self.0) }
    }

    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_fmadd_ps(a.0, b.0, self.0) })
    }

    #[inline(always)]
    unsafe fn sums([Self(a), Self(b), Self(c), Self(d)]: [Self; GROUP]) -> [f32; GROUP] {
        // SAFETY: as above.
        unsafe {
            let two = |a, b| _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
            let (ab, cd) = (_mm512_castps_pd(two(a, b)), _mm512_castps_pd(two(c, d)));
            let even = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
            let odd = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
            // Each four of lanes holds the sums of that four in a, b, c and d.
            let fours = _mm512_add_ps(even, odd);
            let upper = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(fours)));
            let halves = _mm256_add_ps(_mm512_castps512_ps256(fours), upper);
            let sums = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
            let mut out = [0.0; GROUP];
            _mm_storeu_ps(out.as_mut_ptr(), sums);
            out
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}

/// Lanes 0 to 7, and 8 to 15.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Avx2(__m256, __m256);

impl Lanes for Avx2 {
    // The sums of one row and the weights they are multiplied with take all 16 registers.
    const ROWS: usize = 1;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the processor has AVX2 and FMA, here and below: `kernels` has asked.
        unsafe { Self(_mm256_setzero_ps(), _mm256_setzero_ps()) }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller gives the address of 16 values.
        unsafe { Self(_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))) }
    }

    #[inline(always)]
    unsafe fn widen(at: *const u16) -> Self {
        // SAFETY: the caller gives the address of 16 values.
        unsafe {
            let eight = |at: *const u16| {
                let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
            };
            Self(eight(at), eight(at.add(8)))
        }
    }

    #[inline(always)]
    unsafe fn splat(at: *const f32) -> Self {
        // SAFETY: the caller gives the address of a value.
        unsafe { Self(_mm256_set1_ps(*at), _mm256_set1_ps(*at)) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller gives the address of room for 16 values.
        unsafe {
            _mm256_storeu_ps(at, self.0);
            _mm256_storeu_ps(at.add(8), self.1);
        }
    }

    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
    }

    #[inline(always)]
    unsafe fn sums(vectors: [Self; GROUP]) -> [f32; GROUP] {
        // SAFETY: as above.
        unsafe {
            let two = |a, b| _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let four = |[a, b, c, d]: [__m256; GROUP]| {
                let (ab, cd) = (_mm256_castps_pd(two(a, b)), _mm256_castps_pd(two(c, d)));
                let even = _mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd));
                let odd = _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd));
                _mm256_add_ps(even, odd)
            };
            let halves = _mm256_add_ps(four(vectors.map(|v| v.0)), four(vectors.map(|v| v.1)));
            let sums = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
            let mut out = [0.0; GROUP];
            _mm_storeu_ps(out.as_mut_ptr(), sums);
            out
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
