//! Kernel with AVX-512 VNNI.

use std::arch::x86_64::*;

use super::nibbles::{SHARED, UPPER};
use super::{LANES, Layout, PANEL, Part, STEP, STRIPS};
use crate::cpu::LINE;
use crate::cpu::gemm::streamed::kernel::MAX_ROWS;
use crate::cpu::order::Strips;

/// How a processor is told what it will read; what is fastest differs from one to the other.
pub(super) trait Requests {
    /// Lines of a strip from the one in use to the one that is asked for, for a product of one row, of a few, and of
    /// more. Nibbles are asked for with one row as with a few.
    const ONE: usize;
    const FEW: usize = Self::ONE;
    const MANY: usize = Self::FEW;
    /// True if the first level of the cache is asked, else the second.
    const FIRST_LEVEL: bool;
    /// What the matrices look like.
    const LAYOUT: Layout;
}

/// Lines are not asked for: the processor looks ahead by itself. Only the first ones of nibbles are, where they follow.
const NEVER: usize = usize::MAX;

/// Of processors with AMX.
pub(super) struct WithAmx;
/// Of others whose first level has 48 KB, as that of Zen 5: a panel and half of the next one.
pub(super) struct LargeFirstLevel;
/// Of the rest.
pub(super) struct SmallFirstLevel;

impl Requests for WithAmx {
    const ONE: usize = 16;
    const FIRST_LEVEL: bool = true;
    const LAYOUT: Layout = Layout::Strips;
}

impl Requests for LargeFirstLevel {
    const ONE: usize = NEVER;
    const FEW: usize = 64;
    // Rows read a panel again and again: it must stay.
    const MANY: usize = 32;
    const FIRST_LEVEL: bool = true;
    const LAYOUT: Layout = Layout::Lines;
}

impl Requests for SmallFirstLevel {
    const ONE: usize = 64;
    const FIRST_LEVEL: bool = false;
    const LAYOUT: Layout = Layout::Strips;
}

/// Computes a part with AVX-512 VNNI, up to six rows at a time.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn vnni<R: Requests>(part: &Part<'_>) {
    let (w, few) = (part.w, part.rows.len() <= MAX_ROWS);
    let (first, nibbles) = (w.strips(few), w.in_nibbles(few));
    let lines = w.strip_lines() / if nibbles { SHARED } else { 1 };
    let distance = if few { R::FEW } else { R::MANY };
    let of_panel = |panel: usize| first.moved((panel * STRIPS * lines * LINE) as isize);
    for panel in part.panels.clone() {
        let strips = of_panel(panel);
        let next = match part.next {
            _ if panel + 1 < w.panels() => of_panel(panel + 1),
            Some(next) => next,
            // Nothing that is known: what is there already is asked for once more.
            None => strips,
        };
        for row in part.rows.clone().step_by(MAX_ROWS) {
            let block = Block { part, panel, row, lines, strips, next, distance };
            // SAFETY: the caller answers for the part; row and panel are the part's.
            unsafe {
                match nibbles {
                    true => block.compute_rows::<R, true>(),
                    false => block.compute_rows::<R, false>(),
                }
            }
        }
    }
}

/// Some rows, from `row` on, of a panel.
struct Block<'a> {
    part: &'a Part<'a>,
    panel: usize,
    row: usize,
    /// Lines of a strip.
    lines: usize,
    strips: Strips,
    /// The strips that are read after these.
    next: Strips,
    /// Lines from the one in use to the one that is asked for, with several rows.
    distance: usize,
}

type Sums<const M: usize> = [[__m512i; STRIPS]; M];

/// A bit for each of the first `count` lanes.
fn lanes_before(count: usize) -> u16 {
    ((1u32 << count.min(LANES)) - 1) as u16
}

impl Block<'_> {
    /// Computes the part's rows from `row` on, six at most, with strips of nibbles or of 8-bit integers.
    ///
    /// # Safety
    ///
    /// Row and panel belong to the part.
    #[target_feature(enable = "avx512f,avx512vnni")]
    #[inline]
    unsafe fn compute_rows<R: Requests, const NIBBLES: bool>(&self) {
        // SAFETY: the part has these rows.
        unsafe {
            match self.part.rows.end - self.row {
                1 => self.compute::<R, NIBBLES, 1>(),
                2 => self.compute::<R, NIBBLES, 2>(),
                3 => self.compute::<R, NIBBLES, 3>(),
                4 => self.compute::<R, NIBBLES, 4>(),
                5 => self.compute::<R, NIBBLES, 5>(),
                _ => self.compute::<R, NIBBLES, MAX_ROWS>(),
            }
        }
    }

    /// Computes `M` rows.
    ///
    /// # Safety
    ///
    /// Rows and panel belong to the part.
    #[target_feature(enable = "avx512f,avx512vnni")]
    #[inline]
    unsafe fn compute<R: Requests, const NIBBLES: bool, const M: usize>(&self) {
        let mut sums = [[_mm512_setzero_si512(); STRIPS]; M];
        let upper = _mm512_set1_epi8(UPPER as i8);
        let distance = if M == 1 && !NIBBLES { R::ONE } else { self.distance };
        let inside = self.lines.saturating_sub(distance);
        if !NIBBLES && M == 1 && R::ONE == NEVER && self.panel + 1 == self.part.w.panels() {
            self.ask_for_nibbles::<R>();
        }
        let mut ahead = self.strips.moved((distance.min(self.lines) * self.strips.step) as isize);
        // SAFETY: the strips have these lines, each of which is for a step of four values of X, or for two steps that
        // share it.
        unsafe {
            for line in 0..self.lines {
                if line == inside {
                    ahead = self.next;
                }
                let weights = self.load::<R, NIBBLES, M>(line, ahead);
                ahead = ahead.moved(ahead.step as isize);
                if NIBBLES {
                    let lower =
                        weights.map(|weights| _mm512_and_si512(_mm512_slli_epi32::<4>(weights), upper));
                    self.add(&mut sums, SHARED * line, lower);
                    let weights = weights.map(|weights| _mm512_and_si512(weights, upper));
                    self.add(&mut sums, SHARED * line + 1, weights);
                } else {
                    self.add(&mut sums, line, weights);
                }
            }
            self.finish(sums);
        }
    }

    /// Asks for the first lines of nibbles, if those are read next.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn ask_for_nibbles<R: Requests>(&self) {
        if self.part.nibbles_follow {
            let lines = (0..R::FEW * STRIPS).map(|line| self.next.first.wrapping_add(line * LINE));
            lines.for_each(|line| _mm_prefetch::<_MM_HINT_T0>(line.cast()));
        }
    }

    /// A line of each strip; asks for lines that are `ahead`.
    ///
    /// # Safety
    ///
    /// The strips have this line.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load<R: Requests, const NIBBLES: bool, const M: usize>(
        &self,
        line: usize,
        ahead: Strips,
    ) -> [__m512i; STRIPS] {
        let asks = NIBBLES || M > 1 || R::ONE != NEVER;
        let Strips { first, apart, .. } = self.strips;
        // Known to the compiler, as far as it can be.
        let (apart, step) = match NIBBLES || R::LAYOUT == Layout::Lines {
            true => (LINE, STRIPS * LINE),
            false => (apart, LINE),
        };
        let mut weights = [_mm512_setzero_si512(); STRIPS];
        for (i, weights) in weights.iter_mut().enumerate() {
            let later = ahead.first.wrapping_add(i * ahead.apart).cast();
            match (asks, R::FIRST_LEVEL) {
                (true, true) => _mm_prefetch::<_MM_HINT_T0>(later),
                (true, false) => _mm_prefetch::<_MM_HINT_T1>(later),
                (false, _) => {}
            }
            // SAFETY: the caller answers for the line.
            *weights = unsafe { _mm512_load_si512(first.add(i * apart + line * step).cast()) };
        }
        weights
    }

    /// Adds the products of four values of each row with a line of each strip.
    ///
    /// # Safety
    ///
    /// The rows belong to the part and have this step.
    #[target_feature(enable = "avx512f,avx512vnni")]
    #[inline]
    unsafe fn add<const M: usize>(&self, sums: &mut Sums<M>, step: usize, weights: [__m512i; STRIPS]) {
        let depth = self.part.w.depth();
        for (i, sums) in sums.iter_mut().enumerate() {
            // SAFETY: rows of X have `depth` bytes.
            let x = unsafe {
                let at = self.part.x.values.as_ptr().add((self.row + i) * depth + step * STEP);
                _mm512_set1_epi32(at.cast::<i32>().read_unaligned())
            };
            for (sum, weights) in sums.iter_mut().zip(weights) {
                *sum = _mm512_dpbusd_epi32(*sum, x, weights);
            }
        }
    }

    /// Writes the values of Y that the sums stand for.
    ///
    /// # Safety
    ///
    /// Rows and panel belong to the part.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn finish<const M: usize>(&self, sums: Sums<M>) {
        let Self { part, panel, row, .. } = *self;
        let cols = part.cols(panel);
        for (i, sums) in sums.into_iter().enumerate() {
            let scale = _mm512_set1_ps(part.x.scales[row + i]);
            for (line, sum) in sums.into_iter().enumerate() {
                let (first, at) = (line * LANES, panel * PANEL + line * LANES);
                // SAFETY: scales and surplus are padded to whole panels, and a row of Y has `cols` values in the panel.
                unsafe {
                    let surplus = _mm512_loadu_si512(part.w.surplus.as_ptr().add(at).cast());
                    let scales = _mm512_mul_ps(scale, _mm512_loadu_ps(part.w.scales.as_ptr().add(at)));
                    let y = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sum, surplus)), scales);
                    let place = part.y(row + i, panel).wrapping_add(first);
                    match cols {
                        PANEL => _mm512_storeu_ps(place, y),
                        _ => _mm512_mask_storeu_ps(place, lanes_before(cols.saturating_sub(first)), y),
                    }
                }
            }
        }
    }
}
