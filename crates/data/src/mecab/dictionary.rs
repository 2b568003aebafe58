//! Words and their costs: `sys.dic` and `unk.dic`, a header, a double array, tokens and features.

use super::{Matrix, word};

const HEADER: usize = 72;
const MAGIC: u32 = 0xef71_8f77;
const VERSION: u32 = 102;
/// Bytes of a token.
const TOKEN: usize = 16;

/// One reading of a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    /// Its left side, in the matrix of connections.
    pub(super) left: u16,
    /// Its right side.
    pub(super) right: u16,
    /// Part of speech.
    pub(super) part: u16,
    /// Cost of the word.
    pub(super) cost: i16,
}

/// A list of words.
pub(super) struct Dictionary {
    entries: u32,
    /// Base and check of each unit.
    units: Vec<(i32, u32)>,
    tokens: Vec<Token>,
}

impl Dictionary {
    pub(super) fn parse(bytes: &[u8], matrix: &Matrix) -> Result<Self, String> {
        let field = |at: usize| word(bytes, 4 * at).ok_or("the file is cut off");
        if field(0)? ^ MAGIC != bytes.len() as u32 || field(1)? != VERSION {
            return Err(format!("not a compiled dictionary of MeCab, version {VERSION}"));
        }
        let [trie, tokens, features] = [field(6)?, field(7)?, field(8)?].map(|size| size as usize);
        if bytes.len() < HEADER
            || bytes.len() - HEADER != trie.saturating_add(tokens).saturating_add(features)
        {
            return Err("the sizes of its parts do not add up".to_owned());
        }
        let charset = String::from_utf8_lossy(&bytes[40..HEADER]).trim_end_matches('\0').to_lowercase();
        if !matches!(charset.as_str(), "utf8" | "utf-8" | "utf_8") {
            return Err(format!("its characters are {charset}; a dictionary in UTF-8 is needed"));
        }
        let (trie, rest) = bytes[HEADER..].split_at(trie);
        let units = trie.as_chunks::<8>().0.iter().map(|unit| {
            let [base, check] = [0, 4].map(|at| [unit[at], unit[at + 1], unit[at + 2], unit[at + 3]]);
            (i32::from_le_bytes(base), u32::from_le_bytes(check))
        });
        let tokens = rest[..tokens].as_chunks::<TOKEN>().0.iter().map(|token| {
            let two = |at: usize| [token[at], token[at + 1]];
            let [left, right, part] = [0, 2, 4].map(|at| u16::from_le_bytes(two(at)));
            Token { left, right, part, cost: i16::from_le_bytes(two(6)) }
        });
        let (units, tokens): (Vec<_>, Vec<Token>) = (units.collect(), tokens.collect());
        let fits = |token: &Token| {
            usize::from(token.left) < matrix.lefts && usize::from(token.right) < matrix.rights
        };
        match tokens.iter().all(fits) {
            true => Ok(Self { entries: field(3)?, units, tokens }),
            false => Err("its words do not fit matrix.bin".to_owned()),
        }
    }

    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Calls `each` with the length and the tokens of every word that `text` begins with, the shortest first.
    pub(super) fn prefixes(&self, text: &[u8], mut each: impl FnMut(usize, &[Token])) {
        let Some(&(mut base, _)) = self.units.first() else { return };
        for length in 0..=text.len() {
            if let Some(value) = self.value(base) {
                each(length, self.tokens_of(value));
            }
            let Some(&byte) = text.get(length) else { return };
            match self.unit(i64::from(base) + i64::from(byte) + 1) {
                Some((next, check)) if check == base as u32 => base = next,
                _ => return,
            }
        }
    }

    /// The tokens of a word; none if it is not there.
    pub(super) fn exact(&self, text: &str) -> &[Token] {
        let Some(&(mut base, _)) = self.units.first() else { return &[] };
        for &byte in text.as_bytes() {
            match self.unit(i64::from(base) + i64::from(byte) + 1) {
                Some((next, check)) if check == base as u32 => base = next,
                _ => return &[],
            }
        }
        self.value(base).map_or(&[], |value| self.tokens_of(value))
    }

    fn unit(&self, at: i64) -> Option<(i32, u32)> {
        self.units.get(usize::try_from(at).ok()?).copied()
    }

    /// The value of the word that ends where a node has this base.
    fn value(&self, base: i32) -> Option<u32> {
        let (value, check) = self.unit(base.into())?;
        (check == base as u32 && value < 0).then(|| (-(i64::from(value) + 1)) as u32)
    }

    /// A value is the place of the first token, and their number in the last byte.
    fn tokens_of(&self, value: u32) -> &[Token] {
        let (first, count) = ((value >> 8) as usize, (value & 0xff) as usize);
        self.tokens.get(first..first + count).unwrap_or_default()
    }
}
