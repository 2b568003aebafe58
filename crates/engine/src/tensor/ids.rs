//! Lists of ids.

use std::sync::Arc;

use crate::Device;
use crate::cuda::memory::{Block, Ptr};

/// A list of ids (tokens, rows, experts) on a device.
#[derive(Clone)]
pub struct Ids {
    len: usize,
    /// The most ids that can be loaded.
    room: usize,
    /// The largest of the ids.
    max: u32,
    data: IdData,
}

/// Words before the ids in device memory: their real number, and room that keeps the ids aligned.
const ID_HEADER: usize = 4;

#[derive(Clone)]
enum IdData {
    Host(Arc<[u32]>),
    Gpu(Arc<Block>),
}

impl Ids {
    /// Copies ids from the host.
    pub fn from_host(device: &Device, ids: &[u32]) -> Self {
        let data = match device.gpu() {
            None => IdData::Host(ids.into()),
            Some(gpu) => IdData::Gpu(Arc::new(Block::new(gpu, 4 * (ID_HEADER + ids.len())))),
        };
        let mut list = Self { len: ids.len(), room: ids.len(), max: 0, data };
        list.load(ids);
        list
    }

    /// Room for `len` ids that are loaded later, all 0 until then.
    pub fn with_room(device: &Device, len: usize) -> Self {
        Self::from_host(device, &vec![0; len])
    }

    /// Takes other ids, no more than there is room for. On the CPU the list is then as long as they are. On a GPU its
    /// length and memory stay the same, so that captured passes see the new ids; the rest become 0.
    pub fn load(&mut self, ids: &[u32]) {
        assert!(ids.len() <= self.room, "{} ids do not fit into a list of {}", ids.len(), self.room);
        self.max = ids.iter().copied().max().unwrap_or(0);
        match &mut self.data {
            IdData::Host(data) => {
                *data = ids.into();
                self.len = ids.len();
            }
            IdData::Gpu(block) => {
                let mut words = vec![0; ID_HEADER + self.len];
                words[0] = ids.len() as u32;
                words[ID_HEADER..ID_HEADER + ids.len()].copy_from_slice(ids);
                block.write(0, &words);
            }
        }
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The largest of the ids that were loaded last; 0 where there are none.
    pub fn max(&self) -> u32 {
        self.max
    }

    pub(crate) fn values(&self) -> &[u32] {
        match &self.data {
            IdData::Host(data) => data,
            IdData::Gpu(_) => unreachable!("an op of the CPU was given ids of the GPU"),
        }
    }

    pub(crate) fn ptr(&self) -> Ptr {
        match &self.data {
            IdData::Host(_) => unreachable!("an op of the GPU was given ids of the CPU"),
            IdData::Gpu(block) => block.ptr().plus(4 * ID_HEADER),
        }
    }

    /// Address of the number of real ids.
    pub(crate) fn valid(&self) -> Ptr {
        match &self.data {
            IdData::Host(_) => unreachable!("an op of the GPU was given ids of the CPU"),
            IdData::Gpu(block) => block.ptr(),
        }
    }
}

impl std::fmt::Debug for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ids[{}]", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_holds_what_was_loaded_and_keeps_the_room() {
        let mut ids = Ids::with_room(&Device::cpu(), 3);
        ids.load(&[7]);
        assert_eq!((ids.values(), ids.max()), (&[7][..], 7));
        ids.load(&[5, 6, 4]);
        assert_eq!((ids.values(), ids.max()), (&[5, 6, 4][..], 6));
    }

    #[test]
    #[should_panic(expected = "4 ids do not fit into a list of 3")]
    fn what_does_not_fit_is_refused() {
        Ids::with_room(&Device::cpu(), 3).load(&[0; 4]);
    }
}
