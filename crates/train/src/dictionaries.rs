//! Comparison of a model's dictionaries with those of the data.

use std::fmt;

use mae_data::Vocab;

use crate::artifacts;

/// Two dictionaries that differ: the same id would mean different words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DictionaryMismatch {
    /// Name of the dictionaries in messages, as in `source dictionaries`.
    pub which: &'static str,
    /// Types of the model's dictionary.
    pub model_types: usize,
    /// Types of the data's dictionary.
    pub data_types: usize,
    /// First id at which they differ.
    pub id: u32,
    /// Entry of the model at this id, if it has one.
    pub model_entry: Option<String>,
    /// Entry of the data at this id, if it has one.
    pub data_entry: Option<String>,
}

impl fmt::Display for DictionaryMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |symbol: &Option<String>| {
            symbol.as_ref().map_or("no entry".to_owned(), |symbol| format!("`{symbol}`"))
        };
        let Self { which, model_types, data_types, id, .. } = self;
        write!(
            f,
            "the {which} differ: the model has {model_types} types, the data {data_types}; first at id {id}, where the \
             model has {} and the data {}",
            entry(&self.model_entry),
            entry(&self.data_entry)
        )
    }
}

/// Compares a model's dictionary with that of the data.
pub fn mismatch(which: &'static str, model: &Vocab, data: &Vocab) -> Option<DictionaryMismatch> {
    let (id, model_entry, data_entry) = model.first_difference(data)?;
    Some(DictionaryMismatch {
        which,
        model_types: model.len(),
        data_types: data.len(),
        id,
        model_entry: model_entry.map(str::to_owned),
        data_entry: data_entry.map(str::to_owned),
    })
}

/// Name in messages of the dictionaries in a file of this name.
pub(crate) fn name_in_messages(file: &str) -> &'static str {
    match file {
        artifacts::SOURCE_DICT => "source dictionaries",
        artifacts::TARGET_DICT => "target dictionaries",
        _ => "dictionaries",
    }
}
