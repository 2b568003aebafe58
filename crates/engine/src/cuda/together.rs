//! Weight gradients of a backward pass that wait for each other: alone, each is too small to fill a GPU, and nothing
//! needs them before the end of the pass. Those of one shape are computed at once.

use std::collections::HashMap;
use std::sync::Arc;

use super::Gpu;
use super::kernel::{kernel_struct, kernels};
use super::launch::Shape;
use super::memory::{Block, Ptr};
use super::product::Product;
use crate::device::Buffer;
use crate::tape::Var;

/// Addresses that one launch writes.
const ADDRESSES: usize = 256;
/// Tables of addresses begin at multiples of so many.
const ALIGNED: usize = 4;
/// Tiles of 128 × 128 values from which on a product fills a GPU by itself.
const MANY_TILES: usize = 128;
/// Bytes that waiting products may hold on to. They decide how products are grouped, and are the same on every GPU.
const WAITING_BYTES: usize = 1 << 30;

kernel_struct! {
    /// Addresses of one launch.
    struct Addresses {
        value: [u64; ADDRESSES],
    }
}

kernels! {
    static FILE = "together" at "together.cu", constants [ADDRESSES];

    struct SetAddresses = set_addresses {
        table: *mut u64,
        addresses: Addresses,
        count: u32,
    }
}

/// A product, and what it reads.
struct Waiting {
    product: Product,
    _reads: (Arc<Buffer>, Var),
}

/// Products that wait.
#[derive(Default)]
pub(crate) struct Together {
    waiting: Vec<Waiting>,
    bytes: usize,
}

impl Together {
    /// Puts off a product until [`Self::run`], or computes it now if it is large enough to be alone.
    pub(crate) fn push(&mut self, gpu: &Arc<Gpu>, product: Product, a: &Arc<Buffer>, b: &Var) {
        let [m, n, _] = product.size;
        if m.div_ceil(128) * n.div_ceil(128) >= MANY_TILES {
            return gpu.product(&product);
        }
        self.bytes += (a.count() + b.tensor().count()) * gpu.act().size();
        self.waiting.push(Waiting { product, _reads: (a.clone(), b.clone()) });
        if self.bytes > WAITING_BYTES {
            self.run(gpu);
        }
    }

    /// Returns true if a product that waits will write here.
    pub(crate) fn writes_to(&self, at: Ptr) -> bool {
        self.waiting.iter().any(|waiting| waiting.product.c == at)
    }

    /// Computes everything that waits.
    pub(crate) fn run(&mut self, gpu: &Arc<Gpu>) {
        let waiting = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        let (alone, alike): (Vec<_>, Vec<_>) =
            groups(gpu, &waiting).into_iter().partition(|group| !gpu.has_products(group[0], group.len()));
        alone.into_iter().flatten().for_each(|product| gpu.product(product));
        if alike.is_empty() {
            return;
        }
        let sides = [|p: &Product| p.a.ptr, |p: &Product| p.b.ptr, |p: &Product| p.c];
        let mut addresses = Vec::new();
        let mut at = Vec::with_capacity(alike.len());
        for group in &alike {
            at.push(sides.map(|side| {
                let begin = addresses.len();
                addresses.extend(group.iter().map(|product| side(product).address()));
                addresses.resize(addresses.len().next_multiple_of(ALIGNED), 0);
                begin
            }));
        }
        let table = Block::new(gpu, 8 * addresses.len());
        set_addresses(gpu, &table, &addresses);
        for (group, at) in alike.iter().zip(at) {
            gpu.products(group[0], group.len(), at.map(|at| table.ptr().plus(8 * at)));
        }
    }
}

/// Products by what makes them alike, in the order in which their first ones came.
fn groups<'a>(gpu: &Gpu, waiting: &'a [Waiting]) -> Vec<Vec<&'a Product>> {
    let mut groups: Vec<Vec<&Product>> = Vec::new();
    let mut places = HashMap::new();
    for Waiting { product, .. } in waiting {
        let place = *places.entry(gpu.kind_of(product)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(product);
    }
    groups
}

/// Writes the table by kernels, whose arguments a captured pass keeps.
fn set_addresses(gpu: &Gpu, table: &Block, addresses: &[u64]) {
    for (chunk, part) in addresses.chunks(ADDRESSES).enumerate() {
        let mut value = [0; ADDRESSES];
        value[..part.len()].copy_from_slice(part);
        let table = table.ptr().plus(8 * chunk * ADDRESSES);
        let (addresses, count) = (Addresses { value }, part.len() as u32);
        gpu.call(Shape::of(1, ADDRESSES as u32), &SetAddresses { table, addresses, count });
    }
}
