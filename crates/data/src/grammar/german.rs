//! German number words, ordinals, years, times and prices.

const SMALL: [&str; 20] = [
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
];

const TENS: [&str; 10] =
    ["", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"];

/// A number below 10,000 as it is counted: `dreihundertzweiundvierzig`, `eins`, `einhunderteins`.
pub(super) fn cardinal(n: usize) -> String {
    match n {
        0..20 => SMALL[n].to_owned(),
        20..100 => match n % 10 {
            0 => TENS[n / 10].to_owned(),
            unit => format!("{}und{}", inner(unit), TENS[n / 10]),
        },
        100..1000 => join(format!("{}hundert", inner(n / 100)), n % 100),
        _ => join(format!("{}tausend", inner(n / 1000)), n % 1000),
    }
}

/// A number before another word or at the beginning of a compound, where *eins* loses its s.
fn inner(n: usize) -> &'static str {
    if n == 1 { "ein" } else { SMALL[n] }
}

/// A large part and, if there is one, the rest, in one word.
fn join(large: String, rest: usize) -> String {
    if rest == 0 { large } else { large + &cardinal(rest) }
}

/// The ordinal of a number below 100, with the weak ending -e: `dreiundzwanzigste`.
pub(super) fn ordinal(n: usize) -> String {
    match n {
        1 => "erste".to_owned(),
        3 => "dritte".to_owned(),
        7 => "siebte".to_owned(),
        8 => "achte".to_owned(),
        0..20 => format!("{}te", SMALL[n]),
        _ => format!("{}ste", cardinal(n)),
    }
}

/// A year from 1800 to 2099: `neunzehnhundertvierundachtzig`, `zweitausendfünf`.
pub(super) fn year(n: usize) -> String {
    if n < 2000 { join(format!("{}hundert", SMALL[n / 100]), n % 100) } else { cardinal(n) }
}

/// A time on the twelve-hour clock, in steps of five minutes: `halb sieben`, `fünf vor halb vier`.
pub(super) fn clock(hour: usize, minute: usize) -> String {
    let this = SMALL[hour];
    let next = SMALL[hour % 12 + 1];
    match minute {
        0 => format!("{} uhr", inner(hour)),
        15 => format!("viertel nach {this}"),
        25 => format!("fünf vor halb {next}"),
        30 => format!("halb {next}"),
        35 => format!("fünf nach halb {next}"),
        45 => format!("viertel vor {next}"),
        1..30 => format!("{} nach {this}", cardinal(minute)),
        _ => format!("{} vor {next}", cardinal(60 - minute)),
    }
}

/// Euros and cents in the accusative, of which one may be zero: `zwölf euro und fünfzig cent`, `einen euro`.
pub(super) fn price(euros: usize, cents: usize) -> String {
    let amount = |n, unit| if n == 1 { format!("einen {unit}") } else { format!("{} {unit}", cardinal(n)) };
    match (euros, cents) {
        (_, 0) => amount(euros, "euro"),
        (0, _) => amount(cents, "cent"),
        _ => format!("{} und {}", amount(euros, "euro"), amount(cents, "cent")),
    }
}
