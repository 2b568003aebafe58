//! Declares and allocates parameters.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::layout::{ALIGNMENT, Layout, Part};
use super::{Block, GroupId, GroupSet, ParamId, Params, storage};
use crate::cuda::memory::Dtype;
use crate::device::{Buffer, Device};

/// Declares parameters one after the other.
#[derive(Default)]
pub struct ParamsBuilder {
    layout: Layout,
    names: BTreeMap<String, ParamId>,
}

impl ParamsBuilder {
    /// Declares a matrix.
    pub fn matrix(&mut self, name: String, [rows, cols]: [usize; 2], group: GroupId) -> ParamId {
        self.block(vec![(name, vec![rows, cols])], cols, group)
    }

    /// Declares a vector.
    pub fn vector(&mut self, name: String, len: usize, group: GroupId) -> ParamId {
        self.block(vec![(name, vec![len])], len, group)
    }

    /// Declares several matrices or vectors that lie end to end and are used as one `[Σ rows, cols]` block. For
    /// vectors, `cols` is 1 and the block is a column.
    pub fn block(&mut self, parts: Vec<(String, Vec<usize>)>, cols: usize, group: GroupId) -> ParamId {
        let id = ParamId(self.layout.blocks.len());
        let mut first_row = 0;
        let parts = parts
            .into_iter()
            .map(|(name, shape)| {
                let rows = shape.iter().product::<usize>() / cols;
                let taken = self.names.insert(name.clone(), id);
                assert!(taken.is_none(), "parameter `{name}` is declared twice");
                let part = Part { name, shape, first_row, rows };
                first_row += rows;
                part
            })
            .collect();
        if self.layout.group_len.len() <= group.0 {
            self.layout.group_len.resize(group.0 + 1, 0);
        }
        let len = &mut self.layout.group_len[group.0];
        let offset = *len;
        *len += (first_row * cols).next_multiple_of(ALIGNMENT);
        self.layout.blocks.push(Block { group, offset, rows: first_row, cols, parts });
        id
    }

    /// Number of values in the parameters of `groups` declared so far.
    pub fn count(&self, groups: GroupSet) -> usize {
        let blocks = self.layout.blocks.iter().filter(|block| groups.contains(block.group));
        blocks.map(|block| block.rows * block.cols).sum()
    }

    /// Allocates all declared parameters, zero.
    pub fn finish(self, device: &Device) -> Params {
        self.finish_but(device, GroupSet::NONE)
    }

    /// Allocates all declared parameters, zero. Large matrices have the device's number type
    /// ([`Device::compute_type`]), but those of the groups `exact` are f32.
    pub fn finish_but(mut self, device: &Device, exact: GroupSet) -> Params {
        let packed = storage::pack(&mut self.layout, device.compute_type(), exact);
        let buffers: Vec<Buffer> = self.layout.group_len.iter().map(|&len| device.zeros(len)).collect();
        let halves = device.gpu().is_some_and(|gpu| gpu.act() == Dtype::Bf16);
        let shadows: Vec<Buffer> = if halves {
            self.layout.group_len.iter().map(|&len| device.scratch(len)).collect()
        } else {
            Vec::new()
        };
        let (layout, names) = (Arc::new(self.layout), self.names);
        let state = super::new_state();
        let params = Params { device: device.clone(), layout, buffers, shadows, packed, names, state };
        for group in 0..params.buffers.len() {
            params.refresh(GroupId(group), 0..params.layout.group_len[group]);
        }
        params
    }
}
