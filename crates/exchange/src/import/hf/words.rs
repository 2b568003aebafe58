//! Vocabularies and segmentations of Hugging Face's tokenisers.

use std::collections::BTreeMap;
use std::path::Path;

use mae_data::bpe::{Codes, Version};
use mae_data::{Segmentation, SentencePiece};
use serde_json::Value;

use super::super::sentencepieces;
use super::Kind;
use crate::file::read_text;
use crate::words::Words;
use crate::{Error, Result};

/// Languages of M2M100 in the order of their ids, which follow those of `vocab.json`. Its tokeniser adds them.
const LANGUAGES: &str = "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi \
                         hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns \
                         oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu";

/// Vocabularies of both sides and the segmentation.
pub(super) struct BothWords {
    pub(super) source: Words,
    pub(super) target: Words,
    pub(super) codes: Segmentation,
}

/// Reads the files of a folder's tokeniser.
pub(super) fn words(from: &Path, json: &Value, kind: Kind) -> Result<BothWords> {
    let spm = |name: &str| SentencePiece::load(from.join(name));
    Ok(match kind {
        Kind::Marian => {
            let separate = from.join("target_vocab.json").exists();
            let types = |key: &str| json[key].as_u64().or(json["vocab_size"].as_u64()).unwrap_or(0);
            let target = if separate { "target_vocab.json" } else { "vocab.json" };
            BothWords {
                source: vocabulary(&from.join("vocab.json"), json, types("vocab_size"))?,
                target: vocabulary(&from.join(target), json, types("decoder_vocab_size"))?,
                codes: sentencepieces(spm("source.spm")?, spm("target.spm")?),
            }
        }
        Kind::M2m100 => {
            let path = from.join("vocab.json");
            let types = json["vocab_size"].as_u64().unwrap_or(0);
            let words = || {
                let mut words = vocabulary(&path, json, types)?;
                words.add(LANGUAGES.split(' ').map(|code| format!("__{code}__")));
                Ok::<_, Error>(words)
            };
            BothWords {
                source: words()?,
                target: words()?,
                codes: Segmentation::SentencePiece(spm("sentencepiece.bpe.model")?),
            }
        }
        Kind::Fsmt => {
            let side = |name: &str, key: &str| {
                let mut words = vocabulary(&from.join(name), json, json[key].as_u64().unwrap_or(0))?;
                words.rename(|symbol| match symbol.strip_suffix("</w>") {
                    Some(end) => end.to_owned(),
                    None => format!("{symbol}@@"),
                });
                Ok::<_, Error>(words)
            };
            let merges = read_text(&from.join("merges.txt"))?;
            BothWords {
                source: side("vocab-src.json", "src_vocab_size")?,
                target: side("vocab-tgt.json", "tgt_vocab_size")?,
                codes: Segmentation::Joint(
                    codes(&merges).map_err(|what| Error::format(&from.join("merges.txt"), what))?,
                ),
            }
        }
    })
}

/// `merges.txt`: two symbols a line, at times with a count after them.
fn codes(text: &str) -> Result<Codes, String> {
    let mut codes = Codes { version: Version::V0_2, merges: Vec::new() };
    for line in text.lines().filter(|line| !line.starts_with("#version") && !line.trim().is_empty()) {
        let mut parts = line.split(' ').filter(|part| !part.is_empty());
        match (parts.next(), parts.next()) {
            (Some(left), Some(right)) => codes.merges.push((left.into(), right.into())),
            _ => return Err(format!("not a merge: {line:?}")),
        }
    }
    Ok(codes)
}

/// A vocabulary of `types` symbols; ids that the file leaves out are fillers.
fn vocabulary(path: &Path, json: &Value, types: u64) -> Result<Words> {
    let fault = |what: String| Error::format(path, what);
    let ids: BTreeMap<String, u64> = serde_json::from_str(&read_text(path)?)
        .map_err(|error| fault(format!("not a map of symbols: {error}")))?;
    let largest = ids.values().max().map_or(0, |id| id + 1);
    // Embeddings may have a few rows more than the vocabulary has symbols.
    if largest > types || types > ids.len() as u64 + 4096 {
        let count = ids.len();
        return Err(fault(format!(
            "it has {count} symbols with ids up to {largest}, the configuration {types} symbols"
        )));
    }
    let mut symbols: Vec<String> = (0..types).map(|id| format!("madeupword{id:04}")).collect();
    for (symbol, id) in &ids {
        symbols[*id as usize].clone_from(symbol);
    }
    let special = |symbol: &str| ids.get(symbol).map(|&id| id as usize);
    let configured = |key: &str, symbol: &str| {
        let id = json[key].as_u64().map(|id| id as usize).or(special(symbol));
        match id {
            Some(id) if id >= symbols.len() => Err(fault(format!("`{key}` = {id} is not an id of it"))),
            other => Ok(other),
        }
    };
    let specials = [
        special("<s>"),
        configured("pad_token_id", "<pad>")?,
        configured("eos_token_id", "</s>")?,
        special("<unk>"),
    ];
    if specials[2].is_none() {
        return Err(fault("it has no end mark `</s>`".into()));
    }
    Ok(Words::new(symbols, specials, ids.len()))
}
