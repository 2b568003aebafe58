//! Speed of matrix products at the sizes of translation models: the kernel in use against the portable one.
//!
//! The kernel is chosen once per process, so this runs itself a second time with `MAE_CPU_GEMM=portable`.

use mae_engine::cpu::gemm::{Into, Mat, Precision, gemm, kernel_name};
use std::process::Command;
use std::time::{Duration, Instant};

const SIZES: [(&str, [usize; 3]); 21] = [
    ("X·Wᵀ", [2048, 512, 512]),
    ("X·Wᵀ", [2048, 1024, 512]),
    ("X·Wᵀ", [2048, 1536, 512]),
    ("X·Wᵀ", [2048, 2048, 512]),
    ("X·Wᵀ", [4096, 2048, 512]),
    ("X·Wᵀ", [2048, 512, 1024]),
    ("X·Wᵀ", [512, 10000, 512]),
    ("X·Wᵀ", [2048, 6632, 512]),
    ("X·Wᵀ", [2048, 8848, 512]),
    ("X·Wᵀ", [2048, 32768, 512]),
    ("dY·W", [2048, 512, 512]),
    ("dY·W", [2048, 512, 2048]),
    ("dY·W", [2048, 512, 8848]),
    ("dYᵀ·X", [512, 512, 2048]),
    ("dYᵀ·X", [2048, 512, 2048]),
    ("dYᵀ·X", [8848, 512, 2048]),
    ("X·Wᵀ", [1000, 256, 256]),
    ("X·Wᵀ", [1000, 768, 256]),
    ("dY·W", [1000, 256, 768]),
    ("dYᵀ·X", [256, 256, 1000]),
    ("dYᵀ·X", [512, 256, 1000]),
];

/// Best GFLOP/s at full precision and at that of training, of the repeats that fit in a fixed time.
fn measure(kind: &str, [m, n, k]: [usize; 3]) -> [f64; 2] {
    let fill = |len: usize| (0..len).map(|i| (i % 127) as f32 / 63.0 - 1.0).collect::<Vec<f32>>();
    let (a, b, mut c) = (fill(m * k), fill(k * n), vec![0.0; m * n]);
    let a = if kind == "dYᵀ·X" { Mat::new(&a, m).t() } else { Mat::new(&a, k) };
    let b = if kind == "X·Wᵀ" { Mat::new(&b, k).t() } else { Mat::new(&b, n) };
    let (start, mut best) = (Instant::now(), [Duration::MAX; 2]);
    // In turns, so that both meet the same disturbances.
    while start.elapsed() < Duration::from_millis(800) {
        for (best, precision) in best.iter_mut().zip([Precision::Full, Precision::Training]) {
            let call = Instant::now();
            gemm([m, n, k], a, b, &mut c, Into::Overwrite, precision);
            *best = call.elapsed().min(*best);
        }
    }
    best.map(|best| 2.0 * (m * n * k) as f64 / best.as_secs_f64() / 1e9)
}

fn main() {
    let measured: Vec<_> = SIZES.iter().map(|&(kind, size)| measure(kind, size)).collect();
    if std::env::var_os("MAE_GEMM_BENCH_CHILD").is_some() {
        measured.iter().for_each(|[full, _]| println!("{full}"));
        return;
    }
    let mut portable = Command::new(std::env::current_exe().expect("the path of this benchmark"));
    portable.env("MAE_CPU_GEMM", "portable").env("MAE_GEMM_BENCH_CHILD", "1");
    let portable = portable.output().expect("run this benchmark again").stdout;
    let portable = String::from_utf8(portable).expect("numbers");
    println!("GFLOP/s of {} at both precisions, and of portable", kernel_name());
    println!("{:8}{:>6}{:>7}{:>6}{:>12}{:>12}{:>12}", "", "m", "n", "k", "full", "training", "portable");
    for (((kind, [m, n, k]), [full, training]), portable) in SIZES.iter().zip(measured).zip(portable.lines())
    {
        let portable: f64 = portable.parse().expect("a number");
        println!("{kind:8}{m:>6}{n:>7}{k:>6}{full:>12.0}{training:>12.0}{portable:>12.0}");
    }
}
