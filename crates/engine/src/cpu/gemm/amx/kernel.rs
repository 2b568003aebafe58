//! The innermost product: a 32 x 32 block of `C` held in four tiles while a run of the depth is summed.

use super::cpu::ConfiguredTiles;
use super::pack::{PANEL, Step};
use std::arch::asm;
use std::arch::x86_64::*;

/// Steps of the product in which one step of those ahead is fetched.
pub(super) const STEPS_PER_FETCH: usize = 8;

/// A block of `C` in memory: `rows` x `cols` values, at most [`PANEL`] each, `stride` values from row to row.
pub(super) struct Block {
    pub(super) start: *mut f32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) stride: usize,
}

/// Sums on their way from tiles, which are stored whole, to `C`, whose edges may cut them off.
#[repr(C, align(64))]
struct Sums([[f32; PANEL]; PANEL]);

/// Multiplies panels on the tiles of the current thread.
pub(super) struct Kernel {
    _tiles: ConfiguredTiles,
    sums: Sums,
}

/// The four products of two tiles of `A` and two tiles of `B`, for one pair of parts.
macro_rules! products {
    () => {
        "tdpbf16ps tmm0, tmm4, tmm6
         tdpbf16ps tmm1, tmm4, tmm7
         tdpbf16ps tmm2, tmm5, tmm6
         tdpbf16ps tmm3, tmm5, tmm7"
    };
}

/// Loads the two tiles of one part of `A`, given its offset in the step.
macro_rules! load_a {
    ($at:literal) => {
        concat!(
            concat!("tileloadd tmm4, [{a} + {row}*1 + ", $at, "]\n"),
            concat!("tileloadd tmm5, [{a} + {row}*1 + ", $at, " + 1024]"),
        )
    };
}

/// Loads the two tiles of one part of `B`, given its offset in the step.
macro_rules! load_b {
    ($at:literal) => {
        concat!(
            concat!("tileloadd tmm6, [{b} + {row}*1 + ", $at, "]\n"),
            concat!("tileloadd tmm7, [{b} + {row}*1 + ", $at, " + 1024]"),
        )
    };
}

/// Fetches 256 of the bytes ahead, given their offset.
macro_rules! fetch {
    ($at:literal) => {
        concat!(
            concat!("prefetcht1 [{ahead} + ", $at, "]\n"),
            concat!("prefetcht1 [{ahead} + ", $at, " + 64]\n"),
            concat!("prefetcht1 [{ahead} + ", $at, " + 128]\n"),
            concat!("prefetcht1 [{ahead} + ", $at, " + 192]"),
        )
    };
}

/// Fetches two rows of the block, to be written soon.
macro_rules! fetch_block {
    () => {
        "prefetchw [{block}]
         prefetchw [{block} + 64]
         prefetchw [{block} + {block_row}]
         prefetchw [{block} + {block_row} + 64]"
    };
}

/// Sums the given products over all steps; parts lie 2048 bytes apart.
///
/// Tiles are configured at full size, and the four that are stored are as large as `sums`. Fetching is allowed
/// at any address. So it is only up to the caller that the panels hold `steps` steps of `PARTS` parts.
macro_rules! sum_steps {
    (
        [$parts:ident, $steps:ident, $a:ident, $b:ident, $sums:ident, $block:ident, $ahead:ident]:
        $($line:expr,)+
    ) => {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            $($line,)+
            "add {a}, {step}",
            "add {b}, {step}",
            "add {ahead}, {ahead_step}",
            "lea {block}, [{block} + {block_row}*2]",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{sums} + {row}*2], tmm0",
            "tilestored [{sums} + {row}*2 + 64], tmm1",
            "tilestored [{sums} + {row}*2 + 2048], tmm2",
            "tilestored [{sums} + {row}*2 + 2048 + 64], tmm3",
            a = inout(reg) $a.as_ptr() => _,
            b = inout(reg) $b.as_ptr() => _,
            row = in(reg) 64usize,
            step = const size_of::<Step<$parts>>(),
            steps = inout(reg) $steps => _,
            sums = in(reg) $sums,
            block = inout(reg) $block.start => _,
            block_row = in(reg) $block.stride * size_of::<f32>(),
            ahead = inout(reg) $ahead => _,
            ahead_step = const size_of::<Step<$parts>>() / STEPS_PER_FETCH,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

impl Kernel {
    pub(super) fn new() -> Self {
        Self { _tiles: ConfiguredTiles::new(), sums: Sums([[0.0; PANEL]; PANEL]) }
    }

    /// `block = A·B`, or `block += A·B` if `add`, for one panel of each operand.
    ///
    /// Meanwhile steps from `ahead` on, one for every [`STEPS_PER_FETCH`], are fetched into the second-level
    /// cache.
    ///
    /// # Safety
    ///
    /// `block` must be valid for reads and writes, and no other thread may touch it during the call.
    pub(super) unsafe fn multiply<const PARTS: usize>(
        &mut self,
        a: &[Step<PARTS>],
        b: &[Step<PARTS>],
        block: &Block,
        add: bool,
        ahead: *const Step<PARTS>,
    ) {
        self.sum_products(a, b, block, ahead);
        // SAFETY: AVX-512 is there, or there would be no `ConfiguredTiles`; the caller vouches for the block.
        unsafe { self.write_sums(block, add) };
    }

    /// # Safety
    ///
    /// As for [`Kernel::multiply`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn write_sums(&self, block: &Block, add: bool) {
        let columns = u32::MAX >> (PANEL - block.cols);
        let masks = [columns as u16, (columns >> 16) as u16];
        for (row, sums) in self.sums.0.iter().enumerate().take(block.rows) {
            for (half, mask) in masks.into_iter().enumerate() {
                let to = block.start.wrapping_add(row * block.stride + half * 16);
                // SAFETY: the mask leaves the columns that the block has, for which the caller vouches; a row of
                // the sums has two halves of 16 values.
                unsafe {
                    let mut sum = _mm512_load_ps(sums.as_ptr().add(half * 16));
                    if add {
                        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to));
                    }
                    _mm512_mask_storeu_ps(to, mask, sum);
                }
            }
        }
    }

    /// Multiplies two panels in tiles and stores the tiles.
    ///
    /// The kept products of parts are taken in an order that changes one operand at a time; of six, the small
    /// ones first (what is left out of three is more than their order can lose).
    fn sum_products<const PARTS: usize>(
        &mut self,
        a: &[Step<PARTS>],
        b: &[Step<PARTS>],
        block: &Block,
        ahead: *const Step<PARTS>,
    ) {
        let steps = a.len();
        assert!(steps > 0 && steps == b.len());
        let sums = &mut self.sums;
        // SAFETY: the loops read `steps` steps of `PARTS` parts from each panel, which is what they hold.
        unsafe {
            match PARTS {
                1 => sum_steps!(
                    [PARTS, steps, a, b, sums, block, ahead]:
                    load_a!("0"),
                    load_b!("0"),
                    products!(),
                    fetch_block!(),
                    fetch!("0"),
                ),
                2 => sum_steps!(
                    [PARTS, steps, a, b, sums, block, ahead]:
                    load_a!("2048"),
                    load_b!("0"),
                    products!(),
                    fetch_block!(),
                    load_a!("0"),
                    products!(),
                    fetch!("0"),
                    load_b!("2048"),
                    products!(),
                    fetch!("256"),
                ),
                3 => sum_steps!(
                    [PARTS, steps, a, b, sums, block, ahead]:
                    load_a!("4096"),
                    load_b!("0"),
                    products!(),
                    fetch_block!(),
                    load_a!("2048"),
                    products!(),
                    load_b!("2048"),
                    products!(),
                    fetch!("0"),
                    load_a!("0"),
                    products!(),
                    fetch!("256"),
                    load_b!("4096"),
                    products!(),
                    fetch!("512"),
                    load_b!("0"),
                    products!(),
                ),
                _ => unreachable!("one to three parts"),
            }
        }
    }
}
