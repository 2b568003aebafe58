//! Categories of characters: `char.bin`.

use super::word;

/// Characters that the file describes; others are like the first.
const KNOWN: usize = 0xffff;
/// Bytes of the name of a category.
const NAME: usize = 32;

/// Properties of a character.
#[derive(Clone, Copy)]
pub(super) struct CharInfo(u32);

impl CharInfo {
    /// Returns whether two characters share a category.
    pub(super) fn is_kind_of(self, other: Self) -> bool {
        self.0 & other.0 & 0x3_ffff != 0
    }

    /// Category whose candidates an unknown word has.
    pub(super) fn category(self) -> usize {
        (self.0 >> 18 & 0xff) as usize
    }

    /// Unknown words of 1 to this many characters are tried.
    pub(super) fn length(self) -> usize {
        (self.0 >> 26 & 0xf) as usize
    }

    /// Characters of one category together are tried as an unknown word.
    pub(super) fn groups(self) -> bool {
        self.0 >> 30 & 1 == 1
    }

    /// Unknown words are tried even where the dictionary has a word.
    pub(super) fn always(self) -> bool {
        self.0 >> 31 == 1
    }
}

/// Names of categories, and the properties of all characters.
pub(super) struct Characters {
    names: Vec<String>,
    infos: Vec<CharInfo>,
}

impl Characters {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let count = word(bytes, 0).ok_or("the file is cut off")? as usize;
        let table = 4 + NAME * count.min(256);
        if bytes.len() != table + 4 * KNOWN || count > 256 {
            return Err(format!("{count} categories do not fit {} bytes", bytes.len()));
        }
        let name = |bytes: &[u8]| {
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(NAME);
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        let names = bytes[4..table].chunks_exact(NAME).map(name).collect();
        let infos: Vec<CharInfo> = bytes[table..]
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&four| CharInfo(u32::from_le_bytes(four)))
            .collect();
        if let Some(info) = infos.iter().find(|info| info.category() >= count) {
            return Err(format!("category {} does not exist", info.category()));
        }
        Ok(Self { names, infos })
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Properties of a character; those of U+0000 beyond the table.
    pub(super) fn info(&self, c: char) -> CharInfo {
        self.infos[if (c as usize) < KNOWN { c as usize } else { 0 }]
    }
}
