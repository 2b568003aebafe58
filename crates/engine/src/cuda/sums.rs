//! Sums of gradients: contributions of several ops to one value, and sums over the rows of a matrix, which a backward
//! pass collects and finishes together.

use std::sync::Arc;

use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernel_struct, kernels};
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Ptr};
use crate::device::Buffer;

/// Runs of eight columns of a block of the first stage; columns of a block of the last; threads that share each.
const SUM_RUNS: usize = 32;
const SUM_COLUMNS: usize = 32;
const SUM_LANES: usize = 8;
/// Matrices that one launch sums in the first stage, and sums of one launch in the last.
const MATRICES_PER_LAUNCH: usize = 8;
const SUMS_PER_LAUNCH: usize = 64;
/// Parts of the rows at most that are summed by themselves. Their number decides the order of sums, and is the same on
/// every GPU.
pub(crate) const MOST_PARTS: usize = 100;

kernel_struct! {
    /// A matrix whose columns are to be summed into partial sums.
    struct RowSum {
        values: *const Act,
        partials: *mut f32,
        rows: u32,
        cols: u32,
        rows_per_part: u32,
    }
}

kernel_struct! {
    /// Matrices of one launch.
    struct RowSums {
        job: [RowSum; MATRICES_PER_LAUNCH],
    }
}

kernel_struct! {
    /// A sum of rows of partial sums that is still to be made: `out[c] (+)= Σ_p partials[p·stride + c]`.
    pub(crate) struct ColumnSum {
        partials: *const f32,
        out: *mut f32,
        parts: u32,
        cols: u32,
        stride: u32,
        add: u32,
    }
}

kernel_struct! {
    /// Sums of one launch.
    struct ColumnJobs {
        job: [ColumnSum; SUMS_PER_LAUNCH],
        count: u32,
    }
}

kernels! {
    static FILE = "sums" at "sums.cu",
        constants [SUM_RUNS, SUM_COLUMNS, SUM_LANES, MATRICES_PER_LAUNCH, SUMS_PER_LAUNCH];

    struct Add = add { total: *mut Act, values: *const Act, n: u64 }
    struct AddFloat = add_float { total: *mut f32, values: *const f32, n: u64 }
    /// First stage: partial sums of the columns of several matrices.
    struct SumRows = sum_rows { jobs: RowSums }
    /// Last stage: sums of partial sums.
    struct ReduceColumns = reduce_columns { jobs: ColumnJobs }
}

/// `total += values`.
pub(crate) fn add(gpu: &Arc<Gpu>, total: &mut Buffer, values: &Buffer) {
    assert_eq!((total.count(), total.dtype()), (values.count(), values.dtype()));
    let (shape, n) = (Shape::over_values(total.count()), total.count() as u64);
    let is_act = total.dtype() == gpu.act();
    let (total, values) = (total.ptr(), values.ptr());
    match is_act {
        true => gpu.call(shape, &Add { total, values, n }),
        false => gpu.call(shape, &AddFloat { total, values, n }),
    }
}

impl ColumnSum {
    pub(crate) fn new(partials: Ptr, out: Ptr, [parts, cols, stride]: [usize; 3], add: u32) -> Self {
        Self { partials, out, parts: parts as u32, cols: cols as u32, stride: stride as u32, add }
    }
}

/// Sums over the rows of a gradient that its writer has made, as partial sums of parts of the rows.
pub(crate) struct KnownSums {
    /// Partial sums, these among them.
    pub(crate) partials: Arc<Buffer>,
    /// Where these begin.
    pub(crate) at: Ptr,
    /// Parts, columns, and values from one part to the next.
    pub(crate) size: [usize; 3],
}

/// Matrices that wait are summed while the GPU still has them in its cache.
const WAITING_BYTES: usize = 40 << 20;

/// A matrix that waits for its columns to be summed into `target`.
struct Waiting {
    values: Arc<Buffer>,
    /// Rows, columns, and values from one row to the next.
    size: [usize; 3],
    target: Ptr,
    add: u32,
}

/// All sums of a backward pass; made together at its end, because each alone is too small to fill a GPU.
#[derive(Default)]
pub(crate) struct ColumnSums {
    sums: Vec<ColumnSum>,
    /// The partial sums; held until the sums are made.
    held: Vec<Arc<Buffer>>,
    blocks: Vec<Block>,
    waiting: Vec<Waiting>,
}

impl ColumnSums {
    /// The sums of the columns of a matrix `[rows, cols]` of activations, which is held on to for a while.
    pub(crate) fn push_rows(
        &mut self,
        gpu: &Arc<Gpu>,
        values: Arc<Buffer>,
        [rows, cols]: [usize; 2],
        target: Ptr,
        add: u32,
    ) {
        self.push_pitched_rows(gpu, values, [rows, cols, cols], target, add);
    }

    /// The same for rows that are some values apart; what lies between them is summed, too, and not looked at.
    pub(crate) fn push_pitched_rows(
        &mut self,
        gpu: &Arc<Gpu>,
        values: Arc<Buffer>,
        size: [usize; 3],
        target: Ptr,
        add: u32,
    ) {
        if target != Ptr::NULL {
            self.waiting.push(Waiting { values, size, target, add });
            let bytes: usize =
                self.waiting.iter().map(|waiting| waiting.values.count() * gpu.act().size()).sum();
            if self.waiting.len() == MATRICES_PER_LAUNCH || bytes > WAITING_BYTES {
                self.sum_waiting(gpu);
            }
        }
    }

    fn sum_waiting(&mut self, gpu: &Arc<Gpu>) {
        let nothing = RowSum { values: Ptr::NULL, partials: Ptr::NULL, rows: 0, cols: 0, rows_per_part: 1 };
        let mut jobs = RowSums { job: [nothing; MATRICES_PER_LAUNCH] };
        let (mut most_cols, mut most_parts) = (0, 0);
        let waiting = std::mem::take(&mut self.waiting);
        for (matrix, sum) in waiting.iter().zip(&mut jobs.job) {
            let [rows, cols, pitch] = matrix.size;
            let rows_per_part = 64 * rows.div_ceil(64 * MOST_PARTS).max(2);
            let parts = rows.div_ceil(rows_per_part);
            let partials = Block::new(gpu, 4 * parts * pitch);
            *sum = RowSum {
                values: matrix.values.ptr(),
                partials: partials.ptr(),
                rows: rows as u32,
                cols: pitch as u32,
                rows_per_part: rows_per_part as u32,
            };
            (most_cols, most_parts) = (most_cols.max(pitch), most_parts.max(parts));
            self.sums.push(ColumnSum::new(partials.ptr(), matrix.target, [parts, cols, pitch], matrix.add));
            self.blocks.push(partials);
        }
        let shape = Shape {
            grid: [most_cols.div_ceil(8 * SUM_RUNS) as u32, most_parts as u32, waiting.len() as u32],
            ..Shape::of(1, (SUM_LANES * SUM_RUNS) as u32)
        };
        gpu.call(shape, &SumRows { jobs });
    }

    /// A sum over partial sums that exist already.
    pub(crate) fn push(&mut self, gpu: &Arc<Gpu>, sum: ColumnSum, partials: impl Into<Arc<Buffer>>) {
        self.push_also(gpu, sum);
        self.held.push(partials.into());
    }

    /// A second sum over partials that are pushed as well.
    pub(crate) fn push_also(&mut self, gpu: &Arc<Gpu>, sum: ColumnSum) {
        // Sums into one target are made in the order in which they came.
        if self.waiting.iter().any(|waiting| waiting.target == sum.out) {
            self.sum_waiting(gpu);
        }
        if sum.out != Ptr::NULL {
            self.sums.push(sum);
        }
    }

    pub(crate) fn run(&mut self, gpu: &Arc<Gpu>) {
        if !self.waiting.is_empty() {
            self.sum_waiting(gpu);
        }
        for sums in launches(&self.sums) {
            let nothing = ColumnSum::new(Ptr::NULL, Ptr::NULL, [0; 3], 0);
            let mut jobs = ColumnJobs { job: [nothing; SUMS_PER_LAUNCH], count: sums.len() as u32 };
            jobs.job[..sums.len()].copy_from_slice(sums);
            let widest = sums.iter().map(|sum| sum.cols as usize).max().unwrap_or(0);
            let threads = (SUM_COLUMNS * SUM_LANES) as u32;
            let shape = Shape::grid([widest.div_ceil(SUM_COLUMNS), sums.len()], threads);
            gpu.call(shape, &ReduceColumns { jobs });
        }
        self.sums.clear();
        self.held.clear();
        self.blocks.clear();
    }
}

/// Cuts sums into launches. Two into one target, as of a parameter that is used twice, are never in one launch, where
/// they would race.
fn launches(sums: &[ColumnSum]) -> Vec<&[ColumnSum]> {
    let (mut launches, mut first) = (Vec::new(), 0);
    for at in 0..sums.len() {
        let own = &sums[first..at];
        if own.len() == SUMS_PER_LAUNCH || own.iter().any(|sum| sum.out == sums[at].out) {
            launches.push(own);
            first = at;
        }
    }
    if first < sums.len() {
        launches.push(&sums[first..]);
    }
    launches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_into_one_target_are_made_one_after_the_other() {
        let into = |out: u64| ColumnSum::new(Ptr::at(64), Ptr::at(out), [1, 8, 8], 0);
        let all = [into(1), into(2), into(1), into(3), into(3)];
        let sizes = |sums: &[ColumnSum]| launches(sums).iter().map(|launch| launch.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&all), [2, 2, 1]);
        let many: Vec<ColumnSum> = (1..=130).map(into).collect();
        assert_eq!(sizes(&many), [64, 64, 2]);
        assert!(launches(&[]).is_empty());
    }
}
