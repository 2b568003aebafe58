//! English number words, ordinals, years, times and prices.

const SMALL: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];

const TENS: [&str; 10] =
    ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// A number below 10,000: `three hundred and forty two`.
pub(super) fn cardinal(n: usize) -> String {
    match n {
        0..20 => SMALL[n].to_owned(),
        20..100 => match n % 10 {
            0 => TENS[n / 10].to_owned(),
            unit => format!("{} {}", TENS[n / 10], SMALL[unit]),
        },
        100..1000 => join(&format!("{} hundred", SMALL[n / 100]), " and ", n % 100),
        _ => {
            let and = if n % 1000 < 100 { " and " } else { " " };
            join(&format!("{} thousand", cardinal(n / 1000)), and, n % 1000)
        }
    }
}

/// A large part and, if there is one, the rest.
fn join(large: &str, and: &str, rest: usize) -> String {
    if rest == 0 { large.to_owned() } else { format!("{large}{and}{}", cardinal(rest)) }
}

/// The ordinal of a number below 100: `twenty third`.
pub(super) fn ordinal(n: usize) -> String {
    match n {
        1 => "first".to_owned(),
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        5 => "fifth".to_owned(),
        8 => "eighth".to_owned(),
        9 => "ninth".to_owned(),
        12 => "twelfth".to_owned(),
        0..20 => format!("{}th", SMALL[n]),
        _ => match n % 10 {
            0 => format!("{}ieth", TENS[n / 10].trim_end_matches('y')),
            unit => format!("{} {}", TENS[n / 10], ordinal(unit)),
        },
    }
}

/// A year from 1800 to 2099 as it is spoken: `nineteen eighty four`, `eighteen oh five`.
pub(super) fn year(n: usize) -> String {
    let (century, rest) = (n / 100, n % 100);
    match (century, rest) {
        (20, 0..10) => cardinal(n),
        (_, 0) => format!("{} hundred", cardinal(century)),
        (_, 1..10) => format!("{} oh {}", cardinal(century), SMALL[rest]),
        _ => format!("{} {}", cardinal(century), cardinal(rest)),
    }
}

/// A time on the twelve-hour clock, in steps of five minutes: `half past six`, `a quarter to nine`.
pub(super) fn clock(hour: usize, minute: usize) -> String {
    let this = SMALL[hour];
    let next = SMALL[hour % 12 + 1];
    match minute {
        0 => format!("{this} o'clock"),
        15 => format!("a quarter past {this}"),
        30 => format!("half past {this}"),
        45 => format!("a quarter to {next}"),
        1..30 => format!("{} past {this}", cardinal(minute)),
        _ => format!("{} to {next}", cardinal(60 - minute)),
    }
}

/// Euros and cents, of which one may be zero: `twelve euros and fifty cents`.
pub(super) fn price(euros: usize, cents: usize) -> String {
    let amount = |n, unit| if n == 1 { format!("one {unit}") } else { format!("{} {unit}s", cardinal(n)) };
    match (euros, cents) {
        (_, 0) => amount(euros, "euro"),
        (0, _) => amount(cents, "cent"),
        _ => format!("{} and {}", amount(euros, "euro"), amount(cents, "cent")),
    }
}
