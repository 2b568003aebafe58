//! Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011).
//!
//! Every number is a pure function of (seed, step, stream, row, column): nothing is stored, any mask can be
//! made again in the backward pass, the order of evaluation does not matter, and another device gives the same
//! bits.

/// The random numbers of one training step; ops take [`Stream`]s from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rng {
    seed: u64,
    step: u32,
}

impl Rng {
    pub(crate) fn step(self) -> u32 {
        self.step
    }

    /// Numbers of step `step` (the caller counts every forward pass) under `seed`.
    pub const fn new(seed: u64, step: u32) -> Self {
        Self { seed, step }
    }

    /// The numbers of one op.
    pub fn stream(self, stream: u32) -> Stream {
        Stream { key: [self.seed as u32, (self.seed >> 32) as u32], stream, step: self.step }
    }
}

/// The random numbers of one op in one step, addressed by row and column.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: [u32; 2],
    stream: u32,
    step: u32,
}

/// Blocks made at once, so that the compiler can use vector registers.
const LANES: usize = 8;
/// 16-bit numbers in one Philox block of 128 bits.
const PER_BLOCK: usize = 8;

impl Stream {
    /// Key and number of the stream: what, with the step, addresses its numbers on a GPU.
    pub(crate) fn address(self) -> ([u32; 2], u32) {
        (self.key, self.stream)
    }

    /// 128 random bits for (row, column).
    pub(crate) fn block(self, row: u32, column: u32) -> [u32; 4] {
        philox([column, row, self.stream, self.step], self.key)
    }

    pub(crate) fn step(self) -> u32 {
        self.step
    }

    /// One uniform number in [0, 1) with 24 bits for (row, column).
    pub fn uniform(self, row: u32, column: u32) -> f32 {
        let block = philox([column, row, self.stream, self.step], self.key);
        (block[0] >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    /// A standard normal number for (row, column), by Box and Muller.
    pub fn normal(self, row: u32, column: u32) -> f32 {
        let block = philox([column, row, self.stream, self.step], self.key);
        let unit = |bits: u32| (f64::from(bits) + 0.5) / 4_294_967_296.0;
        let radius = (-2.0 * unit(block[0]).ln()).sqrt();
        (radius * (std::f64::consts::TAU * unit(block[1])).cos()) as f32
    }

    /// Fills `bits` with the 16-bit numbers of columns `0..bits.len()` of `row`.
    #[inline(always)]
    pub fn bits16(self, row: u32, bits: &mut [u16]) {
        for (run, out) in bits.chunks_mut(LANES * PER_BLOCK).enumerate() {
            let blocks = std::array::from_fn(|lane| (run * LANES + lane) as u32);
            let counter = [blocks, [row; LANES], [self.stream; LANES], [self.step; LANES]];
            let words = philox_lanes(counter, self.key);
            let mut blocks = [[0u16; PER_BLOCK]; LANES];
            for (lane, block) in blocks.iter_mut().enumerate() {
                for (pair, words) in block.as_chunks_mut::<2>().0.iter_mut().zip(&words) {
                    *pair = [words[lane] as u16, (words[lane] >> 16) as u16];
                }
            }
            out.copy_from_slice(&blocks.as_flattened()[..out.len()]);
        }
    }
}

/// Constants of Philox 4x32.
pub(crate) const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
pub(crate) const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox 4x32 on one counter.
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    philox_lanes(counter.map(|word| [word]), key).map(|word| word[0])
}

/// Words lie in the lower halves of 64-bit numbers: vector instructions multiply those. The upper halves hold anything.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "four arrays in step: the form that the compiler vectorises")]
fn philox_lanes<const L: usize>(counter: [[u32; L]; 4], mut key: [u32; 2]) -> [[u32; L]; 4] {
    let mut c = counter.map(|words| words.map(u64::from));
    let low = |word: u64| word & u64::from(u32::MAX);
    for _ in 0..10 {
        for lane in 0..L {
            let left = u64::from(MULTIPLIERS[0]) * low(c[0][lane]);
            let right = u64::from(MULTIPLIERS[1]) * low(c[2][lane]);
            c[0][lane] = (right >> 32) ^ c[1][lane] ^ u64::from(key[0]);
            c[1][lane] = right;
            c[2][lane] = (left >> 32) ^ c[3][lane] ^ u64::from(key[1]);
            c[3][lane] = left;
        }
        key[0] = key[0].wrapping_add(WEYL[0]);
        key[1] = key[1].wrapping_add(WEYL[1]);
    }
    c.map(|words| words.map(|word| word as u32))
}

/// Dropout as integers: a value is dropped when its 16-bit number is below `threshold`, kept ones are
/// multiplied by `scale`, so that the expectation is exact for the probability that is really used.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    threshold: u16,
    /// Factor of kept values.
    pub scale: f32,
    stream: Stream,
}

impl Dropout {
    /// Dropout with probability `p` in [0, 1), rounded to a multiple of 2⁻¹⁶.
    pub fn new(p: f32, stream: Stream) -> Self {
        let threshold = (p * 65_536.0).round() as u16;
        Self { threshold, scale: 65_536.0 / (65_536.0 - f32::from(threshold)), stream }
    }

    pub(crate) fn threshold(&self) -> u32 {
        u32::from(self.threshold)
    }

    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// Writes the factors (0 or `scale`) of `row` into `factors`; `bits` is scratch of the same length.
    #[inline(always)]
    pub fn factors(&self, row: u32, bits: &mut [u16], factors: &mut [f32]) {
        self.stream.bits16(row, bits);
        for (factor, &bit) in factors.iter_mut().zip(&*bits) {
            *factor = if bit < self.threshold { 0.0 } else { self.scale };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors published with Random123.
    #[test]
    fn philox_gives_the_published_vectors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn dropout_keeps_its_share_and_the_prefix_does_not_depend_on_the_length() {
        let dropout = Dropout::new(0.3, Rng::new(7, 1).stream(2));
        let (mut bits, mut long) = (vec![0; 10_007], vec![0.0; 10_007]);
        dropout.factors(5, &mut bits, &mut long);
        let kept = long.iter().filter(|&&f| f > 0.0).count() as f64 / long.len() as f64;
        assert!((kept - 0.7).abs() < 0.02, "kept {kept}");
        let (mut bits, mut short) = (vec![0; 131], vec![0.0; 131]);
        dropout.factors(5, &mut bits, &mut short);
        assert_eq!(short, long[..131]);
    }

    #[test]
    fn numbers_of_a_row_are_those_of_its_blocks() {
        let stream = Rng::new(7 << 40 | 3, 11).stream(5);
        let mut bits = vec![0; 3 * LANES * PER_BLOCK + 5];
        stream.bits16(9, &mut bits);
        for (column, numbers) in bits.chunks(PER_BLOCK).enumerate() {
            let halves = stream.block(9, column as u32).map(|word| [word as u16, (word >> 16) as u16]);
            assert_eq!(numbers, &halves.as_flattened()[..numbers.len()]);
        }
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let stream = Rng::new(3, 0).stream(0);
        let values: Vec<f64> = (0..20_000).map(|i| f64::from(stream.normal(i, 3))).collect();
        let mean = values.iter().sum::<f64>() / 20_000.0;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
