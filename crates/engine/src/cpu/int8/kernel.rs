//! The kernel in plain Rust, which defines the result.

use super::{LANES, PANEL, Part, SHIFT, STEP, STRIPS};

/// Computes a part.
///
/// # Safety
///
/// The part lies inside Y, and nobody else writes to it.
pub(super) unsafe fn portable(part: &Part<'_>) {
    let (depth, lines) = (part.w.depth(), part.w.strip_lines());
    for panel in part.panels.clone() {
        let strips = &part.w.lines[panel * STRIPS * lines..][..STRIPS * lines];
        for row in part.rows.clone() {
            let x = &part.x.values[row * depth..(row + 1) * depth];
            let mut sums = [0i32; PANEL];
            for (sums, strip) in sums.chunks_exact_mut(LANES).zip(strips.chunks_exact(lines)) {
                for (x, line) in x.chunks_exact(STEP).zip(strip) {
                    let x: [i32; STEP] = std::array::from_fn(|i| i32::from(x[i]) - SHIFT);
                    for (sum, w) in sums.iter_mut().zip(&line.0) {
                        *sum += x.iter().zip(w).map(|(x, w)| x * i32::from(*w)).sum::<i32>();
                    }
                }
            }
            let scales = &part.w.scales[panel * PANEL..];
            for (col, sum) in sums[..part.cols(panel)].iter().enumerate() {
                // SAFETY: rows and panels are the part's, and the panel has this column.
                unsafe {
                    *part.y(row, panel).add(col) = *sum as f32 * (part.x.scales[row] * scales[col]);
                }
            }
        }
    }
}
