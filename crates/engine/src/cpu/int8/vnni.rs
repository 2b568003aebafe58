//! Kernel with AVX-512 VNNI.

use std::arch::x86_64::*;

use super::nibbles::{SHARED, UPPER};
use super::{LANES, PANEL, Part, STEP, STRIPS};
use crate::cpu::LINE;
use crate::cpu::gemm::streamed::kernel::MAX_ROWS;
use crate::cpu::order::Strips;

/// Lines of a strip that processors with AMX ask the first level of the cache for, ahead of their use.
pub(super) const NEAR: usize = 16;
/// The same for others whose first level has room for them: 48 KB, as that of Zen 5.
pub(super) const FARTHER: usize = 64;
/// The same for the rest, which ask the second level.
pub(super) const FAR: usize = 64;
/// Lines of 8-bit integers are not asked for: with a single row Zen 5 looks ahead farther by itself.
pub(super) const NEVER: usize = usize::MAX;

/// Computes a part with AVX-512 VNNI, up to six rows at a time. Level `HINT` of the cache is asked for lines that are
/// `AHEAD` of those in use, or `ONE` if there is a single row, except for nibbles; what is fastest differs from
/// processor to processor.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn vnni<const ONE: usize, const AHEAD: usize, const HINT: i32, const BY_LINES: bool>(
    part: &Part<'_>,
) {
    let (w, few) = (part.w, part.rows.len() <= MAX_ROWS);
    let (first, nibbles) = (w.strips(few), w.in_nibbles(few));
    let lines = w.strip_lines() / if nibbles { SHARED } else { 1 };
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
            let block = Block { part, panel, row, lines, strips, next };
            // SAFETY: the caller answers for the part; row and panel are the part's.
            unsafe {
                match nibbles {
                    true => block.compute_rows::<AHEAD, AHEAD, HINT, true, true>(),
                    false => block.compute_rows::<ONE, AHEAD, HINT, BY_LINES, false>(),
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
}

type Sums<const M: usize> = [[__m512i; STRIPS]; M];

impl Block<'_> {
    /// Computes the part's rows from `row` on, six at most, with strips that lie line by line or one after the other, of
    /// nibbles or of 8-bit integers.
    ///
    /// # Safety
    ///
    /// Row and panel belong to the part.
    #[target_feature(enable = "avx512f,avx512vnni")]
    #[inline]
    unsafe fn compute_rows<
        const ONE: usize,
        const AHEAD: usize,
        const HINT: i32,
        const BY_LINES: bool,
        const NIBBLES: bool,
    >(
        &self,
    ) {
        // SAFETY: the part has these rows.
        unsafe {
            match self.part.rows.end - self.row {
                1 => self.compute::<ONE, HINT, BY_LINES, NIBBLES, 1>(),
                2 => self.compute::<AHEAD, HINT, BY_LINES, NIBBLES, 2>(),
                3 => self.compute::<AHEAD, HINT, BY_LINES, NIBBLES, 3>(),
                4 => self.compute::<AHEAD, HINT, BY_LINES, NIBBLES, 4>(),
                5 => self.compute::<AHEAD, HINT, BY_LINES, NIBBLES, 5>(),
                _ => self.compute::<AHEAD, HINT, BY_LINES, NIBBLES, MAX_ROWS>(),
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
    unsafe fn compute<
        const AHEAD: usize,
        const HINT: i32,
        const BY_LINES: bool,
        const NIBBLES: bool,
        const M: usize,
    >(
        &self,
    ) {
        let mut sums = [[_mm512_setzero_si512(); STRIPS]; M];
        let upper = _mm512_set1_epi8(UPPER as i8);
        let inside = self.lines.saturating_sub(AHEAD);
        let mut ahead = self.strips.moved((AHEAD.min(self.lines) * self.strips.step) as isize);
        // SAFETY: the strips have these lines, each of which is for a step of four values of X, or for two steps that
        // share it.
        unsafe {
            for line in 0..self.lines {
                if line == inside {
                    ahead = self.next;
                }
                let weights = self.load::<AHEAD, HINT, BY_LINES>(line, ahead);
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

    /// A line of each strip; asks for lines that are `ahead`.
    ///
    /// # Safety
    ///
    /// The strips have this line.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load<const AHEAD: usize, const HINT: i32, const BY_LINES: bool>(
        &self,
        line: usize,
        ahead: Strips,
    ) -> [__m512i; STRIPS] {
        let Strips { first, apart, .. } = self.strips;
        // Known to the compiler, as far as it can be.
        let (apart, step) = if BY_LINES { (LINE, STRIPS * LINE) } else { (apart, LINE) };
        let mut weights = [_mm512_setzero_si512(); STRIPS];
        for (i, weights) in weights.iter_mut().enumerate() {
            if AHEAD != NEVER {
                _mm_prefetch::<HINT>(ahead.first.wrapping_add(i * ahead.apart).cast());
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
            let (scale, mut out) = (_mm512_set1_ps(part.x.scales[row + i]), [0f32; PANEL]);
            // SAFETY: scales and surplus are padded to whole panels, and a row of Y has `cols` values in the panel.
            unsafe {
                for (line, sum) in sums.into_iter().enumerate() {
                    let at = panel * PANEL + line * LANES;
                    let surplus = _mm512_loadu_si512(part.w.surplus.as_ptr().add(at).cast());
                    let scales = _mm512_mul_ps(scale, _mm512_loadu_ps(part.w.scales.as_ptr().add(at)));
                    let y = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sum, surplus)), scales);
                    match cols {
                        PANEL => _mm512_storeu_ps(part.y(row + i, panel).add(line * LANES), y),
                        _ => _mm512_storeu_ps(out.as_mut_ptr().add(line * LANES), y),
                    }
                }
                if cols < PANEL {
                    part.y(row + i, panel).copy_from_nonoverlapping(out.as_ptr(), cols);
                }
            }
        }
    }
}
