//! Gradients of parameters.

use std::sync::Arc;

use super::{GroupId, GroupSet, Layout, ParamId, Params, Slice};
use crate::cuda::memory::Ptr;
use crate::device::{Buffer, Device};
use crate::{Error, Result};

/// Gradients in the layout of the parameters.
pub struct Gradients {
    layout: Arc<Layout>,
    buffers: Vec<Buffer>,
    written: Vec<bool>,
    /// Blocks whose gradients are complete: nothing may be added any more.
    sealed: Vec<bool>,
}

/// The blocks of some [`Gradients`] that hold contributions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written(Arc<[bool]>);

impl Gradients {
    pub(super) fn new(device: &Device, layout: &Arc<Layout>) -> Self {
        Self {
            layout: layout.clone(),
            buffers: layout.group_len.iter().map(|&len| device.zeros(len)).collect(),
            written: vec![false; layout.blocks.len()],
            sealed: vec![false; layout.blocks.len()],
        }
    }

    /// Forgets all gradients: the next contribution to each block replaces what it holds.
    pub fn clear(&mut self) {
        self.written.fill(false);
        self.sealed.fill(false);
    }

    /// An error that names the first parameter of `free` groups which got no gradient since [`Self::clear`].
    pub fn check_complete(&self, free: GroupSet) -> Result<()> {
        let missing = self
            .layout
            .blocks
            .iter()
            .zip(&self.written)
            .find(|(block, written)| free.contains(block.group) && !**written);
        missing.map_or(Ok(()), |(block, _)| Err(Error::MissingGradient(block.parts[0].name.clone())))
    }

    /// Copies the gradient of a named parameter to the host; `None` where nothing was written.
    pub fn get(&self, params: &Params, name: &str) -> Result<Option<Vec<f32>>> {
        let named = params.find(name)?;
        let written = self.written[params.names[name].0];
        Ok(written.then(|| self.buffers[named.group.0].range_to_host(named.range)))
    }

    /// The blocks that hold contributions since [`Self::clear`].
    pub fn written(&self) -> Written {
        Written(self.written.as_slice().into())
    }

    /// Takes over what a pass has left in device memory: a replayed one has noted nothing here.
    pub fn set_written(&mut self, written: &Written) {
        self.written.copy_from_slice(&written.0);
    }

    /// Notes that the gradients of these blocks are complete until [`Self::clear`].
    pub(crate) fn seal(&mut self, slice: &Slice) {
        slice.blocks.iter().for_each(|&block| self.sealed[block] = true);
    }

    /// Address of the gradient of a block in device memory, and whether it already holds a contribution to add to.
    pub(crate) fn slot_ptr(&mut self, id: ParamId) -> (Ptr, bool) {
        let block = &self.layout.blocks[id.0];
        assert!(!self.sealed[id.0], "`{}` was complete", block.parts[0].name);
        let was_written = std::mem::replace(&mut self.written[id.0], true);
        (self.buffers[block.group.0].ptr().plus(4 * block.offset), was_written)
    }

    pub(crate) fn group_ptr(&self, group: GroupId) -> Ptr {
        self.buffers[group.0].ptr()
    }

    /// The gradient of a block, and whether it already holds a contribution to add to.
    pub(crate) fn slot(&mut self, id: ParamId) -> (&mut [f32], bool) {
        let block = &self.layout.blocks[id.0];
        assert!(!self.sealed[id.0], "`{}` was complete", block.parts[0].name);
        let was_written = std::mem::replace(&mut self.written[id.0], true);
        (&mut self.buffers[block.group.0][block.range()], was_written)
    }

    /// Sets the gradient of a group to 0.
    pub(crate) fn clear_values(&mut self, group: GroupId) {
        let Some(buffer) = self.buffers.get_mut(group.0) else { return };
        match buffer {
            Buffer::Host(_) => buffer.fill(0.0),
            Buffer::Gpu(gpu) => gpu.block.clear(),
        }
    }

    /// Lets `change` change the gradient of a group on the host.
    pub(crate) fn change_on_host(
        &mut self,
        group: GroupId,
        change: impl FnOnce(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let Some(buffer) = self.buffers.get_mut(group.0) else { return Ok(()) };
        let mut values = buffer.to_host();
        change(&mut values)?;
        buffer.write_in_pieces(&values);
        Ok(())
    }

    pub(crate) fn group_mut(&mut self, group: GroupId) -> &mut [f32] {
        self.buffers.get_mut(group.0).map_or(&mut [], |buffer| &mut **buffer)
    }

    pub(crate) fn group(&self, group: GroupId) -> &[f32] {
        self.buffers.get(group.0).map_or(&[], |buffer| &**buffer)
    }
}
