//! Sentence boundaries.

use std::sync::Arc;

use crate::Device;
use crate::cuda::launch;
use crate::cuda::memory::{Block, Ptr};
use crate::ops::attention::tiles::{self, LONG_TILE, TILE};

/// Sentence boundaries of a packed matrix: sentence `b` owns rows `starts[b]..starts[b+1]`.
///
/// Segments made by [`Segments::with_room`] take one list of boundaries after another. On the CPU they are then just
/// the sentences of the list. On a GPU their size stays that of the room: surplus sentences are empty, surplus rows
/// belong to none. The limits of the room are the same on both.
#[derive(Clone)]
pub struct Segments {
    count: usize,
    rows: usize,
    room: SegmentRoom,
    data: SegmentData,
}

/// Limits of [`Segments`].
#[derive(Clone, Copy)]
struct SegmentRoom {
    count: usize,
    rows: usize,
    /// Rows of the longest sentence.
    longest: usize,
}

#[derive(Clone)]
enum SegmentData {
    Host(Arc<[u32]>),
    Gpu(Arc<Block>),
}

impl Segments {
    /// From `B + 1` boundaries that begin at 0 and never fall.
    pub fn from_host(device: &Device, starts: &[u32]) -> Self {
        let (count, rows) = (starts.len() - 1, starts[starts.len() - 1] as usize);
        let mut segments = Self::with_room(device, count, rows, Self::longest_of(starts));
        segments.load(starts);
        segments
    }

    /// Room for `count` sentences and `rows` rows, none longer than `longest`; all empty until they are loaded.
    pub fn with_room(device: &Device, count: usize, rows: usize, longest: usize) -> Self {
        let data = match device.gpu() {
            None => SegmentData::Host(vec![0; count + 1].into()),
            Some(gpu) => {
                SegmentData::Gpu(Arc::new(Block::new(gpu, 4 * SegmentLayout { count, rows }.words())))
            }
        };
        Self { count, rows, room: SegmentRoom { count, rows, longest }, data }
    }

    /// Takes other boundaries that fit. On a GPU the memory stays the same, so that captured passes see them.
    pub fn load(&mut self, starts: &[u32]) {
        assert!(starts.first() == Some(&0), "segments begin at row 0");
        assert!(starts.windows(2).all(|w| w[0] <= w[1]), "segment boundaries never fall");
        let (count, rows) = (starts.len() - 1, starts[starts.len() - 1] as usize);
        for (what, wanted, room) in [
            ("sentences", count, self.room.count),
            ("rows", rows, self.room.rows),
            ("rows in a sentence", Self::longest_of(starts), self.room.longest),
        ] {
            assert!(wanted <= room, "segments have room for {room} {what}, not for {wanted}");
        }
        match &mut self.data {
            SegmentData::Host(data) => {
                *data = starts.into();
                (self.count, self.rows) = (count, rows);
            }
            SegmentData::Gpu(block) => {
                block.write(0, &SegmentLayout { count: self.count, rows: self.rows }.fill(starts));
            }
        }
    }

    /// Rows of the longest sentence between these boundaries.
    pub fn longest_of(starts: &[u32]) -> usize {
        starts.windows(2).map(|w| (w[1] - w[0]) as usize).max().unwrap_or(0)
    }

    /// Number of sentences.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of rows of all sentences together.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows of the longest sentence, or a bound.
    pub(crate) fn longest(&self) -> usize {
        self.room.longest
    }

    pub(crate) fn range(&self, sentence: usize) -> std::ops::Range<usize> {
        match &self.data {
            SegmentData::Host(starts) => starts[sentence] as usize..starts[sentence + 1] as usize,
            SegmentData::Gpu(_) => unreachable!("an op of the CPU was given segments of the GPU"),
        }
    }

    pub(crate) fn ranges(&self) -> impl ExactSizeIterator<Item = std::ops::Range<usize>> + '_ {
        (0..self.count()).map(|sentence| self.range(sentence))
    }

    /// As kernels see them.
    pub(crate) fn argument(&self) -> launch::Segments {
        let (at, layout) = (self.base(), self.layout());
        launch::Segments {
            starts: at.plus(4 * layout.starts()),
            sentence_of_row: at.plus(4 * layout.sentence_of_row()),
            count: at,
            sentences: self.count as u32,
            rows: self.rows as u32,
        }
    }

    /// Address of the number of real sentences.
    pub(crate) fn valid_sentences(&self) -> Ptr {
        self.base()
    }

    /// Address of the number of real rows.
    pub(crate) fn valid_rows(&self) -> Ptr {
        self.base().plus(4)
    }

    /// Runs of up to [`TILE`] rows of a sentence, in device memory, and how many entries the list has. Those of the
    /// longest sentences come first.
    pub(crate) fn tiles(&self) -> (Ptr, u32) {
        let layout = self.layout();
        (self.base().plus(4 * layout.tiles()), layout.tile_count(TILE) as u32)
    }

    /// Runs of up to [`LONG_TILE`] rows. Those that begin furthest behind the start of their sentence come first.
    pub(crate) fn long_tiles(&self) -> (Ptr, u32) {
        let layout = self.layout();
        (self.base().plus(4 * layout.long_tiles()), layout.tile_count(LONG_TILE) as u32)
    }

    fn layout(&self) -> SegmentLayout {
        SegmentLayout { count: self.count, rows: self.rows }
    }

    fn base(&self) -> Ptr {
        match &self.data {
            SegmentData::Host(_) => unreachable!("an op of the GPU was given segments of the CPU"),
            SegmentData::Gpu(block) => block.ptr(),
        }
    }
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segments[{} sentences, {} rows]", self.count, self.rows)
    }
}

/// Layout of the device memory of [`Segments`], in 32-bit words: numbers of real sentences and rows;
/// the boundaries; the sentence of each row; the tiles, two words each; the long tiles.
struct SegmentLayout {
    count: usize,
    rows: usize,
}

/// Sentence of rows that belong to none, and of tiles that are not used.
pub(crate) const NO_SENTENCE: u32 = u32::MAX;

impl SegmentLayout {
    fn starts(&self) -> usize {
        2
    }

    fn sentence_of_row(&self) -> usize {
        self.starts() + self.count + 1
    }

    fn tiles(&self) -> usize {
        // Pairs are read as one 8-byte word.
        (self.sentence_of_row() + self.rows).next_multiple_of(2)
    }

    fn long_tiles(&self) -> usize {
        self.tiles() + 2 * self.tile_count(TILE)
    }

    fn tile_count(&self, rows: usize) -> usize {
        self.rows / rows + self.count
    }

    fn words(&self) -> usize {
        self.long_tiles() + 2 * self.tile_count(LONG_TILE)
    }

    fn fill(&self, starts: &[u32]) -> Vec<u32> {
        let mut words = Vec::with_capacity(self.words());
        let rows = starts[starts.len() - 1];
        words.extend([starts.len() as u32 - 1, rows]);
        words.extend_from_slice(starts);
        words.resize(self.sentence_of_row(), rows);
        for (sentence, w) in starts.windows(2).enumerate() {
            words.resize(words.len() + (w[1] - w[0]) as usize, sentence as u32);
        }
        words.resize(self.tiles(), NO_SENTENCE);
        words.extend(tiles::tiles(starts).as_flattened());
        words.resize(self.long_tiles(), NO_SENTENCE);
        words.extend(tiles::long_tiles(starts).as_flattened());
        words.resize(self.words(), NO_SENTENCE);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_laid_out_with_room_to_spare() {
        let layout = SegmentLayout { count: 4, rows: 200 };
        let words = layout.fill(&[0, 2, 40, 40]);
        assert_eq!(words.len(), layout.words());
        assert_eq!(words[..2], [3, 40]);
        assert_eq!(words[layout.starts()..][..5], [0, 2, 40, 40, 40]);
        let of_row = &words[layout.sentence_of_row()..][..200];
        assert_eq!((of_row[1], of_row[2], of_row[39], of_row[40]), (0, 1, 1, NO_SENTENCE));
        // The long sentence has two tiles and comes first; the empty one has none.
        assert_eq!(words[layout.tiles()..][..8], [1, 0, 1, 32, 0, 0, NO_SENTENCE, NO_SENTENCE]);
        assert_eq!(words[layout.long_tiles()..][..6], [1, 0, 0, 0, NO_SENTENCE, NO_SENTENCE]);
    }

    #[test]
    fn the_cpu_holds_what_was_loaded_and_keeps_the_room() {
        let mut segments = Segments::with_room(&Device::cpu(), 3, 10, 6);
        segments.load(&[0, 4]);
        assert_eq!((segments.count(), segments.rows(), segments.range(0)), (1, 4, 0..4));
        segments.load(&[0, 2, 2, 8]);
        assert_eq!((segments.count(), segments.rows(), segments.range(2)), (3, 8, 2..8));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refusal = |starts: &[u32]| {
            let load = || Segments::with_room(&Device::cpu(), 3, 10, 6).load(starts);
            let panic = std::panic::catch_unwind(load).expect_err("there is no room for it");
            panic.downcast_ref::<String>().expect("a message").clone()
        };
        assert_eq!(refusal(&[0, 1, 2, 3, 4]), "segments have room for 3 sentences, not for 4");
        assert_eq!(refusal(&[0, 5, 11]), "segments have room for 10 rows, not for 11");
        assert_eq!(refusal(&[0, 7]), "segments have room for 6 rows in a sentence, not for 7");
    }
}
