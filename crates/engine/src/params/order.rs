//! The order of parameters in the buffer of a group, in which an optimiser's memory is written to files.

use super::Params;
use super::layout::ALIGNMENT;
use crate::GroupId;

impl Params {
    /// Names of the parameters of a group in the order of its buffer, block by block.
    pub fn order(&self, group: GroupId) -> Vec<Vec<String>> {
        let blocks = self.layout.blocks.iter().filter(|block| block.group == group);
        blocks.map(|block| block.parts.iter().map(|part| part.name.clone()).collect()).collect()
    }

    /// Puts values of a group that lie in another order into the order of its buffer. `None` if they are not those of
    /// these parameters.
    pub fn rearranged(&self, group: GroupId, order: &[Vec<String>], values: &[f32]) -> Option<Vec<f32>> {
        let mut ours = vec![0.0; self.group_len(group)];
        let mut begin = 0;
        for block in order {
            let mut at = begin;
            for name in block {
                let named = self.find(name).ok().filter(|named| named.group == group)?;
                let end = at + named.range.len();
                ours[named.range].copy_from_slice(values.get(at..end)?);
                at = end;
            }
            begin += (at - begin).next_multiple_of(ALIGNMENT);
        }
        (begin == values.len()).then_some(ours)
    }
}
