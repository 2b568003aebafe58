//! Products by the `gemm` crate: AVX-512, AVX2 or NEON, chosen at run time.

use super::{Into, Mat};

pub(super) fn gemm([m, n, k]: [usize; 3], a: Mat<'_>, b: Mat<'_>, c: &mut [f32], into: Into) {
    let ((a_row, a_col), (b_row, b_col)) = (a.strides(), b.strides());
    // Small products are not worth waking other threads for.
    let parallelism = if m * n * k < 1 << 18 { gemm::Parallelism::None } else { gemm::Parallelism::Rayon(0) };
    // SAFETY: `super::gemm` has checked that the three slices hold exactly m·k, k·n and m·n values, and the
    // strides describe those row-major (or transposed) layouts, so every access stays inside its slice;
    // `c` is borrowed exclusively and so cannot overlap `a` or `b`.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            n as isize,
            into == Into::Add,
            a.data.as_ptr(),
            a_col as isize,
            a_row as isize,
            b.data.as_ptr(),
            b_col as isize,
            b_row as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}
