//! Slices of gradients: parts that are complete, and can be summed over ranks, while a walk back goes on.

use std::ops::Range;

use super::{GroupId, GroupSet, Params};

/// Some blocks of a group that lie end to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The group.
    pub group: GroupId,
    /// Place in its flat buffer.
    pub range: Range<usize>,
    /// Numbers of the blocks in the order of declaration.
    pub(crate) blocks: Vec<usize>,
}

impl Slice {
    fn first_block(&self) -> usize {
        self.blocks.iter().copied().min().unwrap_or(0)
    }
}

impl Params {
    /// Divides the gradients of `groups` into slices of at least so many values, but for the last of each group. They are
    /// in the order in which a walk back completes them: models declare parameters in the order of use. It depends on
    /// the parameters alone, so that all ranks have the same.
    pub fn slices(&self, groups: GroupSet, at_least: usize) -> Vec<Slice> {
        let mut slices = Vec::new();
        for group in (0..self.layout.group_len.len()).map(GroupId).filter(|&group| groups.contains(group)) {
            let mut end = self.group_len(group);
            let mut blocks = Vec::new();
            for (number, block) in self.layout.blocks.iter().enumerate().rev() {
                if block.group != group {
                    continue;
                }
                blocks.push(number);
                if end - block.offset >= at_least.max(1) || block.offset == 0 {
                    slices.push(Slice {
                        group,
                        range: block.offset..end,
                        blocks: std::mem::take(&mut blocks),
                    });
                    end = block.offset;
                }
            }
        }
        slices.retain(|slice| !slice.range.is_empty());
        slices.sort_by_key(|slice| std::cmp::Reverse(slice.first_block()));
        slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::linear::Activation;
    use crate::tensor::Tensor;
    use crate::{Device, ParamsBuilder, Rng, Tape, Var};

    #[test]
    fn slices_cover_every_value_of_their_groups_once_and_the_last_declared_come_first() {
        let mut builder = ParamsBuilder::default();
        let (own, other) = (GroupId(0), GroupId(2));
        // 64 values each, padding included; the fourth is large.
        for number in 0..8 {
            let group = if number % 3 == 2 { other } else { own };
            builder.vector(format!("p{number}"), if number == 3 { 500 } else { 61 }, group);
        }
        let params = builder.finish(&Device::cpu());
        let both = GroupSet::of(&[own, other]);
        for at_least in [1, 64, 100, 128, 1 << 20] {
            let slices = params.slices(both, at_least);
            for group in [own, other] {
                let mut ranges: Vec<_> =
                    slices.iter().filter(|s| s.group == group).map(|s| s.range.clone()).collect();
                ranges.sort_by_key(|range| range.start);
                let ends: Vec<usize> = ranges.iter().map(|range| range.end).collect();
                assert_eq!(ranges[0].start, 0);
                assert!(ranges[1..].iter().zip(&ends).all(|(range, &end)| range.start == end));
                assert_eq!(ends.last(), Some(&params.group_len(group)));
                assert!(ranges[1..].iter().all(|range| range.len() >= at_least), "{at_least}: {ranges:?}");
            }
            let mut blocks: Vec<usize> = slices.iter().flat_map(|slice| slice.blocks.clone()).collect();
            let firsts: Vec<usize> = slices.iter().map(Slice::first_block).collect();
            assert!(firsts.is_sorted_by(|a, b| a > b), "{firsts:?}");
            blocks.sort_unstable();
            assert_eq!(blocks, (0..8).collect::<Vec<_>>());
        }
        assert_eq!(params.slices(both, 1).len(), 8);
        assert_eq!(params.slices(GroupSet::of(&[other]), 1 << 20).len(), 1);
        assert!(params.slices(GroupSet::NONE, 1).is_empty());
    }

    /// The first weight is used twice: it is complete after its first use, at the end of the walk back.
    #[test]
    fn a_slice_is_handed_over_as_soon_as_nothing_is_added_to_it() {
        let device = Device::cpu();
        let mut builder = ParamsBuilder::default();
        let (mut weights, mut biases) = (Vec::new(), Vec::new());
        for layer in 0..4 {
            if layer < 3 {
                weights.push(builder.matrix(format!("w{layer}"), [3, 3], GroupId(0)));
            }
            biases.push(builder.vector(format!("b{layer}"), 3, GroupId(0)));
        }
        let mut params = builder.finish(&device);
        let names: Vec<String> = params.named().map(|named| named.name.to_owned()).collect();
        for (i, name) in names.iter().enumerate() {
            let values: Vec<f32> =
                (0..params.get(name).unwrap().len()).map(|j| ((i + 3 * j) % 7) as f32 * 0.3 - 0.8).collect();
            params.set(name, &values).unwrap();
        }
        let (mut gradients, free) = (params.gradients(), GroupSet::of(&[GroupId(0)]));
        let slices = params.slices(free, 1);
        let walk = |gradients: &mut _, slices: &[Slice], complete: &mut dyn FnMut(&mut _, usize)| {
            let mut tape = Tape::training(&params, gradients, free, Rng::new(1, 1));
            let mut y = Var::constant(Tensor::from_host(&device, [2, 3], &[0.5, -1.0, 2.0, 0.1, 0.2, 0.3]));
            for (weight, bias) in [(0, 0), (1, 1), (2, 2), (0, 3)] {
                y = tape.linear(&y, weights[weight], biases[bias], Activation::Identity, 0.0);
            }
            tape.seed_from_host(&y, &[1.0, -2.0, 3.0, 0.25, 0.5, -0.75]);
            tape.backward_in_slices(slices, complete);
        };
        walk(&mut gradients, &[], &mut |_, _| {});
        let wanted: Vec<Vec<f32>> =
            names.iter().map(|name| gradients.get(&params, name).unwrap().unwrap()).collect();
        gradients.clear();
        let mut seen = Vec::new();
        walk(&mut gradients, &slices, &mut |gradients: &mut crate::Gradients, number| {
            let block = slices[number].blocks[0];
            assert_eq!(gradients.get(&params, &names[block]).unwrap().as_ref(), Some(&wanted[block]));
            let unwritten = gradients.get(&params, "b0").unwrap().is_none();
            seen.push((names[block].as_str(), unwritten));
        });
        let early = ["b3", "b2", "w2", "b1", "w1"].map(|name| (name, true));
        assert_eq!(seen, [&early[..], &[("b0", false), ("w0", false)]].concat());
    }
}
