//! Kernels with AVX-512 VNNI and with AVX2.

use std::arch::x86_64::*;

use super::{Form, Kernel, LANES, Line, PANEL, Part, STEP, STRIPS};
use crate::cpu::gemm::streamed::kernel::MAX_ROWS;

/// Lines of a strip that processors with AMX ask for ahead of their use: the first level of the cache has room for them.
pub(super) const NEAR: usize = 16;
/// The same for others, which ask the second level.
const FAR: usize = 64;

/// The kernels of this processor, the fastest first.
pub(super) fn kernels() -> Vec<Kernel> {
    let mut kernels = Vec::new();
    #[cfg(target_os = "linux")]
    if super::amx::available() {
        kernels.push(Kernel { name: "AMX-INT8", form: Form::Shifted, compute: super::amx::amx });
    }
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
        kernels.push(Kernel { name: "AVX-512 VNNI", form: Form::Shifted, compute: vnni::<FAR, _MM_HINT_T1> });
    }
    if is_x86_feature_detected!("avx2") {
        kernels.push(Kernel { name: "AVX2", form: Form::Split, compute: avx2 });
    }
    kernels
}

/// Computes a part with AVX-512 VNNI, up to six rows at a time. Level `HINT` of the cache is asked for lines that are
/// `AHEAD` of those in use; what is fastest differs from processor to processor.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn vnni<const AHEAD: usize, const HINT: i32>(part: &Part<'_>) {
    for panel in part.panels.clone() {
        let next = match part.next {
            _ if panel + 1 < part.w.panels() => part.w.panel(panel + 1),
            Some(next) => next.panel(0),
            // Nothing that is known: what is there already is asked for once more.
            None => part.w.panel(panel),
        };
        for row in part.rows.clone().step_by(MAX_ROWS) {
            // SAFETY: the caller answers for the part; row and panel are the part's.
            unsafe {
                match part.rows.end - row {
                    1 => vnni_block::<AHEAD, HINT, 1>(part, panel, row, next),
                    2 => vnni_block::<AHEAD, HINT, 2>(part, panel, row, next),
                    3 => vnni_block::<AHEAD, HINT, 3>(part, panel, row, next),
                    4 => vnni_block::<AHEAD, HINT, 4>(part, panel, row, next),
                    5 => vnni_block::<AHEAD, HINT, 5>(part, panel, row, next),
                    _ => vnni_block::<AHEAD, HINT, MAX_ROWS>(part, panel, row, next),
                }
            }
        }
    }
}

/// Computes `M` rows of a panel; `next` is the panel that is read after it.
///
/// # Safety
///
/// Rows and panel belong to the part.
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
unsafe fn vnni_block<const AHEAD: usize, const HINT: i32, const M: usize>(
    part: &Part<'_>,
    panel: usize,
    row: usize,
    next: *const Line,
) {
    let (depth, lines) = (part.w.depth(), part.w.strip_lines());
    // SAFETY: each strip of the panel has `lines` lines of 64 bytes, rows of X have `depth` bytes, scales and surplus are
    // padded to whole panels, and a row of Y has `cols` values in the panel.
    unsafe {
        let x = part.x.values.as_ptr().add(row * depth);
        let w = part.w.panel(panel);
        let mut sums = [[_mm512_setzero_si512(); STRIPS]; M];
        let inside = lines.saturating_sub(AHEAD);
        for step in 0..lines {
            // After the end of a strip the next panel follows.
            let ahead =
                if step < inside { w.wrapping_add(step + AHEAD) } else { next.wrapping_add(step - inside) };
            let mut weights = [_mm512_setzero_si512(); STRIPS];
            for (i, weights) in weights.iter_mut().enumerate() {
                _mm_prefetch::<HINT>(ahead.wrapping_add(i * lines).cast());
                *weights = _mm512_load_si512(w.add(i * lines + step).cast());
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_epi32(x.add(i * depth + step * STEP).cast::<i32>().read_unaligned());
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm512_dpbusd_epi32(*sum, x, weights);
                }
            }
        }
        let cols = part.cols(panel);
        for (i, sums) in sums.into_iter().enumerate() {
            let (scale, mut out) = (_mm512_set1_ps(part.x.scales[row + i]), [0f32; PANEL]);
            for (line, sum) in sums.into_iter().enumerate() {
                let at = panel * PANEL + line * LANES;
                let sum = _mm512_sub_epi32(sum, _mm512_loadu_si512(part.w.surplus.as_ptr().add(at).cast()));
                let scales = _mm512_mul_ps(scale, _mm512_loadu_ps(part.w.scales.as_ptr().add(at)));
                let y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scales);
                match cols {
                    PANEL => _mm512_storeu_ps(part.y(row + i, panel).add(line * LANES), y),
                    _ => _mm512_storeu_ps(out.as_mut_ptr().add(line * LANES), y),
                }
            }
            if cols < PANEL {
                part.y(row + i, panel).copy_from_nonoverlapping(out.as_ptr(), cols);
            }
        }
    }
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
