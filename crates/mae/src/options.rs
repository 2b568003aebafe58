//! Options of a translation.

use std::sync::Arc;

use mae_translate::{
    BatchLimits, Choice, ExpertChoice, GateReport, Sampling, SearchOptions, Shortlist, SwitchedOff, TextForm,
};

/// Options of [`Translator::translate`](crate::Translator::translate); the defaults are fairseq's.
///
/// A plain struct, with methods for the choices that are made most often:
///
/// ```
/// use mae::{ExpertChoice, TranslateOptions};
///
/// let options = TranslateOptions::default().beam(4).nbest(2).with_gates();
/// assert_eq!(options.search.beam, 4);
/// let one_expert = TranslateOptions { experts: ExpertChoice::Argmax, ..options };
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranslateOptions {
    /// Beam, penalties, lengths, sampling.
    pub search: SearchOptions,
    /// Experts of a mixture that compute (all, weighted by the gates).
    pub experts: ExpertChoice,
    /// Experts and heads that do not take part (none); for [`ExpertChoice::Mix`].
    pub off: Vec<SwitchedOff>,
    /// Gates in the results (none).
    pub gates: GateReport,
    /// Form of the lines (plain text).
    pub form: TextForm,
    /// Limits of batches; results do not depend on them.
    pub limits: BatchLimits,
    /// Number of the first line (0). Random choices depend on a line's number: a text that is translated in
    /// parts gets the same results if each part says where it begins.
    pub first_line: usize,
}

impl TranslateOptions {
    /// Keeps this many hypotheses while searching; 1 is greedy search.
    pub fn beam(mut self, beam: usize) -> Self {
        self.search.beam = beam;
        self
    }

    /// Returns up to this many translations per line, the best first; not above the beam.
    pub fn nbest(mut self, nbest: usize) -> Self {
        self.search.nbest = nbest;
        self
    }

    /// Lets translations have the types of a shortlist only ([`Translator::read_shortlist`](crate::Translator::read_shortlist)).
    pub fn shortlist(mut self, shortlist: Arc<Shortlist>) -> Self {
        self.search.shortlist = Some(shortlist);
        self
    }

    /// Draws translations at random, as many as the beam is wide.
    pub fn sampling(mut self, sampling: Sampling, seed: u64) -> Self {
        (self.search.choice, self.search.seed) = (Choice::Sample(sampling), seed);
        self
    }

    /// Returns the gates of every attention.
    pub fn with_gates(mut self) -> Self {
        self.gates = GateReport::All;
        self
    }
}
