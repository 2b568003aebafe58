//! Results of a translation.

use mae_translate::{Gates, Models, Side, TextForm, TokenCounts, Translated};

/// Translations of one line, the best first; there is at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// Counts of the source line's tokens: all, unknown ones, those that were cut off.
    pub source: TokenCounts,
    nbest: Vec<Hypothesis>,
    gates: Option<Vec<Gates>>,
}

/// One translation of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// The text in the form of its line, with pieces joined as the model folder says; of a plain line, a plain line.
    pub text: String,
    /// Value that hypotheses are ranked by, in nats: by default the mean log-probability of the tokens.
    pub score: f32,
    /// Tokens with their log-probabilities, the end mark last.
    pub tokens: Vec<Token>,
    /// Gates of the decoder, if they were asked for: self-attention and attention to the source of each layer.
    pub gates: Option<Vec<Gates>>,
}

/// A token of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The dictionary's entry.
    pub piece: String,
    /// Its natural-log probability.
    pub log_prob: f32,
}

impl Translation {
    /// The best translation's text.
    pub fn text(&self) -> &str {
        &self.best().text
    }

    /// The best translation's score, in nats.
    pub fn score(&self) -> f32 {
        self.best().score
    }

    /// The best translation.
    pub fn best(&self) -> &Hypothesis {
        &self.nbest[0]
    }

    /// All translations that were asked for, the best first.
    pub fn nbest(&self) -> &[Hypothesis] {
        &self.nbest
    }

    /// Gates of the encoder, if they were asked for; none for an empty line.
    pub fn encoder_gates(&self) -> Option<&[Gates]> {
        self.gates.as_deref()
    }

    pub(crate) fn new(models: &Models, form: TextForm, source: TokenCounts, found: Translated) -> Self {
        let (gates, mut decoder) = match found.gates {
            None => (None, None),
            Some(gates) => (Some(gates.encoder), Some(gates.hypotheses.into_iter())),
        };
        let vocab = models.dictionary(Side::Target);
        let hypothesis = |found: mae_translate::Hypothesis| {
            let tokens = found.tokens.iter().zip(&found.positional);
            let token =
                |(&id, &log_prob): (&u32, &f32)| Token { piece: vocab.symbol(id).to_owned(), log_prob };
            Hypothesis {
                text: models.text(&found.tokens, form),
                score: found.score,
                tokens: tokens.map(token).collect(),
                gates: decoder.as_mut().and_then(Iterator::next),
            }
        };
        Self { source, nbest: found.hypotheses.into_iter().map(hypothesis).collect(), gates }
    }
}
