//! Drawing a token from a row of log-probabilities.

/// Bounds of the tokens that may be drawn. A token must be within both, where both are given.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Only the k most likely tokens.
    pub most: Option<usize>,
    /// Only the most likely tokens until their probabilities add up to p: the fewest that reach it (nucleus
    /// sampling). A probability is the share among all tokens that are possible, so it does not matter
    /// whether those given add up to 1.
    pub share: Option<f32>,
}

impl Bounds {
    /// Draws a token with a uniform random number of [0, 1); `None` where no token is possible. Tokens are
    /// drawn in proportion to their probabilities, which need not add up to 1; those with numbers that are
    /// not finite cannot be drawn.
    pub fn draw(&self, log_probs: &[f32], uniform: f32) -> Option<u32> {
        let finite = log_probs.iter().copied().filter(|log_prob| log_prob.is_finite());
        let most = finite.fold(f32::NEG_INFINITY, f32::max);
        // Relative to the likeliest, so that none underflows because all are small.
        let weight = |token: u32| {
            let log_prob = log_probs[token as usize];
            if log_prob.is_finite() { f64::from(log_prob - most).exp() } else { 0.0 }
        };
        let tokens = self.tokens(log_probs, weight);
        let total: f64 = tokens.iter().map(|&token| weight(token)).sum();
        let (mut left, mut last) = (f64::from(uniform) * total, None);
        for &token in &tokens {
            let weight = weight(token);
            if weight > 0.0 {
                last = Some(token);
            }
            left -= weight;
            if left < 0.0 {
                break;
            }
        }
        // Rounding can leave a little: then it is the last that is possible.
        last
    }

    /// The tokens within the bounds; the most likely first where there are bounds.
    fn tokens(&self, log_probs: &[f32], weight: impl Fn(u32) -> f64) -> Vec<u32> {
        let mut tokens: Vec<u32> = (0..log_probs.len() as u32).collect();
        if self.most.is_none() && self.share.is_none() {
            return tokens;
        }
        tokens.retain(|&token| log_probs[token as usize].is_finite());
        let enough =
            self.share.map(|p| f64::from(p) * tokens.iter().map(|&token| weight(token)).sum::<f64>());
        let likelier =
            |a: &u32, b: &u32| log_probs[*b as usize].total_cmp(&log_probs[*a as usize]).then(a.cmp(b));
        if let Some(k) = self.most.filter(|&k| k < tokens.len()) {
            tokens.select_nth_unstable_by(k, likelier);
            tokens.truncate(k);
        }
        tokens.sort_unstable_by(likelier);
        if let Some(enough) = enough {
            let mut sum = 0.0;
            let below = |&&token: &&u32| {
                sum += weight(token);
                sum < enough
            };
            let reached = tokens.iter().take_while(below).count() + 1;
            tokens.truncate(reached);
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn uniform(i: u32) -> f32 {
        Rng::new(1, 0).stream(0).uniform(i, 0)
    }

    const PROBABILITIES: [f32; 6] = [0.1, 0.0, 0.4, 0.05, 0.25, 0.2];

    /// The share of each token in many draws.
    fn shares(bounds: Bounds) -> Vec<f64> {
        let log_probs = PROBABILITIES.map(f32::ln);
        let draws = 20_000;
        let mut counts = vec![0.0; PROBABILITIES.len()];
        for i in 0..draws {
            counts[bounds.draw(&log_probs, uniform(i)).unwrap() as usize] += 1.0 / f64::from(draws);
        }
        counts
    }

    fn assert_shares(bounds: Bounds, want: [f64; 6]) {
        let got = shares(bounds);
        for (token, (got, want)) in got.iter().zip(want).enumerate() {
            assert!(
                (got - want).abs() < 0.015,
                "{bounds:?}: token {token} has {got} of the draws, not {want}"
            );
            assert_eq!(*got == 0.0, want == 0.0, "{bounds:?}: token {token}");
        }
    }

    #[test]
    fn draws_follow_the_probabilities_within_the_bounds() {
        assert_shares(Bounds::default(), PROBABILITIES.map(f64::from));
        let of = |sum: f64| move |kept: [f64; 6]| kept.map(|p| p / sum);
        assert_shares(Bounds { most: Some(3), share: None }, of(0.85)([0.0, 0.0, 0.4, 0.0, 0.25, 0.2]));
        // 0.4 + 0.25 is below 0.7, so a third token is needed.
        assert_shares(Bounds { most: None, share: Some(0.7) }, of(0.85)([0.0, 0.0, 0.4, 0.0, 0.25, 0.2]));
        assert_shares(Bounds { most: Some(2), share: Some(0.9) }, of(0.65)([0.0, 0.0, 0.4, 0.0, 0.25, 0.0]));
        assert_shares(Bounds { most: Some(1), share: None }, [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_shares(Bounds { most: None, share: Some(1e-6) }, [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    }

    /// The tokens that can be drawn at all.
    fn possible(bounds: Bounds, log_probs: &[f32]) -> Vec<u32> {
        let mut drawn: Vec<u32> = (0..2_000).filter_map(|i| bounds.draw(log_probs, uniform(i))).collect();
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    }

    #[test]
    fn the_nucleus_is_a_share_of_what_is_possible() {
        let nucleus = |p| Bounds { most: None, share: Some(p) };
        // At temperature 1/2 the squares count: 0.16 of 0.275 for the likeliest, with the next 0.2225.
        let sharper = PROBABILITIES.map(|p| p.ln() / 0.5);
        assert_eq!(possible(nucleus(0.5), &sharper), [2]);
        assert_eq!(possible(nucleus(0.8), &sharper), [2, 4]);
        // Without the likeliest, 0.6 are left, and 0.25 + 0.2 are three quarters of it.
        let mut masked = PROBABILITIES.map(f32::ln);
        masked[2] = f32::NEG_INFINITY;
        assert_eq!(possible(nucleus(0.7), &masked), [4, 5]);
        assert_eq!(possible(nucleus(0.8), &masked), [0, 4, 5]);
        // As logits of any size.
        assert_eq!(possible(nucleus(0.8), &sharper.map(|x| x - 2_000.0)), [2, 4]);
    }

    #[test]
    fn the_ends_of_the_interval_give_possible_tokens() {
        let log_probs = [f32::NEG_INFINITY, -1.0, -2.0, f32::NAN, f32::NEG_INFINITY];
        for bounds in [Bounds::default(), Bounds { most: Some(4), share: Some(1.0) }] {
            assert_eq!(bounds.draw(&log_probs, 0.0), Some(1));
            assert_eq!(bounds.draw(&log_probs, 1.0), Some(2));
            assert_eq!(bounds.draw(&[f32::NAN; 3], 0.5), None);
        }
    }
}
