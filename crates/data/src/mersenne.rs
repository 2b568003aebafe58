//! MT19937 (Matsumoto and Nishimura 1998) as numpy's `np.random.seed` and `np.random.shuffle` use it, for orders that
//! equal those of programs in Python.

const N: usize = 624;
const M: usize = 397;

/// The generator behind `np.random`.
pub(crate) struct MersenneTwister {
    state: [u32; N],
    next: usize,
}

impl MersenneTwister {
    /// After `np.random.seed(seed)`.
    pub(crate) fn new(seed: u32) -> Self {
        let mut state = [seed; N];
        for i in 1..N {
            let before = state[i - 1];
            state[i] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Self { state, next: N }
    }

    /// `np.random.shuffle(items)`.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.at_most(i as u32) as usize);
        }
    }

    /// A number from 0 to `most`: bits are drawn until they fit.
    fn at_most(&mut self, most: u32) -> u32 {
        let mask = u32::MAX.checked_shr(most.leading_zeros()).unwrap_or(0);
        loop {
            let drawn = self.draw() & mask;
            if drawn <= most {
                return drawn;
            }
        }
    }

    fn draw(&mut self) -> u32 {
        if self.next == N {
            self.refill();
        }
        let y = self.state[self.next];
        self.next += 1;
        let y = y ^ (y >> 11);
        let y = y ^ ((y << 7) & 0x9d2c_5680);
        let y = y ^ ((y << 15) & 0xefc6_0000);
        y ^ (y >> 18)
    }

    fn refill(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let twist = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ twist;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permutation(seed: u32, n: usize) -> Vec<usize> {
        let mut items: Vec<usize> = (0..n).collect();
        MersenneTwister::new(seed).shuffle(&mut items);
        items
    }

    #[test]
    fn shuffles_are_numpys() {
        assert_eq!(permutation(1, 10), [2, 9, 6, 4, 0, 3, 1, 7, 8, 5]);
        assert_eq!(
            permutation(3, 20),
            [14, 2, 1, 17, 4, 16, 6, 7, 15, 12, 9, 11, 19, 18, 13, 5, 0, 8, 3, 10]
        );
        assert_eq!(permutation(4_294_967_291, 5), [0, 2, 4, 3, 1]);
        // More numbers than one refill gives.
        let long = permutation(7, 1000);
        assert_eq!((&long[..5], &long[997..]), (&[778, 334, 271, 802, 216][..], &[537, 196, 175][..]));
        assert_eq!(long.iter().enumerate().map(|(i, x)| i * x).sum::<usize>(), 246_202_311);
        assert_eq!(permutation(1, 1), [0]);
    }
}
