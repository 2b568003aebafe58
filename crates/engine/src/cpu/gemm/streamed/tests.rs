//! Every kernel of this machine against the sum in `f64`, and all against each other, to the bit.

use super::*;
use crate::Rng;

fn random(seed: u64, len: usize) -> Vec<f32> {
    let stream = Rng::new(seed, 0).stream(0);
    (0..len as u32).map(|i| stream.normal(i, 0)).collect()
}

#[test]
fn all_kernels_give_the_same_bits() {
    for [m, n, k] in [[1, 1, 1], [5, 67, 15], [7, 64, 16], [13, 131, 70], [1, 6, 512], [31, 10, 33]] {
        let (x, w) = (random(1, m * k), random(2, n * k));
        let results = kernels::<f32>().into_iter().map(|(name, kernel)| {
            let mut y = vec![f32::NAN; m * n];
            product_by(kernel, [m, n, k], &x, &w, &mut y);
            (name, y)
        });
        let results: Vec<_> = results.collect();
        for (i, value) in results[0].1.iter().enumerate() {
            let (x, w) = (&x[i / n * k..][..k], &w[i % n * k..][..k]);
            let exact: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            let size: f64 = x.iter().zip(w).map(|(x, w)| f64::from(x * w).abs()).sum();
            assert!((f64::from(*value) - exact).abs() <= 4e-7 * size, "{m}x{n}x{k}, {i}: {value} {exact}");
        }
        for (name, y) in &results[1..] {
            assert_eq!(y, &results[0].1, "{name}, {m}x{n}x{k}");
        }
    }
}

#[test]
fn a_row_depends_neither_on_other_rows_nor_on_the_threads() {
    let [m, n, k] = [61, 200, 272];
    let (x, w) = (random(3, m * k), random(4, n * k));
    let mut whole = vec![0.0; m * n];
    product([m, n, k], &x, &w, &mut whole);
    for rows in [0..1, 3..8, 10..60] {
        let mut part = vec![0.0; rows.len() * n];
        product([rows.len(), n, k], &x[rows.start * k..rows.end * k], &w, &mut part);
        assert_eq!(part, whole[rows.start * n..rows.end * n], "{rows:?}");
    }
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    for threads in [1, 3, 16] {
        let mut other = vec![0.0; m * n];
        pool(threads).install(|| product([m, n, k], &x, &w, &mut other));
        assert_eq!(other, whole, "{threads} threads");
    }
}

#[test]
fn tasks_cover_all_rows_and_columns() {
    for size @ [m, n, _] in [[1, 512, 512], [160, 512, 512], [4096, 512, 512], [5, 6632, 512], [600, 8, 256]]
    {
        for threads in [1, 2, 16, 64] {
            let [rows, cols] = steps(size, threads);
            assert!((1..=m).contains(&rows) && cols >= 1, "{size:?}, {threads} threads: {rows}x{cols}");
            let tasks = m.div_ceil(rows) * n.div_ceil(cols);
            assert!(tasks <= 4 * threads.max(2), "{size:?}, {threads} threads: {tasks} tasks");
        }
    }
}
