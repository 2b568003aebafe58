//! `text.json` in a binarised folder and in a model folder: the languages of the text, and the rules that it went
//! through before it was cut into pieces. So plain text can be given to a model in the form that it was trained on.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files;
use crate::moses::{Detokenizer, Escapes};
use crate::text_rules::{LineRules, TextRules};

/// Name of the file.
pub const TEXT: &str = "text.json";
/// The layout that this version reads and writes.
const FORMAT: u32 = 1;

/// Languages and rules of a text. Empty where a folder does not tell them, as those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextRecord {
    /// Source and target language.
    pub languages: Option<[String; 2]>,
    /// Rules of both sides. Plain text becomes what the segmentation reads.
    pub rules: TextRules,
}

/// The file. The languages are one entry each, for people who write it by hand.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordFile {
    format: u32,
    source_lang: String,
    target_lang: String,
    #[serde(default, skip_serializing_if = "is_default")]
    rules: TextRules,
}

fn is_default(rules: &TextRules) -> bool {
    *rules == TextRules::default()
}

impl TextRecord {
    /// A text of two languages with these rules.
    pub fn new(source_lang: &str, target_lang: &str, rules: TextRules) -> Self {
        Self { languages: Some([source_lang.to_owned(), target_lang.to_owned()]), rules }
    }

    /// Reads the record of a folder; an empty one where there is no file.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self> {
        let path = folder.as_ref().join(TEXT);
        let text = match fs::read_to_string(&path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Self::default());
            }
            text => text.map_err(Error::io("read", &path))?,
        };
        let fault = |what: String| {
            Error::dataset(&path, format!("{what}; mend the file, or remove it to give text as tokens"))
        };
        let file: RecordFile = serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?;
        if file.format != FORMAT {
            return Err(fault(format!(
                "format {} is not known; this program reads format {FORMAT}",
                file.format
            )));
        }
        let record = Self::new(&file.source_lang, &file.target_lang, file.rules);
        record.tools().map_err(|error| fault(error.to_string()))?;
        Ok(record)
    }

    /// Writes the file; an empty record has none.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let path = folder.as_ref().join(TEXT);
        let Some([source_lang, target_lang]) = self.languages.clone() else {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("replace", &path)(error)),
                _ => Ok(()),
            };
        };
        let file = RecordFile { format: FORMAT, source_lang, target_lang, rules: self.rules.clone() };
        let mut json = serde_json::to_string_pretty(&file).expect("a record can always be written as JSON");
        json.push('\n');
        files::write(path, json.as_bytes())
    }

    /// The rules, ready for use; `None` where text is taken as it is.
    pub fn tools(&self) -> Result<Option<TextTools>> {
        let Some([source, target]) = self.languages.as_ref().filter(|_| !is_default(&self.rules)) else {
            return Ok(None);
        };
        let detokenizer = match self.rules.tokenize {
            Some(_) => Some(Detokenizer::new(target.parse()?, Escapes::default())),
            None => None,
        };
        Ok(Some(TextTools { sides: [self.rules.of(source)?, self.rules.of(target)?], detokenizer }))
    }
}

/// Rules of both sides, ready for use.
#[derive(Clone, Debug)]
pub struct TextTools {
    sides: [LineRules; 2],
    /// Undoes the tokeniser of the target.
    detokenizer: Option<Detokenizer>,
}

impl TextTools {
    /// A plain line of the source.
    pub fn source(&self, line: &str) -> String {
        apply(&self.sides[0], line)
    }

    /// A plain line of the target.
    pub fn target(&self, line: &str) -> String {
        apply(&self.sides[1], line)
    }

    /// A line of the target as people write it: tokens are joined; lower case stays.
    pub fn plain(&self, tokens: &str) -> String {
        self.detokenizer.as_ref().map_or_else(|| tokens.to_owned(), |joining| joining.detokenize(tokens))
    }
}

fn apply(rules: &LineRules, line: &str) -> String {
    // Only placeholders of protected patterns fail, and there are none.
    rules.apply(line).unwrap_or_else(|_| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moses::Dashes;

    #[test]
    fn records_come_back_and_old_folders_have_none() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(TextRecord::load(place.path()).unwrap(), TextRecord::default());
        assert!(TextRecord::default().tools().unwrap().is_none());
        let rules = TextRules {
            tokenize: Some(Dashes::Split),
            normalize: true,
            lowercase: true,
            ..Default::default()
        };
        for rules in [rules, TextRules::default()] {
            let record = TextRecord::new("de", "en", rules);
            record.save(place.path()).unwrap();
            assert_eq!(TextRecord::load(place.path()).unwrap(), record);
        }
        TextRecord::default().save(place.path()).unwrap();
        assert!(!place.path().join(TEXT).exists());
    }

    #[test]
    fn text_goes_through_the_rules_of_its_side_and_back() {
        let rules = TextRules { tokenize: Some(Dashes::Split), lowercase: true, ..Default::default() };
        assert_eq!(rules.to_string(), "tokenised (Moses, dashes split), lower case");
        let tools = TextRecord::new("de", "en", rules).tools().unwrap().unwrap();
        assert_eq!(tools.source("Das ist z.B. neu-artig!"), "das ist z.b. neu @-@ artig !");
        assert_eq!(tools.target("It isn't new."), "it isn &apos;t new .");
        assert_eq!(tools.plain("it isn &apos;t well @-@ known ."), "it isn't well-known.");
    }

    #[test]
    fn files_that_are_not_understood_are_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        let languages = r#""source_lang": "de", "target_lang": "en""#;
        for (text, word) in [
            ("{", "EOF"),
            (&format!(r#"{{"format": 2, {languages}}}"#), "format 2"),
            (&format!(r#"{{"format": 1, {languages}, "rules": {{"stem": true}}}}"#), "stem"),
            (&format!(r#"{{"format": 1, {languages}, "rules": {{"tokenize": "nltk"}}}}"#), "nltk"),
            (
                r#"{"format": 1, "source_lang": "xx", "target_lang": "en", "rules": {"tokenize": "moses"}}"#,
                "xx",
            ),
        ] {
            fs::write(place.path().join(TEXT), text).unwrap();
            let error = TextRecord::load(place.path()).unwrap_err().to_string();
            assert!(error.contains(TEXT) && error.contains(word), "{error}");
        }
    }
}
