//! What hypotheses have left behind on the CPU: a row for each step, kept once for all that descend from it, and only as
//! long as there are some.

use super::kept::Kept;
use crate::Device;
use crate::cuda::memory::Dtype;
use crate::device::Buffer;

/// The rows of each hypothesis. A row that nobody descends from any more is the next one's.
#[derive(Default)]
pub(super) struct Ancestors {
    /// Numbers of the rows of each hypothesis, one for each of its steps, the newest last.
    rows: Vec<Vec<u32>>,
    /// For each number, whether some hypothesis has it.
    taken: Vec<bool>,
}

impl Ancestors {
    /// The rows of a hypothesis, the newest last.
    pub(super) fn of(&self, hypothesis: usize) -> &[u32] {
        &self.rows[hypothesis]
    }

    /// A number above all rows that there are.
    pub(super) fn end(&self) -> usize {
        self.taken.len()
    }

    /// New hypothesis i descends from old hypothesis `parents[i]`; those not named leave.
    pub(super) fn reorder(&mut self, parents: &[u32]) {
        self.rows = parents.iter().map(|&parent| self.rows[parent as usize].clone()).collect();
        self.taken.fill(false);
        self.rows.iter().flatten().for_each(|&row| self.taken[row as usize] = true);
        self.taken.truncate(self.taken.iter().rposition(|taken| *taken).map_or(0, |last| last + 1));
    }

    /// Hypotheses without a past come after the present ones, up to `count` in all.
    pub(super) fn begin(&mut self, count: usize) {
        self.rows.resize(count, Vec::new());
    }

    /// Each hypothesis takes a step: it gets the lowest number that nobody has.
    pub(super) fn advance(&mut self) {
        let mut number = 0;
        for rows in &mut self.rows {
            number += self.taken[number..].iter().take_while(|taken| **taken).count();
            if number == self.taken.len() {
                self.taken.push(true);
            }
            self.taken[number] = true;
            rows.push(number as u32);
        }
    }
}

/// Rows of a block.
const BLOCK: usize = 64;

/// Values of the rows of [`Ancestors`], by their numbers. They lie in blocks, so that more rows move nothing.
pub(super) struct RowStore {
    dtype: Dtype,
    width: usize,
    blocks: Vec<Buffer>,
}

impl RowStore {
    /// Nothing yet, for rows of `width` values of this type.
    pub(super) fn new(dtype: Dtype, width: usize) -> Self {
        Self { dtype, width, blocks: Vec::new() }
    }

    /// Type of the values.
    pub(super) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Keeps the newest row of each hypothesis, rounded to the type of the store. Blocks are added and dropped, so that
    /// there are as many as are needed.
    pub(super) fn put<'a>(
        &mut self,
        device: &Device,
        ancestors: &Ancestors,
        newest: impl IntoIterator<Item = &'a [f32]>,
    ) {
        let blocks = ancestors.end().div_ceil(BLOCK);
        self.blocks.truncate(blocks);
        self.blocks.resize_with(blocks, || device.scratch_of(self.dtype, BLOCK * self.width));
        for (rows, values) in ancestors.rows.iter().zip(newest) {
            let row = *rows.last().expect("a step was taken") as usize;
            self.blocks[row / BLOCK].write(row % BLOCK * self.width, values);
        }
    }

    /// A row; `T` is the type of the store.
    #[inline]
    pub(super) fn row<T: Kept>(&self, row: u32) -> &[T] {
        let row = row as usize;
        &T::all(&self.blocks[row / BLOCK])[row % BLOCK * self.width..][..self.width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::panels::Half;

    #[test]
    fn rows_are_kept_as_long_as_somebody_descends_from_them() {
        two_beams_of_two::<f32>(Dtype::F32);
        two_beams_of_two::<Half>(Dtype::Bf16);
    }

    /// Rows that both hypotheses of a beam descend from are kept once, and those of hypotheses that have left are used
    /// again.
    fn two_beams_of_two<T: Kept>(dtype: Dtype) {
        let device = Device::cpu();
        let (mut ancestors, mut store) = (Ancestors::default(), RowStore::new(dtype, 1));
        let mut step = |ancestors: &mut Ancestors, values: &[f32]| {
            ancestors.advance();
            store.put(&device, ancestors, values.chunks(1));
            let past = |rows: &Vec<u32>| rows.iter().map(|&row| store.row::<T>(row)[0].get()).collect();
            ancestors.rows.iter().map(past).collect::<Vec<Vec<f32>>>()
        };
        ancestors.begin(2);
        assert_eq!(step(&mut ancestors, &[1.0, 2.0]), [[1.0], [2.0]]);
        ancestors.reorder(&[0, 0, 1, 1]);
        let want = [[1.0, 3.0], [1.0, 4.0], [2.0, 5.0], [2.0, 6.0]];
        assert_eq!(step(&mut ancestors, &[3.0, 4.0, 5.0, 6.0]), want);
        assert_eq!(ancestors.end(), 6);
        // The rows of 3 and 6 are free.
        ancestors.reorder(&[1, 1, 2, 2]);
        let want = [[1.0, 4.0, 7.0], [1.0, 4.0, 8.0], [2.0, 5.0, 9.0], [2.0, 5.0, 10.0]];
        assert_eq!(step(&mut ancestors, &[7.0, 8.0, 9.0, 10.0]), want);
        assert_eq!(ancestors.end(), 8);
        // A sentence leaves, another begins.
        ancestors.reorder(&[3]);
        ancestors.begin(2);
        assert_eq!(step(&mut ancestors, &[11.0, 12.0]), [vec![2.0, 5.0, 10.0, 11.0], vec![12.0]]);
        ancestors.reorder(&[]);
        assert_eq!(ancestors.end(), 0);
    }

    #[test]
    fn blocks_come_and_go() {
        blocks_of::<f32>(Dtype::F32);
        blocks_of::<Half>(Dtype::Bf16);
    }

    fn blocks_of<T: Kept>(dtype: Dtype) {
        let device = Device::cpu();
        let (mut ancestors, mut store) = (Ancestors::default(), RowStore::new(dtype, 3));
        let rows = |count: usize| (0..count).map(|i| vec![i as f32; 3]).collect::<Vec<_>>();
        for (count, blocks) in [(BLOCK, 1), (2 * BLOCK + 1, 3), (1, 1)] {
            ancestors.reorder(&[]);
            ancestors.begin(count);
            ancestors.advance();
            store.put(&device, &ancestors, rows(count).iter().map(Vec::as_slice));
            assert_eq!(store.blocks.len(), blocks);
            let last: Vec<f32> = store.row::<T>(count as u32 - 1).iter().map(|value| value.get()).collect();
            assert_eq!(last, [count as f32 - 1.0; 3]);
        }
    }
}
