//! Named parameters in one flat buffer per group, and gradients in the same layout.
//!
//! A parameter belongs to one group, given when it is declared. Optimisers, norms and checkpoints work on whole groups: one loop,
//! one reduction, one write each.

mod builder;
mod gradients;
mod layout;
mod matrix;
mod order;
mod slices;
mod storage;
mod subset;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::builder::ParamsBuilder;
pub use self::gradients::{Gradients, Written};
use self::layout::Layout;
pub use self::layout::{Block, GroupId, GroupSet, Named, ParamId};
use self::matrix::Values;
pub(crate) use self::matrix::{Matrix, PackedGate};
pub use self::slices::Slice;
use self::storage::Packed;
pub use self::storage::{ComputeType, is_large};
pub use self::subset::VocabularySubset;
use crate::cuda::memory::Ptr;
use crate::cuda::sums::{ColumnSum, ColumnSums};
use crate::device::{Backend, Buffer, Device};
use crate::ops::batch_norm;
use crate::optim::cuda as gpu;
use crate::{Error, HostCopy, Result};

/// The values of all parameters.
pub struct Params {
    device: Device,
    layout: Arc<Layout>,
    buffers: Vec<Buffer>,
    /// On a GPU that computes in bfloat16: the same values in bfloat16, which products read.
    shadows: Vec<Buffer>,
    /// Matrices that are packed for products, by block; they are not in the buffers.
    packed: Vec<Option<Packed>>,
    names: BTreeMap<String, ParamId>,
    /// [`Params::state`].
    state: u64,
}

/// A number that was not given before.
fn new_state() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Params {
    /// The device the parameters live on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Number of the state of parameters on a CPU: it is another after every change, and another for other parameters.
    pub(crate) fn state(&self) -> u64 {
        self.state
    }

    /// A block's place and shape.
    pub fn block(&self, id: ParamId) -> &Block {
        &self.layout.blocks[id.0]
    }

    /// Every named parameter, in order of declaration.
    pub fn named(&self) -> impl Iterator<Item = Named<'_>> {
        self.layout.named()
    }

    /// The parameter called `name`.
    pub fn find(&self, name: &str) -> Result<Named<'_>> {
        let unknown = || Error::UnknownParameter(name.to_owned());
        let id = self.names.get(name).ok_or_else(unknown)?;
        let block = &self.layout.blocks[id.0];
        let part = block.parts.iter().find(|part| part.name == name).ok_or_else(unknown)?;
        Ok(Named::new(id.0, block, part))
    }

    /// Copies a named parameter to the host.
    pub fn get(&self, name: &str) -> Result<Vec<f32>> {
        let named = self.find(name)?;
        let Some(packed) = &self.packed[named.block] else {
            return Ok(self.buffers[named.group.0].range_to_host(named.range));
        };
        let cols = self.layout.blocks[named.block].cols;
        let mut values = vec![0.0; named.range.len()];
        values.chunks_exact_mut(cols).zip(named.rows).for_each(|(values, row)| packed.row(row, values));
        Ok(values)
    }

    /// Fails where matrices are packed for products: such parameters are neither saved nor trained.
    pub fn check_unpacked(&self) -> Result<()> {
        let Some(block) = self.packed.iter().position(Option::is_some) else { return Ok(()) };
        let (name, held) = (&self.layout.blocks[block].parts[0].name, self.device.compute_type());
        Err(Error::Packed { name: name.clone(), held })
    }

    /// All named parameters as they are now; what is asked of the device afterwards does not change the copy. The host
    /// need not wait for it. Fails where matrices are packed.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.check_unpacked()?;
        let groups = self.buffers.iter().map(HostCopy::of).collect::<Result<_>>()?;
        Ok(Snapshot { layout: self.layout.clone(), groups })
    }

    /// A copy of the values of `groups`, at the same places and under the same names. The others have no values there and
    /// must not be used.
    pub fn part(&self, groups: GroupSet) -> Self {
        let held = |group: usize| groups.contains(GroupId(group));
        let buffers = self.buffers.iter().enumerate().map(|(group, buffer)| {
            let mut copy = self.device.zeros(if held(group) { buffer.count() } else { 0 });
            if held(group) {
                copy.write(0, &buffer.to_host());
            }
            copy
        });
        let shadows = self.shadows.iter().enumerate();
        let shadows =
            shadows.map(|(group, copy)| self.device.scratch(if held(group) { copy.count() } else { 0 }));
        let part = Self {
            device: self.device.clone(),
            layout: self.layout.clone(),
            buffers: buffers.collect(),
            shadows: shadows.collect(),
            packed: self.packed.clone(),
            names: self.names.clone(),
            state: new_state(),
        };
        for group in (0..part.buffers.len()).filter(|&group| held(group)) {
            part.refresh(GroupId(group), 0..part.layout.group_len[group]);
        }
        part
    }

    /// Sets a named parameter from the host.
    pub fn set(&mut self, name: &str, values: &[f32]) -> Result<()> {
        let Named { group, range, block, rows, .. } = self.find(name)?;
        if values.len() != range.len() {
            return Err(Error::WrongSize { name: name.to_owned(), expected: range.len(), got: values.len() });
        }
        self.state = new_state();
        if let Some(packed) = &mut self.packed[block] {
            packed.set(rows.start, values);
            return Ok(());
        }
        self.buffers[group.0].write(range.start, values);
        self.refresh(group, range);
        Ok(())
    }

    /// Sets a named matrix from whole numbers and the scale of each row ([`crate::cpu::int8`]).
    pub fn set_rounded(&mut self, name: &str, values: &[i8], scales: &[f32]) -> Result<()> {
        let Named { range, block, rows, .. } = self.find(name)?;
        let (first, cols) = (rows.start, self.layout.blocks[block].cols);
        if values.len() != range.len() || scales.len() != rows.len() {
            return Err(Error::WrongSize { name: name.to_owned(), expected: range.len(), got: values.len() });
        }
        self.state = new_state();
        if let Some(Packed::Int8(matrix)) = &mut self.packed[block] {
            matrix.set_rounded(first, values, scales);
            return Ok(());
        }
        let rows = values.chunks_exact(cols).zip(scales);
        let numbers: Vec<f32> =
            rows.flat_map(|(row, scale)| row.iter().map(move |&whole| f32::from(whole) * scale)).collect();
        self.set(name, &numbers)
    }

    /// Whole numbers of a named matrix and the scale of each row, where it is held in int8.
    pub fn rounded(&self, name: &str) -> Result<Option<(Vec<i8>, Vec<f32>)>> {
        let Named { range, block, rows, .. } = self.find(name)?;
        let Some(Packed::Int8(matrix)) = &self.packed[block] else { return Ok(None) };
        let mut values = vec![0; range.len()];
        let each = values.chunks_exact_mut(matrix.cols()).zip(rows);
        let scales = each.map(|(values, row)| matrix.rounded(row, values)).collect();
        Ok(Some((values, scales)))
    }

    /// Number of values in the named parameters of `groups`.
    pub fn count(&self, groups: GroupSet) -> usize {
        self.named().filter(|named| groups.contains(named.group)).map(|named| named.range.len()).sum()
    }

    /// Length of the flat buffer of `group`, padding included.
    pub fn group_len(&self, group: GroupId) -> usize {
        self.layout.group_len.get(group.0).copied().unwrap_or(0)
    }

    /// The flat buffer of `group`, copied to the host.
    pub fn group_to_host(&self, group: GroupId) -> Vec<f32> {
        self.buffers.get(group.0).map_or_else(Vec::new, Buffer::to_host)
    }

    /// Overwrites the flat buffer of `group`.
    pub(crate) fn set_group(&mut self, group: GroupId, values: &[f32]) {
        self.state = new_state();
        self.buffers[group.0].write_in_pieces(values);
        self.refresh(group, 0..values.len());
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.layout.blocks.len()
    }

    /// The block with this number in the order of declaration.
    pub(crate) fn id_at(&self, index: usize) -> Option<ParamId> {
        (index < self.layout.blocks.len()).then_some(ParamId(index))
    }

    /// Gradients for these parameters, none set.
    ///
    /// # Panics
    ///
    /// If matrices are packed ([`Params::check_unpacked`]).
    pub fn gradients(&self) -> Gradients {
        self.check_unpacked().expect("parameters that are trained are not packed");
        Gradients::new(&self.device, &self.layout)
    }

    /// Moves blocks (running statistics) as ops have asked for, in the device's order of work.
    pub fn apply(&mut self, updates: Updates) {
        self.state = new_state();
        match self.device.backend() {
            Backend::Cpu => {
                for (id, values) in updates.0 {
                    let block = &self.layout.blocks[id.0];
                    let moved = &mut self.buffers[block.group.0][block.range()];
                    batch_norm::move_towards(moved, &values);
                }
            }
            Backend::Gpu(gpu) => {
                // All in one launch: a sum of one part is a copy.
                let mut copies = ColumnSums::default();
                for (id, values) in updates.0 {
                    let count = values.count();
                    let copy = ColumnSum::new(values.ptr(), self.master(id), [1, count, count], 0);
                    copies.push(gpu, copy, values);
                }
                copies.run(gpu);
            }
        }
    }

    /// Updates the bfloat16 copy of a part of a group.
    fn refresh(&self, group: GroupId, range: std::ops::Range<usize>) {
        if let (Some(gpu), Some(shadow)) = (self.device.gpu(), self.shadows.get(group.0)) {
            // Whole runs of eight, as kernels read and write them.
            let (start, end) = (range.start / 8 * 8, range.end.next_multiple_of(8));
            let from = self.buffers[group.0].ptr().plus(4 * start);
            gpu::to_act(gpu, from, shadow.ptr().plus(2 * start), end - start);
        }
    }

    /// Address of the values of a block in device memory, 32-bit floats.
    pub(crate) fn master(&self, id: ParamId) -> Ptr {
        let block = self.block(id);
        self.buffers[block.group.0].ptr().plus(4 * block.offset)
    }

    /// Address of the values of a block in device memory, in the type that products read.
    pub(crate) fn weights(&self, id: ParamId) -> Ptr {
        let block = self.block(id);
        match self.shadows.get(block.group.0) {
            Some(shadow) => shadow.ptr().plus(2 * block.offset),
            None => self.master(id),
        }
    }

    /// Addresses of a group's values and of their bfloat16 copy (or null) in device memory.
    pub(crate) fn group_ptrs(&self, group: GroupId) -> (Ptr, Ptr) {
        let shadow = self.shadows.get(group.0).map_or(Ptr::NULL, Buffer::ptr);
        (self.buffers[group.0].ptr(), shadow)
    }

    /// A matrix, of whatever number type.
    pub(crate) fn matrix(&self, id: ParamId) -> Matrix<'_> {
        let Block { rows, cols, .. } = *self.block(id);
        let values = match &self.packed[id.0] {
            Some(packed) => Values::Packed(packed),
            None => Values::F32(self.values(id)),
        };
        Matrix { rows, cols, values }
    }

    /// The values of a block that is not packed.
    pub(crate) fn values(&self, id: ParamId) -> &[f32] {
        let block = self.block(id);
        assert!(self.packed[id.0].is_none(), "`{}` is packed", block.parts[0].name);
        &self.buffers[block.group.0][block.range()]
    }

    pub(crate) fn group_mut(&mut self, group: GroupId) -> &mut [f32] {
        self.state = new_state();
        self.buffers.get_mut(group.0).map_or(&mut [], |buffer| &mut **buffer)
    }
}

/// Moves of blocks, made by ops during a forward pass and carried out afterwards by [`Params::apply`]: on the CPU what is
/// added to the part of a running statistic that stays, on a GPU new values.
#[derive(Default)]
pub struct Updates(pub(crate) Vec<(ParamId, Buffer)>);

/// Name, shape and values of a parameter.
pub type NamedValues<'a> = (&'a str, &'a [usize], &'a [f32]);

/// All named parameters as they were at one moment, on their way to the host.
pub struct Snapshot {
    layout: Arc<Layout>,
    groups: Vec<HostCopy>,
}

impl Snapshot {
    /// In order of declaration; waits until the values have come.
    pub fn tensors(&self) -> Result<Vec<NamedValues<'_>>> {
        let groups: Vec<&[f32]> = self.groups.iter().map(HostCopy::values).collect::<Result<_>>()?;
        Ok(self.layout.named().map(|p| (p.name, p.shape, &groups[p.group.0][p.range])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_share_rows_among_names() {
        let mut builder = ParamsBuilder::default();
        builder.vector("bias".into(), 5, GroupId(1));
        builder.block(vec![("q".into(), vec![2, 3]), ("k".into(), vec![4, 3])], 3, GroupId(1));
        let mut params = builder.finish(&Device::cpu());
        params.set("k", &[7.0; 12]).unwrap();
        assert_eq!(params.get("q").unwrap(), [0.0; 6]);
        assert_eq!(params.get("k").unwrap(), [7.0; 12]);
        assert_eq!(params.count(GroupSet::of(&[GroupId(1)])), 23);
        assert!(matches!(params.set("k", &[1.0]), Err(Error::WrongSize { expected: 12, got: 1, .. })));
        assert!(params.get("v").is_err());
    }

    #[test]
    fn a_snapshot_stays_as_it_was() {
        let mut builder = ParamsBuilder::default();
        builder.block(vec![("q".into(), vec![1, 2]), ("k".into(), vec![2, 2])], 2, GroupId(1));
        builder.vector("bias".into(), 1, GroupId(0));
        let mut params = builder.finish(&Device::cpu());
        params.set("k", &[1.0, 2.0, 3.0, 4.0]).unwrap();
        let snapshot = params.snapshot().unwrap();
        params.set("k", &[0.0; 4]).unwrap();
        let expected: [NamedValues<'_>; 3] =
            [("q", &[1, 2], &[0.0; 2]), ("k", &[2, 2], &[1.0, 2.0, 3.0, 4.0]), ("bias", &[1], &[0.0])];
        assert_eq!(snapshot.tensors().unwrap(), expected);
    }

    #[test]
    fn a_part_has_the_values_of_its_groups() {
        let mut builder = ParamsBuilder::default();
        builder.vector("gate".into(), 2, GroupId(0));
        builder.vector("rest".into(), 3, GroupId(1));
        let mut params = builder.finish(&Device::cpu());
        params.set("gate", &[1.0, 2.0]).unwrap();
        let mut part = params.part(GroupSet::of(&[GroupId(0)]));
        assert_eq!(part.get("gate").unwrap(), [1.0, 2.0]);
        part.set("gate", &[3.0, 4.0]).unwrap();
        assert_eq!(params.get("gate").unwrap(), [1.0, 2.0]);
        assert!(part.group_to_host(GroupId(1)).is_empty());
    }

    #[test]
    fn a_free_parameter_without_gradient_is_named() {
        let mut builder = ParamsBuilder::default();
        let first = builder.vector("first".into(), 5, GroupId(0));
        builder.vector("second".into(), 5, GroupId(1));
        let params = builder.finish(&Device::cpu());
        let mut gradients = params.gradients();
        gradients.slot(first);
        gradients.check_complete(GroupSet::of(&[GroupId(0)])).unwrap();
        let error = gradients.check_complete(GroupSet::of(&[GroupId(0), GroupId(1)])).unwrap_err();
        assert!(error.to_string().contains("`second`"), "{error}");
        // A replayed pass tells what it has left.
        let written = gradients.written();
        gradients.clear();
        assert!(gradients.check_complete(GroupSet::of(&[GroupId(0)])).is_err());
        gradients.set_written(&written);
        gradients.check_complete(GroupSet::of(&[GroupId(0)])).unwrap();
    }
}
