//! References of a test set, and the files that comparisons read.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use mae_data::{BadUtf8, LineReader, ParallelDataset, Segmentation, segmentation};
use mae_eval::translate::reference_pieces;
use mae_model::folder::write_aside;

use super::protocol::Translation;
use crate::training::material::Sets;

/// Files of references in a study's folder and of translations in a run's: whitespace tokens, and plain text.
pub const TOKENS: [&str; 2] = ["reference.tok", "hypotheses.tok"];
/// See [`TOKENS`].
pub const PLAIN: [&str; 2] = ["reference.txt", "hypotheses.txt"];

/// The references of a test set.
pub struct References {
    /// As whitespace tokens, pieces joined.
    pub tokens: Vec<String>,
    /// As plain text, where the study has it.
    pub plain: Option<Vec<String>>,
}

impl References {
    /// Of the set that `test` is about.
    pub fn open(sets: Sets<'_>, test: &Translation) -> Result<Self> {
        let data = pairs(sets, &test.split)?;
        ensure!(!data.is_empty(), "{}: the split `{}` is empty", sets.folder.display(), test.split);
        let codes = Segmentation::load(sets.folder)?;
        let pieces = |i: usize| reference_pieces(&data.tgt_vocab, &data.tgt.get(i));
        let line = |i: usize| segmentation::join(codes.as_ref(), &pieces(i));
        let tokens: Vec<String> = (0..data.len()).map(line).collect();
        let plain = if test.reference.is_empty() { None } else { Some(plain_reference(sets.folder, test)?) };
        if let Some(plain) = &plain {
            ensure!(
                plain.len() == tokens.len(),
                "the reference {} has {} lines, the split `{}` of {} has {} sentences",
                test.reference,
                plain.len(),
                test.split,
                sets.folder.display(),
                tokens.len()
            );
        }
        Ok(Self { tokens, plain })
    }

    /// Keeps them in the study's folder, for comparisons; a study has one test set.
    pub fn keep(&self, study: &Path) -> Result<()> {
        let files = [(TOKENS[0], Some(&self.tokens)), (PLAIN[0], self.plain.as_ref())];
        for (name, lines) in files.into_iter().filter_map(|(name, lines)| Some((name, lines?))) {
            let (path, wanted) = (study.join(name), joined(lines));
            match std::fs::read_to_string(&path) {
                Ok(there) if there == wanted => {}
                Ok(_) => bail!(
                    "{} has other references than this data: results in one folder are of one test set; choose \
                     another --out",
                    path.display()
                ),
                Err(_) => write_aside(&path, wanted.as_bytes())?,
            }
        }
        Ok(())
    }
}

/// Reads a kept file of lines; none if it is not there.
pub fn lines_of(path: &Path) -> Result<Option<Vec<String>>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.lines().map(str::to_owned).collect())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Lines with their ends.
pub fn joined(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

fn plain_reference(data: &Path, test: &Translation) -> Result<Vec<String>> {
    let name = &test.reference;
    let above = data.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let places = [PathBuf::from(name), data.join(name), above.join(name)];
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        bail!(
            "the study scores against the plain text {name}, which is neither in {} nor in {}: give it with \
             --reference FILE, or --tokenised-only to do without sacreBLEU",
            data.display(),
            above.display()
        );
    };
    let mut reader = LineReader::open(path, BadUtf8::Error)?;
    Ok(reader.next_chunk(usize::MAX)?)
}

/// A split of the data.
pub fn pairs(sets: Sets<'_>, split: &str) -> Result<ParallelDataset> {
    let (source, target) = sets.languages()?;
    Ok(ParallelDataset::open(sets.folder, split, &source, &target)?)
}
