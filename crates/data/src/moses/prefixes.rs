//! Abbreviations that keep their period: Moses' lists, whose origin `prefixes.txt` states.

use rustc_hash::FxHashSet;

use super::Lang;

/// Sections `[xx]` and `[xx numbers]` of words between white space.
const LISTS: &str = include_str!("prefixes.txt");

/// Cases in which a word keeps its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Period {
    /// It always does.
    Kept,
    /// It does where the next word starts with a digit.
    KeptBeforeNumbers,
    /// It does not: the period ends a sentence.
    Split,
}

/// The abbreviations of one language.
#[derive(Clone, Debug)]
pub(super) struct Prefixes {
    always: FxHashSet<&'static str>,
    before_numbers: FxHashSet<&'static str>,
}

impl Prefixes {
    pub(super) fn new(lang: Lang) -> Self {
        // There are no lists of these two; sacremoses takes the English one.
        let code = match lang {
            Lang::Ja | Lang::Ko => Lang::En.code(),
            _ => lang.code(),
        };
        Self { always: section(code), before_numbers: section(&format!("{code} numbers")) }
    }

    pub(super) fn period_of(&self, word: &str) -> Period {
        if self.always.contains(word) {
            Period::Kept
        } else if self.before_numbers.contains(word) {
            Period::KeptBeforeNumbers
        } else {
            Period::Split
        }
    }
}

/// Words of a section; none if there is no such section.
fn section(name: &str) -> FxHashSet<&'static str> {
    let head = format!("\n[{name}]\n");
    let body = LISTS.find(&head).map_or("", |at| &LISTS[at + head.len()..]);
    let end = body.find("\n\n").unwrap_or(body.len());
    body[..end].split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_has_its_own() {
        let (en, de) = (Prefixes::new(Lang::En), Prefixes::new(Lang::De));
        for (word, english, german) in [
            ("Dr", Period::Kept, Period::Kept),
            ("No", Period::KeptBeforeNumbers, Period::Kept),
            ("z.B", Period::Split, Period::Kept),
            ("e.g", Period::Kept, Period::Split),
            ("XVIII", Period::Split, Period::Kept),
            ("xx", Period::Split, Period::Kept),
            ("xxi", Period::Split, Period::Split),
            ("99", Period::Split, Period::Kept),
            ("0", Period::Split, Period::Split),
            ("May", Period::Split, Period::Split),
        ] {
            assert_eq!((en.period_of(word), de.period_of(word)), (english, german), "{word}");
        }
        // The counts of Moses' lists, doubles apart.
        assert_eq!((en.always.len(), en.before_numbers.len(), de.always.len()), (102, 3, 298));
        for &lang in Lang::ALL {
            assert!(Prefixes::new(lang).always.len() > 20, "{lang}");
        }
        assert_eq!(Prefixes::new(Lang::Cs).period_of("např"), Period::Kept);
        assert_eq!(Prefixes::new(Lang::Pl).period_of("str"), Period::KeptBeforeNumbers);
        assert_eq!(Prefixes::new(Lang::Ko).always, en.always);
    }
}
