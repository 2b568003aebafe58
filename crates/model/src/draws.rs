//! Random experts: the paper's one-expert evaluation of models without gates.

use mae_engine::Rng;

use crate::pass::ExpertMode;

/// One expert per sentence and attention, all equally likely; a function of the seed, the attention's name and the
/// sentence's place, and of nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draws {
    /// Another seed, other experts.
    pub seed: u64,
    /// The place in the input of each sentence of the batch.
    pub places: Vec<u32>,
}

impl Draws {
    /// The expert of each sentence in the attention of this name, one of `count`.
    pub fn experts(&self, attention: &str, count: usize) -> Vec<u32> {
        let stream = Rng::new(self.seed, 0).stream(number_of(attention));
        let expert = |&place: &u32| (f64::from(stream.uniform(place, 0)) * count as f64) as u32;
        self.places.iter().map(expert).collect()
    }
}

/// A number for a name (FNV-1a).
fn number_of(name: &str) -> u32 {
    name.bytes().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl ExpertMode {
    /// This mode for the sentences at these places of the input: only random experts depend on them.
    pub fn at(&self, places: &[u32]) -> Self {
        match self {
            Self::Random(draws) => Self::Random(Draws { seed: draws.seed, places: places.to_vec() }),
            Self::InEncoder(inner) => Self::InEncoder(Box::new(inner.at(places))),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_seed_name_and_place_only() {
        let draws = |seed, places: std::ops::Range<u32>| Draws { seed, places: places.collect() };
        let name = "encoder.layers.0.self_attn";
        let all = draws(3, 0..4000).experts(name, 8);
        assert_eq!(draws(3, 100..200).experts(name, 8), all[100..200]);
        assert_ne!(draws(4, 0..100).experts(name, 8), all[..100]);
        assert_ne!(draws(3, 0..100).experts("encoder.layers.1.self_attn", 8), all[..100]);
        for expert in 0..8 {
            let share = all.iter().filter(|&&e| e == expert).count() as f64 / 4000.0;
            assert!((share - 0.125).abs() < 0.03, "expert {expert} has {share} of the draws");
        }
    }
}
