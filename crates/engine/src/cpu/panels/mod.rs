//! Matrices of f32, bf16 or whole numbers in strips of 16 rows, and products `Y = X·Wᵀ` with them: packed once, when a
//! model is loaded, they run at the speed of large products for any number of rows. A strip is read from its begin to its
//! end, by all kernels. Four strips are a panel, the least that a task computes.
//!
//! Every value of Y is summed in the order of the columns, by one fused addition after the other. So a row of Y depends
//! on its row of X and on W only: neither on the number of rows, nor on the threads, nor on the instructions of the
//! processor. All kernels give the same bits, and a product with bf16 those of a product with the same numbers in f32.

mod factors;
mod fixed;
mod kernel;
mod parts;
#[cfg(test)]
mod tests;
mod whole;

use std::ops::Range;

use bytemuck::TransparentWrapper;
pub(crate) use fixed::FixedMatrix;
pub(crate) use parts::{Output, for_parts};
use rayon::prelude::*;
pub(crate) use whole::{Byte, ThreeBytes};

use super::gemm::meter;
use super::gemm::streamed::Weight;
use super::gemm::streamed::kernel::{LANES, MAX_ROWS};
use super::lines::{Lines, Plain};
use super::order::{self, Strips};
use crate::device::to_bf16;

/// Rows of W, columns of Y, that a task computes at least.
pub(crate) const PANEL: usize = 64;
/// Products below this number of multiplications are not worth a second thread.
const SMALL: usize = 1 << 17;

/// A number type of weights.
pub(crate) trait Number: Weight {
    /// The nearest number of this type.
    fn round(value: f32) -> Self;
}

impl Number for f32 {
    fn round(value: f32) -> Self {
        value
    }
}

/// bfloat16: the upper half of an f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Half(u16);

// SAFETY: a struct of one field, and transparent.
unsafe impl TransparentWrapper<u16> for Half {}

impl Number for Half {
    fn round(value: f32) -> Self {
        Self(to_bf16(value))
    }
}

impl Weight for Half {
    #[inline(always)]
    unsafe fn load<L: super::gemm::streamed::kernel::Lanes>(at: *const Self) -> L {
        // SAFETY: the caller answers for values and instructions, and a half is a number of 16 bits.
        unsafe { L::widen(at.cast()) }
    }

    #[inline(always)]
    fn get(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: bytes, of any bits.
unsafe impl Plain for Line {}

/// A matrix `[rows, cols]` in strips: column after column of 16 rows, and strips up to a whole panel.
#[derive(Clone)]
pub(crate) struct Panels<W> {
    rows: usize,
    cols: usize,
    lines: Lines<Line>,
    numbers: std::marker::PhantomData<W>,
}

impl<W: Number> Panels<W> {
    /// Zeros.
    pub(crate) fn zeros([rows, cols]: [usize; 2]) -> Self {
        let bytes = rows.next_multiple_of(PANEL) * cols * size_of::<W>();
        Self { rows, cols, lines: Lines::zeros(bytes / 64), numbers: std::marker::PhantomData }
    }

    fn count(&self) -> usize {
        self.rows.next_multiple_of(PANEL) * self.cols
    }

    /// All values, strip after strip.
    fn values(&self) -> &[W] {
        // SAFETY: the lines hold `count` values of a type that any bits are valid for (f32, a half, three bytes or one), and a
        // line is aligned for them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.count()) }
    }

    fn values_mut(&mut self) -> &mut [W] {
        let count = self.count();
        // SAFETY: as above; the lines are borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), count) }
    }

    /// Place of the first value of a row; the others follow at a distance of 16.
    fn place(&self, row: usize) -> usize {
        row / LANES * LANES * self.cols + row % LANES
    }

    /// Rounds rows of numbers, from row `first` on.
    pub(crate) fn set(&mut self, first: usize, values: &[f32]) {
        let cols = self.cols;
        for (i, values) in values.chunks_exact(cols).enumerate() {
            let place = self.place(first + i);
            let stored = self.values_mut()[place..].iter_mut().step_by(LANES);
            stored.zip(values).for_each(|(stored, &value)| *stored = W::round(value));
        }
    }

    /// The numbers of a row.
    pub(crate) fn row(&self, row: usize, values: &mut [f32]) {
        let stored = self.values()[self.place(row)..].iter().step_by(LANES);
        values.iter_mut().zip(stored).for_each(|(value, stored)| *value = stored.get());
    }

    /// A matrix of some of the rows, in this order.
    pub(crate) fn select(&self, rows: &[u32]) -> Self {
        let (mut selected, cols) = (Self::zeros([rows.len(), self.cols]), self.cols);
        if cols == 0 {
            return selected;
        }
        let strips = selected.values_mut().par_chunks_mut(LANES * cols).zip(rows.par_chunks(LANES));
        strips.for_each(|(strip, rows)| {
            for (i, &row) in rows.iter().enumerate() {
                let stored = self.values()[self.place(row as usize)..].iter().step_by(LANES);
                strip[i..].iter_mut().step_by(LANES).zip(stored).for_each(|(value, stored)| *value = *stored);
            }
        });
        selected
    }

    /// `Y[m,n] = X[m,k]·Wᵀ`, `m` rows.
    pub(crate) fn product(&self, m: usize, x: &[f32], y: &mut [f32]) {
        self.product_by(kernel::fastest(), m, x, y);
    }

    fn product_by(&self, kernel: Kernel<W>, m: usize, x: &[f32], y: &mut [f32]) {
        let product = Product::new(self, kernel, m, x, y);
        let _metered = meter::start(2 * product.size);
        let next = order::after(m, self.strips());
        for_parts(
            (m, [product.panels()]),
            product.size < SMALL,
            || {},
            |_, rows, panels| {
                // SAFETY: `kernel` is one that this processor has, and the parts do not overlap.
                unsafe { product.compute(rows, panels, next) }
            },
        );
    }

    /// The same with two matrices of as many rows of X each, both at once. `last` is called when the second one begins:
    /// what it asks the cache for is there at the end.
    pub(crate) fn products<V: Number>(
        (w, v): (&Self, &Panels<V>),
        m: usize,
        x: [&[f32]; 2],
        [y, z]: [&mut [f32]; 2],
        last: impl Fn() + Sync,
    ) {
        let (one, other) =
            (Product::new(w, kernel::fastest(), m, x[0], y), Product::new(v, kernel::fastest(), m, x[1], z));
        let size = one.size + other.size;
        let _metered = meter::start(2 * size);
        let (panels, next) = ([one.panels(), other.panels()], order::after(m, w.strips()));
        for_parts((m, panels), size < SMALL, last, |i, rows, panels| {
            // SAFETY: the kernels are some that this processor has, and the parts do not overlap.
            unsafe {
                match i {
                    0 => one.compute(rows, panels, Some(v.strips())),
                    _ => other.compute(rows, panels, next),
                }
            }
        });
    }

    fn strips(&self) -> Strips {
        Strips::new(self.values().as_ptr(), self.cols * LANES)
    }
}

/// A product, part by part.
struct Product<'a, W> {
    w: &'a Panels<W>,
    kernel: Kernel<W>,
    x: &'a [f32],
    y: Output,
    /// Number of multiplications.
    size: usize,
}

impl<'a, W: Number> Product<'a, W> {
    fn new(w: &'a Panels<W>, kernel: Kernel<W>, m: usize, x: &'a [f32], y: &'a mut [f32]) -> Self {
        let [n, k] = [w.rows, w.cols];
        assert!(x.len() == m * k && y.len() == m * n, "product of {m}x{n}x{k}");
        Self { w, kernel, x, y: Output(y.as_mut_ptr()), size: m * n * k }
    }

    fn panels(&self) -> usize {
        self.w.rows.div_ceil(PANEL)
    }

    /// Computes some rows and panels; `next` are the strips that are read next, where they are known.
    ///
    /// # Safety
    ///
    /// The processor has the kernel's instructions; rows and panels lie inside the product, and nobody else computes them.
    unsafe fn compute(&self, rows: Range<usize>, panels: Range<usize>, next: Option<Strips>) {
        let Self { w, kernel, x, y, .. } = *self;
        let part = Part { x, w: w.values(), next, k: w.cols, n: w.rows, rows, panels, y };
        // SAFETY: the caller answers for the processor and the part; the sizes of the slices have been checked.
        unsafe { kernel(&part) }
    }
}

/// A part of Y: some of its rows, and the columns of some panels.
struct Part<'a, W> {
    x: &'a [f32],
    /// All strips.
    w: &'a [W],
    /// Those of the matrix that is read next, where it is known.
    next: Option<Strips>,
    /// Values of a row of X and of W.
    k: usize,
    /// Values of a row of Y.
    n: usize,
    rows: Range<usize>,
    panels: Range<usize>,
    y: Output,
}

/// Computes a part. Unsafe because the processor must have its instructions.
type Kernel<W> = unsafe fn(&Part<'_, W>);
