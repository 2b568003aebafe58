//! Letters, numbers and blanks as sacremoses and Python define them, which is not how the standard library does.

use super::Lang;
use super::classes::{self, Run};

fn within(set: &[Run], c: char) -> bool {
    let code = u32::from(c);
    // Runs are sorted by their first characters and do not overlap.
    let after = set.partition_point(|&(first, ..)| first <= code);
    after > 0 && {
        let (first, last, step) = set[after - 1];
        code <= last && (code - first).is_multiple_of(step)
    }
}

/// A letter, for the detokeniser.
pub(super) fn is_letter(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphabetic() } else { within(classes::ALPHA, c) }
}

/// Characters that are letters in one language and symbols in others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script([&'static [Run]; 2]);

impl Script {
    pub(super) fn of(lang: Lang) -> Self {
        Self(match lang {
            Lang::Zh => [classes::HAN, &[]],
            Lang::Ja => [classes::HAN, classes::KANA],
            Lang::Ko => [classes::HANGUL, &[]],
            _ => [&[], &[]],
        })
    }

    fn holds(self, c: char) -> bool {
        !c.is_ascii() && self.0.iter().any(|set| within(set, c))
    }

    pub(super) fn is_alpha(self, c: char) -> bool {
        is_alpha(c) || self.holds(c)
    }

    pub(super) fn is_alnum(self, c: char) -> bool {
        is_alnum(c) || self.holds(c)
    }
}

/// A letter, for the tokeniser.
pub(super) fn is_alpha(c: char) -> bool {
    is_letter(c) || (!c.is_ascii() && within(classes::MARKS, c))
}

/// A letter or a digit, for the tokeniser.
fn is_alnum(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphanumeric() } else { is_alpha(c) || within(classes::DIGITS, c) }
}

/// A number of any kind.
pub(super) fn is_number(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_digit() } else { within(classes::NUMBERS, c) }
}

/// A lower-case letter.
pub(super) fn is_lower(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_lowercase() } else { within(classes::LOWER, c) }
}

/// A currency symbol.
pub(super) fn is_currency(c: char) -> bool {
    within(classes::CURRENCY, c)
}

/// Python's `\d`.
pub(super) fn is_decimal(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_digit() } else { within(classes::DECIMAL, c) }
}

/// Python's `\s`: Unicode's white space and the four separators of ASCII.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Of Chinese, Japanese or Korean script, or Tangut, Nüshu, Phags-pa or Yi.
pub(super) fn is_cjk(c: char) -> bool {
    matches!(u32::from(c),
        0x1100..=0x11ff | 0x2e80..=0xa4cf | 0xa840..=0xa87f | 0xac00..=0xd7af | 0xf900..=0xfaff | 0xfe30..=0xfe4f
        | 0xff65..=0xffdc | 0x17000..=0x18aff | 0x1b000..=0x1b12f | 0x1b170..=0x1b2ff | 0x20000..=0x2ffff)
}

/// Replaces `middle` by `with` where it stands between a `left` and a `right`. A character belongs to one match only,
/// from the left: in `1·2·3` the second `·` has no neighbour any more.
pub(super) fn between(
    text: &[char],
    (left, middle, right): (impl Fn(char) -> bool, char, impl Fn(char) -> bool),
    with: &str,
) -> Vec<char> {
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        out.push(*first);
        rest = match tail {
            [m, last, after @ ..] if *m == middle && left(*first) && right(*last) => {
                out.extend(with.chars());
                out.push(*last);
                after
            }
            _ => tail,
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_sorted_and_hold_what_they_should() {
        for set in [
            classes::ALPHA,
            classes::MARKS,
            classes::DIGITS,
            classes::NUMBERS,
            classes::LOWER,
            classes::CURRENCY,
            classes::DECIMAL,
            classes::HAN,
            classes::KANA,
            classes::HANGUL,
        ] {
            assert!(set.iter().all(|&(first, last, step)| first <= last && step > 0));
            assert!(set.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
        assert!("aZäßéЖ".chars().all(|c| is_alpha(c) && is_alnum(c)));
        assert!("0٣".chars().all(|c| is_alnum(c) && is_number(c) && is_decimal(c) && !is_alpha(c)));
        assert!("²½".chars().all(|c| is_number(c) && !is_alnum(c) && !is_decimal(c)));
        assert!("aäß".chars().all(is_lower) && !"AÄ1".chars().any(is_lower));
        assert!("$€£".chars().all(is_currency) && !is_currency('a'));
        assert!("\u{a0}\u{3000}\u{1f} \t".chars().all(is_space) && !is_space('\u{200b}'));
        assert!(is_letter('ä') && !is_letter('\u{94d}') && is_alpha('\u{94d}'));
        // An old Unicode without the ideographs.
        assert!(!is_alpha('漢') && is_cjk('漢'));
        assert!(Script::of(Lang::Zh).is_alpha('漢') && Script::of(Lang::Ja).is_alnum('漢'));
        assert!(!Script::of(Lang::Ko).is_alpha('漢') && Script::of(Lang::Ko).is_alpha('한'));
    }

    #[test]
    fn a_neighbour_belongs_to_one_match() {
        let text: Vec<char> = "1·2·3·4".chars().collect();
        let out: String = between(&text, (is_decimal, '·', is_decimal), ",").iter().collect();
        assert_eq!(out, "1,2·3,4");
    }
}
