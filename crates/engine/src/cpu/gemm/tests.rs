//! Every kernel against a product in `f64`.

use super::{Into, Mat, Precision, gemm, halves, kernel_name, portable};

type Product = fn([usize; 3], Mat<'_>, Mat<'_>, &mut [f32], Into);

/// A kernel at one precision, called directly so that small sizes reach it too.
struct Kernel {
    name: &'static str,
    precision: Precision,
    product: Product,
}

impl Kernel {
    /// The largest error allowed relative to `|C| + |A|·|B|`: the rounding of `f32`, and in training what is
    /// left out of each product: 2⁻¹⁷ for the third part of each operand, 2⁻¹⁶ for the product of second
    /// parts.
    fn tolerance(&self) -> f64 {
        4e-7 + match self.precision {
            Precision::Full => 0.0,
            Precision::Training => 2f64.powi(-15),
            // Each factor is rounded to 8 bits.
            Precision::Bf16 => 2f64.powi(-7),
        }
    }
}

/// The kernels this machine can run.
fn kernels() -> Vec<Kernel> {
    let kernel = |name, precision, product| Kernel { name, precision, product };
    let portable = kernel("portable", Precision::Full, portable::gemm);
    let halves = kernel("halves", Precision::Bf16, halves::gemm);
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if super::amx::available() {
        let full = kernel("amx full", Precision::Full, super::amx::gemm::<3>);
        let training = kernel("amx training", Precision::Training, super::amx::gemm::<2>);
        let bf16 = kernel("amx bf16", Precision::Bf16, super::amx::gemm::<1>);
        return vec![portable, halves, full, training, bf16];
    }
    vec![portable, halves]
}

/// A small random generator (SplitMix64), so that tests need no dependency and repeat exactly.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    fn normals(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.normal() as f32).collect()
    }

    /// Normal values times powers of ten from 1e-8 to 1e8.
    fn uneven(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.normal() * 10f64.powf(16.0 * self.uniform() - 8.0)) as f32).collect()
    }
}

fn at(mat: &Mat<'_>, row: usize, col: usize) -> f64 {
    let (down, right) = mat.strides();
    f64::from(mat.data[row * down + col * right])
}

/// The largest error of `c` relative to `|C| + |A|·|B|`, the scale on which rounding errors live; and the root
/// of the mean of its square.
fn errors([m, n, k]: [usize; 3], a: Mat<'_>, b: Mat<'_>, c: &[f32], old: Option<&[f32]>) -> (f64, f64) {
    let (mut max, mut sum) = (0f64, 0f64);
    for i in 0..m {
        for j in 0..n {
            let before = old.map_or(0.0, |old| f64::from(old[i * n + j]));
            let (mut exact, mut scale) = (before, before.abs());
            for l in 0..k {
                let product = at(&a, i, l) * at(&b, l, j);
                exact += product;
                scale += product.abs();
            }
            let error = (f64::from(c[i * n + j]) - exact).abs() / scale.max(f64::MIN_POSITIVE);
            assert!(error.is_finite(), "C[{i},{j}] = {} of {m}x{n}x{k}", c[i * n + j]);
            max = max.max(error);
            sum += error * error;
        }
    }
    (max, (sum / (m * n) as f64).sqrt())
}

/// `A` and `B` for every combination of transposes, over the same stored values.
fn transposes<'a>([m, n, k]: [usize; 3], a: &'a [f32], b: &'a [f32]) -> [(Mat<'a>, Mat<'a>); 4] {
    let (a, at) = (Mat::new(a, k), Mat::new(a, m).t());
    let (b, bt) = (Mat::new(b, n), Mat::new(b, k).t());
    [(a, b), (a, bt), (at, b), (at, bt)]
}

#[test]
fn every_size_transpose_and_mode_is_close_to_f64() {
    let mut random = Random(1);
    let sizes = [
        [1, 1, 1],
        [1, 67, 131],
        [67, 1, 131],
        [67, 131, 1],
        [2, 3, 5],
        [31, 37, 29],
        [16, 32, 64],
        [97, 61, 113],
        [61, 331, 47],
        [337, 53, 541],
        [41, 43, 1031],
    ];
    for [m, n, k] in sizes {
        let (a, b, old) = (random.normals(m * k), random.normals(k * n), random.normals(m * n));
        for (a, b) in transposes([m, n, k], &a, &b) {
            for kernel in kernels() {
                let (name, tolerance) = (kernel.name, kernel.tolerance());
                // What is overwritten must not matter, not even NaN.
                let mut c = vec![f32::NAN; m * n];
                (kernel.product)([m, n, k], a, b, &mut c, Into::Overwrite);
                let (max, _) = errors([m, n, k], a, b, &c, None);
                assert!(max < tolerance, "{name} {m}x{n}x{k}: {max:e}");

                let mut c = old.clone();
                (kernel.product)([m, n, k], a, b, &mut c, Into::Add);
                let (max, _) = errors([m, n, k], a, b, &c, Some(&old));
                assert!(max < tolerance, "{name} {m}x{n}x{k} added: {max:e}");
            }
        }
    }
}

#[test]
fn accuracy_is_that_of_f32_or_enough_for_training() {
    let size @ [m, n, k] = [61, 67, 2048];
    let mut random = Random(2);
    let normal = (random.normals(m * k), random.normals(k * n));
    let uneven = (random.uneven(m * k), random.uneven(k * n));
    // What training leaves out is below 2⁻¹⁷ of a product in the mean, and bf16 2⁻⁷; over even products it averages out.
    let cases = [("normal", normal, 1.0 / (k as f64).sqrt()), ("uneven", uneven, 1.0)];
    for (kind, (a, b), enough) in cases {
        let (a, b) = (Mat::new(&a, k), Mat::new(&b, n));
        let measured = kernels().into_iter().map(|kernel| {
            let mut c = vec![0.0; m * n];
            (kernel.product)(size, a, b, &mut c, Into::Overwrite);
            let (max, mean) = errors(size, a, b, &c, None);
            println!("{kind} {}: max {max:.2e}, mean square root {mean:.2e}", kernel.name);
            (kernel, max, mean)
        });
        let measured: Vec<_> = measured.collect();
        let &(_, plain_max, plain_mean) = &measured[0];
        for (Kernel { name, precision, .. }, max, mean) in &measured {
            let fits = match precision {
                Precision::Full => *max < 1.5 * plain_max && *mean < 1.5 * plain_mean,
                // Were it no worse than full precision, that would be wrong, or this not worth having.
                Precision::Training => (2.0 * plain_mean..enough * 2f64.powi(-17)).contains(mean),
                Precision::Bf16 => (2.0 * plain_mean..enough * 2f64.powi(-7)).contains(mean),
            };
            assert!(fits, "{kind} {name}: {max:e}, {mean:e}");
        }
    }
}

#[test]
fn infinite_and_nan_inputs_show() {
    let size @ [m, n, k] = [40, 50, 70];
    let mut random = Random(3);
    let (a, b) = (random.normals(m * k), random.normals(k * n));
    let (row, col, deep) = (37, 45, 66);
    for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::from_bits(0x7fff_ffff), f32::from_bits(!0)] {
        for Kernel { name, product, .. } in kernels() {
            let check = |a: &[f32], b: &[f32], hit: &dyn Fn(usize, usize) -> bool| {
                let mut c = vec![0.0; m * n];
                product(size, Mat::new(a, k), Mat::new(b, n), &mut c, Into::Overwrite);
                for (i, value) in c.into_iter().enumerate() {
                    let (i, j) = (i / n, i % n);
                    assert_eq!(value.is_finite(), !hit(i, j), "{name}, {bad}: C[{i},{j}] = {value}");
                }
            };
            let mut spoilt = a.clone();
            spoilt[row * k + deep] = bad;
            check(&spoilt, &b, &|i, _| i == row);
            let mut spoilt = b.clone();
            spoilt[deep * n + col] = bad;
            check(&a, &spoilt, &|_, j| j == col);
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let size @ [m, n, k] = [523, 389, 1151];
    let mut random = Random(4);
    let (a, b) = (random.normals(m * k), random.normals(k * n));
    for (a, b) in transposes(size, &a, &b) {
        for precision in [Precision::Full, Precision::Training, Precision::Bf16] {
            let on_threads = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut c = vec![0.0; m * n];
                pool.install(|| gemm(size, a, b, &mut c, Into::Overwrite, precision));
                c.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let one = on_threads(1);
            for threads in [2, 3, 7] {
                assert!(on_threads(threads) == one, "{} {precision:?}: {threads} threads", kernel_name());
            }
        }
    }
}

#[test]
fn products_started_by_many_threads_do_not_mix() {
    use rayon::prelude::*;
    let size @ [m, n, k] = [150, 260, 700];
    let mut random = Random(5);
    let (a, b) = (random.normals(m * k), random.normals(k * n));
    let multiply = |precision| {
        let mut c = vec![0.0; m * n];
        gemm(size, Mat::new(&a, k), Mat::new(&b, n), &mut c, Into::Overwrite, precision);
        c
    };
    // All at once, as they share buffers.
    let precisions = [Precision::Full, Precision::Training, Precision::Bf16];
    let alone = precisions.map(multiply);
    assert!((0..33).into_par_iter().all(|i| multiply(precisions[i % 3]) == alone[i % 3]));
}
