//! Normalisation: the compiled map of characters, blanks at the ends and between words.

use super::BLANK;
use super::trie::Trie;

/// Keys of `NormalizerSpec`.
pub(super) struct Spec {
    pub(super) charsmap: Vec<u8>,
    pub(super) add_dummy_prefix: bool,
    pub(super) remove_extra_blanks: bool,
    pub(super) escape_blanks: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self { charsmap: Vec::new(), add_dummy_prefix: true, remove_extra_blanks: true, escape_blanks: true }
    }
}

/// Rules that a text goes through before it is cut.
pub(super) struct Normalizer {
    map: Option<CharacterMap>,
    /// User-defined pieces, which no rule changes.
    fixed: Trie,
    add_dummy_prefix: bool,
    remove_extra_blanks: bool,
    escape_blanks: bool,
    blank_is_suffix: bool,
}

impl Normalizer {
    pub(super) fn new(spec: Spec, fixed: Trie, blank_is_suffix: bool) -> Result<Self, String> {
        let map = match spec.charsmap.is_empty() {
            true => None,
            false => Some(CharacterMap::new(&spec.charsmap)?),
        };
        Ok(Self {
            map,
            fixed,
            add_dummy_prefix: spec.add_dummy_prefix,
            remove_extra_blanks: spec.remove_extra_blanks,
            escape_blanks: spec.escape_blanks,
            blank_is_suffix,
        })
    }

    /// Returns whether pieces at the start of a text lose their blank.
    pub(super) fn strips_first_blank(&self) -> bool {
        self.add_dummy_prefix || self.remove_extra_blanks
    }

    /// Returns whether all blanks at the start of a text are lost.
    pub(super) fn strips_all_blanks(&self) -> bool {
        self.remove_extra_blanks
    }

    pub(super) fn normalize(&self, input: &str) -> String {
        let mut rest = input;
        if self.remove_extra_blanks {
            while !rest.is_empty()
                && let (" ", length) = self.prefix(rest)
            {
                rest = &rest[length..];
            }
        }
        let mut out = String::with_capacity(rest.len() * 5 / 4 + 8);
        if rest.is_empty() {
            return out;
        }
        let blank = if self.escape_blanks { BLANK } else { ' ' };
        if self.add_dummy_prefix && !self.blank_is_suffix {
            out.push(blank);
        }
        let mut after_blank = self.remove_extra_blanks;
        while !rest.is_empty() {
            let (mut text, length) = self.prefix(rest);
            if after_blank {
                text = text.trim_start_matches(' ');
            }
            if !text.is_empty() {
                out.extend(text.chars().map(|c| if c == ' ' { blank } else { c }));
                after_blank = self.remove_extra_blanks && text.ends_with(' ');
            }
            rest = &rest[length..];
        }
        if self.remove_extra_blanks {
            out.truncate(out.trim_end_matches(blank).len());
        }
        if self.add_dummy_prefix && self.blank_is_suffix {
            out.push(blank);
        }
        out
    }

    /// What the start of a text becomes, and the length of that start.
    fn prefix<'a>(&'a self, text: &'a str) -> (&'a str, usize) {
        let (length, is_fixed) = self.next_symbol(text);
        let replaced = self.map.as_ref().filter(|_| !is_fixed).and_then(|map| map.longest(text));
        replaced.unwrap_or((&text[..length], length))
    }

    /// Length of the user-defined piece or of the character that a text begins with, and whether it is a piece.
    pub(super) fn next_symbol(&self, text: &str) -> (usize, bool) {
        match self.fixed.longest(text.as_bytes()) {
            Some(length) => (length, true),
            None => (text.chars().next().map_or(0, char::len_utf8), false),
        }
    }
}

/// The compiled map: a double array (of darts-clone) from characters to places in a text.
struct CharacterMap {
    units: Vec<u32>,
    /// Replacements, each ended by NUL.
    replacements: String,
}

impl CharacterMap {
    fn new(bytes: &[u8]) -> Result<Self, String> {
        let fault = || "its normalisation map is damaged".to_owned();
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(fault)?;
        let size = u32::from_le_bytes(*size) as usize;
        if size > rest.len() || !size.is_multiple_of(4) {
            return Err(fault());
        }
        let (units, replacements) = rest.split_at(size);
        let units =
            units.chunks_exact(4).map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]));
        let replacements = std::str::from_utf8(replacements).map_err(|_| fault())?.to_owned();
        Ok(Self { units: units.collect(), replacements })
    }

    /// The replacement of the longest key that `text` begins with, and the key's length.
    fn longest<'a>(&'a self, text: &str) -> Option<(&'a str, usize)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut at = offset(*self.units.first()?);
        let mut longest = None;
        for (i, byte) in text.bytes().enumerate() {
            at ^= usize::from(byte);
            let Some(&unit) = self.units.get(at) else { break };
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            at ^= offset(unit);
            if unit >> 8 & 1 == 1
                && text.is_char_boundary(i + 1)
                && let Some(value) = self.units.get(at)
            {
                longest = Some(((value & !(1 << 31)) as usize, i + 1));
            }
        }
        let (place, length) = longest?;
        let replacement = self.replacements.get(place..)?;
        Some((replacement.split('\0').next().unwrap_or_default(), length))
    }
}
