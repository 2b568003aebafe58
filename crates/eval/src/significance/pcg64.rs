//! The random numbers of numpy's `default_rng(seed)`: PCG64 (O'Neill, 2014: XSL-RR 128/64), seeded by its
//! `SeedSequence`, and Lemire's unbiased integers (2019).

/// The generator and the half of a number that is still to be given out.
pub(super) struct Pcg64 {
    state: u128,
    increment: u128,
    high_half: Option<u32>,
}

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

impl Pcg64 {
    /// Seeded as `numpy.random.default_rng(seed)` is.
    pub(super) fn new(seed: u64) -> Self {
        let words = seed_words(seed);
        let long = |i: usize| u128::from(words[i]) | u128::from(words[i + 1]) << 32;
        let (state, stream) = (long(0) << 64 | long(2), long(4) << 64 | long(6));
        let increment = stream << 1 | 1;
        let mut random = Self { state: increment.wrapping_add(state), increment, high_half: None };
        random.step();
        random
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// 32 random bits: the lower half of a 64-bit number, then its upper half.
    pub(super) fn next(&mut self) -> u32 {
        if let Some(half) = self.high_half.take() {
            return half;
        }
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        let bits = folded.rotate_right((self.state >> 122) as u32);
        self.high_half = Some((bits >> 32) as u32);
        bits as u32
    }

    /// A random number below `bound`, each with the same probability; 0 if the bound is 0.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        if bound <= 1 {
            return 0;
        }
        let mut product = u64::from(self.next()) * u64::from(bound);
        if (product as u32) < bound {
            let unfair = bound.wrapping_neg() % bound;
            while (product as u32) < unfair {
                product = u64::from(self.next()) * u64::from(bound);
            }
        }
        (product >> 32) as u32
    }
}

/// The eight words that numpy's `SeedSequence` makes of a seed.
fn seed_words(seed: u64) -> [u32; 8] {
    let mut hash = Hash { constant: 0x43b0_d7e5, multiplier: 0x931e_8875 };
    let mut pool = [seed as u32, (seed >> 32) as u32, 0, 0].map(|word| hash.of(word));
    for from in 0..pool.len() {
        for to in (0..pool.len()).filter(|&to| to != from) {
            let left = pool[to].wrapping_mul(0xca01_f9dd);
            let mixed = left.wrapping_sub(hash.of(pool[from]).wrapping_mul(0x4973_f715));
            pool[to] = mixed ^ mixed >> 16;
        }
    }
    let mut hash = Hash { constant: 0x8b51_f9dd, multiplier: 0x58f3_8ded };
    std::array::from_fn(|i| hash.of(pool[i % pool.len()]))
}

/// A hash whose constant changes with each use.
struct Hash {
    constant: u32,
    multiplier: u32,
}

impl Hash {
    fn of(&mut self, word: u32) -> u32 {
        let mixed = word ^ self.constant;
        self.constant = self.constant.wrapping_mul(self.multiplier);
        let hashed = mixed.wrapping_mul(self.constant);
        hashed ^ hashed >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::Pcg64;

    #[test]
    fn numbers_are_numpys() {
        // numpy.random.default_rng(12345).choice(3003, size=5)
        let mut random = Pcg64::new(12345);
        assert_eq!([(); 5].map(|()| random.below(3003)), [2099, 682, 2368, 951, 613]);
    }
}
