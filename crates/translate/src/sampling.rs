//! Random choices of a search.

use mae_engine::Rng;
use mae_engine::ops::chances::Bounds;

/// The uniform random number of [0, 1) for one draw: of the text at this place in the input, the `step`-th
/// token of its `rank`-th hypothesis. It depends on nothing else, so neither batches nor threads change what
/// is drawn.
pub fn number_for(seed: u64, place: u32, step: usize, rank: usize) -> f32 {
    Rng::new(seed, step as u32).stream(rank as u32).uniform(place, 0)
}

/// Bounds of the tokens that may be drawn. A token must be within both, where both are given.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Only the k most likely tokens.
    pub topk: Option<usize>,
    /// Only the most likely tokens until their probabilities add up to p: the fewest that reach it (nucleus
    /// sampling). A probability is the share among all tokens that are possible, so it does not matter
    /// whether those given add up to 1.
    pub topp: Option<f32>,
}

impl Sampling {
    /// Faults of the bounds.
    pub(crate) fn faults(self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.topk == Some(0) {
            faults.push("sampling_topk = 0 leaves no token to draw; it must be at least 1".into());
        }
        if let Some(topp) = self.topp.filter(|p| !(*p > 0.0 && *p <= 1.0)) {
            faults.push(format!("sampling_topp = {topp} must be above 0 and not above 1"));
        }
        faults
    }

    pub(crate) fn bounds(self) -> Bounds {
        Bounds { most: self.topk, share: self.topp }
    }

    /// Draws a token with a uniform random number of [0, 1): [`Bounds::draw`].
    pub fn draw(self, log_probs: &[f32], uniform: f32) -> Option<u32> {
        self.bounds().draw(log_probs, uniform)
    }
}
