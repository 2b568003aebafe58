//! A file of `torch.save`: a zip file with a pickle of plain values and tensors.

use std::io::{self, Write};

/// A value of a file.
pub(crate) enum Object {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Object>),
    /// A dictionary with keys of text.
    Dict(Vec<(String, Object)>),
    /// A tensor of f32 by its number, with its sizes.
    Tensor(usize, Vec<usize>),
    /// An `argparse.Namespace`.
    Namespace(Vec<(String, Object)>),
}

/// Writes a file; `tensor` gives the numbers of each of `sizes.len()` tensors in turn.
pub(crate) fn write(
    out: &mut dyn Write,
    object: &Object,
    sizes: &[usize],
    mut tensor: impl FnMut(usize) -> io::Result<Vec<f32>>,
) -> io::Result<()> {
    let mut zip = Zip { out, at: 0, directory: Vec::new(), count: 0 };
    let mut pickle = vec![0x80, 2];
    object.pickle(&mut pickle);
    pickle.push(b'.');
    zip.entry("archive/data.pkl", &pickle)?;
    zip.entry("archive/byteorder", b"little")?;
    for number in 0..sizes.len() {
        let values = tensor(number)?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        zip.entry(&format!("archive/data/{number}"), &bytes)?;
    }
    zip.entry("archive/version", b"3\n")?;
    zip.finish()
}

impl Object {
    fn pickle(&self, out: &mut Vec<u8>) {
        match self {
            Self::None => out.push(b'N'),
            Self::Bool(value) => out.push(if *value { 0x88 } else { 0x89 }),
            Self::Int(value) => int(*value, out),
            Self::Float(value) => {
                out.push(b'G');
                out.extend(value.to_bits().to_be_bytes());
            }
            Self::Text(value) => text(value, out),
            Self::List(items) => {
                out.extend(b"](");
                items.iter().for_each(|item| item.pickle(out));
                out.push(b'e');
            }
            Self::Dict(entries) => dict(entries, out),
            Self::Tensor(number, shape) => tensor(*number, shape, out),
            Self::Namespace(entries) => {
                out.extend(b"cargparse\nNamespace\n)\x81");
                dict(entries, out);
                out.push(b'b');
            }
        }
    }
}

fn dict(entries: &[(String, Object)], out: &mut Vec<u8>) {
    out.extend(b"}(");
    for (key, value) in entries {
        text(key, out);
        value.pickle(out);
    }
    out.push(b'u');
}

fn int(value: i64, out: &mut Vec<u8>) {
    out.extend([0x8a, 8]);
    out.extend(value.to_le_bytes());
}

fn text(value: &str, out: &mut Vec<u8>) {
    out.push(b'X');
    out.extend((value.len() as u32).to_le_bytes());
    out.extend(value.as_bytes());
}

/// `torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())`.
fn tensor(number: usize, shape: &[usize], out: &mut Vec<u8>) {
    let count: usize = shape.iter().product();
    out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
    text("storage", out);
    out.extend(b"ctorch\nFloatStorage\n");
    text(&number.to_string(), out);
    text("cpu", out);
    int(count as i64, out);
    out.extend(b"tQ");
    int(0, out);
    let tuple = |sizes: &mut dyn Iterator<Item = usize>, out: &mut Vec<u8>| {
        out.push(b'(');
        sizes.for_each(|size| int(size as i64, out));
        out.push(b't');
    };
    tuple(&mut shape.iter().copied(), out);
    tuple(&mut (1..=shape.len()).map(|i| shape[i..].iter().product()), out);
    out.extend(b"\x89ccollections\nOrderedDict\n)RtR");
}

/// A zip file of stored entries, with sizes of 64 bits where they are needed.
struct Zip<'a> {
    out: &'a mut dyn Write,
    at: u64,
    directory: Vec<u8>,
    count: u64,
}

impl Zip<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn entry(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (start, size, crc) = (self.at, bytes.len() as u64, crc32(bytes));
        // Numbers of tensors begin at multiples of 64, as in files of torch.
        let fixed = 30 + name.len() as u64 + 20 + 4;
        let padding = (64 - (start + fixed) % 64) % 64;
        let mut header = b"PK\x03\x04\x2d\0\0\x08\0\0\0\0\0\0".to_vec();
        header.extend(crc.to_le_bytes());
        header.extend([0xff; 8]);
        header.extend((name.len() as u16).to_le_bytes());
        header.extend((20 + 4 + padding as u16).to_le_bytes());
        header.extend(name.as_bytes());
        header.extend(b"\x01\0\x10\0");
        header.extend(size.to_le_bytes());
        header.extend(size.to_le_bytes());
        header.extend(b"FB");
        header.extend((padding as u16).to_le_bytes());
        header.extend(std::iter::repeat_n(b'Z', padding as usize));
        self.put(&header)?;
        self.put(bytes)?;

        let entry = &mut self.directory;
        entry.extend(b"PK\x01\x02\0\0\x2d\0\0\x08\0\0\0\0\0\0");
        entry.extend(crc.to_le_bytes());
        entry.extend([0xff; 8]);
        entry.extend((name.len() as u16).to_le_bytes());
        entry.extend(28_u16.to_le_bytes());
        entry.extend([0; 10]);
        entry.extend([0xff; 4]);
        entry.extend(name.as_bytes());
        entry.extend(b"\x01\0\x18\0");
        [size, size, start].iter().for_each(|value| entry.extend(value.to_le_bytes()));
        self.count += 1;
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        let (start, size, count) = (self.at, self.directory.len() as u64, self.count);
        let directory = std::mem::take(&mut self.directory);
        self.put(&directory)?;
        let end = self.at;
        let mut tail = b"PK\x06\x06".to_vec();
        tail.extend(44_u64.to_le_bytes());
        tail.extend(b"\x2d\0\x2d\0\0\0\0\0\0\0\0\0");
        [count, count, size, start].iter().for_each(|value| tail.extend(value.to_le_bytes()));
        tail.extend(b"PK\x06\x07\0\0\0\0");
        tail.extend(end.to_le_bytes());
        tail.extend(1_u32.to_le_bytes());
        tail.extend(b"PK\x05\x06\0\0\0\0");
        tail.extend([0xff; 12]);
        tail.extend([0; 2]);
        self.put(&tail)
    }
}

/// The checksum of zip files.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [[u32; 256]; 8] = tables();
    let mut crc = !0_u32;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        let low = crc ^ u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        let part = |k: usize, byte: u32| TABLE[k][(byte & 0xff) as usize];
        crc = part(7, low) ^ part(6, low >> 8) ^ part(5, low >> 16) ^ part(4, low >> 24);
        crc ^= (0..4).fold(0, |sum, i| sum ^ part(3 - i, u32::from(chunk[4 + i])));
    }
    !rest.iter().fold(crc, |crc, &byte| TABLE[0][((crc ^ u32::from(byte)) & 0xff) as usize] ^ crc >> 8)
}

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let (mut value, mut bit) = (i as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ value >> 1 } else { value >> 1 };
            bit += 1;
        }
        tables[0][i] = value;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[k - 1][i];
            tables[k][i] = tables[0][(before & 0xff) as usize] ^ before >> 8;
            i += 1;
        }
        k += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::Checkpoint;

    #[test]
    fn the_checksum_is_that_of_zip() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(&[0; 32]), 0x190a_55ad);
    }

    #[test]
    fn files_are_read_back() {
        let object = Object::Dict(vec![
            ("model".into(), Object::Dict(vec![("a".into(), Object::Tensor(0, vec![2, 3]))])),
            ("args".into(), Object::Namespace(vec![("n".into(), Object::Int(-7))])),
            ("list".into(), Object::List(vec![Object::Int(3), Object::Text("x".into())])),
        ]);
        let mut bytes = Vec::new();
        write(&mut bytes, &object, &[6], |_| Ok(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
        let file = Checkpoint::parse(&bytes).unwrap();
        let pickle = file.pickle();
        let tensors = file.tensors(pickle.get(pickle.root, "model").unwrap()).unwrap();
        assert_eq!((tensors["a"].shape(), &tensors["a"].read()[..2]), (&[2, 3][..], &[1.0, 2.0][..]));
        let args = pickle.get(pickle.root, "args").unwrap();
        assert_eq!(pickle.int(pickle.get(args, "n").unwrap()), Some(-7));
        let list = pickle.value(pickle.get(pickle.root, "list").unwrap());
        assert!(
            matches!(list, crate::pickle::Value::List(items) if pickle.int(items[0]) == Some(3)),
            "{list:?}"
        );
    }
}
