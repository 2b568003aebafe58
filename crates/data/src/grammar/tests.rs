//! Hand-checked German, and what the generator promises.

use std::collections::{BTreeSet, HashSet};

use super::{templates::TEMPLATES, *};

#[test]
fn german_numbers_are_right() {
    let expected = [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (6, "six", "sechs"),
        (11, "eleven", "elf"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (35, "thirty five", "fünfunddreißig"),
        (42, "forty two", "zweiundvierzig"),
        (66, "sixty six", "sechsundsechzig"),
        (77, "seventy seven", "siebenundsiebzig"),
        (99, "ninety nine", "neunundneunzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (116, "one hundred and sixteen", "einhundertsechzehn"),
        (342, "three hundred and forty two", "dreihundertzweiundvierzig"),
        (781, "seven hundred and eighty one", "siebenhunderteinundachtzig"),
        (1000, "one thousand", "eintausend"),
        (1001, "one thousand and one", "eintausendeins"),
        (1017, "one thousand and seventeen", "eintausendsiebzehn"),
        (2200, "two thousand two hundred", "zweitausendzweihundert"),
        (9999, "nine thousand nine hundred and ninety nine", "neuntausendneunhundertneunundneunzig"),
    ];
    for (n, en, de) in expected {
        assert_eq!((english::cardinal(n).as_str(), german::cardinal(n).as_str()), (en, de));
    }
}

#[test]
fn german_ordinals_and_years_are_right() {
    let ordinals = [
        (1, "first", "erste"),
        (2, "second", "zweite"),
        (3, "third", "dritte"),
        (7, "seventh", "siebte"),
        (8, "eighth", "achte"),
        (12, "twelfth", "zwölfte"),
        (16, "sixteenth", "sechzehnte"),
        (20, "twentieth", "zwanzigste"),
        (21, "twenty first", "einundzwanzigste"),
        (38, "thirty eighth", "achtunddreißigste"),
        (90, "ninetieth", "neunzigste"),
    ];
    for (n, en, de) in ordinals {
        assert_eq!((english::ordinal(n).as_str(), german::ordinal(n).as_str()), (en, de));
    }
    let years = [
        (1800, "eighteen hundred", "achtzehnhundert"),
        (1805, "eighteen oh five", "achtzehnhundertfünf"),
        (1901, "nineteen oh one", "neunzehnhunderteins"),
        (1984, "nineteen eighty four", "neunzehnhundertvierundachtzig"),
        (2000, "two thousand", "zweitausend"),
        (2001, "two thousand and one", "zweitausendeins"),
        (2017, "twenty seventeen", "zweitausendsiebzehn"),
        (2099, "twenty ninety nine", "zweitausendneunundneunzig"),
    ];
    for (n, en, de) in years {
        assert_eq!((english::year(n).as_str(), german::year(n).as_str()), (en, de));
    }
}

#[test]
fn german_times_and_prices_are_right() {
    let times = [
        (1, 0, "one o'clock", "ein uhr"),
        (4, 0, "four o'clock", "vier uhr"),
        (4, 20, "twenty past four", "zwanzig nach vier"),
        (6, 15, "a quarter past six", "viertel nach sechs"),
        (6, 25, "twenty five past six", "fünf vor halb sieben"),
        (6, 30, "half past six", "halb sieben"),
        (12, 30, "half past twelve", "halb eins"),
        (6, 35, "twenty five to seven", "fünf nach halb sieben"),
        (8, 45, "a quarter to nine", "viertel vor neun"),
        (11, 40, "twenty to twelve", "zwanzig vor zwölf"),
        (12, 50, "ten to one", "zehn vor eins"),
    ];
    for (hour, minute, en, de) in times {
        assert_eq!((english::clock(hour, minute).as_str(), german::clock(hour, minute).as_str()), (en, de));
    }
    let prices = [
        (12, 50, "twelve euros and fifty cents", "zwölf euro und fünfzig cent"),
        (1, 0, "one euro", "einen euro"),
        (1, 1, "one euro and one cent", "einen euro und einen cent"),
        (0, 99, "ninety nine cents", "neunundneunzig cent"),
        (300, 0, "three hundred euros", "dreihundert euro"),
    ];
    for (euros, cents, en, de) in prices {
        assert_eq!((english::price(euros, cents).as_str(), german::price(euros, cents).as_str()), (en, de));
    }
}

#[test]
fn german_sentences_are_right() {
    let expected = [
        (
            "he was born on the twenty second of february nineteen nineteen",
            "er wurde am zweiundzwanzigsten februar neunzehnhundertneunzehn geboren",
        ),
        ("the bus leaves at half past six", "der bus fährt um halb sieben ab"),
        (
            "the taxi to munich leaves on thursday at a quarter to twelve",
            "das taxi nach münchen fährt am donnerstag um viertel vor zwölf ab",
        ),
        (
            "my mother came to london at the age of thirty six",
            "meine mutter ist im alter von sechsunddreißig jahren nach london gekommen",
        ),
        (
            "my father sat in the fiftieth row on wednesday",
            "mein vater hat am mittwoch in der fünfzigsten reihe gesessen",
        ),
        (
            "my mother wrote the number one thousand five hundred and twenty two on the board",
            "meine mutter hat die zahl eintausendfünfhundertzweiundzwanzig an die tafel geschrieben",
        ),
        ("the taxi leaves at twenty five past eleven", "das taxi fährt um fünf vor halb zwölf ab"),
        (
            "the school in cologne was built in nineteen twenty seven",
            "die schule in köln wurde im jahr neunzehnhundertsiebenundzwanzig gebaut",
        ),
        (
            "my mother has lived in prague since twenty sixteen",
            "meine mutter wohnt seit zweitausendsechzehn in prag",
        ),
        (
            "i paid one hundred and ninety seven euros and eighty nine cents for the chair",
            "ich habe für den stuhl einhundertsiebenundneunzig euro und neunundachtzig cent bezahlt",
        ),
        (
            "my mother got up at twenty five past one in the afternoon",
            "meine mutter ist um fünf vor halb zwei am nachmittag aufgestanden",
        ),
        (
            "my brother got up at five past eleven at night",
            "mein bruder ist um fünf nach elf in der nacht aufgestanden",
        ),
        (
            "a ticket to munich costs eight hundred and forty three euros and nine cents",
            "eine fahrkarte nach münchen kostet achthundertdreiundvierzig euro und neun cent",
        ),
        ("he will be seven years old on tuesday", "er wird am dienstag sieben jahre alt"),
        (
            "six hundred and thirty nine guests came to munich",
            "sechshundertneununddreißig gäste sind nach münchen gekommen",
        ),
        (
            "it costs five hundred and eighty eight euros and twenty four cents",
            "das kostet fünfhundertachtundachtzig euro und vierundzwanzig cent",
        ),
        (
            "the train to rome leaves on sunday at ten to four",
            "der zug nach rom fährt am sonntag um zehn vor vier ab",
        ),
        (
            "i cannot remember the number four thousand nine hundred and sixty one",
            "ich kann mich nicht an die zahl viertausendneunhunderteinundsechzig erinnern",
        ),
        ("one thousand eight hundred and sixty two", "eintausendachthundertzweiundsechzig"),
        (
            "our teacher was born on the fifteenth of september eighteen oh eight",
            "unser lehrer wurde am fünfzehnten september achtzehnhundertacht geboren",
        ),
        ("the concert begins at ten o'clock in the evening", "das konzert fängt um zehn uhr am abend an"),
        (
            "the answer is one thousand nine hundred and fifty three",
            "die antwort ist eintausendneunhundertdreiundfünfzig",
        ),
        ("five hundred and thirteen students came", "fünfhundertdreizehn schüler kamen"),
        (
            "i think that the taxi leaves at half past eleven",
            "ich glaube dass das taxi um halb zwölf abfährt",
        ),
        (
            "in eighteen ninety six only two hundred and ninety three people lived here",
            "im jahr achtzehnhundertsechsundneunzig haben nur zweihundertdreiundneunzig menschen hier gewohnt",
        ),
        (
            "the answer is nine thousand one hundred and fourteen",
            "die antwort ist neuntausendeinhundertvierzehn",
        ),
    ];
    let pairs = generate(expected.len(), 2016);
    let pairs: Vec<_> = pairs.iter().map(|pair| (pair.source.as_str(), pair.target.as_str())).collect();
    assert_eq!(pairs, expected);
}

#[test]
fn sources_are_distinct_and_look_like_sentences() {
    let pairs = generate(200_000, 7);
    assert_eq!(pairs.len(), 200_000);
    let sources: HashSet<&str> = pairs.iter().map(|pair| pair.source.as_str()).collect();
    assert_eq!(sources.len(), pairs.len());
    let kinds: BTreeSet<Kind> = pairs.iter().map(|pair| pair.kind).collect();
    assert_eq!(kinds.len(), 9);
    let mut short = 0;
    for Pair { source, target, kind } in &pairs {
        for side in [source, target] {
            assert!(side.split(' ').all(|word| !word.is_empty()), "{kind}: {side:?}");
            assert!(side.chars().all(|c| c.is_lowercase() || c == ' ' || c == '\''), "{kind}: {side}");
        }
        let words = source.split(' ').count();
        assert!(words <= 15, "{kind}: {source}");
        short += usize::from(words < 4);
    }
    assert!(short * 20 < pairs.len(), "{short} of {} are very short", pairs.len());
}

#[test]
fn draws_repeat_and_extend_each_other() {
    let pairs = generate(3000, 42);
    assert_eq!(pairs, generate(3000, 42));
    assert_eq!(pairs[..1000], generate(1000, 42));
    assert_ne!(pairs, generate(3000, 43));
    assert!(generate(0, 42).is_empty());
}

#[test]
fn the_grammar_is_large() {
    assert!(capacity() > 5_000_000, "{}", capacity());
}

#[test]
fn templates_are_walked_through_completely() {
    let template = TEMPLATES.iter().min_by_key(|template| template.size()).expect("templates");
    let order = Permutation::new(template.size(), &mut SplitMix64(5));
    let sentences: HashSet<String> =
        (0..template.size()).map(|i| template.sentence(order.apply(i)).0).collect();
    assert_eq!(sentences.len() as u64, template.size());
    for bound in [1, 2, 3, 17, 1000] {
        let order = Permutation::new(bound, &mut SplitMix64(bound));
        let mut seen: Vec<u64> = (0..bound).map(|i| order.apply(i)).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..bound));
    }
}
