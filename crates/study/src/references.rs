//! References of a test set.

use std::path::{Path, PathBuf};

use mae_data::{BadUtf8, LineReader, Segmentation, Sentences, Vocab, files, segmentation};
use mae_train::run::Sets;
use mae_translate::reference_pieces;

use crate::error::{Error, Result};
use crate::outputs::{PLAIN, TOKENS, joined};
use crate::protocol::Translation;

/// The references of a test set.
pub struct References {
    /// As whitespace tokens, pieces joined.
    pub tokens: Vec<String>,
    /// As plain text, where the study has it.
    pub plain: Option<Vec<String>>,
}

impl References {
    /// Opens the references of the set that `test` is about.
    pub fn open(sets: Sets<'_>, test: &Translation) -> Result<Self> {
        let (source_language, target) = sets.languages()?;
        if is_other_language(&test.language, &source_language, &target) {
            let (language, data) = (test.language.clone(), sets.folder.to_owned());
            return Err(Error::OtherLanguage { language, data, source_language, target });
        }
        let data = sets.pairs(&test.split)?;
        if data.is_empty() {
            return Err(Error::EmptySplit { data: sets.folder.to_owned(), split: test.split.clone() });
        }
        let codes = Segmentation::load(sets.folder)?;
        let lines = |vocab: &Vocab, side: &Sentences| -> Vec<String> {
            let line = |i: usize| segmentation::join(codes.as_ref(), &reference_pieces(vocab, &side.get(i)));
            (0..side.len()).map(line).collect()
        };
        let tokens = lines(&data.tgt_vocab, &data.tgt);
        let plain = if test.reference.is_empty() { None } else { Some(read_plain(sets.folder, test)?) };
        if let Some(plain) = plain.as_ref().filter(|plain| plain.len() != tokens.len()) {
            return Err(Error::ReferenceLength {
                reference: test.reference.clone(),
                lines: plain.len(),
                split: test.split.clone(),
                sentences: tokens.len(),
                data: sets.folder.to_owned(),
            });
        }
        if let Some(plain) = &plain
            && equal_lines(plain, &lines(&data.src_vocab, &data.src)) > equal_lines(plain, &tokens)
        {
            let (reference, data) = (test.reference.clone(), sets.folder.to_owned());
            return Err(Error::SourceAsReference { reference, data, source_language, target });
        }
        Ok(Self { tokens, plain })
    }

    /// Keeps them in the study's folder, for comparisons; a study has one test set.
    pub fn keep(&self, study: &Path) -> Result<()> {
        let texts = [(TOKENS.references, Some(&self.tokens)), (PLAIN.references, self.plain.as_ref())];
        for (name, lines) in texts.into_iter().filter_map(|(name, lines)| Some((name, lines?))) {
            let (path, wanted) = (study.join(name), joined(lines));
            match std::fs::read_to_string(&path) {
                Ok(there) if there == wanted => {}
                Ok(_) => return Err(Error::OtherReferences { path }),
                Err(_) => files::write(&path, wanted.as_bytes())?,
            }
        }
        Ok(())
    }
}

/// Returns whether data of these languages translate into another language than a study scores. Endings of files that
/// are no languages (`src`, `tgt`) say nothing.
fn is_other_language(scored: &str, source: &str, target: &str) -> bool {
    !scored.is_empty() && scored != target && (scored == source || target.len() == 2)
}

/// Number of lines that have the same letters and digits in the same order, whatever their case and tokens.
fn equal_lines(a: &[String], b: &[String]) -> usize {
    let letters = |line: &str| -> String {
        line.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let same = |(a, b): &(&String, &String)| letters(a) == letters(b);
    a.iter().zip(b).filter(|(a, _)| a.chars().any(char::is_alphanumeric)).filter(same).count()
}

fn read_plain(data: &Path, test: &Translation) -> Result<Vec<String>> {
    let name = &test.reference;
    let above = data.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let places = [PathBuf::from(name), data.join(name), above.join(name)];
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        let searched = [data.to_owned(), above.to_owned()];
        return Err(Error::NoReference { name: name.clone(), searched });
    };
    Ok(LineReader::open(path, BadUtf8::Error)?.next_chunk(usize::MAX)?)
}
