//! Words that keep their period inside a sentence.

use std::collections::HashSet;
use std::sync::LazyLock;

/// Titles and ranks, in both languages.
const TITLES: &str = "adm asst bros capt cmdr col corp cpl dr drs gen gov hon insp jr lt ltd maj messrs mlle mme mr \
    mrs ms msgr mt op prof pvt rep rev sen sens sgt sr st supt";
const ENGLISH: &str = "a.m al apr approx apt aug ave blvd cf dec dept e.g est etc ex feb fig figs i.e inc jan jul jun \
    mar no nos nov oct p p.m pp rd rs sep sept u.k u.s v viz vol vs";
const GERMAN: &str = "abb abs abschn anm art aufl bd bsp bspw buchst bzgl bzw ca chr co d.h d.j dergl dgl dipl e.v etc \
    evtl exkl f ff fr frl geb gegr gem ggf hl hr hrsg i.d.r i.h.v ing inkl insb jh jhd jun kap lfd m.e max med min mind \
    mio mrd nr o.ä p.a phil pp rd s s.o s.u sog std str tel u.a u.ä u.u usf usw v v.a vgl vs z.b z.hd z.t z.z z.zt zit \
    zt zzgl";

static ENGLISH_WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| words(ENGLISH));
static GERMAN_WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| words(GERMAN));

fn words(list: &'static str) -> HashSet<&'static str> {
    TITLES.split_whitespace().chain(list.split_whitespace()).collect()
}

/// Returns true if a word before a period is an abbreviation of a language, an initial or, in German, an ordinal
/// number. Languages without a list use the English one.
pub(super) fn keeps_period(word: &str, language: &str) -> bool {
    let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    let mut letters = word.chars();
    let (first, second) = (letters.next(), letters.next());
    if first.is_some_and(char::is_uppercase) && second.is_none() {
        return true;
    }
    let lower = word.to_lowercase();
    match language {
        "de" => {
            let is_letter = first.is_some_and(char::is_alphabetic) && second.is_none();
            let is_ordinal = word.len() <= 2 && !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
            is_letter || is_ordinal || GERMAN_WORDS.contains(&*lower)
        }
        _ => ENGLISH_WORDS.contains(&*lower),
    }
}
