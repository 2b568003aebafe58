//! Rates of a machine, measured: copies and products of the GPU, products of the CPU.

use std::time::{Duration, Instant};

use cudarc::driver::result;

use super::values::random;
use crate::cpu::gemm::{Into, Mat, Precision, gemm};
use crate::cuda::Gpu;
use crate::cuda::memory::{Block, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::cuda::transfer::Event;
use crate::device::{Device, Numbers};
use crate::{Error, GroupId, ParamsBuilder, Result, Tape};

/// Times that something is done between two marks.
const REPEATS: usize = 10;

/// Bytes that a copy moves at most.
const COPIED: usize = 4 << 30;

/// Bytes per second, read and written, of copies on a GPU.
pub fn copies(device: &Device) -> Result<f64> {
    let gpu = super::on(device)?;
    let bytes = COPIED.min(free_memory(gpu)? / 4);
    let (from, to) = (Block::new(gpu, bytes), Block::new(gpu, bytes));
    from.clear();
    let seconds = time(gpu, || gpu.copy(from.ptr(), to.ptr(), bytes))?;
    Ok(2.0 * bytes as f64 / seconds)
}

/// Operations per second of square products on a GPU, in its number type, and their size.
pub fn products(device: &Device) -> Result<(usize, f64)> {
    let gpu = super::on(device)?;
    let fitting = (free_memory(gpu)? / (6 * gpu.act().size())).isqrt();
    let n = [8_192, 4_096, 2_048, 1_024].into_iter().find(|n| *n <= fitting).unwrap_or(512);
    let factor = random(Numbers::Bf16, 0, n * n);
    let [a, b, c] = std::array::from_fn(|_| device.scratch(n * n));
    // Zeros would take less power and run faster than what is really multiplied.
    let floats = crate::Tensor::from_host(device, [n, n], &factor);
    for target in [&a, &b] {
        crate::optim::cuda::to_act(gpu, floats.ptr(), target.ptr(), n * n);
    }
    let product = Product {
        size: [n, n, n],
        a: Factor::new(a.ptr(), n),
        b: Factor::new(b.ptr(), n).t(),
        c: c.ptr(),
        c_cols: n,
        out: gpu.act(),
        add: false,
        epilogue: Epilogue::Nothing,
        bias: Ptr::NULL,
    };
    let seconds = time(gpu, || gpu.product(&product))?;
    Ok((n, 2.0 * (n as f64).powi(3) / seconds))
}

/// ‖gpu − cpu‖/‖cpu‖ of a product.
pub fn product_error(device: &Device, numbers: Numbers) -> Result<f64> {
    const SIZE: [usize; 3] = [515, 1_000, 512];
    let run = |device: &Device| -> Result<Vec<f32>> {
        let [rows, cols, inner] = SIZE;
        let mut builder = ParamsBuilder::default();
        let x = builder.matrix("x".into(), [rows, inner], GroupId(0));
        let weight = builder.matrix("weight".into(), [cols, inner], GroupId(0));
        let mut params = builder.finish(device);
        params.set("x", &random(numbers, 0, rows * inner))?;
        params.set("weight", &random(numbers, 1, cols * inner))?;
        let mut tape = Tape::evaluation(&params);
        let x = tape.parameter(x);
        let product = tape.logits(&x, weight, None).to_host();
        device.check().map(|()| product)
    };
    let (want, got) = (run(&Device::cpu())?, run(device)?);
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let error = norm(&mut want.iter().zip(&got).map(|(w, g)| f64::from(*w) - f64::from(*g)));
    Ok(error / norm(&mut want.iter().map(|w| f64::from(*w))))
}

/// Operations per second of products on the CPU, at the precision of training.
pub fn cpu_products() -> f64 {
    let n = 1_024;
    let (a, b, mut c) = (random(Numbers::F32, 0, n * n), random(Numbers::F32, 1, n * n), vec![0.0; n * n]);
    let (start, mut best) = (Instant::now(), Duration::MAX);
    while start.elapsed() < Duration::from_millis(400) {
        let call = Instant::now();
        gemm([n; 3], Mat::new(&a, n), Mat::new(&b, n).t(), &mut c, Into::Overwrite, Precision::Training);
        best = best.min(call.elapsed());
    }
    2.0 * (n as f64).powi(3) / best.as_secs_f64()
}

fn free_memory(gpu: &Gpu) -> Result<usize> {
    gpu.ready();
    result::mem_get_info().map(|(free, _)| free).map_err(Error::driver("asking for free memory"))
}

/// Seconds of one `work`, by the device's own clock.
fn time(gpu: &Gpu, work: impl Fn()) -> Result<f64> {
    work();
    let (begin, end) = (Event::new()?, Event::new()?);
    begin.record(gpu.stream())?;
    (0..REPEATS).for_each(|_| work());
    end.record(gpu.stream())?;
    end.wait()?;
    gpu.check()?;
    Ok(f64::from(begin.milliseconds_to(&end)) / 1e3 / REPEATS as f64)
}
