//! One form for quotes, dashes and blanks: `MosesPunctNormalizer.normalize` of sacremoses, and Moses'
//! `remove-non-printing-char.perl`.

use std::sync::LazyLock;

use regex::Regex;

use super::Lang;
use super::chars::{between, is_decimal, is_space};

/// Control, format, private and unassigned characters. The unassigned ones depend on the Unicode of the `regex`
/// crate (16 now); a newer tool keeps characters that came later.
static NON_PRINTING: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\p{C}").expect("the pattern is right"));

/// Punctuation and digits of other scripts, and their ASCII forms. White space after a full stop of them goes.
const WIDE: [(&str, &str); 36] = [
    ("，", ","),
    ("。", ". "),
    ("、", ","),
    ("”", "\""),
    ("“", "\""),
    ("∶", ":"),
    ("：", ":"),
    ("？", "?"),
    ("《", "\""),
    ("》", "\""),
    ("）", ")"),
    ("！", "!"),
    ("（", "("),
    ("；", ";"),
    ("」", "\""),
    ("「", "\""),
    ("０", "0"),
    ("１", "1"),
    ("２", "2"),
    ("３", "3"),
    ("４", "4"),
    ("５", "5"),
    ("６", "6"),
    ("７", "7"),
    ("８", "8"),
    ("９", "9"),
    ("．", ". "),
    ("～", "~"),
    ("’", "'"),
    ("…", "..."),
    ("━", "-"),
    ("〈", "<"),
    ("〉", ">"),
    ("【", "["),
    ("】", "]"),
    ("％", "%"),
];
/// Quotes, dashes, apostrophes, the ellipsis; in this order.
const MARKS_BEFORE: [(&str, &str); 5] = [("„", "\""), ("“", "\""), ("”", "\""), ("–", "-"), ("—", " - ")];
const MARKS_AFTER: [(&str, &str); 7] =
    [("´", "'"), ("‘", "'"), ("‚", "'"), ("’", "'"), ("''", "\""), ("´´", "\""), ("…", "...")];
/// French quotes with their no-break spaces, and other such spaces before punctuation.
const NO_BREAK: [(&str, &str); 15] = [
    ("\u{a0}«\u{a0}", "\""),
    ("«\u{a0}", "\""),
    ("«", "\""),
    ("\u{a0}»\u{a0}", "\""),
    ("\u{a0}»", "\""),
    ("»", "\""),
    ("\u{a0}%", "%"),
    ("nº\u{a0}", "nº "),
    ("\u{a0}:", ":"),
    ("\u{a0}ºC", " ºC"),
    ("\u{a0}cm", " cm"),
    ("\u{a0}?", "?"),
    ("\u{a0}!", "!"),
    ("\u{a0};", ";"),
    (",\u{a0}", ", "),
];

/// Treatment of characters that do not print (Unicode's category C).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonPrinting {
    /// They stay.
    #[default]
    Keep,
    /// They go, as with sacremoses' `post_remove_control_chars`.
    Remove,
    /// Each becomes a blank, as with `remove-non-printing-char.perl`.
    Blank,
}

/// Choices of the normaliser; the defaults are sacremoses'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalizeOptions {
    /// First, punctuation and digits of other scripts become ASCII (`replace-unicode-punctuation.perl`).
    pub replace_unicode_punct: bool,
    /// Quotes written as `` ` `` and `''` become `'` and `"` too.
    pub penn: bool,
    /// Quotes go after commas and periods in English, and before them in German, Spanish and French.
    pub quote_commas: bool,
    /// A no-break space between digits becomes `,` in Czech, German, Spanish and French, `.` in other languages.
    pub numbers: bool,
    /// Last, characters that do not print.
    pub non_printing: NonPrinting,
}

impl Default for NormalizeOptions {
    fn default() -> Self {
        Self {
            replace_unicode_punct: false,
            penn: true,
            quote_commas: true,
            numbers: true,
            non_printing: NonPrinting::Keep,
        }
    }
}

/// Normalises the punctuation of one language.
#[derive(Clone, Debug)]
pub struct Normalizer {
    lang: Lang,
    options: NormalizeOptions,
}

impl Normalizer {
    /// A normaliser with the rules of `lang`.
    pub fn new(lang: Lang, options: NormalizeOptions) -> Self {
        Self { lang, options }
    }

    /// The line with normal punctuation, without white space at its ends.
    pub fn normalize(&self, line: &str) -> String {
        let mut text = line.to_owned();
        if self.options.replace_unicode_punct {
            replace_unicode_punct(&mut text);
        }
        tidy_blanks(&mut text);
        if self.options.penn {
            swap_all(&mut text, &[("`", "'"), ("''", " \" ")]);
        }
        swap_all(&mut text, &MARKS_BEFORE);
        one_blank(&mut text);
        swap_all(&mut text, &MARKS_AFTER);
        swap_all(&mut text, &NO_BREAK);
        one_blank(&mut text);
        if self.options.quote_commas && text.contains('"') {
            text = match self.lang {
                Lang::En => quotes_after_commas(&text),
                Lang::De | Lang::Es | Lang::Fr => quotes_before_periods(&text.replace(",\"", "\",")),
                _ => text,
            };
        }
        if self.options.numbers && text.contains('\u{a0}') {
            let point = match self.lang {
                Lang::Cs | Lang::De | Lang::Es | Lang::Fr => ",",
                _ => ".",
            };
            let chars: Vec<char> = text.chars().collect();
            text = between(&chars, (is_decimal, '\u{a0}', is_decimal), point).into_iter().collect();
        }
        let text = match self.options.non_printing {
            NonPrinting::Keep => text,
            NonPrinting::Remove => NON_PRINTING.replace_all(&text, "").into_owned(),
            NonPrinting::Blank => blank_non_printing(&text),
        };
        text.trim_matches(is_space).to_owned()
    }
}

/// The line with a blank for each character that does not print, and nothing else changed: all that
/// `remove-non-printing-char.perl` does.
pub fn blank_non_printing(line: &str) -> String {
    NON_PRINTING.replace_all(line, " ").into_owned()
}

fn swap(text: &mut String, from: &str, to: &str) {
    if text.contains(from) {
        *text = text.replace(from, to);
    }
}

fn swap_all(text: &mut String, pairs: &[(&str, &str)]) {
    pairs.iter().for_each(|(from, to)| swap(text, from, to));
}

/// One blank for a run of blanks (and of nothing but blanks).
fn one_blank(text: &mut String) {
    if text.contains("  ") {
        let mut before = '\0';
        text.retain(|c| (c, std::mem::replace(&mut before, c)) != (' ', ' '));
    }
}

/// Blanks outside of parentheses, none inside, none before `%`, `:` and `;`.
fn tidy_blanks(text: &mut String) {
    swap_all(text, &[("\r", ""), ("(", " ("), (")", ") ")]);
    one_blank(text);
    swap_all(
        text,
        &[(") .", ")."), (") !", ")!"), (") :", "):"), (") ?", ")?"), (") ;", ");"), (") ,", "),")],
    );
    swap_all(text, &[("( ", "("), (" )", ")")]);
    if text.contains(" %") {
        let chars: Vec<char> = text.chars().collect();
        *text = between(&chars, (is_decimal, ' ', |c| c == '%'), "").into_iter().collect();
    }
    swap_all(text, &[(" :", ":"), (" ;", ";")]);
}

fn replace_unicode_punct(text: &mut String) {
    for (from, to) in WIDE {
        if to == ". " && text.contains(from) {
            let mut parts = text.split(from);
            let first = parts.next().unwrap_or_default().to_owned();
            *text = parts.fold(first, |out, part| out + to + part.trim_start_matches(is_space));
        } else {
            swap(text, from, to);
        }
    }
}

/// `"..,` becomes `..,"`.
fn quotes_after_commas(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('"') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = after.trim_start_matches([',', '.']);
        out.push_str(&after[..after.len() - rest.len()]);
        out.push('"');
    }
    out + rest
}

/// `.." x` becomes `".. x`, unless the quote ends the line or a tag follows it.
fn quotes_before_periods(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('.') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let after = rest.trim_start_matches('.');
        let dots = &rest[..rest.len() - after.len()];
        // The character that ends the match; it cannot start another one.
        let last = after.strip_prefix('"').and_then(|quoted| {
            let tail = quoted.trim_start_matches(is_space);
            let spaces = &quoted[..quoted.len() - tail.len()];
            let end = tail.chars().next().filter(|&c| c != '<').map(|c| spaces.len() + c.len_utf8());
            end.or_else(|| (!spaces.is_empty()).then_some(spaces.len())).map(|end| quoted.split_at(end))
        });
        match last {
            Some((matched, tail)) => {
                out.push('"');
                out.push_str(dots);
                out.push_str(matched);
                rest = tail;
            }
            None => {
                out.push_str(dots);
                rest = after;
            }
        }
    }
    out + rest
}
