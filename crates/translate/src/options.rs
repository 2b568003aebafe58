//! Options of a search.

use std::sync::Arc;

use crate::sampling::Sampling;
use crate::shortlist::Shortlist;

/// Widest beam. Memory and time grow with it, and nothing is gained long before.
const WIDEST: usize = 1000;

/// Settings of a search; names and defaults are fairseq's.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchOptions {
    /// Hypotheses kept per sentence (5). 1 is greedy search.
    pub beam: usize,
    /// Finished hypotheses given back per sentence, the best first (1); not above `beam`.
    pub nbest: usize,
    /// Exponent of the length in scores (1): `score = Σ ln p / length^lenpen`, the length counting the end
    /// mark. 0 favours short translations, values above 1 long ones.
    pub lenpen: f32,
    /// Subtracted from the log-probability of `<unk>` wherever it could come (0); below 0 makes unknown words
    /// more likely.
    pub unkpen: f32,
    /// The longest translation has `max_len_a·source + max_len_b` tokens before its end mark (0 and 200), see
    /// [`SearchOptions::max_len`].
    pub max_len_a: f32,
    /// See `max_len_a`.
    pub max_len_b: usize,
    /// The shortest translation has this many tokens before its end mark (1).
    pub min_len: usize,
    /// Divides scores by `length^lenpen` (true); otherwise `score = Σ ln p`.
    pub normalise: bool,
    /// No sequence of this many tokens comes twice in a translation; 0 sets no bound (0). What a forced
    /// prefix repeats stays, and the end mark is never forbidden.
    pub no_repeat_ngram_size: usize,
    /// Logits are divided by this before the softmax (1): above 1 flatter, below 1 sharper distributions.
    /// Log-probabilities are those of the distribution so changed.
    pub temperature: f32,
    /// Choice of continuations (the best).
    pub choice: Choice,
    /// Seed of random choices, which depend on it and on the sentence's place in the input (1).
    pub seed: u64,
    /// Types that a translation may have, by the words of its source (all). For CPUs, which have less to compute then.
    pub shortlist: Option<Arc<Shortlist>>,
}

/// Choice of the continuations of a sentence's hypotheses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// The best of all hypotheses together.
    Best,
    /// The beam is cut into `groups` that choose one after the other; a token costs a group `strength` for
    /// every time that the groups before it have it among their candidates at this step. These costs count in
    /// scores, as in fairseq (Hamming diversity of Vijayakumar et al., 2018).
    Diverse {
        /// Groups of equal size; 1 is plain beam search.
        groups: usize,
        /// Cost of a repeated token, in nats.
        strength: f32,
    },
    /// Each of `beam` hypotheses is drawn on its own.
    Sample(Sampling),
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            beam: 5,
            nbest: 1,
            lenpen: 1.0,
            unkpen: 0.0,
            max_len_a: 0.0,
            max_len_b: 200,
            min_len: 1,
            normalise: true,
            no_repeat_ngram_size: 0,
            temperature: 1.0,
            choice: Choice::Best,
            seed: 1,
            shortlist: None,
        }
    }
}

/// Search options that contradict themselves; all faults, one per line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the search options are not valid:\n  {}", .0.join("\n  "))]
pub struct InvalidOptions(pub Vec<String>);

impl InvalidOptions {
    /// An error if there are faults.
    pub(crate) fn none_of(faults: Vec<String>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self(faults)) }
    }
}

impl SearchOptions {
    /// Checks the options; the error lists all faults.
    pub fn check(&self) -> Result<(), InvalidOptions> {
        let Self { beam, nbest, lenpen, unkpen, max_len_a, max_len_b, min_len, temperature, .. } = *self;
        let mut faults = Vec::new();
        let mut require = |holds: bool, fault: String| {
            if !holds {
                faults.push(fault);
            }
        };
        require(beam > 0, "beam = 0 finds nothing; it must be at least 1".into());
        require(beam <= WIDEST, format!("beam = {beam} is too wide; {WIDEST} is the most there can be"));
        require(nbest > 0, "nbest = 0 gives nothing back; it must be at least 1".into());
        require(
            nbest <= beam,
            format!("nbest = {nbest} is more than beam = {beam} finds; raise the beam or lower nbest"),
        );
        for (name, value) in [("lenpen", lenpen), ("unkpen", unkpen), ("max_len_a", max_len_a)] {
            require(value.is_finite(), format!("{name} = {value} is not a finite number"));
        }
        require(max_len_a >= 0.0, format!("max_len_a = {max_len_a} must not be below 0"));
        require(
            max_len_a > 0.0 || max_len_b >= min_len,
            format!(
                "min_len = {min_len} is above the longest allowed, max_len_b = {max_len_b}; raise max_len_b"
            ),
        );
        require(
            temperature > 0.0 && temperature.is_finite(),
            format!("temperature = {temperature} must be a finite number above 0; 1 changes nothing"),
        );
        match self.choice {
            Choice::Best => {}
            Choice::Diverse { groups, strength } => {
                require(
                    groups > 0 && beam.is_multiple_of(groups),
                    format!(
                        "beam = {beam} cannot be cut into {groups} groups of equal size (diverse_beam_groups)"
                    ),
                );
                require(
                    strength >= 0.0 && strength.is_finite(),
                    format!("diverse_beam_strength = {strength} must be a finite number, not below 0"),
                );
            }
            Choice::Sample(sampling) => faults.extend(sampling.faults()),
        }
        InvalidOptions::none_of(faults)
    }

    /// Tokens before the end mark that a translation may have; when it has them, the end mark is forced.
    ///
    /// `min(⌊max_len_a·source⌋ + max_len_b, max_positions − 1)`, but not below `min_len` where the model's
    /// positions allow it. `source` counts the sentence's own tokens with its end mark. fairseq takes the
    /// longest source of the batch; here a translation does not depend on what else is in the batch, so
    /// results equal fairseq's at batch size 1, and at any batch size where `max_len_a` is 0.
    pub fn max_len(&self, source: usize, max_positions: usize) -> usize {
        let wanted = (self.max_len_a * source as f32) as usize + self.max_len_b;
        wanted.max(self.min_len).min(max_positions.saturating_sub(1))
    }

    /// Returns true if the best continuations of whole groups of hypotheses are enough, which a device finds
    /// itself.
    pub(crate) fn is_plain(&self) -> bool {
        let best = matches!(self.choice, Choice::Best | Choice::Diverse { groups: 1, .. });
        best && self.no_repeat_ngram_size == 0 && self.temperature == 1.0
    }

    /// The score of `length` tokens, the end mark counted, with this cumulative log-probability.
    pub fn score(&self, cumulative: f32, length: usize) -> f32 {
        if self.normalise { cumulative / (length as f32).powf(self.lenpen) } else { cumulative }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_come_at_once() {
        SearchOptions::default().check().unwrap();
        let options = SearchOptions {
            beam: 2,
            nbest: 3,
            lenpen: f32::NAN,
            max_len_b: 4,
            min_len: 5,
            ..SearchOptions::default()
        };
        let text = options.check().unwrap_err().to_string();
        for part in ["nbest = 3", "lenpen = NaN", "min_len = 5"] {
            assert!(text.contains(part), "{text}");
        }
        let bad = [
            (Choice::Diverse { groups: 2, strength: 0.5 }, "beam = 5 cannot be cut into 2 groups"),
            (Choice::Diverse { groups: 5, strength: -1.0 }, "diverse_beam_strength = -1"),
            (Choice::Sample(Sampling { topk: Some(0), topp: None }), "sampling_topk = 0"),
            (Choice::Sample(Sampling { topk: None, topp: Some(1.5) }), "sampling_topp = 1.5"),
        ];
        for (choice, part) in bad {
            let options = SearchOptions { choice, temperature: 0.0, ..SearchOptions::default() };
            let text = options.check().unwrap_err().to_string();
            assert!(text.contains(part) && text.contains("temperature = 0"), "{text}");
        }
    }

    #[test]
    fn lengths_and_scores_follow_their_formulas() {
        let options = SearchOptions { max_len_a: 1.5, max_len_b: 3, lenpen: 0.5, ..SearchOptions::default() };
        assert_eq!(options.max_len(5, 1024), 10);
        assert_eq!(options.max_len(5, 8), 7);
        assert_eq!(SearchOptions::default().max_len(5, 1024), 200);
        let short = SearchOptions { max_len_a: 0.1, max_len_b: 0, min_len: 4, ..SearchOptions::default() };
        assert_eq!(short.max_len(3, 1024), 4);
        assert!((options.score(-6.0, 4) + 3.0).abs() < 1e-6);
        let raw = SearchOptions { normalise: false, ..options };
        assert_eq!(raw.score(-6.0, 4), -6.0);
    }
}
