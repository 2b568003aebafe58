//! Rules for a line before it is cut into pieces.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::moses::{
    CjkWords, Dashes, Lang, NonPrinting, NormalizeOptions, Normalizer, TokenizeOptions, Tokenizer,
};

/// Choices for one kind of text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextRules {
    /// Curly apostrophes become straight.
    pub straighten: bool,
    /// Moses' punctuation normaliser, and blanks for characters that do not print.
    pub normalize: bool,
    /// Romanian ş and ţ, which are often written with cedillas, get commas: ș and ț. Other languages stay.
    pub comma_below: bool,
    /// Moses' tokeniser.
    pub tokenize: Option<Dashes>,
    /// Chinese, Japanese and Korean text, where it is tokenised.
    pub cjk_words: CjkWords,
    /// A period at the end of a line is a token of its own even after an abbreviation, as in Moses' Perl script;
    /// sacremoses leaves it there.
    pub split_last_period: bool,
    /// Lower case.
    pub lowercase: bool,
}

/// The rules as a list: `punctuation normalised, tokenised (Moses), lower case`; `none` without any.
impl fmt::Display for TextRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokenised = match (self.tokenize, self.cjk_words) {
            (None, _) => None,
            (Some(Dashes::Keep), CjkWords::Whole) => Some("tokenised (Moses)"),
            (Some(Dashes::Split), CjkWords::Whole) => Some("tokenised (Moses, dashes split)"),
            (Some(Dashes::Keep), CjkWords::Characters) => Some("tokenised (Moses, by character)"),
            (Some(Dashes::Split), CjkWords::Characters) => {
                Some("tokenised (Moses, dashes split, by character)")
            }
        };
        let rules = [
            self.straighten.then_some("apostrophes straightened"),
            self.normalize.then_some("punctuation normalised"),
            self.comma_below.then_some("Romanian commas"),
            tokenised,
            self.split_last_period.then_some("last period split off"),
            self.lowercase.then_some("lower case"),
        ];
        let rules: Vec<&str> = rules.into_iter().flatten().collect();
        f.write_str(&if rules.is_empty() { "none".to_owned() } else { rules.join(", ") })
    }
}

impl TextRules {
    /// Prepares the rules for a language; fails where Moses' tools are asked for and have no rules for it.
    pub(crate) fn of(&self, lang: &str) -> Result<LineRules> {
        let moses = || lang.parse::<Lang>();
        let normalizer = match self.normalize {
            true => {
                let options =
                    NormalizeOptions { non_printing: NonPrinting::Blank, ..NormalizeOptions::default() };
                Some(Normalizer::new(moses()?, options))
            }
            false => None,
        };
        let tokenizer = match self.tokenize {
            Some(dashes) => {
                let cjk_words = self.cjk_words;
                let options = TokenizeOptions { dashes, cjk_words, ..TokenizeOptions::default() };
                Some(Tokenizer::new(moses()?, options))
            }
            None => None,
        };
        let TextRules { straighten, split_last_period, lowercase, .. } = *self;
        let comma_below = self.comma_below && lang == "ro";
        Ok(LineRules { straighten, comma_below, normalizer, tokenizer, split_last_period, lowercase })
    }
}

/// The rules for a language, ready for use.
#[derive(Clone, Debug)]
pub(crate) struct LineRules {
    straighten: bool,
    comma_below: bool,
    normalizer: Option<Normalizer>,
    tokenizer: Option<Tokenizer>,
    split_last_period: bool,
    lowercase: bool,
}

impl LineRules {
    pub(crate) fn apply(&self, line: &str) -> Result<String> {
        let mut text = if self.straighten { line.replace('’', "'") } else { line.to_owned() };
        if let Some(normalizer) = &self.normalizer {
            text = normalizer.normalize(&text);
        }
        if self.comma_below {
            text = with_commas(&text);
        }
        if let Some(tokenizer) = &self.tokenizer {
            text = tokenizer.tokenize(&text)?;
        }
        if self.split_last_period
            && text
                .strip_suffix('.')
                .is_some_and(|before| !before.is_empty() && !before.ends_with(['.', ' ']))
        {
            text.insert(text.len() - 1, ' ');
        }
        if self.lowercase {
            // Letter by letter, as Perl's `lc`: a sigma at the end of a word is one like any other.
            text = text.chars().flat_map(char::to_lowercase).collect();
        }
        Ok(text)
    }
}

/// Commas in place of cedillas.
fn with_commas(text: &str) -> String {
    let comma = |c| match c {
        'Ş' => 'Ș',
        'ş' => 'ș',
        'Ţ' => 'Ț',
        'ţ' => 'ț',
        other => other,
    };
    text.chars().map(comma).collect()
}
