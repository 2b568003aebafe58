//! Settings and vocabularies of CTranslate2's model folders.

use std::path::Path;

use mae_model::config::SourceEnd;
use serde_json::Value;

use crate::file::read_text;
use crate::words::Words;
use crate::{Error, Result};

/// Contents of `config.json`; old folders have none.
pub(super) struct Settings {
    pub(super) bos: String,
    pub(super) eos: String,
    pub(super) unk: String,
    pub(super) start: String,
    pub(super) source_end: SourceEnd,
    pub(super) faults: Vec<String>,
}

impl Settings {
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let json = match path.exists() {
            true => serde_json::from_str(&read_text(&path)?)
                .map_err(|e| Error::format(&path, format!("not JSON: {e}")))?,
            false => Value::Null,
        };
        let text = |key: &str, default: &str| json[key].as_str().unwrap_or(default).to_owned();
        let mut faults = Vec::new();
        if json["add_source_bos"] == true {
            faults.push("`add_source_bos` = true is not supported".into());
        }
        if json["multi_query_attention"] == true {
            faults.push("`multi_query_attention` = true is not supported".into());
        }
        if json["layer_norm_epsilon"].as_f64().is_some_and(|epsilon| (epsilon - 1e-5).abs() > 1e-9) {
            faults.push(format!(
                "`layer_norm_epsilon` = {} is not supported; 1e-5 is",
                json["layer_norm_epsilon"]
            ));
        }
        let source_end = if json["add_source_eos"] == true { SourceEnd::Mark } else { SourceEnd::None };
        let bos = text("bos_token", "<s>");
        Ok(Self {
            eos: text("eos_token", "</s>"),
            unk: text("unk_token", "<unk>"),
            start: text("decoder_start_token", &bos),
            bos,
            source_end,
            faults,
        })
    }

    /// The vocabulary of a side, whose file has one of these names.
    pub(super) fn words(&self, folder: &Path, names: &[&str]) -> Result<Vocabulary> {
        for name in names {
            let path = folder.join(format!("{name}_vocabulary.json"));
            if path.exists() {
                let list = serde_json::from_str::<Vec<String>>(&read_text(&path)?);
                let symbols =
                    list.map_err(|e| Error::format(&path, format!("not a list of symbols: {e}")))?;
                return Ok(self.vocabulary(symbols));
            }
            let path = folder.join(format!("{name}_vocabulary.txt"));
            if path.exists() {
                let text = read_text(&path)?;
                let symbols = text.strip_suffix('\n').unwrap_or(&text).split('\n');
                return Ok(
                    self.vocabulary(symbols.map(|line| line.trim_end_matches('\r').to_owned()).collect())
                );
            }
        }
        Err(Error::format(folder, format!("holds no vocabulary of the {} side", names[0])))
    }

    fn vocabulary(&self, symbols: Vec<String>) -> Vocabulary {
        Vocabulary { symbols, bos: self.bos.clone(), eos: self.eos.clone() }
    }
}

/// Symbols of a file.
pub(super) struct Vocabulary {
    symbols: Vec<String>,
    bos: String,
    eos: String,
}

impl Vocabulary {
    /// The words of `rows` rows of embeddings; the unknown symbol is the last where the file does not have it.
    pub(super) fn padded(mut self, rows: usize, unk: &str) -> Result<Words, String> {
        if self.symbols.len() + 1 == rows && !self.symbols.iter().any(|symbol| symbol == unk) {
            self.symbols.push(unk.to_owned());
        }
        if self.symbols.len() != rows {
            return Err(format!(
                "the embeddings have {rows} rows, the vocabulary {} symbols",
                self.symbols.len()
            ));
        }
        let id = |symbol: &str| self.symbols.iter().position(|known| known == symbol);
        let pad = id("<blank>").or_else(|| id("<pad>"));
        let specials = [id(&self.bos), pad, id(&self.eos), id(unk)];
        match specials[2] {
            Some(_) => Ok(Words::new(self.symbols, specials, rows)),
            None => Err(format!("the vocabulary has no end mark `{}`", self.eos)),
        }
    }
}
