//! Words that fill the slots of the sentences.

use super::{english, german};

/// A word or phrase of both languages.
pub(super) struct Filling {
    pub(super) english: String,
    /// The plain German form: nominative, or one that needs no inflection.
    pub(super) german: String,
    /// The inflected German form, where the slot has one: the accusative, the ordinal with the
    /// ending -en, the date without its article.
    pub(super) inflected: String,
}

impl Filling {
    fn plain(english: impl Into<String>, german: impl Into<String>) -> Self {
        let german = german.into();
        Self { english: english.into(), inflected: german.clone(), german }
    }
}

/// The sorts of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// 0 to 9,999.
    Number,
    /// A number of people or things, 2 to 999.
    Few,
    /// A number of people or things, 2 to 9,999.
    Many,
    /// 1st to 99th.
    Ordinal,
    /// 2 to 99 years.
    Age,
    /// A day of the year.
    Day,
    /// 1800 to 2029.
    Year,
    /// From one of these years to a later one.
    Years,
    /// A time on the twelve-hour clock.
    Clock,
    /// The same, mostly with the part of the day.
    Time,
    /// 1 cent to 999 euros and 99 cents.
    Price,
    /// A thing to buy; inflected it is in the accusative.
    Item,
    /// A list of English and German words.
    Words(&'static [(&'static str, &'static str)]),
}

const WEEKDAYS: &[(&str, &str)] = &[
    ("monday", "montag"),
    ("tuesday", "dienstag"),
    ("wednesday", "mittwoch"),
    ("thursday", "donnerstag"),
    ("friday", "freitag"),
    ("saturday", "samstag"),
    ("sunday", "sonntag"),
];

const CITIES: &[(&str, &str)] = &[
    ("berlin", "berlin"),
    ("cologne", "köln"),
    ("geneva", "genf"),
    ("london", "london"),
    ("munich", "münchen"),
    ("paris", "paris"),
    ("prague", "prag"),
    ("rome", "rom"),
    ("vienna", "wien"),
    ("warsaw", "warschau"),
];

const PERSONS: &[(&str, &str)] = &[
    ("he", "er"),
    ("she", "sie"),
    ("my father", "mein vater"),
    ("my mother", "meine mutter"),
    ("my brother", "mein bruder"),
    ("my sister", "meine schwester"),
    ("our teacher", "unser lehrer"),
    ("the doctor", "der arzt"),
];

const GROUPS: &[(&str, &str)] = &[
    ("people", "menschen"),
    ("women", "frauen"),
    ("men", "männer"),
    ("children", "kinder"),
    ("guests", "gäste"),
    ("students", "schüler"),
];

const THINGS: &[(&str, &str)] = &[
    ("apples", "äpfel"),
    ("books", "bücher"),
    ("houses", "häuser"),
    ("letters", "briefe"),
    ("ships", "schiffe"),
    ("stars", "sterne"),
    ("trees", "bäume"),
];

const BUILDINGS: &[(&str, &str)] = &[
    ("bridge", "die brücke"),
    ("castle", "das schloss"),
    ("church", "die kirche"),
    ("school", "die schule"),
    ("tower", "der turm"),
];

const VEHICLES: &[(&str, &str)] =
    &[("bus", "der bus"), ("coach", "die kutsche"), ("taxi", "das taxi"), ("train", "der zug")];

const EVENTS: &[(&str, &str)] = &[
    ("concert", "das konzert"),
    ("film", "der film"),
    ("game", "das spiel"),
    ("lesson", "der unterricht"),
    ("meeting", "die sitzung"),
];

/// Things to buy, with the German nominative and accusative.
const ITEMS: &[(&str, &str, &str)] = &[
    ("bag", "die tasche", "die tasche"),
    ("bicycle", "das fahrrad", "das fahrrad"),
    ("book", "das buch", "das buch"),
    ("chair", "der stuhl", "den stuhl"),
    ("clock", "die uhr", "die uhr"),
    ("coat", "der mantel", "den mantel"),
    ("lamp", "die lampe", "die lampe"),
    ("shirt", "das hemd", "das hemd"),
    ("table", "der tisch", "den tisch"),
];

/// Count of the numbers below 1,000 that [`countable`] gives.
const COUNTABLE_BELOW_1000: usize = 989;

/// The months and their days (there is no leap day).
const MONTHS: [(&str, &str, usize); 12] = [
    ("january", "januar", 31),
    ("february", "februar", 28),
    ("march", "märz", 31),
    ("april", "april", 30),
    ("may", "mai", 31),
    ("june", "juni", 30),
    ("july", "juli", 31),
    ("august", "august", 31),
    ("september", "september", 30),
    ("october", "oktober", 31),
    ("november", "november", 30),
    ("december", "dezember", 31),
];

/// The parts of the day, with the hours that belong to them.
const DAY_PARTS: [(&str, &str, &[usize]); 5] = [
    ("", "", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    (" in the morning", " am morgen", &[5, 6, 7, 8, 9, 10]),
    (" in the afternoon", " am nachmittag", &[1, 2, 3, 4, 5]),
    (" in the evening", " am abend", &[6, 7, 8, 9, 10]),
    (" at night", " in der nacht", &[11, 12, 1, 2, 3]),
];

impl Slot {
    /// The slot of this name, without the digit that tells two of a sort apart.
    pub(super) fn named(name: &str) -> Self {
        match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "number" => Self::Number,
            "few" => Self::Few,
            "many" => Self::Many,
            "ordinal" => Self::Ordinal,
            "age" => Self::Age,
            "day" => Self::Day,
            "year" => Self::Year,
            "years" => Self::Years,
            "clock" => Self::Clock,
            "time" => Self::Time,
            "price" => Self::Price,
            "weekday" => Self::Words(WEEKDAYS),
            "city" => Self::Words(CITIES),
            "person" => Self::Words(PERSONS),
            "group" => Self::Words(GROUPS),
            "thing" => Self::Words(THINGS),
            "building" => Self::Words(BUILDINGS),
            "vehicle" => Self::Words(VEHICLES),
            "event" => Self::Words(EVENTS),
            "item" => Self::Item,
            _ => unreachable!("the grammar has no slot {name}"),
        }
    }

    /// Number of values of the slot.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Number => 10_000,
            Self::Few => COUNTABLE_BELOW_1000,
            Self::Many => 9_899,
            Self::Ordinal => 99,
            Self::Age => 98,
            Self::Day => 365,
            Self::Year => 230,
            Self::Years => 180 * 50,
            Self::Clock => 12 * 12,
            Self::Time => DAY_PARTS.iter().map(|(_, _, hours)| hours.len() * 12).sum(),
            Self::Price => (COUNTABLE_BELOW_1000 + 2) * 100 - 1,
            Self::Item => ITEMS.len(),
            Self::Words(words) => words.len(),
        }
    }

    /// One of the slot's values; `index` is below [`Slot::size`].
    pub(super) fn fill(self, index: usize) -> Filling {
        match self {
            Self::Number => cardinal(index),
            Self::Few | Self::Many => cardinal(countable(index)),
            Self::Age => cardinal(index + 2),
            Self::Ordinal => {
                let german = german::ordinal(index + 1);
                Filling { english: english::ordinal(index + 1), inflected: format!("{german}n"), german }
            }
            Self::Day => day(index),
            Self::Year => Filling::plain(english::year(1800 + index), german::year(1800 + index)),
            Self::Years => {
                let (from, to) = (1800 + index / 50, 1801 + index / 50 + index % 50);
                Filling::plain(
                    format!("from {} to {}", english::year(from), english::year(to)),
                    format!("von {} bis {}", german::year(from), german::year(to)),
                )
            }
            Self::Clock => {
                let (hour, minute) = (index / 12 + 1, index % 12 * 5);
                Filling::plain(english::clock(hour, minute), german::clock(hour, minute))
            }
            Self::Time => time(index),
            Self::Price => {
                let (euros, cents) = ((index + 1) / 100, (index + 1) % 100);
                let euros = if euros < 2 { euros } else { countable(euros - 2) };
                Filling::plain(english::price(euros, cents), german::price(euros, cents))
            }
            Self::Item => {
                let (english, nominative, accusative) = ITEMS[index];
                Filling { english: english.into(), german: nominative.into(), inflected: accusative.into() }
            }
            Self::Words(words) => Filling::plain(words[index].0, words[index].1),
        }
    }
}

fn cardinal(n: usize) -> Filling {
    Filling::plain(english::cardinal(n), german::cardinal(n))
}

/// The numbers from 2 on that do not end in 01, whose German before a noun is a matter of taste.
fn countable(index: usize) -> usize {
    let (hundreds, rest) = ((index + 1) / 99, (index + 1) % 99);
    100 * hundreds + if rest == 0 { 0 } else { rest + 1 }
}

/// A day of the year: `the fifth of march`, `der fünfte märz`.
fn day(index: usize) -> Filling {
    let mut day = index;
    for (english, german, days) in MONTHS {
        if day < days {
            let ordinal = german::ordinal(day + 1);
            return Filling {
                english: format!("the {} of {english}", english::ordinal(day + 1)),
                german: format!("der {ordinal} {german}"),
                inflected: format!("{ordinal}n {german}"),
            };
        }
        day -= days;
    }
    unreachable!("the year has 365 days")
}

/// A time with the part of the day or without it.
fn time(index: usize) -> Filling {
    let (mut hours_before, minute) = (index / 12, index % 12 * 5);
    for (english, german, hours) in DAY_PARTS {
        if let Some(&hour) = hours.get(hours_before) {
            let english = english::clock(hour, minute) + english;
            return Filling::plain(english, german::clock(hour, minute) + german);
        }
        hours_before -= hours.len();
    }
    unreachable!("the day has no other hours")
}
