//! Matrix products by cuBLASLt: bfloat16 (or f32) factors, f32 sums.
//!
//! Products of one kind can be computed at once, each with matrices of its own.
//!
//! Matrices are row-major here and column-major there: what we call C = A·B, cuBLASLt computes as Cᵀ = Bᵀ·Aᵀ.
//! Which of the library's algorithms computes a product is chosen by the clock, among those that give the same bits.
//!
//! | room | what is in it |
//! |---|---|
//! | `plan` | a kind of product as the library knows it, and its algorithms |
//! | `choice` | which of them is taken |
//! | `plain` | a kernel of our own, for what the library does not have |

mod choice;
pub(crate) mod plain;
mod plan;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;

use cudarc::cublaslt::{result, sys};

use self::choice::Choices;
use self::plan::{Algorithm, Key, Plan, attribute, plan};
use super::Gpu;
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

/// The library's handle, its workspace, and the plans so far.
pub(crate) struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    plans: Mutex<Plans>,
}

#[derive(Default)]
struct Plans {
    /// `None`: the library has no product for this.
    of: HashMap<Key, Option<Plan>>,
    choices: Choices,
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
        count > 1 && has_terms && self.ready() && self.plans().of.entry(key).or_insert_with(plan).is_some()
    }

    /// What makes products alike.
    pub(crate) fn kind_of(&self, product: &Product) -> impl std::hash::Hash + Eq + use<> {
        debug_assert_eq!(product.epilogue, Epilogue::Nothing, "a bias belongs to one product");
        (self.key(product, 1), product.add)
    }

    fn plans(&self) -> std::sync::MutexGuard<'_, Plans> {
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
        matrices: [Ptr; 3],
    ) -> std::result::Result<bool, result::CublasError> {
        let key = self.key(p, count);
        let Plans { of, choices } = &mut *self.plans();
        let Some(plan) = of.entry(key).or_insert_with(|| plan(self.products.handle, &key, p)) else {
            return Ok(false);
        };
        if p.epilogue != Epilogue::Nothing {
            use sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER as POINTER;
            // SAFETY: the attribute is a pointer; the lock keeps others from changing it before the calls below.
            unsafe { attribute(plan.description, POINTER, &p.bias.address()) }?;
        }
        if !plan.others.is_empty() && count == 1 && !p.add {
            self.choose(choices, &key, plan, |plan, algorithm| self.launch(plan, algorithm, p.add, matrices));
        }
        self.launch(plan, &plan.algorithm, p.add, matrices).map(|()| true)
    }

    /// Computes a product, or several, by an algorithm of its plan.
    fn launch(
        &self,
        plan: &Plan,
        algorithm: &Algorithm,
        add: bool,
        [a_at, b_at, c_at]: [Ptr; 3],
    ) -> std::result::Result<(), result::CublasError> {
        let (alpha, beta) = (1.0f32, f32::from(u8::from(add)));
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
                &algorithm.handle,
                self.products.workspace as *mut c_void,
                WORKSPACE,
                self.stream().cast(),
            )
        }
    }
}
