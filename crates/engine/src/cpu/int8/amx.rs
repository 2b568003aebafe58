//! Kernel with AMX-INT8: 16 rows of X and a panel of W at a time.
//!
//! `tdpbusd` multiplies numbers without a sign by numbers with one, as `vpdpbusd` does, so that X and W lie as the kernel
//! with AVX-512 VNNI reads them on these processors: a line of W is a row of a tile. The sums are the same whole numbers.

use std::arch::asm;
use std::arch::x86_64::*;

use super::vnni::{WithAmx, vnni};
use super::{DEPTH, LANES, Line, PANEL, Part, STEP, STRIPS};
use crate::cpu::gemm::amx::cpu::ConfiguredTiles;

/// Rows of a tile.
const TILE: usize = 16;
/// Fewest rows of X for which tiles are worth loading.
const LEAST_ROWS: usize = 8;

/// True if the processor has AMX-INT8 and AVX-512 VNNI, and the system lets this process use tiles.
pub(super) fn available() -> bool {
    crate::cpu::gemm::amx::cpu::has_int8() && is_x86_feature_detected!("avx512vnni")
}

/// Whole sums of 16 rows and a panel.
#[repr(C, align(64))]
struct Sums([[i32; PANEL]; TILE]);

/// Computes a part.
///
/// # Safety
///
/// The processor has AMX-INT8 and AVX-512 VNNI; the part lies inside Y, and nobody else writes to it.
pub(super) unsafe fn amx(part: &Part<'_>) {
    if part.rows.len() < LEAST_ROWS {
        // SAFETY: the caller answers for part and processor.
        return unsafe { vnni::<WithAmx>(part) };
    }
    let mut sums = Sums([[0; PANEL]; TILE]);
    let whole = part.rows.start + part.rows.len() / TILE * TILE;
    for rows in [part.rows.start..whole, whole..part.rows.end].into_iter().filter(|rows| !rows.is_empty()) {
        let count = rows.len().min(TILE);
        // Nothing in here hands control to rayon, so the tiles stay this thread's own.
        let tiles = ConfiguredTiles::of_rows(count);
        for panel in part.panels.clone() {
            for row in rows.clone().step_by(count) {
                // SAFETY: rows and panel are the part's; the caller answers for the rest.
                unsafe {
                    sum(&tiles, part, panel, row, &mut sums);
                    write(part, panel, row..row + count, &sums);
                }
            }
        }
    }
}

/// Sums the products of as many rows as the tiles have, from `row` on, with a panel.
///
/// # Safety
///
/// The rows, as many as the tiles are configured for, and the panel belong to the part.
unsafe fn sum(_tiles: &ConfiguredTiles, part: &Part<'_>, panel: usize, row: usize, sums: &mut Sums) {
    let (depth, lines) = (part.w.depth(), part.w.strip_lines());
    // SAFETY: rows of X have `depth` bytes, each of the panel's four strips has a line for each step of four values, and
    // the sums have room for 16 rows. Tiles of X and of sums have as many rows as there are, those of W have 16.
    unsafe {
        let w = part.w.panel(panel);
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm4, [{x} + {x_row}*1]",
            "tileloadd tmm5, [{first} + {w_row}*1]",
            "tdpbusd tmm0, tmm4, tmm5",
            "tileloadd tmm6, [{second} + {w_row}*1]",
            "tdpbusd tmm1, tmm4, tmm6",
            "tileloadd tmm7, [{third} + {w_row}*1]",
            "tdpbusd tmm2, tmm4, tmm7",
            "tileloadd tmm5, [{fourth} + {w_row}*1]",
            "tdpbusd tmm3, tmm4, tmm5",
            "add {x}, {x_step}",
            "add {first}, {w_step}",
            "add {second}, {w_step}",
            "add {third}, {w_step}",
            "add {fourth}, {w_step}",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{sums} + {sums_row}*1], tmm0",
            "tilestored [{sums} + {sums_row}*1 + 64], tmm1",
            "tilestored [{sums} + {sums_row}*1 + 128], tmm2",
            "tilestored [{sums} + {sums_row}*1 + 192], tmm3",
            x = inout(reg) part.x.values.as_ptr().add(row * depth) => _,
            x_row = in(reg) depth,
            x_step = const DEPTH,
            first = inout(reg) w => _,
            second = inout(reg) w.add(lines) => _,
            third = inout(reg) w.add(2 * lines) => _,
            fourth = inout(reg) w.add(3 * lines) => _,
            w_row = in(reg) size_of::<Line>(),
            w_step = const DEPTH / STEP * size_of::<Line>(),
            sums_row = in(reg) PANEL * size_of::<i32>(),
            steps = inout(reg) depth / DEPTH => _,
            sums = in(reg) sums,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Turns whole sums into values of Y.
///
/// # Safety
///
/// Rows and panel belong to the part.
#[target_feature(enable = "avx512f")]
unsafe fn write(part: &Part<'_>, panel: usize, rows: std::ops::Range<usize>, sums: &Sums) {
    let cols = part.cols(panel);
    for (row, sums) in rows.zip(&sums.0) {
        // SAFETY: scales and surplus are padded to whole panels, and a row of Y has `cols` values in the panel.
        unsafe {
            let (scale, mut out) = (_mm512_set1_ps(part.x.scales[row]), [0f32; PANEL]);
            for line in 0..STRIPS {
                let at = panel * PANEL + line * LANES;
                let sum = _mm512_loadu_si512(sums.as_ptr().add(line * LANES).cast());
                let sum = _mm512_sub_epi32(sum, _mm512_loadu_si512(part.w.surplus.as_ptr().add(at).cast()));
                let scales = _mm512_mul_ps(scale, _mm512_loadu_ps(part.w.scales.as_ptr().add(at)));
                let y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scales);
                _mm512_storeu_ps(out.as_mut_ptr().add(line * LANES), y);
            }
            part.y(row, panel).copy_from_nonoverlapping(out.as_ptr(), cols);
        }
    }
}
