//! A model folder that is about to be written: checked as a whole, then written tensor by tensor, so that no more than
//! one of them is in memory.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use mae_data::{Segmentation, TextRecord, Vocab, files};
use mae_model::folder::{self, CONFIG, SOURCE_DICT, TARGET_DICT, WEIGHTS};
use mae_model::kind::Config;
use mae_model::lm::folder::DICT;

use crate::import::first_few;
use crate::layout::Named;
use crate::tensor::Tensor;
use crate::{Error, Result};

/// Output bias of symbols that a foreign model does not have: they are never produced.
const NEVER: f32 = -1e4;

/// Origin of the values of a parameter.
pub(crate) enum Source<'a> {
    /// A tensor as it is; its shape may have ones more or fewer.
    Whole(Tensor<'a>),
    /// Rows of a tensor.
    Rows(Tensor<'a>, Range<usize>),
    /// Rows of a tensor in another order; those that it does not have are filled.
    Picked(Tensor<'a>, Vec<Option<usize>>, f32),
    /// Numbers.
    Values(Vec<f32>),
}

impl<'a> Source<'a> {
    /// Rows of embeddings by a permutation; rows that are missing are zero.
    pub(crate) fn embedding(tensor: &Tensor<'a>, rows: &[Option<usize>]) -> Self {
        Self::Picked(tensor.clone(), rows.to_vec(), 0.0)
    }

    /// Numbers of an output bias by a permutation.
    pub(crate) fn bias(tensor: &Tensor<'a>, rows: &[Option<usize>]) -> Self {
        let values = tensor.read();
        Self::Values(
            rows.iter().map(|row| row.and_then(|row| values.get(row).copied()).unwrap_or(NEVER)).collect(),
        )
    }

    /// An output bias that forbids symbols that are missing and changes nothing else.
    pub(crate) fn forbidding(rows: &[Option<usize>]) -> Self {
        Self::Values(rows.iter().map(|row| if row.is_some() { 0.0 } else { NEVER }).collect())
    }

    /// The fault of values that do not have this shape.
    fn fault(&self, shape: &[usize]) -> Option<String> {
        let wanted: Vec<usize> = shape.iter().copied().filter(|&size| size != 1).collect();
        let squeezed = |tensor: &Tensor<'_>| -> Vec<usize> {
            tensor.shape().iter().copied().filter(|&size| size != 1).collect()
        };
        let found = match self {
            Self::Whole(tensor) => squeezed(tensor),
            Self::Rows(tensor, rows) => {
                let mut found = tensor.shape().to_vec();
                match found.first_mut() {
                    Some(first) if rows.end <= *first => *first = rows.len(),
                    _ => {
                        return Some(format!(
                            "has shape {:?}, in which rows {rows:?} are missing",
                            tensor.shape()
                        ));
                    }
                }
                found.retain(|&size| size != 1);
                found
            }
            Self::Picked(tensor, rows, _) => {
                let first = *tensor.shape().first().unwrap_or(&0);
                if tensor.shape().len() != 2 || rows.iter().flatten().any(|&row| row >= first) {
                    return Some(format!("has shape {:?}; the vocabulary needs more rows", tensor.shape()));
                }
                vec![rows.len(), tensor.shape()[1]]
            }
            Self::Values(values) => vec![values.len()],
        };
        let fits = found == wanted
            || matches!(self, Self::Values(values) if values.len() == shape.iter().product::<usize>());
        let is_float = match self {
            Self::Whole(tensor) | Self::Rows(tensor, _) | Self::Picked(tensor, ..) => {
                tensor.dtype().is_float()
            }
            Self::Values(_) => true,
        };
        if !is_float {
            return Some("is quantised to integers; convert the model in float32 or float16".into());
        }
        (!fits).then(|| format!("has shape {found:?}; expected {shape:?}"))
    }

    fn read(&self) -> Vec<f32> {
        match self {
            Self::Whole(tensor) => tensor.read(),
            Self::Rows(tensor, rows) => {
                let mut out = Vec::new();
                rows.clone().for_each(|row| tensor.read_row(row, &mut out));
                out
            }
            Self::Picked(tensor, rows, fill) => {
                let width = tensor.shape()[1];
                let mut out = Vec::with_capacity(rows.len() * width);
                for row in rows {
                    match row {
                        Some(row) => tensor.read_row(*row, &mut out),
                        None => out.extend(std::iter::repeat_n(*fill, width)),
                    }
                }
                out
            }
            Self::Values(values) => values.clone(),
        }
    }
}

/// A model to be written.
pub(crate) struct NewModel<'a, C> {
    pub(crate) config: C,
    /// Source and target dictionary, or the one of a language model.
    pub(crate) dictionaries: Vec<Vocab>,
    pub(crate) codes: Option<Segmentation>,
    /// Languages, and rules that plain text goes through first.
    pub(crate) text: TextRecord,
    weights: Vec<(Named, Source<'a>)>,
}

/// Sizes of a model that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Number of parameters.
    pub parameters: usize,
    /// Types of the source and the target dictionary, or of the one of a language model.
    pub types: Vec<usize>,
    /// Facts that a user must know, one sentence each.
    pub notes: Vec<String>,
}

impl<'a, C: Config> NewModel<'a, C> {
    /// Finds the values of all parameters, which `layout` names once the configuration is known to be sound; `find` gives
    /// those of a name. All faults are reported at once, under `path`.
    pub(crate) fn new(
        path: &Path,
        (config, layout): (C, impl FnOnce(&C) -> Vec<Named>),
        (dictionaries, codes): (Vec<Vocab>, Option<Segmentation>),
        find: impl Fn(&str) -> Result<Source<'a>, String>,
    ) -> Result<Self> {
        config.check()?;
        let (mut weights, mut faults) = (Vec::new(), Vec::new());
        for (name, shape) in layout(&config) {
            match find(&name) {
                Err(fault) => faults.push(fault),
                Ok(source) => match source.fault(&shape) {
                    Some(fault) => faults.push(format!("`{name}` {fault}")),
                    None => weights.push(((name, shape), source)),
                },
            }
        }
        match faults.is_empty() {
            true => Ok(Self { config, dictionaries, codes, text: TextRecord::default(), weights }),
            false => Err(Error::unsupported(path, first_few(faults))),
        }
    }

    /// The model of a text with these languages and rules.
    pub(crate) fn of_text(self, text: TextRecord) -> Self {
        Self { text, ..self }
    }

    /// Writes the folder, which appears as a whole or not at all.
    pub(crate) fn write(mut self, folder: &Path, notes: Vec<String>) -> Result<Imported> {
        self.weights.sort_by(|a, b| a.0.cmp(&b.0));
        let sizes = |(_, shape): &Named| shape.iter().product::<usize>();
        let imported = Imported {
            parameters: self.weights.iter().map(|(named, _)| sizes(named)).sum(),
            types: self.dictionaries.iter().map(Vocab::len).collect(),
            notes,
        };
        files::replace_folder(folder, |aside| {
            files::write_with(&aside.join(WEIGHTS), |out| self.write_weights(out))?;
            files::write(aside.join(CONFIG), folder::config_text(&self.config).as_bytes())?;
            let names: &[&str] =
                if self.dictionaries.len() == 1 { &[DICT] } else { &[SOURCE_DICT, TARGET_DICT] };
            for (name, dictionary) in names.iter().zip(&self.dictionaries) {
                dictionary.save(aside.join(name))?;
            }
            Segmentation::save(self.codes.as_ref(), aside)?;
            Ok::<(), Error>(self.text.save(aside)?)
        })?;
        Ok(imported)
    }

    fn write_weights(&self, out: &mut dyn Write) -> io::Result<()> {
        let named: Vec<&Named> = self.weights.iter().map(|(named, _)| named).collect();
        write_safetensors(out, &named, |i| Ok(self.weights[i].1.read()))
    }
}

/// Writes a safetensors file of f32 tensors; `values` gives each in turn.
pub(crate) fn write_safetensors(
    out: &mut dyn Write,
    named: &[&Named],
    mut values: impl FnMut(usize) -> io::Result<Vec<f32>>,
) -> io::Result<()> {
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), serde_json::json!({"format": "pt"}));
    let mut at = 0;
    for (name, shape) in named {
        let end = at + 4 * shape.iter().product::<usize>();
        header.insert(
            name.clone(),
            serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [at, end]}),
        );
        at = end;
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    let mut bytes = Vec::new();
    for (i, (name, shape)) in named.iter().enumerate() {
        let values = values(i)?;
        debug_assert_eq!(values.len(), shape.iter().product::<usize>(), "{name}");
        for part in values.chunks(1 << 16) {
            bytes.clear();
            bytes.extend(part.iter().flat_map(|value| value.to_le_bytes()));
            out.write_all(&bytes)?;
        }
    }
    Ok(())
}
