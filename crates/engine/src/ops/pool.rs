//! What gates read: the mean of a sentence's rows, or the causal running mean at each row.

use rayon::prelude::*;

use crate::cpu::{for_rows, split_segments, vectorised};
use crate::{Segments, Tape, Var};

impl Tape<'_> {
    /// Mean over each sentence: x `[N, D]` to `[B, D]`. A sentence without rows gives zeros.
    pub fn segment_mean(&mut self, x: &Var, segments: &Segments) -> Var {
        let (cols, count) = (x.cols(), segments.count());
        assert_eq!(x.rows(), segments.rows(), "segment_mean: rows and segments disagree");
        if let Some(gpu) = self.gpu() {
            return crate::cuda::ops::pool::segment_mean(self, &gpu, x, segments);
        }
        let mut y = self.device().scratch(count * cols);
        y.par_chunks_exact_mut(cols).enumerate().for_each(|(sentence, mean)| {
            let range = segments.range(sentence);
            let inverse = 1.0 / range.len().max(1) as f32;
            vectorised(
                #[inline(always)]
                || {
                    mean.fill(0.0);
                    for row in range {
                        mean.iter_mut().zip(x.tensor().row(row)).for_each(|(m, v)| *m += v);
                    }
                    mean.iter_mut().for_each(|m| *m *= inverse);
                },
            );
        });
        let y = self.output([count, cols], y, x.tracked());
        let (x, segments) = (x.clone(), segments.clone());
        self.record(&y, move |backward, dy| {
            backward.input(&x, |dx, held| {
                let parts = split_segments(dx, cols, &segments);
                parts.into_par_iter().zip(dy.par_chunks_exact(cols)).for_each(|(rows, dy)| {
                    let inverse = cols as f32 / rows.len().max(1) as f32;
                    for dx in rows.chunks_exact_mut(cols) {
                        dx.iter_mut()
                            .zip(dy)
                            .for_each(|(dx, dy)| *dx = if held { *dx } else { 0.0 } + dy * inverse);
                    }
                });
            });
        });
        y
    }

    /// Mean over each row and those before it in its sentence, at most the last `window` of them:
    /// `y_t = (1/c_t)·Σ x_s` over `t − window < s ≤ t`; x and the result are `[N, D]`.
    pub fn running_mean(&mut self, x: &Var, segments: &Segments, window: Option<usize>) -> Var {
        let cols = x.cols();
        assert_eq!(x.rows(), segments.rows(), "running_mean: rows and segments disagree");
        if let Some(gpu) = self.gpu() {
            return crate::cuda::ops::pool::running_mean(self, &gpu, x, segments, window);
        }
        let window = window.unwrap_or(usize::MAX);
        let mut y = self.device().scratch(x.rows() * cols);
        split_segments(&mut y, cols, segments).into_par_iter().enumerate().for_each(|(sentence, out)| {
            let first = segments.range(sentence).start;
            vectorised(
                #[inline(always)]
                || {
                    // Doubles: values that leave the window are subtracted, and their rounding must not stay behind.
                    let mut sum = vec![0.0f64; cols];
                    for (t, y) in out.chunks_exact_mut(cols).enumerate() {
                        sum.iter_mut().zip(x.tensor().row(first + t)).for_each(|(s, v)| *s += f64::from(*v));
                        if t >= window {
                            let left = x.tensor().row(first + t - window);
                            sum.iter_mut().zip(left).for_each(|(s, v)| *s -= f64::from(*v));
                        }
                        let inverse = 1.0 / (t + 1).min(window) as f64;
                        y.iter_mut().zip(&sum).for_each(|(y, s)| *y = (s * inverse) as f32);
                    }
                },
            );
        });
        let y = self.output([x.rows(), cols], y, x.tracked());
        let (x, segments) = (x.clone(), segments.clone());
        self.record(&y, move |backward, mut dy| {
            // dx_s = Σ dy_t/c_t over s ≤ t < s + window: divide first, then a running sum from the end.
            let counts: Vec<f32> =
                segments.ranges().flat_map(|r| (0..r.len()).map(|t| (t + 1).min(window) as f32)).collect();
            for_rows(
                &mut dy,
                cols,
                #[inline(always)]
                |first, rows| {
                    for (i, row) in rows.chunks_exact_mut(cols).enumerate() {
                        let inverse = 1.0 / counts[first + i];
                        row.iter_mut().for_each(|v| *v *= inverse);
                    }
                },
            );
            backward.input(&x, |dx, held| {
                split_segments(dx, cols, &segments).into_par_iter().enumerate().for_each(
                    |(sentence, out)| {
                        let range = segments.range(sentence);
                        vectorised(
                            #[inline(always)]
                            || {
                                let mut sum = vec![0.0f64; cols];
                                for (t, dx) in out.chunks_exact_mut(cols).enumerate().rev() {
                                    let row = |t: usize| &dy[(range.start + t) * cols..][..cols];
                                    sum.iter_mut().zip(row(t)).for_each(|(s, v)| *s += f64::from(*v));
                                    if let Some(right) =
                                        t.checked_add(window).filter(|&right| right < range.len())
                                    {
                                        sum.iter_mut().zip(row(right)).for_each(|(s, v)| *s -= f64::from(*v));
                                    }
                                    for (dx, s) in dx.iter_mut().zip(&sum) {
                                        *dx = if held { *dx } else { 0.0 } + *s as f32;
                                    }
                                }
                            },
                        );
                    },
                );
            });
        });
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;
    use crate::{Device, Params, ParamsBuilder, Tensor};

    fn nothing() -> Params {
        ParamsBuilder::default().finish(&Device::cpu())
    }

    #[test]
    fn gradients_match_finite_differences() {
        for starts in [&[0u32, 4, 5, 11][..], &[0, 1], &[0, 3, 3, 7]] {
            let segments = Segments::from_host(&Device::cpu(), starts);
            for window in [None, Some(1), Some(2), Some(3)] {
                let mut check = Check::new();
                let x = check.param("x", [segments.rows(), 5]);
                let own = segments.clone();
                check.run(move |tape| {
                    let x = tape.parameter(x);
                    tape.running_mean(&x, &own, window)
                });
            }
            let mut check = Check::new();
            let x = check.param("x", [segments.rows(), 5]);
            check.run(move |tape| {
                let x = tape.parameter(x);
                tape.segment_mean(&x, &segments)
            });
        }
    }

    #[test]
    fn the_running_mean_looks_back_only() {
        let (params, device) = (nothing(), Device::cpu());
        let mut tape = Tape::evaluation(&params);
        let x = Var::constant(Tensor::from_host(&device, [5, 1], &[1.0, 3.0, 5.0, 10.0, 20.0]));
        let segments = Segments::from_host(&device, &[0, 3, 5]);
        assert_eq!(tape.running_mean(&x, &segments, None).tensor().to_host(), [1.0, 2.0, 3.0, 10.0, 15.0]);
        assert_eq!(tape.running_mean(&x, &segments, Some(2)).tensor().to_host(), [1.0, 2.0, 4.0, 10.0, 15.0]);
        assert_eq!(tape.segment_mean(&x, &segments).tensor().to_host(), [3.0, 15.0]);
    }
}
