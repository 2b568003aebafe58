//! Shifts: tercom's greedy search for word sequences that are better elsewhere.

use super::edits::{Distances, Edit};

/// The longest sequence that is shifted, in words.
const MAX_SIZE: usize = 10;
/// Longest distance between equal words, in words.
const MAX_DISTANCE: usize = 50;
/// Shifts tried for a segment before the search ends.
const MAX_TRIES: usize = 1000;

/// The edits, shifts included, from the hypothesis to the reference.
pub(super) fn edits(hypothesis: &[u32], reference: &[u32]) -> usize {
    if reference.is_empty() {
        return hypothesis.len();
    }
    let mut distances = Distances::new(hypothesis, reference);
    let (mut shifts, mut tries) = (0, 0);
    loop {
        let best = best_shift(&distances, reference, &mut tries);
        // The shift found last is not made once the tries are used up.
        match best {
            Some(best) if tries < MAX_TRIES && best.gain > 0 => distances.rewrite(&best.words),
            _ => break,
        }
        shifts += 1;
    }
    shifts + distances.total() as usize
}

/// Gain of a shift.
struct Shift {
    gain: i64,
    size: usize,
    from: usize,
    to: usize,
    words: Vec<u32>,
}

impl Shift {
    /// tercom's order: the largest gain, then the longest, then the first sequence, then the first place.
    fn beats(&self, other: &Self) -> bool {
        (self.gain, self.size, other.from, other.to) > (other.gain, other.size, self.from, self.to)
    }
}

/// The best of all shifts of words that stand elsewhere in the reference.
fn best_shift(distances: &Distances<'_>, reference: &[u32], tries: &mut usize) -> Option<Shift> {
    let hypothesis = distances.hypothesis();
    let alignment = Alignment::new(distances);
    let mut scratch = distances.clone();
    let mut best: Option<Shift> = None;
    for (from, place, size) in common_sequences(hypothesis, reference) {
        // Only what is wrong where it is, and missing where it belongs, is shifted, and not into itself.
        let wrong = alignment.hypothesis_errors[from..from + size].contains(&true);
        let missing = alignment.reference_errors[place..place + size].contains(&true);
        if !wrong || !missing || (from + 1..=from + size).contains(&alignment.after[place]) {
            continue;
        }
        let mut previous = None;
        // Before the sequence's place in the reference, or after any of its words.
        for target in place..=place + size {
            let to = match target.checked_sub(1) {
                None => 0,
                Some(word) => alignment.after[word],
            };
            if previous.replace(to) == Some(to) {
                continue;
            }
            let words = shifted(hypothesis, from, size, to);
            scratch.rewrite(&words);
            let gain = i64::from(distances.total()) - i64::from(scratch.total());
            let shift = Shift { gain, size, from, to, words };
            *tries += 1;
            if best.as_ref().is_none_or(|best| shift.beats(best)) {
                best = Some(shift);
            }
        }
        if *tries >= MAX_TRIES {
            break;
        }
    }
    best
}

/// Alignment of both sides' words, and the words that are wrong.
struct Alignment {
    /// For each word of the reference, the place after its word in the hypothesis (or the last one before it).
    after: Vec<usize>,
    reference_errors: Vec<bool>,
    hypothesis_errors: Vec<bool>,
}

impl Alignment {
    fn new(distances: &Distances<'_>) -> Self {
        let mut edits: Vec<Edit> = distances.backwards().collect();
        edits.reverse();
        let mut alignment =
            Self { after: Vec::new(), reference_errors: Vec::new(), hypothesis_errors: Vec::new() };
        for edit in edits {
            if edit != Edit::Insert {
                alignment.hypothesis_errors.push(edit != Edit::Keep);
            }
            if edit != Edit::Delete {
                alignment.reference_errors.push(edit != Edit::Keep);
                alignment.after.push(alignment.hypothesis_errors.len());
            }
        }
        alignment
    }
}

/// Start in the hypothesis, start in the reference and length of all sequences that both have.
fn common_sequences(hypothesis: &[u32], reference: &[u32]) -> impl Iterator<Item = (usize, usize, usize)> {
    let places = move |from: usize| {
        let start = from.saturating_sub(MAX_DISTANCE);
        (start..reference.len().min(from + MAX_DISTANCE + 1)).map(move |place| (from, place))
    };
    (0..hypothesis.len()).flat_map(places).flat_map(move |(from, place)| {
        let pairs = hypothesis[from..].iter().zip(&reference[place..]).take(MAX_SIZE);
        let longest = pairs.take_while(|(a, b)| a == b).count();
        (1..=longest).map(move |size| (from, place, size))
    })
}

/// The words with `size` of them moved from one place to another.
fn shifted(words: &[u32], from: usize, size: usize, to: usize) -> Vec<u32> {
    let end = from + size;
    let moved = &words[from..end];
    if to < from {
        [&words[..to], moved, &words[to..from], &words[end..]].concat()
    } else {
        // A place inside the sequence counts from the sequence's end.
        let to = if to > end { to } else { (size + to).min(words.len()) };
        [&words[..from], &words[end..to], moved, &words[to..]].concat()
    }
}
