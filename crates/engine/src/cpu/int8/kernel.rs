//! The kernel in plain Rust, which defines the result.

use super::{LANES, PANEL, Part, SHIFT, STEP};

/// Computes a part.
///
/// # Safety
///
/// The part lies inside Y, and nobody else writes to it.
pub(super) unsafe fn portable(part: &Part<'_>) {
    let lines = part.w.panel_lines();
    for panel in part.panels.clone() {
        let weights = &part.w.lines[panel * lines..(panel + 1) * lines];
        for row in part.rows.clone() {
            let mut sums = [0i32; PANEL];
            let steps = part.x(row).chunks_exact(STEP).zip(weights.chunks_exact(PANEL / LANES));
            for (x, lines) in steps {
                let x: [i32; STEP] = std::array::from_fn(|i| i32::from(x[i]) - SHIFT);
                for (sums, line) in sums.chunks_exact_mut(LANES).zip(lines) {
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
