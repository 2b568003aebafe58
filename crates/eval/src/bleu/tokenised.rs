//! sacreBLEU's check for output that somebody forgot to detokenise.

use crate::text::is_python_space;

/// Number of lines from which sacreBLEU warns.
const SURE: u64 = 100;
/// In a shorter text, this many lines are enough if they are at least half of it.
const LIKELY: u64 = 10;

/// Counts lines that end in a period with a blank before it, which detokenised text seldom has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenisedPeriods {
    /// Lines that do.
    pub found: u64,
    /// All lines.
    pub lines: u64,
}

impl TokenisedPeriods {
    /// Counts a line of a translation.
    pub fn add(&mut self, line: &str) {
        self.found += u64::from(line.trim_end_matches(is_python_space).ends_with(" ."));
        self.lines += 1;
    }

    /// Returns whether the text looks tokenised: 100 lines, or 10 that are half of a short text.
    #[must_use]
    pub fn looks_tokenised(&self) -> bool {
        self.found >= SURE || (self.found >= LIKELY && 2 * self.found >= self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_lines_or_half_of_few_are_enough() {
        let counted = |tokenised, plain| {
            let mut periods = TokenisedPeriods::default();
            (0..tokenised).for_each(|_| periods.add("a b . "));
            (0..plain).for_each(|_| periods.add("a b."));
            periods.looks_tokenised()
        };
        assert!(counted(100, 5000) && !counted(99, 5000));
        assert!(counted(10, 10) && !counted(10, 11) && !counted(9, 0));
    }
}
