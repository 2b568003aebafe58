//! Edit distance near the diagonal, which can start over from any word of the hypothesis.

/// Columns on either side of the diagonal that are looked at.
const BEAM_WIDTH: usize = 25;
/// The cost of a cell outside the beam.
const UNREACHED: u32 = u32::MAX / 2;

/// One step of the way from hypothesis to reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    /// The words are equal.
    Keep,
    /// One word for another.
    Substitute,
    /// A word of the reference that the hypothesis lacks.
    Insert,
    /// A word of the hypothesis too many.
    Delete,
}

type Cell = (u32, Edit);

/// A cell outside the beam.
const OUTSIDE: Cell = (UNREACHED, Edit::Insert);

/// Cells of a row that are looked at.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// Column of the first.
    start: usize,
    /// Place of the first among all cells.
    offset: usize,
}

/// The distances between all beginnings of a hypothesis and of a reference, as far as they lie near the diagonal. Their
/// number grows with the words of both, not with the product.
#[derive(Debug, Clone)]
pub(super) struct Distances<'a> {
    reference: &'a [u32],
    hypothesis: Vec<u32>,
    /// A span for every beginning of the hypothesis, and the end of the last.
    spans: Vec<Span>,
    cells: Vec<Cell>,
}

impl<'a> Distances<'a> {
    /// Between these words.
    pub(super) fn new(hypothesis: &[u32], reference: &'a [u32]) -> Self {
        let (rows, width) = (hypothesis.len(), reference.len() + 1);
        let ratio = if rows == 0 { 1.0 } else { reference.len() as f64 / rows as f64 };
        let beam = if (BEAM_WIDTH as f64) < ratio / 2.0 {
            (ratio / 2.0 + BEAM_WIDTH as f64).ceil() as usize
        } else {
            BEAM_WIDTH
        };
        let mut spans = vec![Span { start: 0, offset: 0 }];
        let mut offset = width;
        for row in 1..=rows {
            let diagonal = (row as f64 * ratio).floor() as usize;
            let start = diagonal.saturating_sub(beam);
            let end = if row == rows { width } else { width.min(diagonal + beam) };
            spans.push(Span { start, offset });
            offset += end.saturating_sub(start);
        }
        spans.push(Span { start: 0, offset });
        let mut cells = vec![OUTSIDE; offset];
        for (column, cell) in cells[..width].iter_mut().enumerate() {
            cell.0 = column as u32;
        }
        let mut distances = Self { reference, hypothesis: hypothesis.to_vec(), spans, cells };
        distances.fill(0);
        distances
    }

    /// A cell; outside the beam, one that is not reached.
    fn cell(&self, row: usize, column: usize) -> Cell {
        let Span { start, offset } = self.spans[row];
        let place = column.checked_sub(start).map(|place| offset + place);
        place.filter(|&place| place < self.spans[row + 1].offset).map_or(OUTSIDE, |place| self.cells[place])
    }

    /// The hypothesis.
    pub(super) fn hypothesis(&self) -> &[u32] {
        &self.hypothesis
    }

    /// The number of edits.
    pub(super) fn total(&self) -> u32 {
        self.cells.last().map_or(0, |cell| cell.0)
    }

    /// Replaces the hypothesis by another one of the same length; what they have in common at the beginning is not
    /// computed again.
    pub(super) fn rewrite(&mut self, hypothesis: &[u32]) {
        let common = self.hypothesis.iter().zip(hypothesis).take_while(|(old, new)| old == new).count();
        self.hypothesis.copy_from_slice(hypothesis);
        self.fill(common);
    }

    /// Computes the rows after the first `from` words.
    fn fill(&mut self, from: usize) {
        for row in from + 1..=self.hypothesis.len() {
            let Span { start, offset } = self.spans[row];
            let mut left_cell = OUTSIDE;
            for place in offset..self.spans[row + 1].offset {
                let column = start + place - offset;
                let above = self.cell(row - 1, column);
                let cell = match column.checked_sub(1) {
                    None => (above.0 + 1, Edit::Delete),
                    Some(left) => {
                        let equal = self.hypothesis[row - 1] == self.reference[left];
                        let pair = if equal { (0, Edit::Keep) } else { (1, Edit::Substitute) };
                        // Of equal costs the first counts.
                        let mut best = (self.cell(row - 1, left).0 + pair.0, pair.1);
                        for other in [(above.0 + 1, Edit::Delete), (left_cell.0 + 1, Edit::Insert)] {
                            if other.0 < best.0 {
                                best = other;
                            }
                        }
                        (best.0.min(UNREACHED), best.1)
                    }
                };
                (self.cells[place], left_cell) = (cell, cell);
            }
        }
    }

    /// The edits, last one first.
    pub(super) fn backwards(&self) -> impl Iterator<Item = Edit> {
        let (mut row, mut column) = (self.hypothesis.len(), self.reference.len());
        std::iter::from_fn(move || {
            if row == 0 && column == 0 {
                return None;
            }
            let edit = self.cell(row, column).1;
            let (up, left) = match edit {
                Edit::Keep | Edit::Substitute => (1, 1),
                Edit::Insert => (0, 1),
                Edit::Delete => (1, 0),
            };
            row = row.checked_sub(up)?;
            column = column.checked_sub(left)?;
            Some(edit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 0.1 needed 12 GB for these.
    #[test]
    fn long_lines_need_little_memory() {
        let words: Vec<u32> = (0..40_000).collect();
        let distances = Distances::new(&words, &words[1..]);
        assert_eq!(distances.total(), 1);
        assert!(distances.cells.len() < 60 * words.len());
        let few = Distances::new(&words[..3], &words);
        assert!(few.cells.len() < 5 * words.len());
    }
}
