//! Matrix products by cuBLASLt: bfloat16 (or f32) factors, f32 sums.
//!
//! Products of one kind can be computed at once, each with matrices of its own.
//!
//! Matrices are row-major here and column-major there: what we call C = A·B, cuBLASLt computes as Cᵀ = Bᵀ·Aᵀ.
//! For each kind of product the library's first choice of algorithm is taken and kept: choosing by the clock would
//! make two runs differ in their last bits.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;

use cudarc::cublaslt::{result, sys};

use super::Gpu;
use super::kernel::{Act, kernels};
use super::launch::Shape;
use super::memory::{Dtype, Ptr};
use crate::{Error, Result};

/// A factor: a stored matrix whose rows are `cols` values apart, read as it is or transposed.
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    pub(crate) ptr: Ptr,
    pub(crate) cols: usize,
    pub(crate) transposed: bool,
}

impl Factor {
    pub(crate) fn new(ptr: Ptr, cols: usize) -> Self {
        Self { ptr, cols, transposed: false }
    }

    pub(crate) fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }
}

/// Operation on the result of a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Epilogue {
    Nothing,
    /// Adds the bias of each column.
    Bias,
    /// Adds the bias, then max(0, z).
    BiasRelu,
}

/// C `[m, n]` = A `[m, k]` · B `[k, n]`, or C += A·B.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    pub(crate) size: [usize; 3],
    pub(crate) a: Factor,
    pub(crate) b: Factor,
    pub(crate) c: Ptr,
    /// From one row of C to the next; n, or more.
    pub(crate) c_cols: usize,
    pub(crate) out: Dtype,
    pub(crate) add: bool,
    pub(crate) epilogue: Epilogue,
    pub(crate) bias: Ptr,
}

#[derive(PartialEq, Eq, Hash, Clone, Copy, Debug)]
struct Key {
    size: [usize; 3],
    transposed: [bool; 2],
    /// Stored values per row of A, B and C.
    cols: [usize; 3],
    input: Dtype,
    out: Dtype,
    epilogue: Epilogue,
    /// Products that are computed at once.
    count: usize,
}

/// A product that cuBLASLt is prepared for.
struct Plan {
    description: sys::cublasLtMatmulDesc_t,
    /// A, B and C as cuBLASLt sees them.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// The library's handle, its workspace, and the plans so far.
pub(crate) struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    /// `None`: the library has no product for this.
    plans: Mutex<HashMap<Key, Option<Plan>>>,
}

/// NVIDIA's advice for Hopper.
const WORKSPACE: usize = 32 << 20;

impl Products {
    pub(crate) fn new() -> Result<Self> {
        let handle =
            result::create_handle().map_err(|e| Error::NoGpu(format!("cuBLASLt does not start: {e}")))?;
        // SAFETY: kept for the life of the process; all products run on one stream and can share it.
        let workspace = unsafe { cudarc::driver::result::malloc_sync(WORKSPACE) }
            .map_err(|e| Error::NoGpu(format!("no GPU memory for the products' workspace: {e}")))?;
        Ok(Self { handle, workspace, plans: Mutex::default() })
    }
}

impl Gpu {
    /// Runs a product, in stream order.
    pub(crate) fn product(&self, product: &Product) {
        if !self.ready() || product.size[..2].contains(&0) {
            return;
        }
        let [m, n, k] = product.size;
        let name = || format!("product [{m}, {k}]·[{k}, {n}] {:?}", product.out);
        // A sum without terms is none of the library's.
        let matrices = [product.a.ptr, product.b.ptr, product.c];
        let run = || if k == 0 { Ok(false) } else { self.try_products(product, 1, matrices) };
        match self.timed(name, run) {
            Ok(true) => {}
            Ok(false) => self.plain_product(product),
            Err(error) => {
                let what = format!("product [{m}, {k}]·[{k}, {n}] ({:?})", product.epilogue);
                self.fail(Error::Gpu(format!("{what}: {error}")));
            }
        }
    }

    /// Runs `count` products of the kind of `first` at once, in stream order, if the library [has](Self::has_products) such.
    /// `tables` hold the addresses of their matrices A, B and C.
    pub(crate) fn products(&self, first: &Product, count: usize, tables: [Ptr; 3]) {
        if !self.ready() {
            return;
        }
        let [m, n, k] = first.size;
        let name = || format!("{count} products [{m}, {k}]·[{k}, {n}] {:?}", first.out);
        if let Err(error) = self.timed(name, || self.try_products(first, count, tables)) {
            self.fail(Error::Gpu(format!("{}: {error}", name())));
        }
    }

    /// Returns true if the library computes `count` products of the kind of `first` at once.
    pub(crate) fn has_products(&self, first: &Product, count: usize) -> bool {
        let has_terms = !first.size.contains(&0);
        let key = self.key(first, count);
        let plan = || plan(self.products.handle, &key, first);
        count > 1 && has_terms && self.ready() && self.plans().entry(key).or_insert_with(plan).is_some()
    }

    /// What makes products alike.
    pub(crate) fn kind_of(&self, product: &Product) -> impl std::hash::Hash + Eq + use<> {
        debug_assert_eq!(product.epilogue, Epilogue::Nothing, "a bias belongs to one product");
        (self.key(product, 1), product.add)
    }

    fn plans(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Option<Plan>>> {
        self.products.plans.lock().expect("no product panics")
    }

    fn key(&self, p: &Product, count: usize) -> Key {
        Key {
            size: p.size,
            transposed: [p.a.transposed, p.b.transposed],
            cols: [p.a.cols, p.b.cols, p.c_cols],
            input: self.act(),
            out: p.out,
            epilogue: p.epilogue,
            count,
        }
    }

    /// `false` if the library has no such product. The addresses are those of the matrices of one product, or of tables of
    /// those of several.
    fn try_products(
        &self,
        p: &Product,
        count: usize,
        [a_at, b_at, c_at]: [Ptr; 3],
    ) -> std::result::Result<bool, result::CublasError> {
        let key = self.key(p, count);
        let mut plans = self.plans();
        let Some(plan) = plans.entry(key).or_insert_with(|| plan(self.products.handle, &key, p)) else {
            return Ok(false);
        };
        if p.epilogue != Epilogue::Nothing {
            use sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER as POINTER;
            // SAFETY: the attribute is a pointer; the lock keeps others from changing it before the call below.
            unsafe { attribute(plan.description, POINTER, &p.bias.address()) }?;
        }
        let (alpha, beta) = (1.0f32, f32::from(u8::from(p.add)));
        let [a, b, c] = plan.layouts;
        // SAFETY: the plan was made for these sizes; callers give living blocks of them.
        unsafe {
            result::matmul(
                self.products.handle,
                plan.description,
                std::ptr::from_ref(&alpha).cast(),
                std::ptr::from_ref(&beta).cast(),
                b_at.address() as *const c_void,
                a,
                a_at.address() as *const c_void,
                b,
                c_at.address() as *const c_void,
                c,
                c_at.address() as *mut c_void,
                c,
                &plan.algorithm,
                self.products.workspace as *mut c_void,
                WORKSPACE,
                self.stream().cast(),
            )
        }?;
        Ok(true)
    }

    /// The product by a kernel of our own: slower, for any size.
    fn plain_product(&self, p: &Product) {
        let [m, n, k] = p.size.map(|n| n as u32);
        let strides = |factor: &Factor| {
            let cols = factor.cols as u32;
            if factor.transposed { (1, cols) } else { (cols, 1) }
        };
        let ((a_row, a_step), (b_row, b_step)) = (strides(&p.a), strides(&p.b));
        let bias = if p.epilogue == Epilogue::Nothing { Ptr::NULL } else { p.bias };
        let (c_row, add) = (p.c_cols as u32, u32::from(p.add));
        let relu = u32::from(p.epilogue == Epilogue::BiasRelu);
        let (a, b, c) = (p.a.ptr, p.b.ptr, p.c);
        let blocks = [p.size[1].div_ceil(TILE), p.size[0].div_ceil(TILE)];
        let shape = Shape::grid(blocks, (TILE * TILE) as u32);
        match p.out == self.act() {
            true => {
                let product =
                    ProductAct { a, a_row, a_step, b, b_row, b_step, c, c_row, add, bias, relu, m, n, k };
                self.call(shape, &product);
            }
            false => {
                let product =
                    ProductFloat { a, a_row, a_step, b, b_row, b_step, c, c_row, add, bias, relu, m, n, k };
                self.call(shape, &product);
            }
        }
    }
}

/// Rows and columns of the product that a block computes.
const TILE: usize = 16;

kernels! {
    static FILE = "product" at "product.cu", constants [TILE];

    struct ProductAct = product_act {
        a: *const Act,
        a_row: u32,
        a_step: u32,
        b: *const Act,
        b_row: u32,
        b_step: u32,
        c: *mut Act,
        c_row: u32,
        add: u32,
        bias: *const Act,
        relu: u32,
        m: u32,
        n: u32,
        k: u32,
    }

    struct ProductFloat = product_float {
        a: *const Act,
        a_row: u32,
        a_step: u32,
        b: *const Act,
        b_row: u32,
        b_step: u32,
        c: *mut f32,
        c_row: u32,
        add: u32,
        bias: *const Act,
        relu: u32,
        m: u32,
        n: u32,
        k: u32,
    }
}

/// # Safety
///
/// `T` must be the type of `which`.
unsafe fn attribute<T>(
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
fn plan(handle: sys::cublasLtHandle_t, key: &Key, p: &Product) -> Option<Plan> {
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
    let preference = result::create_matmul_pref()?;
    use sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as LIMIT;
    // SAFETY: the attribute is a 64-bit number; all objects are alive.
    let found = unsafe {
        result::set_matmul_pref_attribute(
            preference,
            LIMIT,
            std::ptr::from_ref(&(WORKSPACE as u64)).cast(),
            8,
        )?;
        result::get_matmul_algo_heuristic(
            handle,
            description,
            layouts[0],
            layouts[1],
            layouts[2],
            layouts[2],
            preference,
        )
    };
    // SAFETY: not used after this.
    unsafe { result::destroy_matmul_pref(preference) }?;
    Ok(Plan { description, layouts, algorithm: found?.algo })
}
