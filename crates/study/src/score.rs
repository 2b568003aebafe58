//! Scores that systems are compared by.

use mae_eval::bleu::{BleuConfig, Compounds};
use serde::Serialize;

use crate::protocol::Translation;
use crate::result::RunResult;
use crate::study::Study;

/// Score that systems are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// sacreBLEU, on plain text.
    Bleu,
    /// multi-bleu.perl's, on tokens.
    TokenisedBleu,
    /// Lines that are exactly right, in per cent.
    ExactMatch,
    /// Perplexity per token of the last text; lower is better.
    Perplexity,
}

impl Score {
    /// Name for headings.
    pub fn label(self) -> &'static str {
        match self {
            Self::Bleu => "BLEU",
            Self::TokenisedBleu => "tokenised BLEU",
            Self::ExactMatch => "exact match, %",
            Self::Perplexity => "perplexity",
        }
    }
}

/// Score of a run; `None` if it was not measured.
pub fn value(study: &Study, score: Score, run: &RunResult) -> Option<f64> {
    match score {
        Score::Bleu => run.translation.as_ref()?.bleu,
        Score::TokenisedBleu => Some(run.translation.as_ref()?.bleu_tokenised),
        Score::ExactMatch => run.translation.as_ref()?.exact_match,
        Score::Perplexity => {
            let last = study.language_model.as_ref()?.splits.last()?;
            Some(run.language_model.as_ref()?.get(last)?.ppl)
        }
    }
}

/// BLEU as `test` wants it.
pub(crate) struct BleuConfigs {
    /// On whitespace tokens.
    pub(crate) tokens: BleuConfig,
    /// On plain text.
    pub(crate) plain: BleuConfig,
}

impl BleuConfigs {
    /// Those of a protocol.
    pub(crate) fn of(test: &Translation) -> Self {
        let compounds = if test.compound_split { Compounds::Split } else { Compounds::Whole };
        Self {
            tokens: BleuConfig { compounds, ..BleuConfig::multi_bleu() },
            plain: BleuConfig { lowercase: test.lowercase, ..BleuConfig::default() },
        }
    }
}
