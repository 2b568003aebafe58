//! Files of `torch.save`: zip files (torch 1.6 and later) and legacy files, read as inert data.

mod write;
mod zip;

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::Result;
use crate::file::MappedFile;
use crate::pickle::{self, Id, Limits, Pickle, Value};
use crate::tensor::{Dtype, MOST_AXES, Tensor, Tensors};

pub(crate) use write::{Object, write};

type Read<T> = Result<T, String>;

/// First number of a legacy file, 0x1950a86a20f9469cfc6c.
const LEGACY: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// A file of `torch.save`.
pub struct Checkpoint<'a> {
    bytes: &'a [u8],
    pickle: Pickle,
    storages: FxHashMap<String, Range<usize>>,
}

impl<'a> Checkpoint<'a> {
    /// Reads a file's structure; tensors are read when they are asked for.
    pub(crate) fn open(file: &'a MappedFile) -> Result<Self> {
        Self::parse(file.bytes()).map_err(|what| file.fault(what))
    }

    /// Understands the bytes of a file, or says what is wrong.
    pub fn parse(bytes: &'a [u8]) -> Read<Self> {
        if bytes.starts_with(b"PK") {
            return Self::parse_zip(bytes);
        }
        if bytes.first() == Some(&0x80) {
            return Self::parse_legacy(bytes);
        }
        Err("not a file of torch.save: neither a zip file nor a pickle".into())
    }

    fn parse_zip(bytes: &'a [u8]) -> Read<Self> {
        let entries = zip::entries(bytes)?;
        let is_pickle =
            |name: &&String| name.strip_suffix("/data.pkl").is_some_and(|stem| !stem.contains('/'));
        let name = entries.keys().find(is_pickle).ok_or("the zip file holds no data.pkl")?;
        let stem = name.trim_end_matches("data.pkl");
        if let Some(order) = entries.get(&format!("{stem}byteorder"))
            && &bytes[order.clone()] != b"little"
        {
            return Err("its numbers are big-endian".into());
        }
        let (pickle, _) = pickle::read(&bytes[entries[name].clone()], Limits::default())?;
        let storage = |(name, range): (&String, &Range<usize>)| {
            let key = name.strip_prefix(stem)?.strip_prefix("data/")?;
            Some((key.to_owned(), range.clone()))
        };
        let storages = entries.iter().filter_map(storage).collect();
        Ok(Self { bytes, pickle, storages })
    }

    fn parse_legacy(bytes: &'a [u8]) -> Read<Self> {
        let mut at = 0;
        let mut next = || {
            let (pickle, length) = pickle::read(&bytes[at..], Limits::default())?;
            at += length;
            Ok::<_, String>(pickle)
        };
        let magic = next()?;
        if !matches!(magic.value(magic.root), Value::Bytes(found) if **found == LEGACY) {
            return Err("not a file of torch.save: the number of legacy files is missing".into());
        }
        let version = next()?;
        if version.int(version.root) != Some(1001) {
            return Err("a legacy file of an unknown version; 1001 is known".into());
        }
        next()?;
        let (pickle, keys) = (next()?, next()?);
        let types = storage_types(&pickle)?;
        let mut storages = FxHashMap::default();
        for &key in keys.items(keys.root).ok_or("the list of storages is missing")? {
            let key = keys.text(key).ok_or("the list of storages is damaged")?;
            let count = bytes.get(at..at + 8).ok_or("it is cut off")?;
            let count = u64::from_le_bytes(count.try_into().expect("eight bytes"));
            let size = types
                .get(key)
                .map_or(Ok(1), |kind| kind.map(Dtype::size).ok_or("a storage of an unknown type"))?;
            let size = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
            let end = size.and_then(|size| size.checked_add(at + 8)).filter(|&end| end <= bytes.len());
            let end = end.ok_or_else(|| format!("the storage `{key}` is larger than the file"))?;
            storages.insert(key.to_owned(), at + 8..end);
            at = end;
        }
        Ok(Self { bytes, pickle, storages })
    }

    /// The pickle, in which tensors are calls of functions of torch.
    pub fn pickle(&self) -> &Pickle {
        &self.pickle
    }

    /// The tensor of a value; `None` if the value is none.
    pub fn tensor(&self, id: Id) -> Read<Option<Tensor<'a>>> {
        let Some((name, arguments)) = self.pickle.call(id) else { return Ok(None) };
        match name {
            "torch._utils._rebuild_parameter" => {
                let &inner = arguments.first().ok_or("a parameter without a tensor")?;
                match self.pickle.call(inner) {
                    // A parameter of a parameter is a trap for readers that call themselves.
                    Some(("torch._utils._rebuild_parameter", _)) => Err("a parameter of a parameter".into()),
                    _ => self.tensor(inner),
                }
            }
            "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor" => {
                self.view(arguments).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn view(&self, arguments: &[Id]) -> Read<Tensor<'a>> {
        let &[storage, offset, shape, strides, ..] = arguments else {
            return Err("a tensor of too few parts".into());
        };
        let Value::Outside(storage) = self.pickle.value(storage) else {
            return Err("a tensor without a storage".into());
        };
        let (key, dtype) = storage_of(&self.pickle, *storage).ok_or("a storage that is not understood")?;
        let dtype = dtype.ok_or("a storage of an unknown type")?;
        let range = self.storages.get(key).ok_or_else(|| format!("the storage `{key}` is missing"))?;
        let sizes = |id| match self.pickle.items(id) {
            Some(items) if items.len() > MOST_AXES => Err("a tensor of too many axes"),
            _ => self.pickle.sizes(id).ok_or("a tensor whose sizes are no numbers"),
        };
        let offset = self.pickle.int(offset).and_then(|offset| usize::try_from(offset).ok());
        let offset = offset.ok_or("a tensor with a negative offset")?;
        Tensor::view(dtype, (sizes(shape)?, sizes(strides)?), &self.bytes[range.clone()], offset)
            .ok_or_else(|| format!("a tensor leads outside of its storage `{key}`"))
    }

    /// The tensors of a dictionary by name. Entries that are no tensors are left out.
    pub fn tensors(&self, id: Id) -> Read<Tensors<'a>> {
        let mut tensors = Tensors::new();
        for (name, value) in self.pickle.entries(id) {
            let Some(name) = self.pickle.text(name) else { continue };
            if let Some(tensor) = self.tensor(value).map_err(|what| format!("`{name}`: {what}"))? {
                tensors.insert(name.to_owned(), tensor);
            }
        }
        Ok(tensors)
    }
}

/// Key and number format of `('storage', torch.FloatStorage, '0', 'cpu', 6)`.
fn storage_of(pickle: &Pickle, id: Id) -> Option<(&str, Option<Dtype>)> {
    let [mark, kind, key, ..] = pickle.items(id)? else { return None };
    let (Some("storage"), Value::Name(kind)) = (pickle.text(*mark), pickle.value(*kind)) else { return None };
    let dtype = match &**kind {
        "torch.FloatStorage" => Some(Dtype::F32),
        "torch.DoubleStorage" => Some(Dtype::F64),
        "torch.HalfStorage" => Some(Dtype::F16),
        "torch.BFloat16Storage" => Some(Dtype::Bf16),
        "torch.LongStorage" => Some(Dtype::I64),
        "torch.IntStorage" => Some(Dtype::I32),
        "torch.ShortStorage" => Some(Dtype::I16),
        "torch.CharStorage" => Some(Dtype::I8),
        "torch.ByteStorage" | "torch.BoolStorage" => Some(Dtype::U8),
        _ => None,
    };
    Some((pickle.text(*key)?, dtype))
}

/// Number formats of all storages of a pickle.
fn storage_types(pickle: &Pickle) -> Read<FxHashMap<String, Option<Dtype>>> {
    let mut types = FxHashMap::default();
    for value in pickle.values() {
        if let Value::Outside(id) = value
            && let Some((key, dtype)) = storage_of(pickle, *id)
            && types.insert(key.to_owned(), dtype).is_some_and(|before| before != dtype)
        {
            return Err(format!("the storage `{key}` has two types"));
        }
    }
    Ok(types)
}
