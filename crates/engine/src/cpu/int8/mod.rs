//! Matrices of 8-bit integers, and products with them, as CTranslate2 computes them.
//!
//! A row of W is whole numbers from −127 to 127 times a scale, the row's largest magnitude over 127. A product
//! `Y = X·Wᵀ` rounds each row of X in the same way and sums whole numbers, without error:
//! `y = (Σ x·w)·(scale of x · scale of w)`. So a row of Y depends on its row of X and on W only, and all kernels give
//! the same bits: AMX-INT8, AVX-512 VNNI, AVX2 and plain Rust.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
mod kernel;
mod layout;
mod nibbles;
mod quantise;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vnni;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;
use std::sync::OnceLock;

use super::LINE;
use super::gemm::meter;
use super::gemm::streamed::kernel::MAX_ROWS;
use super::lines::{Lines, Plain};
use super::order::{self, Strips};
use super::panels::{Output, PANEL, for_parts};
use layout::Layout;
use quantise::Form;
pub(crate) use quantise::Rounded;
pub use quantise::quantise_row;

/// Values of a row that are multiplied at a time, and that lie side by side.
const STEP: usize = 4;
/// Rows of W in a [`Line`].
const LANES: usize = 16;
/// Strips of a panel.
const STRIPS: usize = PANEL / LANES;
/// Rows are padded with zeros to a multiple of this.
const DEPTH: usize = 64;
/// Added to each value of X, which makes it a number without a sign.
const SHIFT: i32 = 128;
/// Products below this number of multiplications are not worth a second thread.
const SMALL: usize = 1 << 18;

/// Four values of 16 rows: a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([[i8; STEP]; LANES]);

// SAFETY: bytes, of any bits.
unsafe impl Plain for Line {}

/// A matrix of 8-bit integers with a scale for each row.
#[derive(Clone)]
pub struct Int8Matrix {
    rows: usize,
    cols: usize,
    layout: Layout,
    /// Strips of 16 rows: a line for each step of four columns.
    lines: Lines<Line>,
    /// Of each row, up to a multiple of 64.
    scales: Vec<f32>,
    /// 128·Σw of each row: what the shift of X adds to a sum.
    surplus: Vec<i32>,
    /// The lines in half the bytes, panel by panel, where [`Int8Matrix::coarse`] has made them, else none.
    nibbles: Lines<Line>,
}

impl Int8Matrix {
    /// Zeros.
    pub fn zeros(shape: [usize; 2]) -> Self {
        Self::zeros_as(fastest().layout, shape)
    }

    fn zeros_as(layout: Layout, [rows, cols]: [usize; 2]) -> Self {
        let panels = rows.div_ceil(PANEL);
        let lines = panels * STRIPS * cols.next_multiple_of(DEPTH) / STEP;
        let (scales, surplus) = (vec![0.0; panels * PANEL], vec![0; panels * PANEL]);
        Self { rows, cols, layout, lines: Lines::zeros(lines), scales, surplus, nibbles: Lines::zeros(0) }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values per row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Values per row with padding.
    fn depth(&self) -> usize {
        self.cols.next_multiple_of(DEPTH)
    }

    /// Lines of a strip.
    fn strip_lines(&self) -> usize {
        self.depth() / STEP
    }

    /// Number of panels.
    fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// Address of a panel's first line; the others follow.
    fn panel(&self, panel: usize) -> *const Line {
        self.lines[panel * STRIPS * self.strip_lines()..].as_ptr()
    }

    /// True if products with `few` rows or with more of them read lines that two share.
    fn in_nibbles(&self, few: bool) -> bool {
        few && !self.nibbles.is_empty()
    }

    /// The strips that such products read, from the first one on.
    fn strips(&self, few: bool) -> Strips {
        let (first, layout) = match self.in_nibbles(few) {
            true => (self.nibbles.as_ptr(), Layout::Lines),
            false => (self.lines.as_ptr(), self.layout),
        };
        let [apart, step] = layout.steps(self.strip_lines()).map(|lines| lines * LINE);
        Strips { first: first.cast(), apart, step }
    }

    /// Rounds rows of numbers, from row `first` on.
    pub fn set(&mut self, first: usize, values: &[f32]) {
        let mut rounded = vec![0; self.cols];
        for (i, values) in values.chunks_exact(self.cols).enumerate() {
            let scale = quantise_row(values, &mut rounded);
            self.set_row(first + i, &rounded, scale);
        }
    }

    /// Sets rows, from row `first` on, to whole numbers from −127 to 127 and their scales.
    pub fn set_rounded(&mut self, first: usize, values: &[i8], scales: &[f32]) {
        for (i, (values, &scale)) in values.chunks_exact(self.cols).zip(scales).enumerate() {
            self.set_row(first + i, values, scale);
        }
    }

    fn set_row(&mut self, row: usize, values: &[i8], scale: f32) {
        let (places, lane) = self.place(row);
        for (place, values) in places.zip(values.chunks(STEP)) {
            self.lines[place].0[lane][..values.len()].copy_from_slice(values);
        }
        self.scales[row] = scale;
        self.surplus[row] = SHIFT * values.iter().map(|&v| i32::from(v)).sum::<i32>();
    }

    /// Whole numbers of a row, and their scale.
    pub fn rounded(&self, row: usize, values: &mut [i8]) -> f32 {
        assert!(row < self.rows && values.len() == self.cols, "row {row} of {}x{}", self.rows, self.cols);
        let (places, lane) = self.place(row);
        for (place, values) in places.zip(values.chunks_mut(STEP)) {
            values.copy_from_slice(&self.lines[place].0[lane][..values.len()]);
        }
        self.scales[row]
    }

    /// A matrix of some of the rows, in this order.
    pub fn select(&self, rows: &[u32]) -> Self {
        let mut selected = Self::zeros_as(self.layout, [rows.len(), self.cols]);
        let mut values = vec![0; self.cols];
        for (i, &row) in rows.iter().enumerate() {
            let scale = self.rounded(row as usize, &mut values);
            selected.set_row(i, &values, scale);
        }
        selected
    }

    /// The numbers of a row.
    pub fn row(&self, row: usize, values: &mut [f32]) {
        assert!(row < self.rows && values.len() == self.cols, "row {row} of {}x{}", self.rows, self.cols);
        let ((places, lane), scale) = (self.place(row), self.scales[row]);
        for (place, values) in places.zip(values.chunks_mut(STEP)) {
            let stored = values.iter_mut().zip(&self.lines[place].0[lane]);
            stored.for_each(|(value, whole)| *value = f32::from(*whole) * scale);
        }
    }

    /// `Y[m,n] = X[m,k]·Wᵀ`, `m` rows.
    pub fn product(&self, m: usize, x: &[f32], y: &mut [f32]) {
        let x = Rounded::new([m, self.cols], x);
        Self::products([self], &x, [y], || {});
    }

    /// The same with several matrices of as many columns, all at once. `last` is called when the last one begins: what it
    /// asks the cache for is there at the end.
    pub(crate) fn products<const N: usize>(
        all: [&Self; N],
        x: &Rounded,
        y: [&mut [f32]; N],
        last: impl Fn() + Sync,
    ) {
        let &Rounded { kernel, m, k, .. } = x;
        let columns = all.iter().map(|w| w.rows).sum::<usize>();
        for (w, y) in all.iter().zip(&y) {
            let n = w.rows;
            assert!(w.cols == k && y.len() == m * n, "int8 product of {m}x{n}x{k}");
            assert!(w.layout == kernel.layout, "a matrix for another kernel than that with {}", kernel.name);
        }
        if m == 0 || columns == 0 {
            return;
        }
        let _metered = meter::start(2 * m * columns * k);
        let (outputs, panels) = (y.map(|y| Output(y.as_mut_ptr())), all.map(Self::panels));
        let strips = all.map(|w| w.strips(m <= MAX_ROWS));
        let after = order::after(m, strips[0]);
        for_parts((m, panels), m * columns * k < SMALL, last, |i, rows, panels| {
            let (w, next, y) = (all[i], strips.get(i + 1).copied().or(after), outputs[i]);
            let nibbles_follow = all.get(i + 1).is_some_and(|w| w.in_nibbles(m <= MAX_ROWS));
            // SAFETY: `kernel` is one that this processor has; the sizes of the slices are checked above, and the parts
            // lie inside Y and do not overlap.
            unsafe { (kernel.compute)(&Part { x, w, rows, panels, next, nibbles_follow, y }) };
        });
    }
}

/// A part of Y: some of its rows, and the columns of some panels.
struct Part<'a> {
    x: &'a Rounded,
    w: &'a Int8Matrix,
    rows: Range<usize>,
    panels: Range<usize>,
    /// The strips that are read after those of this matrix, if they are known.
    next: Option<Strips>,
    /// True if those are nibbles.
    nibbles_follow: bool,
    y: Output,
}

impl Part<'_> {
    /// Columns of a panel that Y has.
    fn cols(&self, panel: usize) -> usize {
        PANEL.min(self.w.rows - panel * PANEL)
    }

    /// Address of the first value of a row of Y in a panel.
    ///
    /// # Safety
    ///
    /// Row and panel belong to the part.
    unsafe fn y(&self, row: usize, panel: usize) -> *mut f32 {
        // SAFETY: parts lie inside Y.
        unsafe { self.y.0.add(row * self.w.rows + panel * PANEL) }
    }
}

/// A way to compute parts.
#[derive(Clone, Copy)]
struct Kernel {
    /// Its instructions, in words.
    name: &'static str,
    /// What it reads of X.
    form: Form,
    /// What it reads of W.
    layout: Layout,
    /// Computes a part. Unsafe because the processor must have the instructions.
    compute: unsafe fn(&Part<'_>),
}

/// All kernels of this processor, the fastest first.
fn kernels() -> Vec<Kernel> {
    let mut all = Vec::new();
    #[cfg(target_arch = "x86_64")]
    all.extend(x86::kernels());
    all.push(Kernel {
        name: "plain Rust",
        form: Form::Shifted,
        layout: Layout::Strips,
        compute: kernel::portable,
    });
    all
}

fn fastest() -> Kernel {
    static FASTEST: OnceLock<Kernel> = OnceLock::new();
    *FASTEST.get_or_init(|| kernels()[0])
}

/// The instructions of products of 8-bit integers, in words.
pub fn instructions() -> &'static str {
    fastest().name
}
