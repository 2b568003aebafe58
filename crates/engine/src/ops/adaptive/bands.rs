//! Cuts of a vocabulary into bands, and ids sorted by band.

use std::ops::Range;
use std::sync::Arc;

use crate::{Device, Ids};

/// Cuts of a vocabulary: band b holds a range of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bands(Arc<[u32]>);

impl Bands {
    /// Bands that begin at 0 and at each of `cutoffs`, which rise and are below `types`, the size of the vocabulary.
    pub fn new(cutoffs: &[usize], types: usize) -> Self {
        let bounds: Arc<[u32]> = [0].iter().chain(cutoffs).chain([&types]).map(|&at| at as u32).collect();
        assert!(bounds.windows(2).all(|w| w[0] < w[1]), "bands: cutoffs {cutoffs:?} of {types} types");
        Self(bounds)
    }

    /// Number of bands.
    pub fn count(&self) -> usize {
        self.0.len() - 1
    }

    /// The ids of a band.
    pub fn range(&self, band: usize) -> Range<usize> {
        self.0[band] as usize..self.0[band + 1] as usize
    }

    /// Size of the vocabulary.
    pub fn types(&self) -> usize {
        self.0[self.count()] as usize
    }

    /// Number of `ids` in each band; what [`BandedIds::with_room`] must have room for.
    pub fn counts(&self, ids: &[u32]) -> Vec<usize> {
        let mut counts = vec![0; self.count()];
        ids.iter().for_each(|&id| counts[self.of(id)] += 1);
        counts
    }

    fn of(&self, id: u32) -> usize {
        assert!((id as usize) < self.types(), "id {id} is outside a vocabulary of {} types", self.types());
        self.0.partition_point(|&bound| bound <= id) - 1
    }
}

/// Ids `[N]` with the rows of each band.
#[derive(Clone, Debug)]
pub struct BandedIds {
    bands: Bands,
    /// Of each band: its rows, in order.
    rows: Vec<Ids>,
    /// Of each band: the ids of these rows, counted from the band's first.
    ids: Vec<Ids>,
    /// Targets of the head of an adaptive softmax, `[N]`: the id in band 0, behind these the number of the tail.
    head: Ids,
    /// Place of each row when the rows of all bands (with their room) lie end to end, `[N]`.
    places: Ids,
}

impl BandedIds {
    /// Sorts ids from the host.
    pub fn from_host(device: &Device, bands: &Bands, ids: &[u32]) -> Self {
        let mut banded = Self::with_room(device, bands, ids.len(), &bands.counts(ids));
        banded.load(ids);
        banded
    }

    /// Room for `len` ids, of which band b has at most `room[b]`; to be loaded.
    pub fn with_room(device: &Device, bands: &Bands, len: usize, room: &[usize]) -> Self {
        assert_eq!(room.len(), bands.count(), "one number of rows per band");
        let lists = || room.iter().map(|&count| Ids::with_room(device, count)).collect();
        let whole = || Ids::with_room(device, len);
        Self { bands: bands.clone(), rows: lists(), ids: lists(), head: whole(), places: whole() }
    }

    /// Takes other ids that fit. On a GPU the memory stays the same, so that captured passes see them; on the CPU
    /// bands have just the rows that there are.
    pub fn load(&mut self, ids: &[u32]) {
        let count = self.bands.count();
        let (mut rows, mut own) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        let (mut head, mut place_in_band) = (Vec::with_capacity(ids.len()), Vec::with_capacity(ids.len()));
        let words = self.bands.range(0).len();
        for (row, &id) in ids.iter().enumerate() {
            let band = self.bands.of(id);
            place_in_band.push((band, rows[band].len()));
            rows[band].push(row as u32);
            own[band].push(id - self.bands.range(band).start as u32);
            head.push(if band == 0 { id } else { (words + band - 1) as u32 });
        }
        for band in 0..count {
            self.rows[band].load(&rows[band]);
            self.ids[band].load(&own[band]);
        }
        let firsts: Vec<usize> = self
            .rows
            .iter()
            .scan(0, |next, rows| Some(std::mem::replace(next, *next + rows.len())))
            .collect();
        let places: Vec<u32> =
            place_in_band.into_iter().map(|(band, at)| (firsts[band] + at) as u32).collect();
        self.head.load(&head);
        self.places.load(&places);
    }

    /// The cuts.
    pub fn bands(&self) -> &Bands {
        &self.bands
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.head.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// The ids of a band, counted from its first; all ids in their order where there is one band only.
    pub fn ids(&self, band: usize) -> &Ids {
        &self.ids[band]
    }

    pub(crate) fn rows(&self, band: usize) -> &Ids {
        &self.rows[band]
    }

    pub(crate) fn head(&self) -> &Ids {
        &self.head
    }

    pub(crate) fn places(&self) -> &Ids {
        &self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_by_band() {
        let bands = Bands::new(&[3, 5], 9);
        assert_eq!((bands.count(), bands.range(1), bands.types()), (3, 3..5, 9));
        let ids = [8, 0, 4, 2, 5, 0];
        assert_eq!(bands.counts(&ids), [3, 1, 2]);
        let banded = BandedIds::from_host(&Device::cpu(), &bands, &ids);
        let lists = |of: fn(&BandedIds, usize) -> &Ids| {
            (0..3).map(|band| of(&banded, band).values().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(lists(BandedIds::rows), [vec![1, 3, 5], vec![2], vec![0, 4]]);
        assert_eq!(lists(BandedIds::ids), [vec![0, 2, 0], vec![1], vec![3, 0]]);
        assert_eq!(banded.head().values(), [4, 0, 3, 2, 4, 0]);
        assert_eq!(banded.places().values(), [4, 0, 3, 1, 5, 2]);
    }

    #[test]
    fn another_load_replaces_the_ids() {
        let bands = Bands::new(&[2], 4);
        let mut banded = BandedIds::with_room(&Device::cpu(), &bands, 5, &[5, 5]);
        banded.load(&[3, 1, 2]);
        assert_eq!((banded.len(), banded.ids(1).values()), (3, &[1, 0][..]));
        banded.load(&[0, 1, 0, 1]);
        assert_eq!((banded.len(), banded.ids(0).values(), banded.ids(1).len()), (4, &[0, 1, 0, 1][..], 0));
    }
}
