//! `model.bin` of CTranslate2: variables by name, read and written.

use std::io::{self, Write};

use crate::tensor::{Dtype, Tensor, Tensors};

type Read<T> = Result<T, String>;

/// The content of a `model.bin`.
pub struct Variables<'a> {
    /// Name of the specification: `TransformerSpec`.
    pub spec: String,
    /// Its revision.
    pub revision: u32,
    /// Variables; an alias is the same view under another name.
    pub tensors: Tensors<'a>,
}

impl<'a> Variables<'a> {
    /// Understands the bytes of a file of version 2 to 6, or says what is wrong.
    pub fn parse(bytes: &'a [u8]) -> Read<Self> {
        let mut file = Bytes { bytes, at: 0 };
        let version = file.number(4)? as u32;
        if !(2..=6).contains(&version) {
            return Err(format!(
                "not a model.bin of CTranslate2, or of version {version}; 2 to 6 are supported"
            ));
        }
        let (spec, revision, count) = (file.text()?, file.number(4)? as u32, file.number(4)?);
        let mut tensors = Tensors::new();
        for _ in 0..count {
            let name = file.text()?;
            let rank = file.number(1)?;
            let shape: Vec<usize> =
                (0..rank).map(|_| file.number(4).map(|n| n as usize)).collect::<Read<_>>()?;
            let (kind, size) = (file.number(1)?, file.number(4)?);
            let dtype = match (version, kind) {
                (4.., 0) | (..4, 4) => Dtype::F32,
                (_, 1) => Dtype::I8,
                (_, 2) => Dtype::I16,
                (4.., 3) => Dtype::I32,
                (4.., 4) => Dtype::F16,
                (4.., 5) => Dtype::Bf16,
                _ => return Err(format!("`{name}` has the unknown type {kind}")),
            };
            // Files before version 4 hold the size of a number and their count.
            let size = if version < 4 { size * dtype.size() as u64 } else { size };
            let data = file.take(size).map_err(|_| format!("`{name}` is larger than the file"))?;
            let tensor = Tensor::new(dtype, shape, data)
                .ok_or_else(|| format!("`{name}`: size and shape disagree"))?;
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(format!("`{name}` is there twice"));
            }
        }
        if version >= 3 {
            for _ in 0..file.number(4)? {
                let (alias, name) = (file.text()?, file.text()?);
                let tensor = tensors
                    .get(&name)
                    .ok_or_else(|| format!("`{alias}` stands for `{name}`, which is missing"))?;
                tensors.insert(alias, tensor.clone());
            }
        }
        match file.at == bytes.len() {
            true => Ok(Self { spec, revision, tensors }),
            false => Err(format!("{} bytes are left over at its end", bytes.len() - file.at)),
        }
    }
}

struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, n: u64) -> Read<&'a [u8]> {
        let n =
            usize::try_from(n).ok().filter(|&n| n <= self.bytes.len() - self.at).ok_or("it is cut off")?;
        self.at += n;
        Ok(&self.bytes[self.at - n..self.at])
    }

    fn number(&mut self, n: u64) -> Read<u64> {
        Ok(self.take(n)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// A length, bytes and NUL.
    fn text(&mut self) -> Read<String> {
        let n = self.number(2)?;
        let (last, text) = self.take(n)?.split_last().ok_or("a name is empty")?;
        match (last, std::str::from_utf8(text)) {
            (0, Ok(text)) => Ok(text.to_owned()),
            _ => Err("a name is damaged".into()),
        }
    }
}

/// A variable to be written: a matrix or vector of f32, or a scalar.
pub(crate) enum Variable {
    /// Numbers with this shape.
    Floats(Vec<usize>),
    /// One number.
    Float(f32),
    /// A choice.
    Byte(i8),
    /// A small number.
    Short(i16),
}

/// Writes a `model.bin` of version 6; `values` gives the numbers of a [`Variable::Floats`] by its name.
pub(crate) fn write(
    out: &mut dyn Write,
    variables: &[(String, Variable)],
    aliases: &[(String, String)],
    mut values: impl FnMut(&str) -> io::Result<Vec<f32>>,
) -> io::Result<()> {
    let text = |out: &mut dyn Write, text: &str| {
        out.write_all(&(text.len() as u16 + 1).to_le_bytes())?;
        out.write_all(text.as_bytes())?;
        out.write_all(&[0])
    };
    let number = |out: &mut dyn Write, number: usize| {
        let fault =
            || io::Error::new(io::ErrorKind::InvalidInput, "a tensor is too large for CTranslate2's format");
        out.write_all(&u32::try_from(number).map_err(|_| fault())?.to_le_bytes())
    };
    number(out, 6)?;
    text(out, "TransformerSpec")?;
    number(out, 7)?;
    number(out, variables.len())?;
    for (name, variable) in variables {
        text(out, name)?;
        let scalar = |out: &mut dyn Write, kind: u8, bytes: &[u8]| {
            out.write_all(&[0, kind])?;
            number(out, bytes.len())?;
            out.write_all(bytes)
        };
        match variable {
            Variable::Float(value) => scalar(out, 0, &value.to_le_bytes())?,
            Variable::Byte(value) => scalar(out, 1, &value.to_le_bytes())?,
            Variable::Short(value) => scalar(out, 2, &value.to_le_bytes())?,
            Variable::Floats(shape) => {
                out.write_all(&[shape.len() as u8])?;
                shape.iter().try_for_each(|&size| number(out, size))?;
                out.write_all(&[0])?;
                number(out, 4 * shape.iter().product::<usize>())?;
                let bytes: Vec<u8> = values(name)?.iter().flat_map(|value| value.to_le_bytes()).collect();
                out.write_all(&bytes)?;
            }
        }
    }
    number(out, aliases.len())?;
    aliases.iter().try_for_each(|(alias, name)| text(out, alias).and_then(|()| text(out, name)))
}
