//! Translations, finished and unfinished.

use mae_data::EOS;
use mae_engine::ops::decode::Candidate;

use crate::options::SearchOptions;

/// A finished translation.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// Target ids, the end mark at the end.
    pub tokens: Vec<u32>,
    /// Value that hypotheses are ranked by: [`SearchOptions::score`] of the sum of `positional`, in nats.
    pub score: f32,
    /// The natural-log probability of each token, of the end mark too; for `<unk>` less `unkpen`, in diverse
    /// beams less what repeating other groups' tokens cost, as in fairseq.
    pub positional: Vec<f32>,
}

impl Hypothesis {
    /// The translation of an empty sentence.
    pub(crate) fn empty() -> Self {
        Self { tokens: Vec::new(), score: 0.0, positional: Vec::new() }
    }
}

/// An unfinished translation.
#[derive(Clone, Default)]
pub(crate) struct Live {
    tokens: Vec<u32>,
    positional: Vec<f32>,
    /// Sum of `positional`, as the search adds it up.
    pub(crate) cumulative: f32,
}

impl Live {
    /// The token that the decoder reads next; the end mark stands before the first.
    pub(crate) fn last(&self) -> u32 {
        self.tokens.last().copied().unwrap_or(EOS)
    }

    /// The tokens so far.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// This hypothesis with one more token.
    pub(crate) fn with(&self, next: &Candidate) -> Self {
        let mut longer = self.clone();
        longer.tokens.push(next.token);
        longer.positional.push(next.score - self.cumulative);
        longer.cumulative = next.score;
        longer
    }

    /// Scored and closed.
    pub(crate) fn finish(self, options: &SearchOptions) -> Hypothesis {
        let score = options.score(self.cumulative, self.tokens.len());
        Hypothesis { tokens: self.tokens, score, positional: self.positional }
    }
}
