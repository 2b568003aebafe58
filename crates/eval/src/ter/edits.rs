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

/// The distances between all beginnings of a hypothesis and of a reference.
#[derive(Debug, Clone)]
pub(super) struct Distances<'a> {
    reference: &'a [u32],
    hypothesis: Vec<u32>,
    /// A row of `reference.len() + 1` cells for every beginning of the hypothesis.
    cells: Vec<Cell>,
}

impl<'a> Distances<'a> {
    /// Between these words.
    pub(super) fn new(hypothesis: &[u32], reference: &'a [u32]) -> Self {
        let mut cells = vec![(UNREACHED, Edit::Insert); (hypothesis.len() + 1) * (reference.len() + 1)];
        for (column, cell) in cells[..=reference.len()].iter_mut().enumerate() {
            cell.0 = column as u32;
        }
        let mut distances = Self { reference, hypothesis: hypothesis.to_vec(), cells };
        distances.fill(0);
        distances
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
        let (rows, width) = (self.hypothesis.len(), self.reference.len() + 1);
        let ratio = if rows == 0 { 1.0 } else { self.reference.len() as f64 / rows as f64 };
        let beam = if (BEAM_WIDTH as f64) < ratio / 2.0 {
            (ratio / 2.0 + BEAM_WIDTH as f64).ceil() as usize
        } else {
            BEAM_WIDTH
        };
        for row in from + 1..=rows {
            let diagonal = (row as f64 * ratio).floor() as usize;
            let start = diagonal.saturating_sub(beam);
            let end = if row == rows { width } else { width.min(diagonal + beam) };
            let (above, below) = self.cells.split_at_mut(row * width);
            let (above, below) = (&above[(row - 1) * width..], &mut below[..width]);
            below.fill((UNREACHED, Edit::Insert));
            for column in start..end {
                below[column] = match column.checked_sub(1) {
                    None => (above[0].0 + 1, Edit::Delete),
                    Some(left) => {
                        let equal = self.hypothesis[row - 1] == self.reference[left];
                        let pair = if equal { (0, Edit::Keep) } else { (1, Edit::Substitute) };
                        // Of equal costs the first counts.
                        let mut best = (above[left].0 + pair.0, pair.1);
                        for other in [(above[column].0 + 1, Edit::Delete), (below[left].0 + 1, Edit::Insert)]
                        {
                            if other.0 < best.0 {
                                best = other;
                            }
                        }
                        (best.0.min(UNREACHED), best.1)
                    }
                };
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
            let edit = self.cells[row * (self.reference.len() + 1) + column].1;
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
