//! Bits of products: those of every algorithm that may be chosen are those of the library's first choice.

use std::sync::Arc;

use super::plan::plan;
use super::{Epilogue, Factor, Product};
use crate::cuda::Gpu;
use crate::cuda::memory::{Block, Dtype, Ptr};
use crate::suite::{Case, Outcome, Quantity, Tolerance, random};
use crate::{Device, Error, Numbers, Tensor};

pub(crate) fn cases() -> Vec<Case> {
    // Products of layers, of their gradients and of the vocabulary; sums of few terms and of many; none of even sizes.
    let sizes = [
        [96, 64, 512],
        [640, 1_536, 512],
        [1_024, 4_096, 1_024],
        [512, 2_048, 24_832],
        [3_328, 6_632, 512],
        [3_331, 1_037, 515],
    ];
    sizes.into_iter().flat_map(|size| KINDS.map(|kind| case(size, kind))).collect()
}

/// Whether A and B are stored transposed, the type of C, what is done to it, and whether it is added to.
type Kind = ([bool; 2], Dtype, Epilogue, bool);
const KINDS: [Kind; 5] = [
    ([false, true], Dtype::Bf16, Epilogue::Bias, false),
    ([false, true], Dtype::Bf16, Epilogue::BiasRelu, false),
    ([false, false], Dtype::Bf16, Epilogue::Nothing, false),
    ([false, false], Dtype::Bf16, Epilogue::Nothing, true),
    ([true, false], Dtype::F32, Epilogue::Nothing, false),
];

/// Terms from which on a product takes a sanitizer long.
const LARGE: usize = 1 << 29;

fn case(size: [usize; 3], kind: Kind) -> Case {
    let ([m, n, k], (transposed, out, epilogue, add)) = (size, kind);
    let what =
        format!("[{m}, {k}]·[{k}, {n}], transposed {transposed:?}, {out:?}, {epilogue:?}, added {add}");
    // Nothing may differ.
    let mut case = Case::new("product", what, Tolerance::new(0.0, 0.0), move |device, numbers| {
        let differing = device.gpu().map_or(0.0, |gpu| differing(device, gpu, numbers, size, kind) as f32);
        Outcome::from([Quantity::value("wrong values", 1, vec![differing])])
    });
    case.large = m * n * k > LARGE;
    // In f32 nothing is chosen.
    case.only(Some(Numbers::Bf16))
}

/// Values of the product that some algorithm computes otherwise than the first.
fn differing(device: &Device, gpu: &Arc<Gpu>, numbers: Numbers, [m, n, k]: [usize; 3], kind: Kind) -> usize {
    let ([a_transposed, b_transposed], out, epilogue, add) = kind;
    let stored = |stream: u32, rows: usize, cols: usize| {
        let (floats, values) = (random(numbers, stream, rows * cols), device.scratch(rows * cols));
        let floats = Tensor::from_host(device, [rows, cols], &floats);
        crate::optim::cuda::to_act(gpu, floats.ptr(), values.ptr(), rows * cols);
        values
    };
    let shape =
        |transposed: bool, rows: usize, cols: usize| if transposed { [cols, rows] } else { [rows, cols] };
    let ([a_rows, a_cols], [b_rows, b_cols]) = (shape(a_transposed, m, k), shape(b_transposed, k, n));
    let (a, b, bias) = (stored(0, a_rows, a_cols), stored(1, b_rows, b_cols), stored(2, 1, n));
    let factor = |ptr: Ptr, cols: usize, transposed: bool| Factor { ptr, cols, transposed };
    let c = Block::new(gpu, m * n * out.size());
    let product = Product {
        size: [m, n, k],
        a: factor(a.ptr(), a_cols, a_transposed),
        b: factor(b.ptr(), b_cols, b_transposed),
        c: c.ptr(),
        c_cols: n,
        out,
        add,
        epilogue,
        bias: bias.ptr(),
    };
    let results = results_of_all(gpu, &product, &c);
    results.iter().skip(1).map(|other| results[0].iter().zip(other).filter(|(a, b)| a != b).count()).sum()
}

/// The bits of the product by every algorithm that may be chosen, the library's first choice first.
fn results_of_all(gpu: &Gpu, product: &Product, c: &Block) -> Vec<Vec<u16>> {
    let Some(plan) = plan(gpu.products.handle, &gpu.key(product, 1), product) else { return Vec::new() };
    let result = |algorithm| {
        c.clear();
        let matrices = [product.a.ptr, product.b.ptr, product.c];
        if let Err(error) = gpu.launch(&plan, algorithm, product.add, matrices) {
            gpu.fail(Error::Gpu(format!("an algorithm of a product: {error}")));
        }
        let mut bits = vec![0u16; product.size[0] * product.size[1] * product.out.size() / 2];
        c.read(0, &mut bits);
        bits
    };
    plan.algorithms().map(result).collect()
}
