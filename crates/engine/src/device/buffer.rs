//! Buffers of a device: values of the host or of a GPU, whose memory is used again.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use super::Device;
use super::halves::{from_bf16, round, to_bf16};
use crate::cpu::LINE;
use crate::cuda::memory::{Block, Dtype, Ptr};
use crate::usage::Usage;

/// Capacities are rounded up to one of eight per doubling, so that batches of slightly different sizes share buffers.
pub(super) fn size_class(len: usize) -> usize {
    let step = (len.next_power_of_two() / 16).max(64);
    len.next_multiple_of(step)
}

/// Freed buffers by capacity. A training step asks for the same sizes again and again; taking fresh pages from
/// the system each time costs more than many of the ops. A step of a search takes a hundred buffers in some hundred
/// microseconds, so that a pool has one lock for all it knows.
#[derive(Default)]
pub(super) struct Pool(Mutex<Stock>);

/// What a pool has.
#[derive(Default)]
pub(super) struct Stock {
    /// Free vectors, in the order of their capacities.
    shelves: Vec<Shelf>,
    pub(super) usage: Usage,
}

/// Free vectors of one capacity; there may be none.
struct Shelf {
    capacity: usize,
    vectors: Vec<Vec<f32>>,
}

impl Pool {
    pub(super) fn stock(&self) -> MutexGuard<'_, Stock> {
        self.0.lock().expect("no op panics while it holds the pool")
    }

    /// A vector of this capacity or up to twice as much, with whatever it held. Batches of ever new sizes, as those of a
    /// server, would otherwise fill the pool with a vector of every size.
    pub(super) fn take(&self, capacity: usize) -> Vec<f32> {
        let mut stock = self.stock();
        let data = stock.reuse(capacity).unwrap_or_else(|| {
            let fresh = Vec::with_capacity(capacity);
            stock.usage.grow(bytes_of(&fresh));
            fresh
        });
        stock.usage.take(bytes_of(&data));
        data
    }

    fn give(&self, data: Vec<f32>) {
        if data.capacity() > 0 {
            let mut stock = self.stock();
            stock.usage.give(bytes_of(&data));
            stock.put(data);
        }
    }
}

impl Stock {
    /// Place of the first shelf with vectors of at least this capacity.
    fn first(&self, capacity: usize) -> usize {
        self.shelves.partition_point(|shelf| shelf.capacity < capacity)
    }

    fn reuse(&mut self, capacity: usize) -> Option<Vec<f32>> {
        let first = self.first(capacity);
        let fitting = self.shelves[first..].iter_mut().take_while(|shelf| shelf.capacity <= 2 * capacity);
        fitting.filter_map(|shelf| shelf.vectors.pop()).next()
    }

    fn put(&mut self, data: Vec<f32>) {
        let (place, capacity) = (self.first(data.capacity()), data.capacity());
        match self.shelves.get_mut(place) {
            Some(shelf) if shelf.capacity == capacity => shelf.vectors.push(data),
            _ => self.shelves.insert(place, Shelf { capacity, vectors: vec![data] }),
        }
    }

    /// Drops free vectors of at least `capacity` values.
    pub(super) fn trim(&mut self, capacity: usize) {
        let large = self.first(capacity)..;
        let bytes =
            self.shelves.drain(large).flat_map(|shelf| shelf.vectors).map(|data| bytes_of(&data)).sum();
        self.usage.shrink(bytes);
    }
}

#[allow(clippy::ptr_arg, reason = "a slice has no capacity")]
fn bytes_of(data: &Vec<f32>) -> usize {
    size_of::<f32>() * data.capacity()
}

/// Exclusively owned values; their memory goes back to the device's pool when dropped.
pub(crate) enum Buffer {
    Host(HostBuffer),
    Gpu(GpuBuffer),
}

pub(crate) struct HostBuffer {
    /// The values are in its `range`; those of 16 bits lie in pairs.
    data: Vec<f32>,
    /// Begins where a line of the cache does: vectors that lie in two lines take twice as long to read.
    range: Range<usize>,
    len: usize,
    dtype: Dtype,
    pool: Arc<Pool>,
}

/// Values of 32 bits in a line of the cache.
const LINE_FLOATS: usize = LINE / size_of::<f32>();

pub(crate) struct GpuBuffer {
    pub(crate) block: Block,
    pub(super) len: usize,
    pub(super) dtype: Dtype,
}

impl HostBuffer {
    /// Values that are left over from earlier use.
    pub(super) fn new(pool: &Arc<Pool>, dtype: Dtype, len: usize) -> Self {
        let floats = (len * dtype.size()).div_ceil(size_of::<f32>());
        let mut data = pool.take(size_class(floats) + LINE_FLOATS);
        let first = data.as_ptr().align_offset(LINE);
        let first = if first < LINE_FLOATS { first } else { 0 };
        let range = first..first + floats;
        if data.len() < range.end {
            data.resize(range.end, 0.0);
        }
        Self { data, range, len, dtype, pool: pool.clone() }
    }

    pub(super) fn clear(&mut self) {
        self.floats_mut().fill(0.0);
    }

    fn floats(&self) -> &[f32] {
        &self.data[self.range.clone()]
    }

    fn floats_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.range.clone()]
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.data));
    }
}

impl Buffer {
    /// Number of values.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Host(host) => host.len,
            Self::Gpu(gpu) => gpu.len,
        }
    }

    /// The values on the host, waiting for the device.
    pub(crate) fn to_host(&self) -> Vec<f32> {
        self.range_to_host(0..self.count())
    }

    /// Some of the values on the host, waiting for the device.
    pub(crate) fn range_to_host(&self, range: Range<usize>) -> Vec<f32> {
        match self {
            Self::Host(host) => match host.dtype {
                Dtype::F32 => self[range].to_vec(),
                Dtype::Bf16 => self.halves()[range].iter().map(|&bits| from_bf16(bits)).collect(),
            },
            Self::Gpu(gpu) => match gpu.dtype {
                Dtype::F32 => {
                    let mut values = vec![0.0; range.len()];
                    gpu.block.read(4 * range.start, &mut values);
                    values
                }
                Dtype::Bf16 => {
                    let mut halves = vec![0u16; range.len()];
                    gpu.block.read(2 * range.start, &mut halves);
                    halves.into_iter().map(from_bf16).collect()
                }
            },
        }
    }

    /// Overwrites values from `at` on with those of the host, rounded to the buffer's type.
    pub(crate) fn write(&mut self, at: usize, values: &[f32]) {
        match self {
            Self::Host(host) => match host.dtype {
                Dtype::F32 => self[at..at + values.len()].copy_from_slice(values),
                Dtype::Bf16 => round(values, &mut self.halves_mut()[at..at + values.len()]),
            },
            Self::Gpu(gpu) => match gpu.dtype {
                Dtype::F32 => gpu.block.write(4 * at, values),
                Dtype::Bf16 => {
                    let halves: Vec<u16> = values.iter().map(|&value| to_bf16(value)).collect();
                    gpu.block.write(2 * at, &halves);
                }
            },
        }
    }

    /// Overwrites the first values with all of another buffer of the CPU and of the same type.
    pub(crate) fn copy(&mut self, other: &Self) {
        match other.dtype() {
            Dtype::F32 => self[..other.count()].copy_from_slice(other),
            Dtype::Bf16 => self.halves_mut()[..other.count()].copy_from_slice(other.halves()),
        }
    }

    /// Keeps a part of the values, on the CPU, and gives the rest of the memory back.
    pub(crate) fn keep(&mut self, range: Range<usize>) {
        if let Self::Host(host) = self {
            let mut kept = Self::Host(HostBuffer::new(&host.pool, host.dtype, range.len()));
            kept.write(0, &self[range]);
            *self = kept;
        }
    }

    /// Overwrites all values. Large buffers go in pieces, so that little page-locked memory is needed for them.
    pub(crate) fn write_in_pieces(&mut self, values: &[f32]) {
        const PIECE: usize = 1 << 18;
        values.chunks(PIECE).enumerate().for_each(|(i, piece)| self.write(i * PIECE, piece));
    }

    /// Values of the host on a device, rounded to `dtype`.
    pub(crate) fn from_host(device: &Device, dtype: Dtype, values: &[f32]) -> Self {
        let mut buffer = device.scratch_of(dtype, values.len());
        buffer.write(0, values);
        buffer
    }

    /// The type of the values.
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Self::Host(host) => host.dtype,
            Self::Gpu(gpu) => gpu.dtype,
        }
    }

    /// The address in device memory.
    pub(crate) fn ptr(&self) -> Ptr {
        match self {
            Self::Host(_) => unreachable!("an op of the GPU was given values of the CPU"),
            Self::Gpu(gpu) => gpu.block.ptr(),
        }
    }
}

/// What an op of the CPU that reads other numbers is told.
const WRONG_TYPE: &str = "an op of the CPU was given numbers of another type";

/// Values of 16 bits on the host.
impl Buffer {
    /// The bits of bfloat16s.
    pub(crate) fn halves(&self) -> &[u16] {
        match self {
            Self::Host(host) if host.dtype == Dtype::Bf16 => &bytemuck::cast_slice(host.floats())[..host.len],
            _ => unreachable!("{WRONG_TYPE}"),
        }
    }

    pub(crate) fn halves_mut(&mut self) -> &mut [u16] {
        match self {
            Self::Host(host) if host.dtype == Dtype::Bf16 => {
                let len = host.len;
                &mut bytemuck::cast_slice_mut(host.floats_mut())[..len]
            }
            _ => unreachable!("{WRONG_TYPE}"),
        }
    }
}

/// The values themselves, of 32 bits, for ops of the CPU.
impl std::ops::Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match self {
            Self::Host(host) if host.dtype == Dtype::F32 => host.floats(),
            Self::Host(_) => unreachable!("{WRONG_TYPE}"),
            Self::Gpu(_) => unreachable!("an op of the CPU was given values of the GPU"),
        }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Host(host) if host.dtype == Dtype::F32 => host.floats_mut(),
            Self::Host(_) => unreachable!("{WRONG_TYPE}"),
            Self::Gpu(_) => unreachable!("an op of the CPU was given values of the GPU"),
        }
    }
}
