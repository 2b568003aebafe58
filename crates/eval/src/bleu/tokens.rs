//! From a line to words.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::BleuError;
use crate::text::{
    is_python_space, pad, rewrite_pairs, space_out, space_out_marks, space_out_symbols, stands_alone,
    undo_entities,
};
use crate::unicode::{is_number, is_punctuation, is_symbol};

/// Tokenisation of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Tokenizer {
    /// mteval-v13a, WMT's and sacreBLEU's default: entities are undone, punctuation and symbols of ASCII
    /// stand alone, and so do periods and commas outside numbers and dashes after digits.
    #[default]
    #[serde(rename = "13a")]
    V13a,
    /// The line as it is; words are separated by Unicode white space (sacreBLEU's `none`, fairseq).
    #[serde(rename = "none")]
    None,
    /// mteval-v14's international mode: punctuation outside numbers and all symbols of Unicode stand alone.
    #[serde(rename = "intl")]
    Intl,
    /// Every character is a word.
    #[serde(rename = "char")]
    Char,
    /// Chinese characters are words, the rest is tokenised like `13a`.
    #[serde(rename = "zh")]
    Zh,
    /// Pieces of the SentencePiece model of FLORES-101 (sacreBLEU's `spm`). Lines must be pieces already
    /// ([`super::LineCutter`]).
    #[serde(rename = "flores101")]
    Flores101,
    /// Pieces of the model of FLORES-200.
    #[serde(rename = "flores200")]
    Flores200,
    /// Pieces of the model of spBLEU-1K.
    #[serde(rename = "spBLEU-1K")]
    SpBleu1k,
    /// Japanese words of MeCab with the IPA dictionary. Lines must be words already ([`super::LineCutter`]).
    #[serde(rename = "ja-mecab")]
    JaMecab,
    /// Korean words of mecab-ko with mecab-ko-dic, likewise.
    #[serde(rename = "ko-mecab")]
    KoMecab,
    /// The line as `multi-bleu.perl` reads it, byte by byte: only ASCII white space separates words,
    /// only ASCII letters have a case.
    #[serde(rename = "multi-bleu")]
    MultiBleu,
}

impl Tokenizer {
    /// Lower-cases and tokenises one line; the result is what [`Tokenizer::words`] splits.
    #[must_use]
    pub fn prepare(self, line: &str, lowercase: bool) -> Cow<'_, str> {
        let cased = match (lowercase, self) {
            (false, _) => Cow::Borrowed(line),
            // Lower-cased before it was cut.
            (true, _) if self.needs().is_some() => Cow::Borrowed(line),
            (true, Self::MultiBleu) => Cow::Owned(line.to_ascii_lowercase()),
            (true, _) => Cow::Owned(line.to_lowercase()),
        };
        match self {
            Self::None | Self::MultiBleu => cased,
            Self::Flores101 | Self::Flores200 | Self::SpBleu1k | Self::JaMecab | Self::KoMecab => cased,
            Self::V13a => Cow::Owned(tokenize_13a(&cased)),
            Self::Intl => Cow::Owned(tokenize_intl(&cased)),
            Self::Char => Cow::Owned(space_out(&cased, |_| true)),
            Self::Zh => Cow::Owned(tokenize_zh(&cased)),
        }
    }

    /// The words of a line that [`Tokenizer::prepare`] has been through.
    pub fn words(self, prepared: &str) -> impl Iterator<Item = &str> {
        let is_space = match self {
            Self::MultiBleu => is_perl_space,
            _ => is_python_space,
        };
        prepared.split(is_space).filter(|word| !word.is_empty())
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V13a => "13a",
            Self::None => "none",
            Self::Intl => "intl",
            Self::Char => "char",
            Self::Zh => "zh",
            Self::Flores101 => "flores101",
            Self::Flores200 => "flores200",
            Self::SpBleu1k => "spBLEU-1K",
            // With the versions of MeCab and mecab-ko whose words these are.
            Self::JaMecab => "ja-mecab-0.996-IPA",
            Self::KoMecab => "ko-mecab-0.996/ko-0.9.2-KO",
            Self::MultiBleu => "multi-bleu",
        })
    }
}

impl FromStr for Tokenizer {
    type Err = BleuError;

    fn from_str(name: &str) -> Result<Self, BleuError> {
        match name {
            "13a" => Ok(Self::V13a),
            "none" => Ok(Self::None),
            "intl" => Ok(Self::Intl),
            "char" => Ok(Self::Char),
            "zh" => Ok(Self::Zh),
            "spm" | "flores101" => Ok(Self::Flores101),
            "flores200" => Ok(Self::Flores200),
            "spBLEU-1K" => Ok(Self::SpBleu1k),
            "ja-mecab" => Ok(Self::JaMecab),
            "ko-mecab" => Ok(Self::KoMecab),
            "multi-bleu" => Ok(Self::MultiBleu),
            _ => Err(BleuError::UnknownTokenizer(name.to_owned())),
        }
    }
}

/// White space of Perl's `split ' '` in a string of bytes.
pub(super) fn is_perl_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// The mteval-v13a tokenisation of a line; words are separated by any white space.
fn tokenize_13a(line: &str) -> String {
    // The ends are blanked out below, and a final period must see a blank, not the line's own '\n'.
    let line = line.trim_end_matches(is_python_space);
    let line = line.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    let line = if line.contains('&') { undo_entities(&line) } else { line };
    space_out_marks(&space_out_symbols(&line))
}

/// sacreBLEU's Chinese tokenisation; words are separated by any white space.
fn tokenize_zh(line: &str) -> String {
    let line = pad(line.trim_matches(is_python_space), is_chinese);
    // Unlike in 13a there are no blanks at the ends: a last period after a digit stays with it.
    space_out_marks(&pad(&line, stands_alone))
}

/// Characters that stand alone in Chinese text. The second range is meant for ideographs beyond the Basic Multilingual
/// Plane; its Python literals have five digits, of which Python reads four, so that it holds punctuation and symbols.
fn is_chinese(c: char) -> bool {
    matches!(u32::from(c),
        0x3400..=0x4db5 | 0x2001..=0x2a6d | 0x2f81..=0x2fa1 | 0x4e00..=0x9fbb | 0xf900..=0xfa2d | 0xfa30..=0xfa6a
        | 0xfa70..=0xfad9 | 0xff00..=0xffef | 0x2e80..=0x2eff | 0x3000..=0x303f | 0x31c0..=0x31ef | 0x2f00..=0x2fdf
        | 0x2ff0..=0x2fff | 0x3100..=0x312f | 0x31a0..=0x31bf | 0xfe10..=0xfe1f | 0xfe30..=0xfe4f | 0x3200..=0x33ff)
}

/// mteval-v14's international tokenisation; words are separated by any white space.
fn tokenize_intl(line: &str) -> String {
    // A period after a digit at the very end stays with the number, as in mteval: nothing follows it.
    let line = line.trim_end_matches(is_python_space);
    let line = rewrite_pairs(line, |a, b| !is_number(a) && is_punctuation(b), |a, b| [a, ' ', b, ' ']);
    let line = rewrite_pairs(&line, |a, b| is_punctuation(a) && !is_number(b), |a, b| [' ', a, ' ', b]);
    space_out(&line, is_symbol)
}
