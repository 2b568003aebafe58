//! Abbreviations that keep their period: those that Moses knows in English and German, in a format of our own.

use rustc_hash::FxHashSet;

use super::Lang;

/// Titles and ranks, in both languages.
const TITLES: &str = "Adj Adm Adv Asst Bart Bldg Brig Bros Capt Cmdr Col Comdr Con Corp Cpl DR Dr Ens Gen Gov Hon Hosp \
    Insp Lt MM MR MRS MS Maj Messrs Mlle Mme Mr Mrs Ms Msgr Op Ord Pfc Ph Prof Pvt Rep Reps Res Rev Rt Sen Sens Sfc Sgt \
    Sr St Supt Surg";
const ENGLISH: &str = "Apr Aug Dec Drs Feb Hr Jan Jul Jun Mar Nos Nov Nr Oct Rs Sep e.g i.e rev v vs";
/// Only where a number follows.
const ENGLISH_BEFORE_NUMBERS: &str = "Art No pp";
const GERMAN: &str = "Art BSE Buchst Ca Chr Co D.h Dkr I.F Ltd Mio Mrd MwSt No Nos Nr SA Std Zt b.A bzgl bzw c.-à-d ca \
    d.J d.h dergl dgl etc evtl ff g.U g.g.A ggf i.H.v jun k.o m.E o.ä pp s.p.a sen sog sogen spp u.E u.U u.a u.s.w u.ä usf \
    usw v vgl vs z.B z.T z.Zt zzt";

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
    always: FxHashSet<String>,
    before_numbers: FxHashSet<String>,
}

impl Prefixes {
    pub(super) fn new(lang: Lang) -> Self {
        let words = |list: &'static str| list.split_whitespace().map(str::to_owned);
        let mut always: FxHashSet<String> = words(TITLES).collect();
        // Initials.
        always.extend(('A'..='Z').map(String::from));
        let mut before_numbers = FxHashSet::default();
        match lang {
            Lang::En => {
                always.extend(words(ENGLISH));
                before_numbers.extend(words(ENGLISH_BEFORE_NUMBERS));
            }
            Lang::De => {
                always.extend(words(GERMAN));
                always.extend(('a'..='z').map(String::from));
                // Ordinals: `3. Mai`, `Karl V.`
                always.extend((1..100).map(|n: u32| n.to_string()));
                always.extend((1..=20).map(roman));
                always.extend((1..=20).map(|n| roman(n).to_lowercase()));
            }
        }
        Self { always, before_numbers }
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

/// A Roman numeral up to 39.
fn roman(n: u32) -> String {
    let ones = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"][(n % 10) as usize];
    "X".repeat((n / 10) as usize) + ones
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
    }
}
