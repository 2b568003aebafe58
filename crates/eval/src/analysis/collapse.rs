//! Collapse of a mixture (the rich get richer): a verdict, in words, on whether a few experts take all the input.

use serde::Serialize;

/// Shares of the experts of one attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Every expert has its part.
    Balanced,
    /// Some experts lead almost nothing, but the others are many.
    Uneven,
    /// The gates have hardly any favourites, or the same for all inputs, so there is nothing to share.
    Indifferent,
    /// A few experts take nearly everything.
    Collapsed,
}

/// The rule of [`Sharing::of`], printed beside the verdict.
pub const RULE: &str = "\
Experts are trained in proportion to the mean gate m, so u = exp(H(m)) is the number of experts in use (E if all are used \
alike, 1 if one takes everything). Collapsed: (u - 1)/(E - 1) < 1/2. Else indifferent: mean gate entropy above 0.995 ln E, or \
weights of heads that deviate by less than 0.04 over rows (mean over heads; gates before their training have about 0.03). Else \
uneven: some expert leads less than a tenth of its fair share, 1/E, of the rows. Else balanced.";

/// Deviation of head weights over rows below which gates hardly depend on their input.
const HARDLY: f64 = 0.04;

impl Sharing {
    /// Judges by the mean entropy of the gates (in nats), the shares that experts lead, the mean gate and the deviation of
    /// head weights over rows, mean over heads.
    pub fn of(entropy: f64, leads: &[f64], mean_gate: &[f64], deviation: f64) -> Self {
        let experts = mean_gate.len() as f64;
        if experts < 2.0 {
            return Self::Balanced;
        }
        if (experts_in_use(mean_gate) - 1.0) / (experts - 1.0) < 0.5 {
            Self::Collapsed
        } else if entropy > 0.995 * experts.ln() || deviation < HARDLY {
            Self::Indifferent
        } else if leads.iter().any(|&share| share < 0.1 / experts) {
            Self::Uneven
        } else {
            Self::Balanced
        }
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Uneven => "uneven",
            Self::Indifferent => "indifferent",
            Self::Collapsed => "collapsed",
        }
    }
}

/// −Σ m·ln m, in nats.
pub fn entropy_of(shares: &[f64]) -> f64 {
    -shares.iter().filter(|&&m| m > 0.0).map(|m| m * m.ln()).sum::<f64>()
}

/// exp(H(m)).
pub fn experts_in_use(mean_gate: &[f64]) -> f64 {
    entropy_of(mean_gate).exp()
}

/// Verdict on all attentions together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Returns whether any attention has collapsed.
    pub collapsed: bool,
    /// The verdict, in a sentence or two.
    pub words: String,
    /// Reasons for it.
    pub rule: &'static str,
}

impl Verdict {
    /// Of the attentions, by name.
    pub fn of(attentions: &[(&str, Sharing)]) -> Self {
        let named = |which: Sharing| -> Vec<&str> {
            attentions.iter().filter(|(_, sharing)| *sharing == which).map(|(name, _)| *name).collect()
        };
        let all = attentions.len();
        let collapsed = named(Sharing::Collapsed);
        let mut words = if all == 0 {
            "There are no gates over experts, so nothing can collapse.".to_owned()
        } else if collapsed.is_empty() {
            format!("No collapse: in none of {all} attentions do a few experts take nearly everything.")
        } else {
            format!(
                "Collapse (the rich get richer) in {} of {all} attentions: {}. There, a few experts take nearly everything \
                 and the others are hardly trained.",
                collapsed.len(),
                collapsed.join(", ")
            )
        };
        let (uneven, indifferent) = (named(Sharing::Uneven), named(Sharing::Indifferent));
        if !uneven.is_empty() {
            words += &format!(" Some experts lead almost nothing in {}.", uneven.join(", "));
        }
        if !indifferent.is_empty() {
            words += &format!(
                " Gates hardly tell inputs apart in {}: they are near those of plain attention.",
                indifferent.join(", ")
            );
        }
        Self { collapsed: !collapsed.is_empty(), words, rule: RULE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_recognised() {
        let fair = [0.125; 8];
        // The paper's first encoder layer: entropy 1.91, all experts have their part.
        let paper = [0.131, 0.139, 0.089, 0.161, 0.103, 0.153, 0.101, 0.116];
        assert_eq!(Sharing::of(1.91, &paper, &paper, 0.1), Sharing::Balanced);
        assert_eq!(Sharing::of(2.079, &fair, &fair, 0.1), Sharing::Indifferent);
        let one = [0.93, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01];
        assert_eq!(Sharing::of(0.2, &one, &one, 0.0), Sharing::Collapsed);
        // Gates that hardly differ may still have the same favourite everywhere: that is no collapse.
        let always_first = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let nearly_fair = [0.128, 0.124, 0.125, 0.125, 0.125, 0.124, 0.125, 0.124];
        assert_eq!(Sharing::of(2.0790, &always_first, &nearly_fair, 0.1), Sharing::Indifferent);
        // Gates before their training: head weights of 1.00 ± 0.03, and an entropy of 2.05.
        assert_eq!(Sharing::of(2.048, &paper, &paper, 0.03), Sharing::Indifferent);
        let without_last = [0.2, 0.15, 0.15, 0.15, 0.15, 0.1, 0.1, 0.0];
        assert_eq!(Sharing::of(1.8, &without_last, &paper, 0.1), Sharing::Uneven);
        assert_eq!(Sharing::of(0.0, &[1.0], &[1.0], 0.0), Sharing::Balanced);
        assert!(
            (experts_in_use(&fair) - 8.0).abs() < 1e-9 && (experts_in_use(&always_first) - 1.0).abs() < 1e-9
        );
    }

    #[test]
    fn the_verdict_names_the_attentions() {
        let verdict = Verdict::of(&[("encoder 1", Sharing::Balanced), ("cross 2", Sharing::Collapsed)]);
        assert!(
            verdict.collapsed && verdict.words.contains("1 of 2 attentions: cross 2"),
            "{}",
            verdict.words
        );
        let verdict = Verdict::of(&[("encoder 1", Sharing::Balanced), ("encoder 2", Sharing::Uneven)]);
        assert!(!verdict.collapsed && verdict.words.starts_with("No collapse"), "{}", verdict.words);
        assert!(verdict.words.contains("almost nothing in encoder 2"));
    }
}
