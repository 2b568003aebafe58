//! Models of other programs to model folders.
//!
//! A model is read and checked as a whole; what is not supported is reported by its key, all of it at once. Only then a
//! folder is written, aside, and renamed.

pub mod ct2;
pub mod fairseq;
pub mod hf;

use std::collections::BTreeSet;
use std::path::Path;

use mae_data::bpe::Codes;
use mae_data::segmentation::{
    CODES, SENTENCEPIECE, SOURCE_CODES, SOURCE_SENTENCEPIECE, TARGET_CODES, TARGET_SENTENCEPIECE,
};
use mae_data::{Segmentation, SentencePiece};

use crate::tensor::{Tensor, Tensors};
use crate::{Error, Result};

/// BPE codes or SentencePiece models of a folder, under our names or those that others use.
pub(crate) fn segmentation_in(folder: &Path) -> Result<Option<Segmentation>> {
    let one = |names: &[&str]| names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let two = |pairs: &[[&str; 2]]| {
        let paths = pairs.iter().map(|names| names.map(|name| folder.join(name)));
        paths.into_iter().find(|paths| paths.iter().all(|path| path.is_file()))
    };
    if let Some(path) = one(&[CODES, "bpecodes", "code"]) {
        return Ok(Some(Segmentation::Joint(Codes::load(path)?)));
    }
    if let Some([src, tgt]) = two(&[[SOURCE_CODES, TARGET_CODES]]) {
        return Ok(Some(Segmentation::Separate { src: Codes::load(src)?, tgt: Codes::load(tgt)? }));
    }
    if let Some(path) = one(&[SENTENCEPIECE, "sentencepiece.bpe.model"]) {
        return Ok(Some(Segmentation::SentencePiece(SentencePiece::load(path)?)));
    }
    let models = two(&[[SOURCE_SENTENCEPIECE, TARGET_SENTENCEPIECE], ["source.spm", "target.spm"]]);
    Ok(match models {
        Some([src, tgt]) => Some(sentencepieces(SentencePiece::load(src)?, SentencePiece::load(tgt)?)),
        None => None,
    })
}

/// The models of both sides, which may be the same.
pub(crate) fn sentencepieces(src: SentencePiece, tgt: SentencePiece) -> Segmentation {
    match src == tgt {
        true => Segmentation::SentencePiece(src),
        false => Segmentation::SentencePieces { src, tgt },
    }
}

/// Tensors of a file of which it is known which ones were used.
pub(crate) struct Found<'a> {
    pub(crate) tensors: Tensors<'a>,
    used: std::cell::RefCell<BTreeSet<String>>,
}

impl<'a> Found<'a> {
    pub(crate) fn new(tensors: Tensors<'a>) -> Self {
        Self { tensors, used: Default::default() }
    }

    /// A tensor by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Tensor<'a>> {
        let tensor = self.tensors.get(name)?;
        self.used.borrow_mut().insert(name.to_owned());
        Some(tensor)
    }

    /// A tensor by its name, or the complaint that it is missing.
    pub(crate) fn need(&self, name: &str) -> Result<&Tensor<'a>, String> {
        self.get(name).ok_or_else(|| format!("`{name}` is missing"))
    }

    /// A tensor's sizes, which must be two.
    pub(crate) fn matrix(&self, name: &str) -> Result<[usize; 2], String> {
        let shape = self.need(name)?.shape();
        shape.try_into().map_err(|_| format!("`{name}` has shape {shape:?}; a matrix was expected"))
    }

    /// Number of layers of a stack: `name` gives a tensor of a layer.
    pub(crate) fn layers(&self, name: impl Fn(usize) -> String) -> usize {
        (0..self.tensors.len()).take_while(|&layer| self.tensors.contains_key(&name(layer))).count()
    }

    /// Names of tensors that were never asked for.
    pub(crate) fn unused(&self) -> Vec<&str> {
        let used = self.used.borrow();
        self.tensors.keys().map(String::as_str).filter(|name| !used.contains(*name)).collect()
    }
}

/// Returns whether two tensors hold the same numbers.
pub(crate) fn same(a: &Tensor<'_>, b: &Tensor<'_>) -> bool {
    a.shape() == b.shape() && a.read() == b.read()
}

/// Complaints about tensors that nothing is known about.
pub(crate) fn unknown(names: Vec<&str>) -> Vec<String> {
    let complaint = |name: &str| format!("`{name}` is not a part of the models that are supported");
    first_few(names.into_iter().map(complaint).collect())
}

/// The first eight complaints, and the number of the others.
pub(crate) fn first_few(mut complaints: Vec<String>) -> Vec<String> {
    const MOST: usize = 8;
    if let Some(more) = complaints.len().checked_sub(MOST).filter(|more| *more > 0) {
        complaints.truncate(MOST);
        complaints.push(format!("and {more} more"));
    }
    complaints
}

/// Returns an error for a folder without a file that all of its kind have.
pub(crate) fn expect_file(folder: &Path, name: &str, kind: &str) -> Result<()> {
    match folder.join(name).is_file() {
        true => Ok(()),
        false => Err(Error::format(folder, format!("this is not {kind}: there is no {name}"))),
    }
}
