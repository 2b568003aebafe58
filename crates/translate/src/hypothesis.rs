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

/// An unfinished translation; its tokens are in the history of its sentence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    /// Place of the last token in the history; `None` before the first.
    pub(crate) at: Option<u32>,
    /// The token that the decoder reads next; the end mark stands before the first.
    pub(crate) last: u32,
    /// Sum of the log-probabilities, as the search adds it up.
    pub(crate) cumulative: f32,
}

/// Tokens of the hypotheses of a sentence. Hypotheses share their beginnings, so that a step costs the same at
/// any length.
#[derive(Default)]
pub(crate) struct History(Vec<Token>);

/// A token after those before it.
struct Token {
    before: Option<u32>,
    id: u32,
    /// Its log-probability.
    positional: f32,
}

impl History {
    /// The hypothesis of which nothing is said yet.
    pub(crate) fn start() -> Live {
        Live { at: None, last: EOS, cumulative: 0.0 }
    }

    /// `live` with one more token.
    pub(crate) fn extend(&mut self, live: Live, next: &Candidate) -> Live {
        let positional = next.score - live.cumulative;
        self.0.push(Token { before: live.at, id: next.token, positional });
        Live { at: Some(self.0.len() as u32 - 1), last: next.token, cumulative: next.score }
    }

    /// The tokens of a hypothesis.
    pub(crate) fn tokens(&self, live: &Live) -> Vec<u32> {
        self.collect(live, |token| token.id)
    }

    /// A hypothesis, scored and closed.
    pub(crate) fn finish(&self, live: &Live, options: &SearchOptions) -> Hypothesis {
        let (tokens, positional) = (self.tokens(live), self.collect(live, |token| token.positional));
        let score = options.score(live.cumulative, tokens.len());
        Hypothesis { tokens, score, positional }
    }

    fn collect<T>(&self, live: &Live, of: impl Fn(&Token) -> T) -> Vec<T> {
        let last = live.at.map(|at| &self.0[at as usize]);
        let backwards = std::iter::successors(last, |token| token.before.map(|at| &self.0[at as usize]));
        let mut all: Vec<T> = backwards.map(of).collect();
        all.reverse();
        all
    }
}
