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
    unsafe { compute::<Avx512<false>, W>(part) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<W: Weight>(part: &Part<'_, W>) {
    // SAFETY: the caller answers for the part; the processor has AVX2 and FMA.
    unsafe { compute::<Avx2, W>(part) }
}

/// Which byte goes to each byte of 16 lanes, so that these are 256 times the numbers of three bytes that follow each
/// other. Byte 48 is the first one behind them, a 0.
const UPPER_BYTES: [[u8; 4]; 16] = {
    let mut places = [[48; 4]; 16];
    let mut lane = 0;
    while lane < 16 {
        let first = 3 * lane as u8;
        places[lane] = [48, first, first + 1, first + 2];
        lane += 1;
    }
    places
};
/// The same for four lanes: −1 is a 0, and the numbers begin at byte 0, or at byte 4.
const UPPER_BYTES_OF_FOUR: [[i8; 16]; 2] = [
    [-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11],
    [-1, 4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15],
];

/// 16 lanes of AVX-512; with `BYTES` the processor can also permute bytes (VBMI).
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const BYTES: bool>(__m512);

impl<const BYTES: bool> Lanes for Avx512<BYTES> {
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
    unsafe fn expand(at: *const [u8; 3]) -> Self {
        // SAFETY: the caller gives the address of 16 values, 48 bytes, and only those are read. Kernels that expand have
        // asked for BW, and for VBMI where `BYTES` says so.
        unsafe {
            let bytes = _mm512_maskz_loadu_epi32(0x0fff, at.cast());
            let lanes = if BYTES {
                let places = _mm512_loadu_si512(UPPER_BYTES.as_ptr().cast());
                _mm512_permutexvar_epi8(places, bytes)
            } else {
                // Four numbers to each four of lanes, and each number to the upper bytes of its lane.
                let fours = _mm512_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0, 6, 7, 8, 0, 9, 10, 11, 0);
                let places = _mm512_broadcast_i32x4(_mm_loadu_si128(UPPER_BYTES_OF_FOUR[0].as_ptr().cast()));
                _mm512_shuffle_epi8(_mm512_permutexvar_epi32(fours, bytes), places)
            };
            Self(_mm512_cvtepi32_ps(lanes))
        }
    }

    #[inline(always)]
    unsafe fn convert(at: *const i8) -> Self {
        // SAFETY: the caller gives the address of 16 values.
        unsafe { Self(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast())))) }
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
pub(crate) struct Avx2(__m256, __m256);

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
    unsafe fn expand(at: *const [u8; 3]) -> Self {
        // SAFETY: the caller gives the address of 16 values, and only those are read: of eight, 24 bytes, bytes 0 to 15
        // and 8 to 23.
        unsafe {
            let eight = |at: *const u8| {
                let fours = _mm256_loadu2_m128i(at.add(8).cast(), at.cast());
                let places = _mm256_loadu_si256(UPPER_BYTES_OF_FOUR.as_ptr().cast());
                _mm256_cvtepi32_ps(_mm256_shuffle_epi8(fours, places))
            };
            Self(eight(at.cast()), eight(at.add(8).cast()))
        }
    }

    #[inline(always)]
    unsafe fn convert(at: *const i8) -> Self {
        // SAFETY: the caller gives the address of 16 values.
        unsafe {
            let eight = |at: *const i8| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast())));
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
