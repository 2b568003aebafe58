//! Splits of an earlier run in the same folder: their ids belong to its dictionaries, their pieces to its codes.

use std::fs;

use super::PreprocessOptions;
use crate::error::{Error, Result};
use crate::options::OptionFault;
use crate::segmentation::Segmentation;
use crate::vocab::Vocab;

/// Refuses to replace dictionaries or codes (`dicts` by file name) of splits that stay in the folder: all but those that
/// are written or `removed` now.
pub(super) fn check(
    options: &PreprocessOptions,
    removed: &[String],
    dicts: &[(String, &Vocab)],
    segmentation: Option<&Segmentation>,
) -> Result<()> {
    let staying = staying(options, removed)?;
    let Some(split) = staying.first() else { return Ok(()) };
    let folder = &options.destdir;
    let differs = |(name, vocab): &&(String, &Vocab)| {
        Vocab::load(folder.join(name)).map_or(true, |earlier| earlier.fingerprint() != vocab.fingerprint())
    };
    let replaced = match dicts.iter().find(differs) {
        Some((name, _)) => name,
        None if Segmentation::load(folder).is_ok_and(|earlier| earlier.as_ref() == segmentation) => {
            return Ok(());
        }
        None => "its BPE codes or tokenizer",
    };
    let fault = OptionFault::EarlierSplit {
        folder: folder.clone(),
        split: split.clone(),
        replaced: replaced.to_owned(),
    };
    Err(fault.into())
}

/// Splits that are in the folder and are not written now.
fn staying(options: &PreprocessOptions, removed: &[String]) -> Result<Vec<String>> {
    let folder = &options.destdir;
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let end = match options.only_source {
        true => ".idx".to_owned(),
        false => format!(".{}-{}.{}.idx", options.source_lang, options.target_lang, options.source_lang),
    };
    let written = options.splits();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let name = entry.map_err(Error::io("list", folder))?.file_name();
        if let Some(split) = name.to_str().and_then(|name| name.strip_suffix(&end))
            && !written.iter().map(|(name, _)| name).chain(removed).any(|name| name == split)
        {
            found.push(split.to_owned());
        }
    }
    found.sort();
    Ok(found)
}
