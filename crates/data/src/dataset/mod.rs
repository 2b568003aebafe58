//! Token ids on disk: fairseq's memory-mapped format, read and written.
//!
//! `PREFIX.bin` holds the ids of all sentences end to end; `PREFIX.idx` says where each starts:
//!
//! | bytes | contents |
//! |---|---|
//! | 9 | `MMIDIDX\0\0` |
//! | 8 | version, 1 |
//! | 1 | number type: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16 (6 and 7 are floats, which no ids are) |
//! | 8 | number of sentences, n |
//! | 4 n | sizes in tokens, i32 |
//! | 8 n | first bytes in `.bin`, i64 |
//!
//! All numbers are little-endian. Files are checked once, when opened; after that nothing can be out of range.

mod writer;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use rayon::prelude::*;

pub use writer::DatasetWriter;

use crate::error::{Error, Result};

const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
const VERSION: u64 = 1;
const HEADER: usize = 9 + 8 + 1 + 8;

/// Vocabularies smaller than this are stored in 16 bits, as fairseq does.
pub const U16_VOCAB: usize = 65_500;

/// The number type of a `.bin` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dtype {
    U8,
    I8,
    I16,
    I32,
    I64,
    U16,
}

impl Dtype {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::U8,
            2 => Self::I8,
            3 => Self::I16,
            4 => Self::I32,
            5 => Self::I64,
            8 => Self::U16,
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// Calls `each` with every number in `bytes`; negative or over-large ones become `u32::MAX`, which no
    /// vocabulary has.
    fn decode(self, bytes: &[u8], mut each: impl FnMut(u32)) {
        fn numbers<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
            bytes.as_chunks::<N>().0.iter().copied()
        }
        fn id(n: i64) -> u32 {
            u32::try_from(n).unwrap_or(u32::MAX)
        }
        match self {
            Self::U8 => bytes.iter().for_each(|&b| each(u32::from(b))),
            Self::I8 => bytes.iter().for_each(|&b| each(id(i64::from(b.cast_signed())))),
            Self::U16 => numbers(bytes).for_each(|b| each(u32::from(u16::from_le_bytes(b)))),
            Self::I16 => numbers(bytes).for_each(|b| each(id(i64::from(i16::from_le_bytes(b))))),
            Self::I32 => numbers(bytes).for_each(|b| each(id(i64::from(i32::from_le_bytes(b))))),
            Self::I64 => numbers(bytes).for_each(|b| each(id(i64::from_le_bytes(b)))),
        }
    }
}

/// `PREFIX.bin` or `PREFIX.idx`; the prefix itself may contain dots.
fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

/// A dataset opened for reading. Only the pages that are used are ever in memory.
#[derive(Debug)]
pub struct IndexedDataset {
    bin_path: PathBuf,
    idx: Mmap,
    bin: Mmap,
    dtype: Dtype,
    len: usize,
    tokens: u64,
}

impl IndexedDataset {
    /// Returns whether both files of a dataset exist.
    pub fn exists(prefix: impl AsRef<Path>) -> bool {
        [".idx", ".bin"].iter().all(|suffix| with_suffix(prefix.as_ref(), suffix).is_file())
    }

    /// Opens `PREFIX.idx` and `PREFIX.bin` and checks that every sentence lies inside the `.bin`.
    pub fn open(prefix: impl AsRef<Path>) -> Result<Self> {
        let idx_path = with_suffix(prefix.as_ref(), ".idx");
        let bin_path = with_suffix(prefix.as_ref(), ".bin");
        if let Some(others) = other_splits(&idx_path) {
            let what = format!("there is no such file; the splits of this folder are {others}");
            return Err(Error::dataset(&idx_path, what));
        }
        let (idx, bin) = (map(&idx_path)?, map(&bin_path)?);
        let (dtype, len) = parse_header(&idx, &idx_path)?;
        let mut dataset = Self { bin_path, idx, bin, dtype, len, tokens: 0 };
        for i in 0..len {
            let size = i64::from(dataset.raw_size(i));
            let start = dataset.pointer(i);
            let end = size.checked_mul(dtype.bytes() as i64).and_then(|bytes| start.checked_add(bytes));
            if size < 0 || start < 0 || end.is_none_or(|end| end > dataset.bin.len() as i64) {
                let what = format!(
                    "sentence {i} ({size} tokens from byte {start}) lies outside {}, which has {} bytes; one of \
                     the two files is cut off or from another run: preprocess again",
                    dataset.bin_path.display(),
                    dataset.bin.len()
                );
                return Err(Error::dataset(&idx_path, what));
            }
            dataset.tokens += size.unsigned_abs();
        }
        Ok(dataset)
    }

    /// Number of sentences.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no sentences.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tokens of all sentences, the ends of sentences counted.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The `.bin` file, for messages.
    pub fn path(&self) -> &Path {
        &self.bin_path
    }

    /// Number of tokens of sentence `i`. Panics if there is no such sentence, as indexing a slice does.
    pub fn size(&self, i: usize) -> usize {
        self.assert_in_range(i);
        self.raw_size(i) as usize
    }

    /// The ids of sentence `i`. Panics if there is no such sentence, as indexing a slice does.
    pub fn get(&self, i: usize) -> Vec<u32> {
        let mut ids = Vec::with_capacity(self.size(i));
        self.append_to(i, &mut ids);
        ids
    }

    /// Appends the ids of sentence `i` to a buffer.
    pub fn append_to(&self, i: usize, ids: &mut Vec<u32>) {
        self.dtype.decode(self.sentence_bytes(i), |id| ids.push(id));
    }

    /// The first sentence, if any, in whose ids `wrong` finds a fault; on all threads.
    pub fn find_wrong<T: Send>(&self, wrong: impl Fn(&[u32]) -> Option<T> + Sync) -> Option<(usize, T)> {
        (0..self.len)
            .into_par_iter()
            .with_min_len(1024)
            .map_init(Vec::new, |ids, i| {
                ids.clear();
                self.append_to(i, ids);
                wrong(ids).map(|what| (i, what))
            })
            .find_first(Option::is_some)
            .flatten()
    }

    fn assert_in_range(&self, i: usize) {
        assert!(i < self.len, "sentence {i} of {} in {}", self.len, self.bin_path.display());
    }

    fn raw_size(&self, i: usize) -> i32 {
        i32::from_le_bytes(array(&self.idx, HEADER + 4 * i))
    }

    fn pointer(&self, i: usize) -> i64 {
        i64::from_le_bytes(array(&self.idx, HEADER + 4 * self.len + 8 * i))
    }

    fn sentence_bytes(&self, i: usize) -> &[u8] {
        let (bytes, start) = (self.size(i) * self.dtype.bytes(), self.pointer(i) as usize);
        &self.bin[start..start + bytes]
    }
}

#[allow(unsafe_code)]
fn map(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    // SAFETY: the map is read-only and private to this process's view of the file. Writers of this crate never
    // change a dataset in place (they write aside and rename), so the mapped file keeps its bytes; somebody who
    // cuts off the file from outside while it is in use gets a bus error, as with every memory-mapped format.
    unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Checks the header and the length of an `.idx` file; returns the number type and the number of sentences.
fn parse_header(idx: &[u8], path: &Path) -> Result<(Dtype, usize)> {
    let fail = |what: String| Err(Error::dataset(path, what));
    if idx.len() < HEADER || !idx.starts_with(MAGIC) {
        let legacy =
            if idx.starts_with(b"TNTIDX") { " (it is fairseq's old `lazy`/`cached` format)" } else { "" };
        return fail(format!("not a memory-mapped dataset index{legacy}; preprocess again"));
    }
    let version = u64::from_le_bytes(array(idx, 9));
    if version != VERSION {
        return fail(format!("index version {version}; only version {VERSION} is known"));
    }
    let Some(dtype) = Dtype::from_code(idx[17]) else {
        return fail(format!("number type {} is not an integer type of fairseq 0.9", idx[17]));
    };
    let count = u64::from_le_bytes(array(idx, 18));
    let needed = count.checked_mul(12).and_then(|bytes| bytes.checked_add(HEADER as u64));
    if needed != Some(idx.len() as u64) {
        return fail(format!(
            "the index is {} bytes long but its {count} sentences need {}; the file is damaged: preprocess again",
            idx.len(),
            needed.map_or("more".into(), |n| n.to_string())
        ));
    }
    Ok((dtype, count as usize))
}

/// Splits whose files are beside a missing `SPLIT.idx` or `SPLIT.SRC-TGT.LANG.idx`, if there are any.
fn other_splits(idx_path: &Path) -> Option<String> {
    let name = idx_path.file_name()?.to_str()?;
    let (_, ending) = name.split_once('.')?;
    if idx_path.exists() {
        return None;
    }
    let names =
        fs::read_dir(idx_path.parent()?).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let splits = names.filter_map(|name| {
        name.split_once('.').filter(|(_, end)| *end == ending).map(|(split, _)| split.to_owned())
    });
    let mut splits: Vec<String> = splits.collect();
    splits.sort();
    (!splits.is_empty()).then(|| splits.join(", "))
}
