//! How cuBLASLt computes a kind of product: its description, and the algorithms that may be taken.

use std::mem::MaybeUninit;

use cudarc::cublaslt::{result, sys};

use super::{Epilogue, Product, WORKSPACE};
use crate::cuda::memory::Dtype;

/// What makes products alike.
#[derive(PartialEq, Eq, Hash, Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) size: [usize; 3],
    pub(super) transposed: [bool; 2],
    /// Stored values per row of A, B and C.
    pub(super) cols: [usize; 3],
    pub(super) input: Dtype,
    pub(super) out: Dtype,
    pub(super) epilogue: Epilogue,
    /// Products that are computed at once.
    pub(super) count: usize,
}

/// A product that cuBLASLt is prepared for.
pub(super) struct Plan {
    pub(super) description: sys::cublasLtMatmulDesc_t,
    /// A, B and C as cuBLASLt sees them.
    pub(super) layouts: [sys::cublasLtMatrixLayout_t; 3],
    pub(super) algorithm: Algorithm,
    /// Others that give the same bits; none once an algorithm has been chosen.
    pub(super) others: Vec<Algorithm>,
}

/// One of the library's algorithms.
#[derive(Clone, Copy)]
pub(super) struct Algorithm {
    pub(super) handle: sys::cublasLtMatmulAlgo_t,
    pub(super) traits: Traits,
}

/// Tiles, stages and the like, by which an algorithm is known again in the list of another product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Traits {
    /// Parts into which the sum over k is cut, which are added up at the end.
    parts: u32,
    rest: [u32; 8],
}

/// Algorithms that the library is asked for.
const MOST_ALGORITHMS: usize = 8;

/// # Safety
///
/// `T` must be the type of `which`.
pub(super) unsafe fn attribute<T>(
    description: sys::cublasLtMatmulDesc_t,
    which: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> std::result::Result<(), result::CublasError> {
    // SAFETY: the caller's promise.
    unsafe {
        result::set_matmul_desc_attribute(
            description,
            which,
            std::ptr::from_ref(value).cast(),
            size_of::<T>(),
        )
    }
}

/// # Safety
///
/// `which` must be a 32-bit number.
unsafe fn layout_attribute(
    layout: sys::cublasLtMatrixLayout_t,
    which: sys::cublasLtMatrixLayoutAttribute_t,
    value: i32,
) -> std::result::Result<(), result::CublasError> {
    // SAFETY: the layout is alive; the caller's promise.
    unsafe { result::set_matrix_layout_attribute(layout, which, std::ptr::from_ref(&value).cast(), 4) }
}

/// `None` if the library has no such product.
pub(super) fn plan(handle: sys::cublasLtHandle_t, key: &Key, p: &Product) -> Option<Plan> {
    try_plan(handle, key, p).ok()
}

fn try_plan(
    handle: sys::cublasLtHandle_t,
    key: &Key,
    p: &Product,
) -> std::result::Result<Plan, result::CublasError> {
    use sys::cublasLtEpilogue_t as E;
    use sys::cublasLtMatmulDescAttributes_t as Attribute;
    let kind = |dtype: Dtype| match dtype {
        Dtype::F32 => sys::cudaDataType_t::CUDA_R_32F,
        Dtype::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
    };
    let [m, n, k] = key.size;
    let description = result::create_matmul_desc(
        sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        sys::cudaDataType_t::CUDA_R_32F,
    )?;
    let flag = |transposed: bool| i32::from(transposed);
    let epilogue = match key.epilogue {
        Epilogue::Nothing => E::CUBLASLT_EPILOGUE_DEFAULT,
        Epilogue::Bias => E::CUBLASLT_EPILOGUE_BIAS,
        Epilogue::BiasRelu => E::CUBLASLT_EPILOGUE_RELU_BIAS,
    };
    // SAFETY: each attribute gets a value of its type: i32 operations, the epilogue, a data type.
    unsafe {
        attribute(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &flag(key.transposed[1]))?;
        attribute(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &flag(key.transposed[0]))?;
        attribute(description, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        if key.epilogue != Epilogue::Nothing {
            attribute(description, Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &(kind(key.out) as i32))?;
            // Some algorithms ask that the pointer be aligned: let the choice see it.
            attribute(description, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias.address())?;
        }
    }
    let stored = |dtype: Dtype, [rows, cols]: [usize; 2], pitch: usize| {
        result::create_matrix_layout(kind(dtype), cols as u64, rows as u64, pitch as i64)
    };
    let shape =
        |transposed: bool, rows: usize, cols: usize| if transposed { [cols, rows] } else { [rows, cols] };
    let b = shape(key.transposed[1], k, n);
    let a = shape(key.transposed[0], m, k);
    let [a_cols, b_cols, c_cols] = key.cols;
    debug_assert!(a[1] <= a_cols && b[1] <= b_cols && n <= c_cols, "rows are as long as the product names");
    let layouts =
        [stored(key.input, b, b_cols)?, stored(key.input, a, a_cols)?, stored(key.out, [m, n], c_cols)?];
    if key.count > 1 {
        use sys::cublasLtBatchMode_t::CUBLASLT_BATCH_MODE_POINTER_ARRAY as TABLES;
        use sys::cublasLtMatrixLayoutAttribute_t as Layout;
        for layout in layouts {
            // SAFETY: the attributes are 32-bit numbers.
            unsafe {
                layout_attribute(layout, Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, key.count as i32)?;
                layout_attribute(layout, Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, TABLES as i32)?;
            }
        }
    }
    let all = algorithms(handle, description, layouts)?;
    let (&algorithm, others) = all.split_first().ok_or(NOT_SUPPORTED)?;
    // Sums in f32 are made by kernels that may cut them in ways of their own.
    let alike = |other: &&Algorithm| {
        key.input == Dtype::Bf16 && algorithm.traits.parts <= 1 && other.traits.parts <= 1
    };
    let others = others.iter().filter(alike).copied().collect();
    Ok(Plan { description, layouts, algorithm, others })
}

const NOT_SUPPORTED: result::CublasError =
    result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED);

/// The algorithms that the library proposes, its first choice first.
fn algorithms(
    handle: sys::cublasLtHandle_t,
    description: sys::cublasLtMatmulDesc_t,
    [a, b, c]: [sys::cublasLtMatrixLayout_t; 3],
) -> std::result::Result<Vec<Algorithm>, result::CublasError> {
    use sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as LIMIT;
    let preference = result::create_matmul_pref()?;
    let mut found: [MaybeUninit<sys::cublasLtMatmulHeuristicResult_t>; MOST_ALGORITHMS] =
        [const { MaybeUninit::uninit() }; MOST_ALGORITHMS];
    let mut count = 0;
    // SAFETY: the attribute is a 64-bit number; all objects are alive; there is room for as many as are asked for. The
    // preference is not used after this.
    let asked = unsafe {
        let limit = WORKSPACE as u64;
        result::set_matmul_pref_attribute(preference, LIMIT, std::ptr::from_ref(&limit).cast(), 8)?;
        let (most, list) = (MOST_ALGORITHMS as i32, found.as_mut_ptr().cast());
        let asked = sys::cublasLtMatmulAlgoGetHeuristic(
            handle,
            description,
            a,
            b,
            c,
            c,
            preference,
            most,
            list,
            &mut count,
        );
        result::destroy_matmul_pref(preference)?;
        asked
    };
    asked.result()?;
    let found = &found[..(count as usize).min(MOST_ALGORITHMS)];
    // SAFETY: the library has filled in so many.
    let found = found.iter().map(|one| unsafe { one.assume_init_ref() });
    Ok(found
        .filter(|one| one.state.result().is_ok())
        .map(|one| Algorithm { handle: one.algo, traits: traits(&one.algo) })
        .collect())
}

fn traits(algorithm: &sys::cublasLtMatmulAlgo_t) -> Traits {
    use sys::cublasLtMatmulAlgoConfigAttributes_t as Attribute;
    // What an algorithm does not have stays 0.
    let value = |which: Attribute, bytes: usize| {
        let (mut value, mut written) = (0u32, 0);
        let to = std::ptr::from_mut(&mut value).cast();
        // SAFETY: the attribute has so many bytes, four at most; all are alive. A failure leaves the value alone.
        let _ =
            unsafe { sys::cublasLtMatmulAlgoConfigGetAttribute(algorithm, which, to, bytes, &mut written) };
        value
    };
    Traits {
        parts: value(Attribute::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4),
        rest: [
            value(Attribute::CUBLASLT_ALGO_CONFIG_ID, 4),
            value(Attribute::CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
            value(Attribute::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
            value(Attribute::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4),
            value(Attribute::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
            value(Attribute::CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
            value(Attribute::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
            value(Attribute::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2),
        ],
    }
}
