//! Files of shortlists.
//!
//! | format | line | source |
//! |---|---|---|
//! | `vmap.txt` of CTranslate2 | `source words<TAB>target words` | a sequence of words, or nothing: the targets may always come |
//! | lexical table of Marian | `target source probability` | a word; the 100 most likely targets of each are kept, and the first 100 types of the dictionary may always come |

use std::path::Path;

use mae_data::lines::BadUtf8;
use mae_data::vocab::{SPECIALS, tokens};
use mae_data::{LineReader, Vocab};
use rustc_hash::FxHashMap;

use super::{Shortlist, ShortlistCounts};
use crate::error::{Error, Result};

/// Types of the dictionary that may always come, with a lexical table: Marian's default.
const FIRST: usize = 100;
/// Targets of a source word that are kept of a lexical table: Marian's default.
const BEST: usize = 100;

const EXPECTED: &str = "a line of a shortlist is `source words<TAB>target words` (CTranslate2's vmap) or `target source \
                        probability` (Marian's lexical table)";

pub(super) fn load(path: &Path, source: &Vocab, target: &Vocab) -> Result<(Shortlist, ShortlistCounts)> {
    let mut reader = LineReader::open(path, BadUtf8::Error)?;
    let mut content = Content::new(source, target);
    let mut table = None;
    while let Some(line) = reader.next_line()? {
        if line.trim().is_empty() && !line.contains('\t') {
            continue;
        }
        let lexical = *table.get_or_insert_with(|| !line.contains('\t'));
        let read = if lexical { content.lexical(line) } else { content.vmap(line) };
        if let Err(fault) = read {
            return Err(Error::Shortlist { path: path.to_owned(), line: reader.lines_read(), fault });
        }
    }
    let Some(lexical) = table else {
        let fault = format!("the file is empty; {EXPECTED}");
        return Err(Error::Shortlist { path: path.to_owned(), line: reader.lines_read().max(1), fault });
    };
    let counts = content.counts;
    if counts.unknown == counts.pairs && counts.pairs > 0 {
        return Err(Error::ForeignShortlist { path: path.to_owned(), pairs: counts.pairs });
    }
    Ok((content.finish(lexical), counts))
}

/// What was read so far.
struct Content<'a> {
    source: &'a Vocab,
    target: &'a Vocab,
    counts: ShortlistCounts,
    always: Vec<u32>,
    /// Of `vmap`.
    pairs: Vec<(Box<[u32]>, u32)>,
    /// Of a lexical table: targets of each source word with their probabilities.
    likely: FxHashMap<u32, Vec<(f32, u32)>>,
}

impl<'a> Content<'a> {
    fn new(source: &'a Vocab, target: &'a Vocab) -> Self {
        let counts = ShortlistCounts::default();
        Self { source, target, counts, always: Vec::new(), pairs: Vec::new(), likely: FxHashMap::default() }
    }

    fn vmap(&mut self, line: &str) -> std::result::Result<(), String> {
        let Some((words, targets)) = line.split_once('\t') else {
            return Err(format!("there is no tab, as in the lines before; {EXPECTED}"));
        };
        if targets.contains('\t') {
            return Err(format!("there is more than one tab; {EXPECTED}"));
        }
        let source: Option<Box<[u32]>> = tokens(words).map(|word| self.source.id(word)).collect();
        for target in tokens(targets) {
            self.counts.pairs += 1;
            match (&source, self.target.id(target)) {
                (Some(source), Some(id)) if source.is_empty() => self.always.push(id),
                (Some(source), Some(id)) => self.pairs.push((source.clone(), id)),
                _ => self.counts.unknown += 1,
            }
        }
        Ok(())
    }

    fn lexical(&mut self, line: &str) -> std::result::Result<(), String> {
        let fields: Vec<&str> = tokens(line).collect();
        let [target, source, probability] = fields[..] else {
            return Err(format!("there are {} fields; {EXPECTED}", fields.len()));
        };
        let probability: f32 = match probability.parse() {
            Ok(probability) if (0.0..=1.0).contains(&probability) => probability,
            _ => return Err(format!("{probability} is not a probability from 0 to 1; {EXPECTED}")),
        };
        self.counts.pairs += 1;
        // Aligners write NULL for words without a counterpart.
        match (self.source.id(source), self.target.id(target)) {
            (Some(source), Some(target)) => {
                self.likely.entry(source).or_default().push((probability, target))
            }
            _ => self.counts.unknown += 1,
        }
        Ok(())
    }

    fn finish(mut self, lexical: bool) -> Shortlist {
        let types = self.target.len();
        if lexical {
            self.always.extend((SPECIALS.len()..types.min(SPECIALS.len() + FIRST)).map(|id| id as u32));
        }
        for (source, mut targets) in self.likely {
            // The likeliest first; of equal ones the more frequent.
            targets.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            self.pairs.extend(targets.iter().take(BEST).map(|&(_, target)| ([source].into(), target)));
        }
        Shortlist::new(self.always, self.pairs, types)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vocab {
        Vocab::from_counts(
            words.iter().enumerate().map(|(i, word)| (*word, 100 - i as u64)),
            Default::default(),
        )
    }

    fn read(text: &str) -> Result<(Shortlist, ShortlistCounts)> {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("list");
        std::fs::write(&file, text).unwrap();
        Shortlist::load(&file, &words(&["das", "haus", "hund"]), &words(&["the", "house", "dog", "home"]))
    }

    #[test]
    fn both_formats_are_read() {
        let (vmap, counts) = read("\tthe\nhaus\thouse home\ndas haus\tdog\nkatze\tcat\n").unwrap();
        assert_eq!(counts, ShortlistCounts { pairs: 5, unknown: 1 });
        let (das, haus, hund) = (4, 5, 6);
        let (the, house, dog, home) = (4, 5, 6, 7);
        assert_eq!(vmap.of(&[haus, 2], &[])[2..], [the, house, home]);
        assert_eq!(vmap.of(&[das, haus, 2], &[])[2..], [the, house, dog, home]);
        assert_eq!(vmap.of(&[hund, 2], &[])[2..], [the]);
        let (table, counts) = read("house haus 0.7\nhome haus 0.3\ndog NULL 0.1\n\ndog hund 1\n").unwrap();
        assert_eq!(counts, ShortlistCounts { pairs: 4, unknown: 1 });
        // So small a dictionary lies within the first hundred.
        assert_eq!(table.of(&[2], &[]).len(), words(&["the", "house", "dog", "home"]).len() - 2);
    }

    #[test]
    fn faults_name_the_line_and_the_forms() {
        for (text, line, part) in [
            ("", 1, "empty"),
            ("\n\n", 2, "empty"),
            ("house haus\n", 1, "2 fields"),
            ("house haus 1.5\n", 1, "1.5 is not a probability"),
            ("house haus NaN\n", 1, "NaN is not a probability"),
            ("haus\thouse\n\nhouse haus 0.5\n", 3, "no tab"),
            ("haus\thouse\thome\n", 1, "more than one tab"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}")) && error.contains(part), "{text:?}: {error}");
            assert!(error.contains("vmap") && error.contains("lexical table"), "{error}");
        }
        let error = read("chat\tcat\n").unwrap_err().to_string();
        assert!(
            error.contains("1 pairs of words, none of which") && error.contains("another model"),
            "{error}"
        );
    }
}
