//! `model.safetensors`: parameters by name, as F32, or as I8 with a scale for each row.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use mae_data::files;
use mae_engine::params::NamedValues;
use mae_engine::{GroupSet, Params};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::{Error, Result};

/// Ending of the name of the scales of an I8 tensor.
const SCALE: &str = ".scale";

/// Sets all parameters from a file; refuses, naming the key, anything missing, extra or of another shape.
pub fn load_weights(path: &Path, params: &mut Params) -> Result<()> {
    load_weights_but(path, params, GroupSet::NONE)
}

/// The same, but parameters of the groups `new` that the file does not have stay as they are.
pub fn load_weights_but(path: &Path, params: &mut Params, new: GroupSet) -> Result<()> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let weights = |faults: Vec<String>| Error::Weights { path: path.to_owned(), faults };
    let file = SafeTensors::deserialize(&bytes).map_err(|e| weights(vec![not_whole(&e)]))?;
    let wanted: BTreeMap<String, Vec<usize>> = params
        .named()
        .filter(|p| !new.contains(p.group) || file.tensor(p.name).is_ok())
        .map(|p| (p.name.to_owned(), p.shape.to_vec()))
        .collect();
    let mut faults = Vec::new();
    let mut found = Vec::new();
    for (name, shape) in &wanted {
        match Values::find(&file, name, shape) {
            Ok(values) => found.push((name, values)),
            Err(fault) => faults.push(fault),
        }
    }
    let scales = found.iter().filter(|(_, values)| matches!(values, Values::Rounded { .. }));
    let scales: Vec<String> = scales.map(|(name, _)| format!("{name}{SCALE}")).collect();
    let known = |name: &str| wanted.contains_key(name) || scales.iter().any(|scale| scale == name);
    let mut extra: Vec<_> = file.names().into_iter().filter(|name| !known(name)).collect();
    extra.sort_unstable();
    faults.extend(extra.into_iter().map(|name| format!("`{name}` is not a parameter of this model")));
    if !faults.is_empty() {
        return Err(weights(faults));
    }
    for (name, values) in found {
        match values {
            Values::Floats(bytes) => params.set(name, &numbers(bytes))?,
            Values::Rounded { values, scales } => params.set_rounded(name, values, &numbers(scales))?,
        }
    }
    Ok(())
}

/// Bytes of a tensor.
enum Values<'a> {
    Floats(&'a [u8]),
    /// Whole numbers from −127 to 127, and the F32 scales of the rows.
    Rounded {
        values: &'a [i8],
        scales: &'a [u8],
    },
}

impl<'a> Values<'a> {
    /// The tensor of a name, which must have this shape; the error says what is wrong with it.
    fn find(file: &SafeTensors<'a>, name: &str, shape: &[usize]) -> std::result::Result<Self, String> {
        let tensor =
            file.tensor(name).map_err(|_| format!("`{name}` is missing; expected shape {shape:?}"))?;
        if tensor.shape() != shape {
            return Err(format!("`{name}` has shape {:?}; expected {shape:?}", tensor.shape()));
        }
        match (tensor.dtype(), shape) {
            (Dtype::F32, _) => Ok(Self::Floats(tensor.data())),
            (Dtype::I8, &[rows, _]) => {
                let values: &[i8] = bytemuck::cast_slice(tensor.data());
                if values.contains(&i8::MIN) {
                    return Err(format!("`{name}` holds -128; whole numbers from -127 to 127 are expected"));
                }
                let scale = format!("{name}{SCALE}");
                let scales = file.tensor(&scale).map_err(|_| {
                    format!("`{name}` is I8, and `{scale}` is missing; expected a scale for each of its {rows} rows")
                })?;
                if scales.dtype() != Dtype::F32 || scales.shape() != [rows] {
                    let (found, kind) = (scales.shape(), scales.dtype());
                    return Err(format!(
                        "`{scale}` is {kind:?} of shape {found:?}; expected F32 of [{rows}]"
                    ));
                }
                Ok(Self::Rounded { values, scales: scales.data() })
            }
            (kind, [_, _]) => Err(format!("`{name}` is {kind:?}; expected F32, or I8 with `{name}{SCALE}`")),
            (kind, _) => Err(format!("`{name}` is {kind:?}; expected F32")),
        }
    }
}

/// The complaint about a file that is no safetensors file, or not all of one.
pub fn not_whole(error: &impl std::fmt::Display) -> String {
    format!(
        "not a whole safetensors file ({error}): it is cut off or damaged; copy it again, or take another checkpoint"
    )
}

/// Little-endian bytes as numbers.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// The same, without a copy where the bytes are numbers already.
fn numbers(bytes: &[u8]) -> Cow<'_, [f32]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) if cfg!(target_endian = "little") => Cow::Borrowed(values),
        _ => Cow::Owned(floats(bytes)),
    }
}

/// Writes named f32 tensors with metadata, aside and then renamed.
pub fn write_tensors(
    path: &Path,
    tensors: &[NamedValues<'_>],
    metadata: BTreeMap<String, String>,
) -> Result<()> {
    let bytes: Vec<Cow<'_, [u8]>> = tensors.iter().map(|(_, _, values)| little_endian(values)).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("sizes and shapes agree");
        (name, view)
    });
    let metadata = (!metadata.is_empty()).then(|| metadata.into_iter().collect());
    let file = safetensors::serialize(views, metadata).expect("in-memory tensors can always be serialised");
    Ok(files::write(path, &file)?)
}

/// Writes parameters, aside and then renamed: those that are held in int8 as I8 with their scales, the others as F32.
pub(crate) fn write_rounded(path: &Path, params: &Params) -> Result<()> {
    let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    for named in params.named() {
        let (name, shape) = (named.name.to_owned(), named.shape.to_vec());
        match params.rounded(named.name)? {
            Some((values, scales)) => {
                let rows = vec![scales.len()];
                tensors.push((
                    format!("{name}{SCALE}"),
                    Dtype::F32,
                    rows,
                    little_endian(&scales).into_owned(),
                ));
                tensors.push((name, Dtype::I8, shape, bytemuck::cast_slice(&values).to_vec()));
            }
            None => {
                let values = params.get(named.name)?;
                tensors.push((name, Dtype::F32, shape, little_endian(&values).into_owned()));
            }
        }
    }
    let views = tensors.iter().map(|(name, kind, shape, bytes)| {
        (name, TensorView::new(*kind, shape.clone(), bytes).expect("sizes and shapes agree"))
    });
    let file = safetensors::serialize(views, None).expect("in-memory tensors can always be serialised");
    Ok(files::write(path, &file)?)
}

/// The bytes that files hold: on most machines those in memory.
fn little_endian(values: &[f32]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        Cow::Borrowed(bytemuck::cast_slice(values))
    } else {
        Cow::Owned(values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }
}
