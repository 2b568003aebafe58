//! tercom's tokenisation.

use super::TerConfig;
use crate::text::{is_python_space, space_out, space_out_marks, space_out_symbols, undo_entities};

impl TerConfig {
    /// A line whose words are separated by white space.
    pub(super) fn prepare(&self, line: &str) -> String {
        let line = line.trim_end_matches(is_python_space);
        let mut line = if self.case_sensitive { line.to_owned() } else { line.to_lowercase() };
        if self.normalized {
            line = normalize(&line);
            if self.asian_support {
                line = space_out(&line, |c| is_ideograph(c) || is_asian_mark(c));
            }
        }
        if self.no_punct {
            let removed = |c| is_mark(c) || (self.asian_support && is_asian_mark(c));
            line.retain(|c| !removed(c));
        }
        line
    }
}

/// Undoes entities and puts blanks around symbols, possessives, and the marks and dashes around numbers.
fn normalize(line: &str) -> String {
    let line = undo_entities(&line.replace("\n-", "").replace('\n', " "));
    // A line ends in a blank now, so this sees every possessive.
    space_out_marks(&space_out_symbols(&line).replace("'s ", " 's "))
}

/// The marks that `no_punct` removes.
fn is_mark(c: char) -> bool {
    matches!(c, '.' | ',' | '?' | ':' | ';' | '!' | '"' | '(' | ')')
}

/// The marks of Chinese and Japanese, and full-width ones.
fn is_asian_mark(c: char) -> bool {
    matches!(
        c,
        '\u{3001}' | '\u{3002}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}' | '\u{ff61}'..='\u{ff65}'
            | '\u{30fb}' | '．' | '，' | '？' | '：' | '；' | '！' | '＂' | '（' | '）'
    )
}

/// Characters that become words of their own: ideographs with their radicals, strokes and compatibility forms,
/// but no kana (tercom means to split those off as well, with patterns that match nothing in a line that begins
/// with a blank).
fn is_ideograph(c: char) -> bool {
    matches!(
        c,
        '\u{2e80}'..='\u{2eff}' | '\u{31c0}'..='\u{31ef}' | '\u{3200}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe4f}'
    )
}
