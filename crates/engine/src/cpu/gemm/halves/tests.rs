//! Every kernel of this machine against sums of rounded factors in `f64`, and against the threads.

use super::*;
use crate::Rng;
use crate::device::to_bf16;

fn random(seed: u64, len: usize) -> Vec<f32> {
    let stream = Rng::new(seed, 0).stream(0);
    (0..len as u32).map(|i| stream.normal(i, 0)).collect()
}

fn rounded(value: f32) -> f64 {
    f64::from(f32::from_bits(u32::from(to_bf16(value)) << 16))
}

#[test]
fn kernels_sum_products_of_rounded_factors() {
    for [m, n, k] in [[1, 1, 1], [13, 32, 513], [25, 35, 70], [13, 200, 1101], [150, 33, 2]] {
        let (a, b, old) = (random(1, m * k), random(2, k * n), random(3, m * n));
        for (a, b) in [
            (Mat::new(&a, k), Mat::new(&b, n)),
            (Mat::new(&a, k), Mat::new(&b, k).t()),
            (Mat::new(&a, m).t(), Mat::new(&b, n)),
            (Mat::new(&a, m).t(), Mat::new(&b, k).t()),
        ] {
            for into in [Into::Overwrite, Into::Add] {
                for (name, kernel) in kernel::kernels() {
                    let product = |threads| {
                        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                        let mut c = old.clone();
                        pool.install(|| gemm_by(kernel, [m, n, k], a, b, &mut c, into));
                        c
                    };
                    let c = product(1);
                    for (i, (value, old)) in c.iter().zip(&old).enumerate() {
                        let before = if into == Into::Add { f64::from(*old) } else { 0.0 };
                        let (mut exact, mut size) = (before, before.abs());
                        let ((down, right), (below, beside)) = (a.strides(), b.strides());
                        for l in 0..k {
                            let a = rounded(a.data[i / n * down + l * right]);
                            let product = a * rounded(b.data[l * below + i % n * beside]);
                            (exact, size) = (exact + product, size + product.abs());
                        }
                        let error = (f64::from(*value) - exact).abs();
                        assert!(error <= 4e-7 * size, "{name}, {m}x{n}x{k}, {into:?}, {i}: {value}, {exact}");
                    }
                    for threads in [3, 16] {
                        assert_eq!(product(threads), c, "{name}, {m}x{n}x{k}, {threads} threads");
                    }
                }
            }
        }
    }
}
