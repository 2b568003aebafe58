//! Every kernel of this machine against sums one after the other, to the bit.

use super::parts::{PANEL_TASKS_PER_THREAD, of_each, steps};
use super::*;
use crate::Rng;

pub(super) fn random(seed: u64, len: usize) -> Vec<f32> {
    let stream = Rng::new(seed, 0).stream(0);
    (0..len as u32).map(|i| stream.normal(i, 0)).collect()
}

fn sized(size: f32, values: &[f32]) -> Vec<f32> {
    values.iter().map(|value| value * size).collect()
}

fn panels<W: Number>(values: &[f32], shape: [usize; 2]) -> Panels<W> {
    let mut panels = Panels::zeros(shape);
    panels.set(0, values);
    panels
}

/// Weights of this size.
pub(super) fn check<W: Number>(size: f32) {
    let few = [[1, 1, 1], [1, 6, 512], [1, 300, 70], [2, 330, 19], [3, 200, 41]];
    let many = [[5, 67, 15], [7, 64, 16], [13, 131, 70], [31, 50, 33]];
    for [m, n, k] in few.into_iter().chain(many) {
        let (x, panels) = (random(1, m * k), panels::<W>(&sized(size, &random(2, n * k)), [n, k]));
        let mut want = Vec::new();
        for x in x.chunks_exact(k) {
            for row in 0..n {
                let mut w = vec![0.0; k];
                panels.row(row, &mut w);
                want.push(x.iter().zip(&w).fold(0f32, |sum, (x, w)| x.mul_add(*w, sum)));
            }
        }
        for (name, kernel) in kernel::kernels() {
            let mut y = vec![f32::NAN; m * n];
            panels.product_by(kernel, m, &x, &mut y);
            assert_eq!(y, want, "{name}, {m}x{n}x{k}");
        }
    }
}

#[test]
fn all_kernels_give_the_same_bits() {
    check::<f32>(1.0);
    check::<Half>(1.0);
}

/// Matrices of several sizes at once, by one thread and by several: the products of each alone.
pub(super) fn check_at_once<W: Number, V: Number>() {
    let k = 130;
    for [m, first, second] in [[1, 64, 64], [1, 300, 600], [5, 200, 70], [40, 1, 300], [67, 512, 129]] {
        let x = random(1, m * k);
        let one = panels::<W>(&random(2, first * k), [first, k]);
        let other = panels::<V>(&sized(1e6, &random(3, second * k)), [second, k]);
        let [mut want, mut want_other] = [first, second].map(|n| vec![0.0; m * n]);
        one.product(m, &x, &mut want);
        other.product(m, &x, &mut want_other);
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let [mut y, mut z] = [first, second].map(|n| vec![f32::NAN; m * n]);
            pool.install(|| Panels::products((&one, &other), m, [&x, &x], [&mut y, &mut z], || {}));
            assert!(y == want && z == want_other, "{m} rows, {first} and {second}, {threads} threads");
        }
    }
}

#[test]
fn products_at_once_are_those_of_each() {
    check_at_once::<f32, f32>();
    check_at_once::<Half, Half>();
    let of = |range| of_each([3, 0, 2], range).collect::<Vec<_>>();
    assert_eq!(of(0..5), [(0, 0..3), (2, 0..2)]);
    assert_eq!(of(2..4), [(0, 2..3), (2, 0..1)]);
    assert_eq!(of(3..3), []);
}

#[test]
fn numbers_come_back() {
    let (n, k) = (70, 9);
    let values = random(3, n * k);
    let (exact, halves) = (panels::<f32>(&values, [n, k]), panels::<Half>(&values, [n, k]));
    for (row, values) in values.chunks_exact(k).enumerate() {
        let (mut f32s, mut rounded) = (vec![0.0; k], vec![0.0; k]);
        exact.row(row, &mut f32s);
        halves.row(row, &mut rounded);
        assert_eq!(f32s, values);
        assert!(values.iter().zip(&rounded).all(|(v, r)| (v - r).abs() <= v.abs() / 256.0));
    }
}

#[test]
fn a_row_depends_neither_on_other_rows_nor_on_the_threads() {
    let [m, n, k] = [61, 200, 272];
    let (x, panels) = (random(3, m * k), panels::<f32>(&random(4, n * k), [n, k]));
    let mut whole = vec![0.0; m * n];
    panels.product(m, &x, &mut whole);
    for rows in [0..1, 3..8, 10..60] {
        let mut part = vec![0.0; rows.len() * n];
        panels.product(rows.len(), &x[rows.start * k..rows.end * k], &mut part);
        assert_eq!(part, whole[rows.start * n..rows.end * n], "{rows:?}");
    }
    for threads in [1, 3, 16] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut other = vec![0.0; m * n];
        pool.install(|| panels.product(m, &x, &mut other));
        assert_eq!(other, whole, "{threads} threads");
    }
}

#[test]
fn tasks_cover_all_rows_and_panels() {
    for size @ [m, panels] in [[1, 8], [160, 8], [4096, 8], [5, 104], [600, 1]] {
        for threads in [2, 16, 64] {
            let [rows, step] = steps(size, threads);
            assert!((1..=m).contains(&rows) && step >= 1, "{size:?}, {threads} threads: {rows}x{step}");
            let tasks = m.div_ceil(rows) * panels.div_ceil(step);
            assert!(tasks <= PANEL_TASKS_PER_THREAD * threads, "{size:?}, {threads} threads: {tasks} tasks");
        }
    }
}
