//! Vocabularies: fairseq's `Dictionary` and its `dict.txt`.
//!
//! Ids 0–3 are the specials and are not stored; `dict.txt` holds one `token count` per line, in id order, from
//! id 4. A vocabulary is ordered by descending count, ties by code point, and its size is padded to a multiple
//! of eight with `madeupword0000`, …, all exactly as fairseq does, so that either tool reads the other's files.

use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::files;
use crate::fingerprint::Fingerprint;
use crate::lines::{BadUtf8, LineReader};

/// Id of `<s>`.
pub const BOS: u32 = 0;
/// Id of `<pad>`.
pub const PAD: u32 = 1;
/// Id of `</s>`, which ends every sentence and, moved to the front, starts the decoder's input.
pub const EOS: u32 = 2;
/// Id of `<unk>`.
pub const UNK: u32 = 3;
/// The specials, in id order.
pub const SPECIALS: [&str; 4] = ["<s>", "<pad>", "</s>", "<unk>"];

const OVERWRITE: &str = "#fairseq:overwrite";

/// Python's `str.isspace` for one character: Unicode white space and the four ASCII separators 0x1C–0x1F.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// The tokens of a line: Python's `str.split()`, like fairseq's `tokenize_line`.
pub fn tokens(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_space).filter(|token| !token.is_empty())
}

/// Choice of the tokens that enter a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VocabOptions {
    /// Tokens seen less often are left out (0: none are).
    pub threshold: u64,
    /// Size at most, the four specials counted (`None`: no limit).
    pub nwords: Option<usize>,
    /// The size is padded to a multiple of this (0 or 1: it is not).
    pub padding_factor: usize,
}

impl Default for VocabOptions {
    fn default() -> Self {
        Self { threshold: 0, nwords: None, padding_factor: 8 }
    }
}

/// Tokens and their ids.
#[derive(Clone, Debug)]
pub struct Vocab {
    symbols: Vec<Box<str>>,
    counts: Vec<u64>,
    ids: FxHashMap<Box<str>, u32>,
}

impl Default for Vocab {
    fn default() -> Self {
        Self::new()
    }
}

impl Vocab {
    /// The four specials alone.
    pub fn new() -> Self {
        let mut vocab = Self { symbols: Vec::new(), counts: Vec::new(), ids: FxHashMap::default() };
        SPECIALS.iter().for_each(|special| vocab.push(special, 1));
        vocab
    }

    /// Cuts a vocabulary from token counts, as fairseq's `Dictionary.finalize`: descending count, ties by code
    /// point. Specials among the tokens are ignored: they have their ids already.
    pub fn from_counts<S: AsRef<str>>(
        counts: impl IntoIterator<Item = (S, u64)>,
        options: VocabOptions,
    ) -> Self {
        let mut totals: FxHashMap<Box<str>, u64> = FxHashMap::default();
        for (token, count) in counts {
            match totals.get_mut(token.as_ref()) {
                Some(total) => *total += count,
                None => drop(totals.insert(token.as_ref().into(), count)),
            }
        }
        let mut vocab = Self::new();
        let mut sorted: Vec<_> = totals
            .into_iter()
            .filter(|(token, count)| *count >= options.threshold && !vocab.ids.contains_key(token))
            .collect();
        sorted.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        sorted.truncate(options.nwords.map_or(usize::MAX, |n| n.saturating_sub(SPECIALS.len())));
        sorted.iter().for_each(|(token, count)| vocab.push(token, *count));
        vocab.pad_to_multiple(options.padding_factor);
        vocab
    }

    /// The specials and these symbols, in this order. Symbols differ from one another and from the specials, and
    /// contain no white space.
    pub fn from_symbols<S: AsRef<str>>(symbols: impl IntoIterator<Item = S>) -> Self {
        let mut vocab = Self::new();
        symbols.into_iter().for_each(|symbol| vocab.push(symbol.as_ref(), 1));
        vocab
    }

    fn pad_to_multiple(&mut self, factor: usize) {
        let fillers = (0..).map(|i| format!("madeupword{i:04}"));
        for filler in fillers {
            if factor <= 1 || self.len().is_multiple_of(factor) {
                break;
            }
            if self.id(&filler).is_none() {
                self.push(&filler, 0);
            }
        }
    }

    fn push(&mut self, symbol: &str, count: u64) {
        self.ids.insert(symbol.into(), self.symbols.len() as u32);
        self.symbols.push(symbol.into());
        self.counts.push(count);
    }

    /// Reads a `dict.txt`. The count follows the last space (a token may contain spaces); a token that
    /// is there twice is an error unless the later line ends in `#fairseq:overwrite`.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut vocab = Self::new();
        let mut reader = LineReader::open(path, BadUtf8::Error)?;
        while let Some(line) = reader.next_line()? {
            let parsed = parse_entry(line.trim_end_matches(is_space));
            let line = reader.lines_read();
            let fail = |what: String| Error::format(path, line, what);
            let (token, count, overwrite) = parsed.map_err(fail)?;
            if let (Some(id), false) = (vocab.id(&token), overwrite) {
                return Err(fail(format!(
                    "token `{token}` is here already, with id {id}; drop one of the two lines, or end this \
                     one with `{OVERWRITE}`"
                )));
            }
            vocab.push(&token, count);
        }
        if vocab.len() == SPECIALS.len() {
            let what = "the dictionary is empty; put the right file back, or preprocess again";
            return Err(Error::dataset(path, what));
        }
        Ok(vocab)
    }

    /// Writes a `dict.txt` (aside, then renamed).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut seen: FxHashMap<&str, ()> = SPECIALS.iter().map(|&special| (special, ())).collect();
        files::write_with(path.as_ref(), |out| {
            for (symbol, count) in self.symbols.iter().zip(&self.counts).skip(SPECIALS.len()) {
                match seen.entry(symbol) {
                    Entry::Vacant(entry) => {
                        entry.insert(());
                        writeln!(out, "{symbol} {count}")?;
                    }
                    Entry::Occupied(_) => writeln!(out, "{symbol} {count} {OVERWRITE}")?,
                }
            }
            Ok(())
        })
    }

    /// Number of ids, specials and fillers counted.
    #[expect(clippy::len_without_is_empty, reason = "a vocabulary always has its specials")]
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// The token of an id; `<unk>` for ids out of range, as in fairseq.
    pub fn symbol(&self, id: u32) -> &str {
        self.symbols.get(id as usize).map_or(SPECIALS[UNK as usize], |symbol| symbol)
    }

    /// The count of an id's token in the training text (0 for ids out of range).
    pub fn count(&self, id: u32) -> u64 {
        self.counts.get(id as usize).copied().unwrap_or(0)
    }

    /// The id of a token, if it has one.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// The ids of a line's tokens, `UNK` for those that have none, and `EOS` at the end.
    pub fn encode_line(&self, line: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        self.encode_into(line, &mut ids);
        ids
    }

    /// Appends the ids of [`Vocab::encode_line`] to `ids`; returns the number of unknown tokens.
    pub fn encode_into(&self, line: &str, ids: &mut Vec<u32>) -> usize {
        let mut unknown = 0;
        for token in tokens(line) {
            ids.push(self.id(token).unwrap_or_else(|| {
                unknown += 1;
                UNK
            }));
        }
        ids.push(EOS);
        unknown
    }

    /// The tokens of `ids`, `BOS` and `EOS` left out, as fairseq's `Dictionary.string` prints them.
    pub fn decode(&self, ids: &[u32]) -> Vec<&str> {
        ids.iter().filter(|&&id| id != EOS && id != BOS).map(|&id| self.symbol(id)).collect()
    }

    /// The tokens of `ids` with a space between each two.
    pub fn string(&self, ids: &[u32]) -> String {
        self.decode(ids).join(" ")
    }

    /// A hash of all tokens in order (FNV-1a), the same on every machine: to store beside weights.
    pub fn fingerprint(&self) -> u64 {
        Fingerprint::of(self.symbols.iter().flat_map(|symbol| symbol.bytes().chain([b'\n']))).value()
    }

    /// The first id at which two vocabularies differ, with the token of each: for messages.
    pub fn first_difference<'a>(
        &'a self,
        other: &'a Self,
    ) -> Option<(u32, Option<&'a str>, Option<&'a str>)> {
        let at = |vocab: &'a Self, i: usize| vocab.symbols.get(i).map(|symbol| &**symbol);
        let longest = self.len().max(other.len());
        let i = (0..longest).find(|&i| at(self, i) != at(other, i))?;
        Some((i as u32, at(self, i), at(other, i)))
    }
}

/// Two vocabularies are equal when they give the same ids; counts do not matter.
impl PartialEq for Vocab {
    fn eq(&self, other: &Self) -> bool {
        self.symbols == other.symbols
    }
}

impl Eq for Vocab {}

impl Hash for Vocab {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint().hash(state);
    }
}

/// `token count [#fairseq:overwrite]`.
fn parse_entry(line: &str) -> Result<(String, u64, bool), String> {
    let expected = || format!("expected `token count`, found `{}`; is this a dict.txt?", shorten(line));
    let (rest, last) = line.rsplit_once(' ').ok_or_else(expected)?;
    let (token, count, overwrite) = match last {
        OVERWRITE => {
            let (token, count) = rest.rsplit_once(' ').ok_or_else(expected)?;
            (token, count, true)
        }
        _ => (rest, last, false),
    };
    let count = count.parse().map_err(|_| expected())?;
    if token.is_empty() { Err(expected()) } else { Ok((token.to_owned(), count, overwrite)) }
}

/// The beginning of a line, for messages.
pub(crate) fn shorten(line: &str) -> String {
    let mut short: String = line.chars().take(60).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}
