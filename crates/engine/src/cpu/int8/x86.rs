//! Kernels of x86 processors, and that with AVX2.

use std::arch::x86_64::*;

use super::vnni::{LargeFirstLevel, Requests, SmallFirstLevel, WithAmx, vnni};
use super::{Form, Kernel, LANES, Layout, Part, STEP, STRIPS};
use crate::cpu::caches;

/// The kernels of this processor, the fastest first.
pub(super) fn kernels() -> Vec<Kernel> {
    let mut kernels = Vec::new();
    #[cfg(target_os = "linux")]
    if super::amx::available() {
        kernels.push(Kernel {
            name: "AMX-INT8",
            form: Form::Shifted,
            layout: WithAmx::LAYOUT,
            compute: super::amx::amx,
        });
    }
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
        let (layout, compute): (_, unsafe fn(&Part<'_>)) = match caches::has_large_first_level() {
            true => (LargeFirstLevel::LAYOUT, vnni::<LargeFirstLevel>),
            false => (SmallFirstLevel::LAYOUT, vnni::<SmallFirstLevel>),
        };
        kernels.push(Kernel { name: "AVX-512 VNNI", form: Form::Shifted, layout, compute });
    }
    if is_x86_feature_detected!("avx2") {
        kernels.push(Kernel { name: "AVX2", form: Form::Split, layout: Layout::Strips, compute: avx2 });
    }
    kernels
}

/// Rows of X that AVX2 multiplies at a time: their sums with a strip take 10 of 16 registers, and the rest is in use.
const AVX2_ROWS: usize = 5;
/// Lines that AVX2 asks for ahead of their use: it reads one strip at a time, where AVX-512 reads four.
const AVX2_AHEAD: usize = 64;

/// Computes a part with AVX2. `maddubs` multiplies numbers without a sign by numbers with one and adds two products
/// with saturation: with |x| and w·sign(x), none of which exceeds 127, nothing saturates.
#[target_feature(enable = "avx2")]
unsafe fn avx2(part: &Part<'_>) {
    for panel in part.panels.clone() {
        for row in part.rows.clone().step_by(AVX2_ROWS) {
            for strip in panel * STRIPS..(panel + 1) * STRIPS {
                // SAFETY: the caller answers for the part; row and strip are the part's.
                unsafe {
                    match part.rows.end - row {
                        1 => avx2_block::<1>(part, strip, row),
                        2 => avx2_block::<2>(part, strip, row),
                        3 => avx2_block::<3>(part, strip, row),
                        4 => avx2_block::<4>(part, strip, row),
                        _ => avx2_block::<AVX2_ROWS>(part, strip, row),
                    }
                }
            }
        }
    }
}

/// Computes `M` rows of a strip.
///
/// # Safety
///
/// Rows and strip belong to the part.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn avx2_block<const M: usize>(part: &Part<'_>, strip: usize, row: usize) {
    const EIGHT: usize = 8;
    let (depth, lines) = (part.w.depth(), part.w.strip_lines());
    // SAFETY: a strip has `lines` lines of 64 bytes, rows of X have `depth` values and `depth` magnitudes, scales are
    // padded to whole panels, and what is written is inside Y.
    unsafe {
        let x = part.x.values.as_ptr().add(row * 2 * depth);
        let w = part.w.lines.as_ptr().add(strip * lines);
        let ones = _mm256_set1_epi16(1);
        let mut sums = [[_mm256_setzero_si256(); 2]; M];
        for step in 0..lines {
            let line = w.add(step);
            _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(AVX2_AHEAD).cast());
            let line = line.cast::<__m256i>();
            for (i, sums) in sums.iter_mut().enumerate() {
                let four = |at: *const u8| _mm256_set1_epi32(at.cast::<i32>().read_unaligned());
                let values = x.add(i * 2 * depth + step * STEP);
                let (signs, magnitudes) = (four(values), four(values.add(depth)));
                for (v, sum) in sums.iter_mut().enumerate() {
                    let signed = _mm256_sign_epi8(_mm256_load_si256(line.add(v)), signs);
                    let pairs = _mm256_maddubs_epi16(magnitudes, signed);
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            let scale = _mm256_set1_ps(part.x.scales[row + i]);
            for (v, sum) in sums.into_iter().enumerate() {
                let col = strip * LANES + EIGHT * v;
                let scales = _mm256_loadu_ps(part.w.scales.as_ptr().add(col));
                let y = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, scales));
                let place = part.y.0.wrapping_add((row + i) * part.w.rows + col);
                if col + EIGHT <= part.w.rows {
                    _mm256_storeu_ps(place, y);
                } else if col < part.w.rows {
                    let mut out = [0f32; EIGHT];
                    _mm256_storeu_ps(out.as_mut_ptr(), y);
                    place.copy_from_nonoverlapping(out.as_ptr(), part.w.rows - col);
                }
            }
        }
    }
}
