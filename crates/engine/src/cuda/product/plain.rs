//! Products by a kernel of our own, for what cuBLASLt does not have.

use super::{Epilogue, Factor, Product};
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::Shape;
use crate::cuda::memory::Ptr;

/// Rows and columns of the product that a block computes.
const TILE: usize = 16;

kernels! {
    static FILE = "product" at "product.cu", constants [TILE];

    struct ProductAct = product_act {
        a: *const Act,
        a_row: u32,
        a_step: u32,
        b: *const Act,
        b_row: u32,
        b_step: u32,
        c: *mut Act,
        c_row: u32,
        add: u32,
        bias: *const Act,
        relu: u32,
        m: u32,
        n: u32,
        k: u32,
    }

    struct ProductFloat = product_float {
        a: *const Act,
        a_row: u32,
        a_step: u32,
        b: *const Act,
        b_row: u32,
        b_step: u32,
        c: *mut f32,
        c_row: u32,
        add: u32,
        bias: *const Act,
        relu: u32,
        m: u32,
        n: u32,
        k: u32,
    }
}

impl Gpu {
    /// The product by a kernel of our own: slower, for any size.
    pub(super) fn plain_product(&self, p: &Product) {
        let [m, n, k] = p.size.map(|n| n as u32);
        let strides = |factor: &Factor| {
            let cols = factor.cols as u32;
            if factor.transposed { (1, cols) } else { (cols, 1) }
        };
        let ((a_row, a_step), (b_row, b_step)) = (strides(&p.a), strides(&p.b));
        let bias = if p.epilogue == Epilogue::Nothing { Ptr::NULL } else { p.bias };
        let (c_row, add) = (p.c_cols as u32, u32::from(p.add));
        let relu = u32::from(p.epilogue == Epilogue::BiasRelu);
        let (a, b, c) = (p.a.ptr, p.b.ptr, p.c);
        let blocks = [p.size[1].div_ceil(TILE), p.size[0].div_ceil(TILE)];
        let shape = Shape::grid(blocks, (TILE * TILE) as u32);
        match p.out == self.act() {
            true => {
                let product =
                    ProductAct { a, a_row, a_step, b, b_row, b_step, c, c_row, add, bias, relu, m, n, k };
                self.call(shape, &product);
            }
            false => {
                let product =
                    ProductFloat { a, a_row, a_step, b, b_row, b_step, c, c_row, add, bias, relu, m, n, k };
                self.call(shape, &product);
            }
        }
    }
}
