//! The runs of rows that the blocks of a GPU work on. [`Segments`](crate::Segments) keep them in device memory.

/// Rows of a tile.
pub(crate) const TILE: usize = 32;
/// The same for batches of long sentences.
pub(crate) const LONG_TILE: usize = 64;

/// Sentence and first row of each run of up to [`TILE`] rows, between these sentence boundaries. Those of the longest
/// sentences come first: work that takes longest should not begin last.
pub(crate) fn tiles(starts: &[u32]) -> Vec<[u32; 2]> {
    longest_first(starts, TILE)
}

/// The same of up to [`LONG_TILE`] rows. Those that begin furthest behind the start of their sentence come first: where
/// each row sees the rows before it, theirs is the most work.
pub(crate) fn long_tiles(starts: &[u32]) -> Vec<[u32; 2]> {
    let mut tiles = longest_first(starts, LONG_TILE);
    tiles.sort_by_key(|&[_, at]| std::cmp::Reverse(at));
    tiles
}

fn longest_first(starts: &[u32], rows: usize) -> Vec<[u32; 2]> {
    let length = |sentence: u32| starts[sentence as usize + 1] - starts[sentence as usize];
    let mut order: Vec<u32> = (0..starts.len() as u32 - 1).collect();
    order.sort_by_key(|&sentence| std::cmp::Reverse(length(sentence)));
    let of = |&sentence: &u32| (0..length(sentence)).step_by(rows).map(move |at| [sentence, at]);
    order.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_sentence_comes_first_and_empty_ones_have_no_tile() {
        assert_eq!(tiles(&[0, 2, 40, 40]), [[1, 0], [1, 32], [0, 0]]);
        assert_eq!(long_tiles(&[0, 2, 40, 40]), [[1, 0], [0, 0]]);
    }

    #[test]
    fn long_tiles_begin_with_those_furthest_behind() {
        let expected = [[1, 192], [1, 128], [1, 64], [0, 64], [1, 0], [0, 0]];
        assert_eq!(long_tiles(&[0, 65, 260]), expected);
    }
}
