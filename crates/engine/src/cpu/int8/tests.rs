//! Every kernel of this machine against sums of whole numbers, and products against those of numbers.

use super::*;
use crate::Rng;

fn random(seed: u64, len: usize) -> Vec<f32> {
    let stream = Rng::new(seed, 0).stream(0);
    (0..len as u32).map(|i| stream.normal(i, 0)).collect()
}

fn matrix(values: &[f32], shape: [usize; 2]) -> Int8Matrix {
    matrix_for(fastest(), values, shape)
}

/// A matrix as a kernel reads it.
fn matrix_for(kernel: Kernel, values: &[f32], shape: [usize; 2]) -> Int8Matrix {
    let mut matrix = Int8Matrix::zeros_as(kernel.layout, shape);
    matrix.set(0, values);
    matrix
}

/// Whole numbers of a row.
fn rounded(row: &[f32]) -> (Vec<i32>, f32) {
    let mut whole = vec![0; row.len()];
    let scale = quantise_row(row, &mut whole);
    (whole.into_iter().map(i32::from).collect(), scale)
}

#[test]
fn all_kernels_give_the_same_whole_numbers() {
    let few = [[1, 1, 1], [5, 67, 15], [7, 64, 64], [13, 131, 70], [3, 6, 512], [2, 65, 1024]];
    let many = [[16, 64, 64], [33, 130, 200], [24, 100, 3]];
    for [m, n, k] in few.into_iter().chain(many) {
        let (x, w) = (random(1, m * k), random(2, n * k));
        let mut want = Vec::new();
        for x in x.chunks_exact(k) {
            let (x, x_scale) = rounded(x);
            for w in w.chunks_exact(k) {
                let (w, w_scale) = rounded(w);
                let sum: i32 = x.iter().zip(&w).map(|(x, w)| x * w).sum();
                want.push(sum as f32 * (x_scale * w_scale));
            }
        }
        for kernel in kernels() {
            let (matrix, mut y) = (matrix_for(kernel, &w, [n, k]), vec![f32::NAN; m * n]);
            Int8Matrix::products([&matrix], &Rounded::by(kernel, [m, k], &x), [&mut y], || {});
            assert_eq!(y, want, "{}, {m}x{n}x{k}", kernel.name);
        }
    }
}

/// Numbers of 4 bits: those of all kernels and numbers of rows are sums of whole numbers from −7 to 7.
#[test]
fn coarse_numbers_give_the_same_sums_in_both_sizes() {
    for [m, n, k] in [[1, 1, 1], [5, 67, 15], [6, 256, 512], [3, 64, 64], [13, 131, 70], [33, 130, 200]] {
        let (x, w) = (random(1, m * k), random(2, n * k));
        let matrix = Int8Matrix::coarse([n, k], &w);
        assert_eq!(2 * matrix.nibbles.len(), matrix.lines.len());
        let mut want = Vec::new();
        for x in x.chunks_exact(k) {
            let (x, x_scale) = rounded(x);
            for (row, w) in w.chunks_exact(k).enumerate() {
                let largest = w.iter().fold(0f32, |largest, w| largest.max(w.abs()));
                let whole = w.iter().map(|w| (w * 7.0 / largest).round() as i32);
                let sum: i32 = x.iter().zip(whole).map(|(x, w)| x * 16 * w).sum();
                assert!((matrix.scales[row] * 16.0 * 7.0 - largest).abs() < 1e-6 * largest);
                want.push(sum as f32 * (x_scale * matrix.scales[row]));
            }
        }
        for kernel in kernels() {
            let (matrix, mut y) = (Int8Matrix::coarse_as(kernel.layout, [n, k], &w), vec![f32::NAN; m * n]);
            Int8Matrix::products([&matrix], &Rounded::by(kernel, [m, k], &x), [&mut y], || {});
            assert_eq!(y, want, "{}, {m}x{n}x{k}", kernel.name);
        }
    }
}

#[test]
fn coarse_rows_of_zeros_are_zeros_and_others_stay_visible() {
    let matrix =
        Int8Matrix::coarse([3, 4], &[0.0, 0.0, 0.0, 0.0, 1.0, f32::NAN, 1.0, 1.0, 1.0, -1.0, 0.0, 0.05]);
    let mut y = [0.0; 3];
    matrix.product(1, &[1.0; 4], &mut y);
    assert!(y[0] == 0.0 && y[1].is_nan() && y[2].abs() < 1e-6, "{y:?}");
}

/// Matrices of several sizes at once, by one thread and by several: the products of each alone.
#[test]
fn products_at_once_are_those_of_each() {
    let k = 130;
    for [m, first, second] in [[1, 64, 64], [5, 200, 70], [40, 1, 300], [67, 512, 129]] {
        let x = random(1, m * k);
        let one = matrix(&random(2, first * k), [first, k]);
        let other = Int8Matrix::coarse([second, k], &random(3, second * k));
        let [mut want, mut want_other] = [first, second].map(|n| vec![0.0; m * n]);
        one.product(m, &x, &mut want);
        other.product(m, &x, &mut want_other);
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let [mut y, mut z] = [first, second].map(|n| vec![f32::NAN; m * n]);
            let x = Rounded::new([m, k], &x);
            pool.install(|| Int8Matrix::products([&one, &other], &x, [&mut y, &mut z], || {}));
            assert!(y == want && z == want_other, "{m} rows, {first} and {second}, {threads} threads");
        }
    }
}

/// The largest values of either sign everywhere: sums of pairs reach 32,258 of the 32,767 that 16 bits hold.
#[test]
fn nothing_saturates() {
    let (n, k) = (66, 4096);
    for (x_sign, w_sign) in [(1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0)] {
        for (m, kernel) in [1, 17].into_iter().flat_map(|m| kernels().into_iter().map(move |k| (m, k))) {
            let (matrix, mut y) = (matrix_for(kernel, &vec![w_sign; n * k], [n, k]), vec![0.0; m * n]);
            let x = Rounded::by(kernel, [m, k], &vec![x_sign * 2.0; m * k]);
            Int8Matrix::products([&matrix], &x, [&mut y], || {});
            let want = (127 * 127 * k) as f32 * x_sign * w_sign * ((2.0 / 127.0) * (1.0 / 127.0));
            assert_eq!(y, vec![want; m * n], "{}, {m} rows", kernel.name);
        }
    }
}

#[test]
fn products_are_near_those_of_numbers() {
    let [m, n, k] = [9, 100, 512];
    let (x, w) = (random(5, m * k), random(6, n * k));
    let mut y = vec![0.0; m * n];
    matrix(&w, [n, k]).product(m, &x, &mut y);
    for (i, y) in y.iter().enumerate() {
        let (x, w) = (&x[i / n * k..][..k], &w[i % n * k..][..k]);
        let exact: f32 = x.iter().zip(w).map(|(x, w)| x * w).sum();
        // Each of 512 products of normal numbers is off by 1 % or so.
        assert!((y - exact).abs() < 1.5, "{i}: {y} for {exact}");
    }
}

#[test]
fn a_row_depends_neither_on_other_rows_nor_on_the_threads() {
    let [m, n, k] = [61, 200, 272];
    let (x, matrix) = (random(3, m * k), matrix(&random(4, n * k), [n, k]));
    let mut whole = vec![0.0; m * n];
    matrix.product(m, &x, &mut whole);
    for rows in [0..1, 3..8, 10..60] {
        let mut part = vec![0.0; rows.len() * n];
        matrix.product(rows.len(), &x[rows.start * k..rows.end * k], &mut part);
        assert_eq!(part, whole[rows.start * n..rows.end * n], "{rows:?}");
    }
    for threads in [1, 3, 16] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut other = vec![0.0; m * n];
        pool.install(|| matrix.product(m, &x, &mut other));
        assert_eq!(other, whole, "{threads} threads");
    }
}

#[test]
fn rows_come_back_as_they_were_rounded() {
    let (n, k) = (70, 30);
    let values = random(7, n * k);
    let first = matrix(&values, [n, k]);
    let mut second = Int8Matrix::zeros([n, k]);
    for row in 0..n {
        let (mut whole, mut back) = (vec![0; k], vec![0.0; k]);
        let scale = first.rounded(row, &mut whole);
        second.set_rounded(row, &whole, &[scale]);
        second.row(row, &mut back);
        for (back, value) in back.iter().zip(&values[row * k..]) {
            assert!((back - value).abs() <= 0.501 * scale, "row {row}: {back} for {value}");
        }
    }
}

#[test]
fn what_is_not_finite_stays_visible() {
    let matrix = matrix(&[1.0; 20], [1, 20]);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in [0, 19] {
            let mut x = vec![1.0; 20];
            x[place] = bad;
            let mut y = [0.0];
            matrix.product(1, &x, &mut y);
            assert!(y[0].is_nan(), "{bad} at {place} gives {}", y[0]);
        }
    }
    let mut y = [1.0];
    matrix.product(1, &[0.0; 20], &mut y);
    assert_eq!(y, [0.0]);
}
