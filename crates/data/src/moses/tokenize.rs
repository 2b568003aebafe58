//! Words and punctuation apart: `MosesTokenizer.tokenize` of sacremoses, rule by rule and in its order.

use serde::{Deserialize, Serialize};

use super::chars::{Script, between, is_alpha, is_cjk, is_lower, is_number, is_space};
use super::prefixes::{Period, Prefixes};
use super::protect::Protected;
use super::{Escapes, Lang};
use crate::error::Result;

/// Treatment of a dash between letters or digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dashes {
    /// `well-known` stays one token.
    #[default]
    #[serde(rename = "moses")]
    Keep,
    /// `well-known` becomes `well @-@ known` (Moses' `-a`).
    #[serde(rename = "moses-split-dashes")]
    Split,
}

/// Treatment of Chinese, Japanese and Korean characters that stand together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CjkWords {
    /// As in sacremoses: they are one token if they are letters of the language.
    #[default]
    Whole,
    /// Each is a token; words of other scripts stay whole. Detokenising joins them, except in Korean.
    Characters,
}

/// Choices of the tokeniser; the defaults are Moses'.
#[derive(Clone, Debug, Default)]
pub struct TokenizeOptions {
    /// Dashes inside words.
    pub dashes: Dashes,
    /// Chinese, Japanese and Korean text.
    pub cjk_words: CjkWords,
    /// Reserved characters.
    pub escapes: Escapes,
    /// Patterns that stay in one piece.
    pub protected: Protected,
}

/// Splits lines of one language into tokens.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    lang: Lang,
    script: Script,
    prefixes: Prefixes,
    options: TokenizeOptions,
}

impl Tokenizer {
    /// A tokeniser with the rules of `lang`.
    pub fn new(lang: Lang, options: TokenizeOptions) -> Self {
        Self { lang, script: Script::of(lang), prefixes: Prefixes::new(lang), options }
    }

    /// The tokens of a line with one blank between them. Fails only if the protected patterns match too often.
    pub fn tokenize(&self, line: &str) -> Result<String> {
        let mut text = without_junk(line);
        let protected = &self.options.protected;
        let spans = if protected.is_empty() { None } else { Some(protected.take_out(&mut text)?) };
        let text = self.pad_symbols(text.trim_matches(is_space));
        let text = match self.options.dashes {
            Dashes::Keep => text,
            Dashes::Split => split_dashes(&text, self.script),
        };
        let text = separate_commas(&mark_multidots(&text));
        let text = match self.lang {
            Lang::En => english_apostrophes(text),
            Lang::Fr | Lang::It => romance_apostrophes(text),
            _ => pad_apostrophes(&text),
        };
        let mut text = self.split_periods(&text.into_iter().collect::<String>());
        if let Some(front) = text.strip_suffix(".'") {
            text = format!("{front} . '");
        }
        if let Some(spans) = spans {
            spans.put_back(&mut text);
        }
        let text = restore_multidots(text);
        let text = match self.options.escapes {
            Escapes::Entities => escape(&text),
            Escapes::Plain => text,
        };
        Ok(text.split(is_space).filter(|token| !token.is_empty()).collect::<Vec<_>>().join(" "))
    }

    /// Blanks around everything that is no letter, no digit and none of `. ' ` , -`.
    fn pad_symbols(&self, text: &str) -> Vec<char> {
        let alone = |c| self.options.cjk_words == CjkWords::Characters && is_cjk(c);
        let mut out = Vec::with_capacity(text.len() + 16);
        for c in text.chars() {
            let solid = self.script.is_alnum(c) && !alone(c);
            if solid || is_space(c) || matches!(c, '.' | '\'' | '`' | ',' | '-') {
                out.push(c);
            } else {
                out.extend([' ', c, ' ']);
            }
        }
        out
    }

    /// Splits the period off a word, unless it belongs to an abbreviation or the sentence continues after it.
    fn split_periods(&self, text: &str) -> String {
        let tokens: Vec<&str> = text.split(is_space).filter(|token| !token.is_empty()).collect();
        let mut out = String::with_capacity(text.len() + 2);
        for (i, token) in tokens.iter().enumerate() {
            if i > 0 {
                out.push(' ');
            }
            match token.strip_suffix('.') {
                Some(word) if !word.is_empty() && self.ends_sentence(word, tokens.get(i + 1)) => {
                    out.push_str(word);
                    out.push_str(" .");
                }
                _ => out.push_str(token),
            }
        }
        out
    }

    fn ends_sentence(&self, word: &str, next: Option<&&str>) -> bool {
        let next = next.and_then(|token| token.chars().next());
        if word.contains('.') && word.chars().any(|c| self.script.is_alpha(c)) || next.is_some_and(is_lower) {
            return false;
        }
        match self.prefixes.period_of(word) {
            Period::Kept => false,
            Period::KeptBeforeNumbers => !next.is_some_and(|c| c.is_ascii_digit()),
            Period::Split => true,
        }
    }
}

/// One blank for each run of white space; then control characters go.
fn without_junk(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut blank = false;
    for c in line.chars() {
        let space = is_space(c);
        if space && !blank {
            out.push(' ');
        } else if !space && c >= ' ' {
            out.push(c);
        }
        blank = space;
    }
    out
}

fn split_dashes(text: &[char], script: Script) -> Vec<char> {
    let mut out = Vec::with_capacity(text.len() + 16);
    for (i, &c) in text.iter().enumerate() {
        let inside = c == '-'
            && i > 0
            && script.is_alnum(text[i - 1])
            && text.get(i + 1).is_some_and(|&next| script.is_alnum(next));
        if inside {
            out.extend(" @-@ ".chars());
        } else {
            out.push(c);
        }
    }
    out
}

/// `...` becomes a word, ` DOTDOTDOTMULTI `, that no later rule splits.
fn mark_multidots(text: &[char]) -> Vec<char> {
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let dots = rest.iter().take_while(|&&c| c == '.').count();
        if dots < 2 {
            out.push(*first);
            rest = tail;
            continue;
        }
        rest = &rest[dots..];
        out.push(' ');
        out.extend("DOT".repeat(dots).chars());
        out.extend("MULTI".chars());
        if !rest.is_empty() {
            out.push(' ');
        }
    }
    out
}

/// The words of [`mark_multidots`] become dots again (and so do such words of the text itself, as in sacremoses).
fn restore_multidots(text: String) -> String {
    if !text.contains("DOTMULTI") {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("DOT") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let after = rest.trim_start_matches("DOT");
        let dots = (rest.len() - after.len()) / 3;
        match after.strip_prefix("MULTI") {
            Some(after) => {
                out.push_str(&".".repeat(dots));
                rest = after;
            }
            None => {
                out.push_str(&rest[..3 * dots]);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// Blanks around a comma, unless numbers stand on both sides.
fn separate_commas(text: &[char]) -> Vec<char> {
    // A comma after something that is no number; that may be a comma itself.
    let mut first = Vec::with_capacity(text.len() + 16);
    let mut rest = text;
    while let [c, tail @ ..] = rest {
        first.push(*c);
        rest = match tail {
            [',', after @ ..] if !is_number(*c) => {
                first.extend([' ', ',', ' ']);
                after
            }
            _ => tail,
        };
    }
    // A comma before something that is no number.
    let mut out = Vec::with_capacity(first.len() + 16);
    let mut rest = first.as_slice();
    while let [c, tail @ ..] = rest {
        rest = match (c, tail) {
            (',', [next, after @ ..]) if !is_number(*next) => {
                out.extend([' ', ',', ' ', *next]);
                after
            }
            _ => {
                out.push(*c);
                tail
            }
        };
    }
    // A comma after a number, at the end.
    if let [.., c, ','] = out[..]
        && is_number(c)
    {
        out.pop();
        out.extend([' ', ',', ' ']);
    }
    out
}

fn english_apostrophes(text: Vec<char>) -> Vec<char> {
    if !text.contains(&'\'') {
        return text;
    }
    let other = |c| !is_alpha(c);
    let neither = |c| !is_alpha(c) && !is_number(c);
    let text = between(&text, (other, '\'', other), " ' ");
    let text = between(&text, (neither, '\'', is_alpha), " ' ");
    let text = between(&text, (is_alpha, '\'', other), " ' ");
    let text = between(&text, (is_alpha, '\'', is_alpha), " '");
    between(&text, (is_number, '\'', |c| c == 's'), " '")
}

/// French and Italian: the apostrophe stays with the letter before it, `l' eau`.
fn romance_apostrophes(text: Vec<char>) -> Vec<char> {
    if !text.contains(&'\'') {
        return text;
    }
    let other = |c| !is_alpha(c);
    let text = between(&text, (other, '\'', other), " ' ");
    let text = between(&text, (other, '\'', is_alpha), " ' ");
    let text = between(&text, (is_alpha, '\'', other), " ' ");
    between(&text, (is_alpha, '\'', is_alpha), "' ")
}

fn pad_apostrophes(text: &[char]) -> Vec<char> {
    let mut out = Vec::with_capacity(text.len() + 16);
    for &c in text {
        if c == '\'' {
            out.extend([' ', '\'', ' ']);
        } else {
            out.push(c);
        }
    }
    out
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '|' => out.push_str("&#124;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            '[' => out.push_str("&#91;"),
            ']' => out.push_str("&#93;"),
            _ => out.push(c),
        }
    }
    out
}
