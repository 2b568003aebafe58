//! The parts of a `tokenizer.json`; unsupported ones are refused.

use rustc_hash::FxHashMap;
use serde_json::Value;

use super::Rules;
use super::decode::Decoder;
use super::merge::Model;
use super::split::{Normalizer, PreTokenizer, Prefix};
use crate::bpe::cache::PieceCache;
use crate::vocab::is_space;

type Read<T> = Result<T, String>;

/// Times that normalisers may lengthen a text.
const MOST_GROWTH: f64 = 256.0;

/// Understands the file.
pub(super) fn rules(json: &str) -> Read<Rules> {
    let file: Value = serde_json::from_str(json).map_err(|error| format!("not JSON: {error}"))?;
    if !file.is_object() || file.get("model").is_none() {
        return Err("not a tokenizer.json of Hugging Face's `tokenizers`: it has no `model`".into());
    }
    let added = file["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    if let Some(token) = added.iter().find(|token| token["special"] == false) {
        return Err(format!(
            "the added token {} is not special; only special ones, which no text contains, are supported",
            token["content"]
        ));
    }
    let pre_tokenizers = steps(&file["pre_tokenizer"], "pretokenizers", pre_tokenizer)?;
    let decoder = match &file["decoder"] {
        Value::Null if pre_tokenizers.iter().any(|step| matches!(step, PreTokenizer::ByteLevel { .. })) => {
            Decoder::ByteLevel
        }
        part => decoder(part)?,
    };
    if !file["truncation"].is_null() {
        return Err("`truncation` is not supported: set it to null, and cut texts beforehand".into());
    }
    let normalizers = steps(&file["normalizer"], "normalizers", normalizer)?;
    let growth: f64 = normalizers.iter().map(Normalizer::growth).product();
    if growth > MOST_GROWTH {
        return Err(format!(
            "its normalizers can make a text {growth:.0} times as long; {MOST_GROWTH} times is the most there can be"
        ));
    }
    Ok(Rules {
        json: json.to_owned(),
        normalizers,
        pre_tokenizers,
        model: model(&file["model"])?,
        decoder,
        cache: PieceCache::default(),
    })
}

/// A part that may be missing, one thing, or a sequence.
fn steps<T>(part: &Value, inside: &str, read: impl Fn(&Value) -> Read<T>) -> Read<Vec<T>> {
    match (part, kind(part)) {
        (Value::Null, _) => Ok(Vec::new()),
        (_, "Sequence") => list(&part[inside])?.iter().map(read).collect(),
        _ => Ok(vec![read(part)?]),
    }
}

fn normalizer(part: &Value) -> Read<Normalizer> {
    match kind(part) {
        "Lowercase" => Ok(Normalizer::Lowercase),
        "Prepend" => Ok(Normalizer::Prepend(text(&part["prepend"], "prepend")?)),
        "Replace" => Ok(Normalizer::Replace(
            text(&part["pattern"]["String"], "pattern (a String, not a Regex)")?,
            text(&part["content"], "content")?,
        )),
        "Strip" => Ok(Normalizer::Strip(flag(part, "strip_left", true), flag(part, "strip_right", true))),
        other => Err(format!(
            "the normalizer `{other}` is not supported (Lowercase, Prepend, Replace and Strip are); apply it to the texts \
             beforehand and remove it from the file"
        )),
    }
}

fn pre_tokenizer(part: &Value) -> Read<PreTokenizer> {
    match kind(part) {
        "ByteLevel" => Ok(PreTokenizer::ByteLevel {
            prefix_space: flag(part, "add_prefix_space", true),
            split: flag(part, "use_regex", true),
        }),
        "Whitespace" => Ok(PreTokenizer::Whitespace),
        "WhitespaceSplit" => Ok(PreTokenizer::WhitespaceSplit),
        "Metaspace" => {
            let prefix = match (part["prepend_scheme"].as_str(), part["add_prefix_space"].as_bool()) {
                (Some("always"), _) | (None, Some(true) | None) => Prefix::Always,
                (Some("first"), _) => Prefix::First,
                (Some("never"), _) | (None, Some(false)) => Prefix::Never,
                (Some(other), _) => return Err(format!("Metaspace's prepend_scheme `{other}` is not known")),
            };
            Ok(PreTokenizer::Metaspace { mark: mark(part)?, prefix, split: flag(part, "split", true) })
        }
        other => Err(format!(
            "the pre_tokenizer `{other}` is not supported; ByteLevel, Whitespace, WhitespaceSplit and Metaspace are"
        )),
    }
}

fn decoder(part: &Value) -> Read<Decoder> {
    match kind(part) {
        "" => Ok(Decoder::Blanks),
        "ByteLevel" => Ok(Decoder::ByteLevel),
        "BPEDecoder" => Ok(Decoder::WordEnd(text(&part["suffix"], "suffix")?)),
        "Metaspace" => Ok(Decoder::Metaspace(mark(part)?)),
        // What converted SentencePiece models have: marks to blanks, bytes, all in one, no blank at the start.
        "Sequence" => {
            let parts = list(&part["decoders"])?;
            let known = ["Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "ByteLevel"];
            if let Some(part) = parts.iter().find(|part| !known.contains(&kind(part))) {
                return Err(format!("the decoder `{}` in a Sequence is not supported", kind(part)));
            }
            if parts.iter().any(|part| kind(part) == "ByteLevel") {
                return Ok(Decoder::ByteLevel);
            }
            let replace = parts.iter().find(|part| part["content"] == " " && kind(part) == "Replace");
            let found = replace.and_then(|part| part["pattern"]["String"].as_str()).unwrap_or("▁");
            Ok(Decoder::Metaspace(found.chars().next().unwrap_or('▁')))
        }
        other => Err(format!(
            "the decoder `{other}` is not supported; ByteLevel, BPEDecoder, Metaspace and a Sequence of Replace, \
             ByteFallback, Fuse and Strip are"
        )),
    }
}

fn model(part: &Value) -> Read<Model> {
    match kind(part) {
        "BPE" | "" => {}
        other => return Err(format!("the model `{other}` is not supported; BPE is")),
    }
    if part["continuing_subword_prefix"].as_str().is_some_and(|prefix| !prefix.is_empty()) {
        return Err("a BPE model with a continuing_subword_prefix is not supported".into());
    }
    if part["dropout"].as_f64().is_some_and(|dropout| dropout > 0.0) {
        return Err("a BPE model with `dropout` is not supported: set it to null".into());
    }
    let vocab = part["vocab"].as_object().ok_or("the model's `vocab` is no object")?;
    let mut ids: FxHashMap<Box<str>, u32> = FxHashMap::default();
    let mut texts: Vec<Box<str>> = Vec::new();
    // White space separates pieces here: those that have some in them (a tab, say) are left out, and become unknown.
    for piece in vocab.keys().filter(|piece| !piece.contains(is_space)) {
        ids.insert(piece.as_str().into(), texts.len() as u32);
        texts.push(piece.as_str().into());
    }
    let mut merges = FxHashMap::default();
    for (rank, merge) in list(&part["merges"])?.iter().enumerate() {
        let (left, right) =
            sides(merge).ok_or_else(|| format!("merge {rank}, {merge}, is not two pieces"))?;
        let merged = [left, right].concat();
        if merged.contains(is_space) {
            continue;
        }
        let id = |piece: &str| {
            ids.get(piece).copied().ok_or_else(|| format!("merge {rank}: the vocab has no piece {piece:?}"))
        };
        merges.insert((id(left)?, id(right)?), (rank as u32, id(&merged)?));
    }
    Ok(Model {
        ids,
        texts,
        merges,
        word_end: part["end_of_word_suffix"].as_str().unwrap_or_default().to_owned(),
        byte_fallback: flag(part, "byte_fallback", false),
        whole_words: flag(part, "ignore_merges", false),
    })
}

/// `"a b"` or `["a", "b"]`.
fn sides(merge: &Value) -> Option<(&str, &str)> {
    match merge.as_array().map(Vec::as_slice) {
        Some([left, right]) => Some((left.as_str()?, right.as_str()?)),
        Some(_) => None,
        None => merge.as_str()?.split_once(' '),
    }
}

fn kind(part: &Value) -> &str {
    part["type"].as_str().unwrap_or_default()
}

fn flag(part: &Value, name: &str, default: bool) -> bool {
    part[name].as_bool().unwrap_or(default)
}

fn text(part: &Value, name: &str) -> Read<String> {
    part.as_str().map(str::to_owned).ok_or_else(|| format!("`{name}` is missing or no text"))
}

fn list(part: &Value) -> Read<&Vec<Value>> {
    part.as_array().ok_or_else(|| "a list is missing: the file is damaged".into())
}

fn mark(part: &Value) -> Read<char> {
    match part["replacement"].as_str() {
        None => Ok('▁'),
        Some(text) => text.chars().next().ok_or_else(|| "an empty `replacement`".into()),
    }
}
