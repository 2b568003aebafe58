//! Hugging Face's `tokenizer.json`, as far as byte-pair encodings go: text to pieces and back.
//!
//! | room | contents |
//! |---|---|
//! | `read` | the file's parts, and the refusal of what is not supported |
//! | `split` | normalisers and pre-tokenisers: a line to words |
//! | `merge` | the BPE model: a word to pieces |
//! | `decode` | pieces to text |
//!
//! Pieces become types of a dictionary of ours, and the sentence's end mark is ours too. So the ids of the file, its
//! post-processor and its special tokens play no part: `</s>` in a text is just text.

mod bytes;
mod decode;
mod merge;
mod read;
mod split;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::bpe::cache::PieceCache;
use crate::error::{Error, Result};
use crate::files;
use decode::Decoder;
use merge::Model;
use split::{Normalizer, PreTokenizer};

/// A tokeniser; copies share everything.
#[derive(Clone)]
pub struct Tokenizer {
    rules: Arc<Rules>,
}

struct Rules {
    /// The file, to be written again as it was read.
    json: String,
    normalizers: Vec<Normalizer>,
    pre_tokenizers: Vec<PreTokenizer>,
    model: Model,
    decoder: Decoder,
    cache: PieceCache,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`; what this program would do differently from `tokenizers` is refused by name.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let json = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        Self::parse(&json).map_err(|what| Error::dataset(path, what))
    }

    /// Understands the text of a `tokenizer.json`, or says what is wrong.
    pub fn parse(json: &str) -> Result<Self, String> {
        Ok(Self { rules: Arc::new(read::rules(json)?) })
    }

    /// Writes the file as it was read (aside, then renamed).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::write(path, self.rules.json.as_bytes())
    }

    /// A line as pieces with blanks between. Characters that the tokeniser cannot spell become `<unk>`.
    pub fn segment_line(&self, line: &str) -> String {
        let rules = &*self.rules;
        let text = rules.normalizers.iter().fold(line.to_owned(), |text, step| step.apply(text));
        if text.is_empty() {
            return text;
        }
        let words = rules.pre_tokenizers.iter().fold(vec![text], |words, step| {
            words.iter().enumerate().flat_map(|(i, word)| step.split(word, i == 0)).collect()
        });
        let mut out = String::with_capacity(line.len() * 3 / 2);
        for word in words.iter().filter(|word| !word.is_empty()) {
            if !out.is_empty() {
                out.push(' ');
            }
            rules.cache.look_up(word, &mut out, |out| rules.model.push_pieces(word, out));
        }
        out
    }

    /// The text that pieces with blanks between them spell, on one line.
    pub fn join(&self, line: &str) -> String {
        self.rules.decoder.decode(line).replace(['\n', '\r'], " ")
    }

    /// Returns whether `piece` begins a word, after `previous`.
    pub fn begins_word(&self, previous: &str, piece: &str) -> bool {
        self.rules.decoder.begins_word(previous, piece)
    }

    /// Number of merges.
    pub fn merges(&self) -> usize {
        self.rules.model.len()
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({} merges)", self.merges())
    }
}

impl PartialEq for Tokenizer {
    fn eq(&self, other: &Self) -> bool {
        self.rules.json == other.rules.json
    }
}

impl Eq for Tokenizer {}
