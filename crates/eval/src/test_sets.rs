//! Test sets by name, from the folder in which sacreBLEU keeps them: `NAME/NAME.SRC-TGT.ref`.
//!
//! Nothing is downloaded. `sacrebleu -t wmt14/full -l en-de --echo ref` fills the folder.

use std::path::{Path, PathBuf};

/// A test set that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TestSetFault {
    /// Not a name.
    #[error("`{0}` is not the name of a test set; expected one such as `wmt14/full`")]
    Name(String),
    /// Not a pair of languages.
    #[error("`{0}` is not a pair of languages; expected one such as `en-de`")]
    Pair(String),
    /// Its file is not there.
    #[error(
        "no test set `{name}` for {pair}: {} does not exist. Let sacreBLEU score or print the \
         set once, which downloads it there, or name a reference file",
        file.display()
    )]
    Missing {
        /// Name.
        name: String,
        /// Languages.
        pair: String,
        /// The file that was looked for.
        file: PathBuf,
    },
    /// References of several translators, of which sacreBLEU chooses.
    #[error("`{name}` has several references for {pair}; name those to use as files: {files}")]
    Several {
        /// Name.
        name: String,
        /// Languages.
        pair: String,
        /// Their files.
        files: String,
    },
}

/// The target language of a pair such as `en-de`.
pub fn target_of(pair: &str) -> Result<&str, TestSetFault> {
    let plain = |code: &str| !code.is_empty() && !code.contains(['/', '\\', '.']);
    match pair.split_once('-') {
        Some((src, tgt)) if plain(src) && plain(tgt) => Ok(tgt),
        _ => Err(TestSetFault::Pair(pair.to_owned())),
    }
}

/// The reference file of a test set in `folder`.
pub fn reference(folder: &Path, name: &str, pair: &str) -> Result<PathBuf, TestSetFault> {
    target_of(pair)?;
    if name.split('/').any(|part| part.is_empty() || part.starts_with('.')) || name.contains('\\') {
        return Err(TestSetFault::Name(name.to_owned()));
    }
    let stem = format!("{}.{pair}.ref", name.replace('/', "_"));
    let set = folder.join(name);
    let file = set.join(&stem);
    if file.is_file() {
        return Ok(file);
    }
    let labelled = format!("{stem}-");
    let entries = std::fs::read_dir(&set).into_iter().flatten().filter_map(Result::ok);
    let mut files: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&labelled))
        .map(|entry| entry.path())
        .collect();
    files.sort();
    match files.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(TestSetFault::Missing { name: name.to_owned(), pair: pair.to_owned(), file }),
        _ => {
            let files = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
            Err(TestSetFault::Several { name: name.to_owned(), pair: pair.to_owned(), files })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_pairs_stay_in_the_folder() {
        let folder = Path::new("nowhere");
        for name in ["", "../x", "wmt14/", "/etc", "a\\b", "a/../b"] {
            assert!(matches!(reference(folder, name, "en-de"), Err(TestSetFault::Name(_))), "{name}");
        }
        for pair in ["", "en", "en-", "-de", "en-../x"] {
            assert!(matches!(reference(folder, "wmt14", pair), Err(TestSetFault::Pair(_))), "{pair}");
        }
        let error = reference(folder, "wmt14/full", "en-de").unwrap_err().to_string();
        assert!(error.contains("wmt14/full/wmt14_full.en-de.ref"), "{error}");
        assert_eq!(target_of("en-zh"), Ok("zh"));
    }
}
