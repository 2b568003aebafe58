//! Models of other programs to model folders.
//!
//! A model is read and checked as a whole; what is not supported is reported by its key, all of it at once. Only then a
//! folder is written, aside, and renamed.

pub mod ct2;
pub mod fairseq;
pub mod hf;

use std::collections::BTreeSet;

use crate::tensor::{Tensor, Tensors};

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

/// Complaints about tensors that nothing is known about, at most eight by name.
pub(crate) fn unknown(names: Vec<&str>) -> Vec<String> {
    const MOST: usize = 8;
    let more = names.len().saturating_sub(MOST);
    let named = names
        .iter()
        .take(MOST)
        .map(|name| format!("`{name}` is not a part of the models that are supported"));
    named.chain((more > 0).then(|| format!("and {more} more"))).collect()
}
