//! Rules for a line before it is cut into pieces.

use crate::error::Result;
use crate::moses::{
    CjkWords, Dashes, Lang, NonPrinting, NormalizeOptions, Normalizer, TokenizeOptions, Tokenizer,
};

/// Choices for one kind of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

impl TextRules {
    /// Prepares the rules for a language; fails where Moses' tools are asked for and have no rules for it.
    pub(super) fn of(&self, lang: &str) -> Result<LineRules> {
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
pub(super) struct LineRules {
    straighten: bool,
    comma_below: bool,
    normalizer: Option<Normalizer>,
    tokenizer: Option<Tokenizer>,
    split_last_period: bool,
    lowercase: bool,
}

impl LineRules {
    pub(super) fn apply(&self, line: &str) -> Result<String> {
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
