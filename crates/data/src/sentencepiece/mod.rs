//! SentencePiece models: text to pieces and back, equal to the `sentencepiece` package.
//!
//! | room | contents |
//! |---|---|
//! | `proto` | the model file, read with bounds |
//! | `normalize` | the compiled map of characters, blanks |
//! | `trie` | pieces by their bytes |
//! | `unigram` | the best path by the scores of a unigram model |
//! | `merge` | merges in the order of their scores |
//! | `decode` | pieces to text |
//!
//! [`SentencePiece::encode`] and [`SentencePiece::decode`] are the functions of the package.
//! [`SentencePiece::segment_line`] and [`SentencePiece::join`] are the forms that dictionaries and files of this crate
//! need: pieces with blanks between.

mod decode;
mod merge;
mod normalize;
mod proto;
mod trie;
mod unigram;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::files;
use crate::vocab::{SPECIALS, UNK, is_space};
use normalize::Normalizer;
use trie::Trie;
use unigram::Unigram;

/// Mark of a blank in pieces, U+2581.
pub const BLANK: char = '▁';

/// Size of the largest file that is read.
const LARGEST_FILE: u64 = 1 << 28;

/// A model; copies share everything.
#[derive(Clone)]
pub struct SentencePiece {
    model: Arc<Model>,
}

/// A piece of an encoded text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Text of the piece, with [`BLANK`] for blanks. An unknown piece is the run of unknown characters.
    pub text: String,
    /// Id in the model.
    pub id: u32,
}

/// Kind of a piece in the model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// A piece as the model file defines it.
struct Entry {
    text: Box<str>,
    score: f32,
    kind: Kind,
}

enum Algorithm {
    Unigram(Unigram),
    Merges,
    Characters,
}

struct Model {
    /// The file, to be written again as it was read.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Pieces that text can become: normal, user-defined and unused ones.
    pieces: FxHashMap<Box<str>, u32>,
    /// Control symbols, the unknown piece and bytes.
    reserved: FxHashMap<Box<str>, u32>,
    /// Ids of the 256 bytes, where unknown characters become bytes.
    bytes_of: Option<Box<[u32; 256]>>,
    unknown: u32,
    unknown_surface: String,
    normalizer: Normalizer,
    denormalizer: Option<Normalizer>,
    algorithm: Algorithm,
    /// Blanks follow words instead of preceding them.
    blank_is_suffix: bool,
}

impl SentencePiece {
    /// Reads a model file; types of models that are not supported are refused by name.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let size = std::fs::metadata(path).map_err(Error::io("read", path))?.len();
        if size > LARGEST_FILE {
            return Err(Error::dataset(path, format!("{size} bytes are too many for a SentencePiece model")));
        }
        let bytes = std::fs::read(path).map_err(Error::io("read", path))?;
        Self::parse(&bytes).map_err(|what| Error::dataset(path, what))
    }

    /// Understands the bytes of a model file, or says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        Ok(Self { model: Arc::new(Model::new(bytes)?) })
    }

    /// Writes the file as it was read (aside, then renamed).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::write(path, &self.model.bytes)
    }

    /// Bytes of the model file.
    pub fn bytes(&self) -> &[u8] {
        &self.model.bytes
    }

    /// Number of pieces.
    #[expect(clippy::len_without_is_empty, reason = "a model always has an unknown piece")]
    pub fn len(&self) -> usize {
        self.model.entries.len()
    }

    /// Text of a piece, if there is one of this id.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.model.entries.get(id as usize).map(|entry| &*entry.text)
    }

    /// Id of a piece; that of the unknown piece for other texts.
    pub fn id(&self, piece: &str) -> u32 {
        self.model.id(piece)
    }

    /// Pieces of a text (`SentencePieceProcessor.encode`).
    pub fn encode(&self, text: &str) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        self.model.for_each_piece(text, |text, id, continues| match pieces.last_mut() {
            Some(last) if continues => last.text.push_str(text),
            _ => pieces.push(Piece { text: text.to_owned(), id }),
        });
        pieces
    }

    /// The text that pieces spell (`SentencePieceProcessor.decode`).
    pub fn decode<S: AsRef<str>>(&self, pieces: &[S]) -> String {
        decode::decode(&self.model, pieces.iter().map(AsRef::as_ref), decode::Unknown::AsIs)
    }

    /// A line as pieces with blanks between. White space in a piece is written `<U+00A0>`; a language code at the
    /// start, `>>fra<<` or `__fr__`, stays whole, as in the models of OPUS-MT and M2M100. The surface of unknown pieces is kept: a dictionary
    /// may have it.
    pub fn segment_line(&self, line: &str) -> String {
        let mut out = String::with_capacity(line.len() * 3 / 2);
        let (code, rest) = language_code(line);
        out.push_str(code);
        let mut start = 0;
        self.model.for_each_piece(rest, |text, id, continues| {
            if !continues {
                check_special(&mut out, start);
                if !out.is_empty() {
                    out.push(' ');
                }
                start = if id == self.model.unknown { out.len() } else { usize::MAX };
            }
            out.push_str(&escape(text));
        });
        check_special(&mut out, start);
        out
    }

    /// The text that pieces with blanks between them spell, on one line.
    pub fn join(&self, line: &str) -> String {
        let pieces: Vec<Cow<'_, str>> =
            line.split(' ').filter(|piece| !piece.is_empty()).map(unescape).collect();
        let pieces = pieces.iter().map(AsRef::as_ref);
        decode::decode(&self.model, pieces, decode::Unknown::Spelled).replace(['\n', '\r'], " ")
    }

    /// Returns whether `piece` begins a word, after `previous`.
    pub fn begins_word(&self, previous: &str, piece: &str) -> bool {
        match self.model.blank_is_suffix {
            true => previous.ends_with(BLANK),
            false => piece.starts_with(BLANK),
        }
    }
}

/// Unknown text that reads like a special symbol of dictionaries must not become that symbol.
fn check_special(out: &mut String, start: usize) {
    if out.get(start..).is_some_and(|piece| SPECIALS.contains(&piece)) {
        out.truncate(start);
        out.push_str(SPECIALS[UNK as usize]);
    }
}

/// `>>code<<` or `__code__` at the start of a line, and the rest. A code of the second form has two or three letters and is
/// a word of its own.
fn language_code(line: &str) -> (&str, &str) {
    let end = line.strip_prefix(">>").and_then(|rest| rest.find("<<"));
    let (code, rest) = line.split_at(end.map_or(0, |end| end + 4));
    if !code.is_empty() && !code.contains(is_space) {
        return (code, rest);
    }
    let word = line.split(is_space).next().unwrap_or("");
    let letters = word.strip_prefix("__").and_then(|rest| rest.strip_suffix("__")).unwrap_or("");
    let is_code = matches!(letters.len(), 2 | 3) && letters.bytes().all(|byte| byte.is_ascii_lowercase());
    line.split_at(if is_code { word.len() } else { 0 })
}

/// A piece without white space: that is written by its number, `<U+00A0>`.
pub fn escape(piece: &str) -> Cow<'_, str> {
    if !piece.contains(is_space) {
        return Cow::Borrowed(piece);
    }
    let mut out = String::new();
    for c in piece.chars() {
        match is_space(c) {
            true => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The piece of [`escape`]'s result.
pub fn unescape(piece: &str) -> Cow<'_, str> {
    let (mut out, mut rest) = (String::new(), piece);
    while let Some(at) = rest.find("<U+") {
        let number = rest[at + 3..].split_once('>').and_then(|(digits, after)| {
            let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?).filter(|&c| is_space(c))?;
            Some((c, after))
        });
        match number {
            Some((c, after)) => {
                out.push_str(&rest[..at]);
                out.push(c);
                rest = after;
            }
            None => {
                out.push_str(&rest[..at + 3]);
                rest = &rest[at + 3..];
            }
        }
    }
    match out.is_empty() {
        true => Cow::Borrowed(piece),
        false => Cow::Owned(out + rest),
    }
}

impl Model {
    fn new(bytes: &[u8]) -> Result<Self, String> {
        let proto::File { entries, trainer, normalizer, denormalizer } = proto::File::read(bytes)?;
        let (mut pieces, mut reserved) = (FxHashMap::default(), FxHashMap::default());
        let mut unknown = None;
        for (id, entry) in entries.iter().enumerate() {
            let (id, fault) = (id as u32, |what: &str| format!("piece {id} ({:?}): {what}", entry.text));
            if entry.text.is_empty() {
                return Err(fault("it is empty"));
            }
            let map = match entry.kind {
                Kind::Normal | Kind::UserDefined | Kind::Unused => &mut pieces,
                Kind::Unknown | Kind::Control | Kind::Byte => &mut reserved,
            };
            if map.insert(entry.text.clone(), id).is_some() {
                return Err(fault("there is another of the same text"));
            }
            if entry.kind == Kind::Unknown && unknown.replace(id).is_some() {
                return Err(fault("there is another unknown piece"));
            }
        }
        let unknown = unknown.ok_or("it has no unknown piece")?;
        let bytes_of = trainer.byte_fallback.then(|| all_bytes(&reserved)).transpose()?;
        let user_defined = entries.iter().enumerate().filter(|(_, entry)| entry.kind == Kind::UserDefined);
        let matcher = Trie::new(user_defined.map(|(id, entry)| (entry.text.as_bytes(), id as u32)));
        let algorithm = match trainer.model_type {
            1 => Algorithm::Unigram(Unigram::new(&entries, &pieces)),
            2 => Algorithm::Merges,
            4 => Algorithm::Characters,
            3 => {
                return Err("models of type `word` are not supported; `unigram`, `bpe` and `char` are".into());
            }
            other => return Err(format!("the model type {other} is not known")),
        };
        let denormalizer = denormalizer.filter(|spec| !spec.charsmap.is_empty());
        Ok(Self {
            bytes: bytes.to_vec(),
            normalizer: Normalizer::new(normalizer, matcher, trainer.blank_is_suffix)?,
            denormalizer: denormalizer
                .map(|spec| Normalizer::new(spec, Trie::default(), false))
                .transpose()?,
            entries,
            pieces,
            reserved,
            bytes_of,
            unknown,
            unknown_surface: trainer.unknown_surface,
            algorithm,
            blank_is_suffix: trainer.blank_is_suffix,
        })
    }

    fn kind(&self, id: u32) -> Kind {
        self.entries[id as usize].kind
    }

    fn id(&self, piece: &str) -> u32 {
        self.reserved.get(piece).or_else(|| self.pieces.get(piece)).copied().unwrap_or(self.unknown)
    }

    /// Calls `found` with the text and the id of each piece, and whether it continues an unknown piece.
    fn for_each_piece(&self, text: &str, mut found: impl FnMut(&str, u32, bool)) {
        let text = self.normalizer.normalize(text);
        let mut after_unknown = false;
        let mut emit = |piece: &str, id: u32| {
            let is_unknown = id == self.unknown;
            match &self.bytes_of {
                Some(ids) if is_unknown => piece.bytes().for_each(|byte| {
                    let id = ids[usize::from(byte)];
                    found(&self.entries[id as usize].text, id, false);
                }),
                _ => found(piece, id, is_unknown && after_unknown),
            }
            after_unknown = is_unknown;
        };
        match &self.algorithm {
            Algorithm::Unigram(unigram) => {
                unigram.best_path(self, &text).into_iter().for_each(|(range, id)| emit(&text[range], id));
            }
            Algorithm::Merges => merge::for_each_piece(self, &text, &mut emit),
            Algorithm::Characters => {
                let mut rest = &*text;
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(self.normalizer.next_symbol(rest).0);
                    emit(piece, self.id(piece));
                    rest = after;
                }
            }
        }
    }
}

/// Ids of `<0x00>` … `<0xFF>`.
fn all_bytes(reserved: &FxHashMap<Box<str>, u32>) -> Result<Box<[u32; 256]>, String> {
    let mut ids = Box::new([0; 256]);
    for (byte, id) in ids.iter_mut().enumerate() {
        let piece = format!("<0x{byte:02X}>");
        *id = *reserved
            .get(&*piece)
            .ok_or_else(|| format!("unknown characters become bytes, but {piece} is missing"))?;
    }
    Ok(ids)
}

impl fmt::Debug for SentencePiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SentencePiece({} pieces)", self.len())
    }
}

impl PartialEq for SentencePiece {
    fn eq(&self, other: &Self) -> bool {
        self.model.bytes == other.model.bytes
    }
}

impl Eq for SentencePiece {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_in_pieces_is_written_by_number() {
        for (piece, escaped) in [("a", "a"), ("\u{a0}", "<U+00A0>"), ("x\ty", "x<U+0009>y"), ("<U+", "<U+")] {
            assert_eq!(escape(piece), escaped);
            assert_eq!(unescape(escaped), piece);
        }
        assert_eq!(unescape("<U+0041><U+3000>"), "<U+0041>\u{3000}");
    }

    #[test]
    fn language_codes_stand_at_the_start() {
        assert_eq!(language_code(">>fra<< Hello"), (">>fra<<", " Hello"));
        assert_eq!(language_code("__fr__ Hello"), ("__fr__", " Hello"));
        assert_eq!(language_code("__ast__"), ("__ast__", ""));
        for line in
            ["Hello >>fra<<", ">>fra", ">> a <<", "", "__init__ x", "__fr__x", "____", "__FR__ x", "x __fr__"]
        {
            assert_eq!(language_code(line), ("", line));
        }
    }
}
