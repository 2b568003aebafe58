//! Products by the `gemm-f32` crate: AVX-512, AVX2 or NEON, chosen at run time.

use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;

use super::{Into, Mat};

pub(super) fn gemm([m, n, k]: [usize; 3], a: Mat<'_>, b: Mat<'_>, c: &mut [f32], into: Into) {
    // Small products are not worth waking other threads for.
    let parallelism = if m * n * k < 1 << 18 { Parallelism::None } else { Parallelism::Rayon(0) };
    // The kernels write columns, and the rows of C are the columns of Cᵀ = Bᵀ·Aᵀ. A single column is one already.
    let ([rows, columns], left, right) = if n > 1 { ([n, m], b.t(), a.t()) } else { ([m, n], a, b) };
    let ((left_row, left_col), (right_row, right_col)) = (left.strides(), right.strides());
    // SAFETY: `super::gemm` has checked that the three slices hold exactly m·k, k·n and m·n values, and the
    // strides describe those row-major (or transposed) layouts, so every access stays inside its slice;
    // `c` is borrowed exclusively and so cannot overlap `a` or `b`.
    unsafe {
        get_gemm_fn()(
            rows,
            columns,
            k,
            c.as_mut_ptr(),
            n as isize,
            1,
            into == Into::Add,
            left.data.as_ptr(),
            left_col as isize,
            left_row as isize,
            right.data.as_ptr(),
            right_col as isize,
            right_row as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}
