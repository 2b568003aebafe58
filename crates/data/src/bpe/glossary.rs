//! Words that merges leave alone: subword-nmt's `--glossaries`.

use regex::Regex;

use crate::error::Result;
use crate::options::OptionFault;

/// Patterns whose matches are pieces of their own, inside words too.
#[derive(Clone, Debug, Default)]
pub struct Glossaries(Vec<Glossary>);

#[derive(Clone, Debug)]
struct Glossary {
    /// The pattern anywhere in a word.
    inside: Regex,
    /// subword-nmt's test for a word that is not divided: `^` and `$` around the pattern, which bind to the first and
    /// the last of several alternatives.
    undivided: Regex,
    /// The pattern from the start of a word to its end.
    whole: Regex,
}

impl Glossaries {
    /// Adds a word or a regular expression. Patterns that match nothing at all are refused.
    pub fn add(&mut self, pattern: &str) -> Result<()> {
        let fault = |fault: String| OptionFault::Glossary { pattern: pattern.to_owned(), fault };
        let compile = |text: String| Regex::new(&text).map_err(|error| fault(error.to_string()));
        let inside = compile(pattern.to_owned())?;
        if inside.is_match("") {
            return Err(fault("it matches the empty text".to_owned()).into());
        }
        let undivided = compile(format!(r"\A(?:^{pattern}$)"))?;
        let whole = compile(format!("^(?:{pattern})$"))?;
        self.0.push(Glossary { inside, undivided, whole });
        Ok(())
    }

    /// Returns whether a part of a word is one of them.
    pub(super) fn holds(&self, part: &str) -> bool {
        self.0.iter().any(|glossary| glossary.whole.is_match(part))
    }

    /// The parts of a word: matches, and what is between them.
    pub(super) fn divide<'w>(&self, word: &'w str) -> Vec<&'w str> {
        let mut parts = vec![word];
        for Glossary { inside, undivided, .. } in &self.0 {
            let mut divided = Vec::new();
            for part in parts {
                if undivided.is_match(part) {
                    divided.push(part);
                    continue;
                }
                let mut end = 0;
                for found in inside.find_iter(part) {
                    divided.extend([&part[end..found.start()], found.as_str()]);
                    end = found.end();
                }
                divided.push(&part[end..]);
            }
            divided.retain(|part| !part.is_empty());
            parts = divided;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_divided_at_matches() {
        let mut glossaries = Glossaries::default();
        glossaries.add("USA").unwrap();
        glossaries.add(r"<\w+>").unwrap();
        assert_eq!(glossaries.divide("1934USABUSA"), ["1934", "USA", "B", "USA"]);
        assert_eq!(glossaries.divide("USA"), ["USA"]);
        assert_eq!(glossaries.divide("a<b>USA<c>"), ["a", "<b>", "USA", "<c>"]);
        assert!(glossaries.holds("<b>") && !glossaries.holds("<b>c"));
    }

    #[test]
    fn wrong_patterns_are_refused() {
        for (pattern, fault) in [("(a", "unclosed"), ("a*", "empty text")] {
            let error = Glossaries::default().add(pattern).unwrap_err().to_string();
            assert!(error.contains(pattern) && error.contains(fault), "{error}");
        }
    }
}
