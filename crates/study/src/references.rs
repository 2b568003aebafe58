//! References of a test set.

use std::path::{Path, PathBuf};

use mae_data::{BadUtf8, LineReader, Segmentation, files, segmentation};
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
        let data = sets.pairs(&test.split)?;
        if data.is_empty() {
            return Err(Error::EmptySplit { data: sets.folder.to_owned(), split: test.split.clone() });
        }
        let codes = Segmentation::load(sets.folder)?;
        let pieces = |i: usize| reference_pieces(&data.tgt_vocab, &data.tgt.get(i));
        let line = |i: usize| segmentation::join(codes.as_ref(), &pieces(i));
        let tokens: Vec<String> = (0..data.len()).map(line).collect();
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
