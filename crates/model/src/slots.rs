//! Places in the memory of a search: sentences that are searched own a number and a run of rows.

use std::collections::BTreeMap;

/// Numbers and rows of the sentences of a search.
pub(crate) struct Slots {
    /// First row and number of rows of the sentence that has a number.
    taken: Vec<Option<(usize, usize)>>,
    /// Taken runs: number of rows by first row.
    runs: BTreeMap<usize, usize>,
    rows: usize,
}

impl Slots {
    /// Nothing is taken.
    pub(crate) fn new(sentences: usize, rows: usize) -> Self {
        Self { taken: vec![None; sentences], runs: BTreeMap::new(), rows }
    }

    /// How many of the first sentences of these lengths can be placed now.
    pub(crate) fn fitting(&self, lengths: &[usize]) -> usize {
        let mut trial = Self { taken: self.taken.clone(), runs: self.runs.clone(), rows: self.rows };
        lengths.iter().take_while(|&&length| trial.take(length).is_some()).count()
    }

    /// Takes the lowest free number and the first run of free rows that is long enough.
    pub(crate) fn take(&mut self, length: usize) -> Option<(u32, usize)> {
        let number = self.taken.iter().position(Option::is_none)?;
        let mut first = 0;
        for (&start, &count) in &self.runs {
            if first + length <= start {
                break;
            }
            first = start + count;
        }
        if first + length > self.rows {
            return None;
        }
        self.taken[number] = Some((first, length));
        if length > 0 {
            self.runs.insert(first, length);
        }
        Some((number as u32, first))
    }

    /// Frees what belongs to none of these sentences.
    pub(crate) fn keep(&mut self, sentences: &[u32]) {
        let mut alive = vec![false; self.taken.len()];
        sentences.iter().for_each(|&sentence| alive[sentence as usize] = true);
        for (place, alive) in self.taken.iter_mut().zip(alive) {
            if let Some((first, _)) = place.take_if(|_| !alive) {
                self.runs.remove(&first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_places_are_used_again() {
        let mut slots = Slots::new(3, 10);
        assert_eq!(slots.take(4), Some((0, 0)));
        assert_eq!(slots.take(3), Some((1, 4)));
        assert_eq!([slots.fitting(&[3]), slots.fitting(&[4]), slots.fitting(&[1, 1])], [1, 0, 1]);
        slots.keep(&[1, 1]);
        assert_eq!([slots.fitting(&[4, 3]), slots.fitting(&[5])], [2, 0]);
        assert_eq!(slots.take(2), Some((0, 0)));
        assert_eq!(slots.take(2), Some((2, 2)));
        assert_eq!(slots.take(1), None, "there is no number left");
        slots.keep(&[]);
        assert_eq!(slots.take(10), Some((0, 0)));
        assert_eq!(slots.take(1), None);
    }
}
