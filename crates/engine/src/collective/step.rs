//! Gradients, losses and running statistics of a training step over all ranks.
//!
//! On CPUs everything is added in the order of the batches: a step of K ranks has the bits of one process that takes the
//! same batches one after the other. On GPUs each rank adds its own batches first.
//!
//! Running statistics follow one rule: each batch is normalised by its own, and moves the running ones towards them,
//! `r ← 0.9·r + 0.1·s`; the batches of a step do so in their order, after the last of them. On GPUs each rank moves them by
//! its own batches, to rₖ, and the moves of the ranks follow one another: with d = 0.9ⁿ for n batches of a rank,
//! `r ← dᴷ·r + Σₖ dᴷ⁻¹⁻ᵏ·(rₖ − d·r)`.

use super::{OrderedSum, Team};
use crate::cuda::memory::Block;
use crate::device::{Backend, Buffer};
use crate::ops::batch_norm::MOMENTUM;
use crate::optim::StepNumbers;
use crate::params::{Gradients, GroupId, GroupSet, Params, Updates};
use crate::{Device, Error, Result};

/// Sums of a step.
#[derive(Default)]
pub struct StepSum {
    groups: Vec<OrderedSum>,
    losses: [f64; 2],
    /// Moves of running statistics, in the order of the batches.
    moves: Vec<Updates>,
    /// Running statistics as they were before the step, on a GPU.
    before: Option<Buffer>,
}

impl StepSum {
    /// Begins a step on CPUs: forgets one that was not finished.
    pub fn begin(&mut self) {
        self.groups.iter_mut().for_each(OrderedSum::begin);
        self.losses = [0.0; 2];
        self.moves.clear();
    }

    /// Adds a batch of each of the first `present` ranks, on CPUs: gradients of the groups `free`, losses, and moves of
    /// running statistics. Ranks beyond them give nothing.
    pub fn add(
        &mut self,
        team: &Team,
        params: &Params,
        (gradients, free): (&Gradients, GroupSet),
        numbers: &mut StepNumbers,
        (updates, present): (Updates, usize),
    ) -> Result<()> {
        let ranks = team.host();
        if team.place().is_alone() {
            self.moves.push(updates);
        } else {
            let all = ranks.gather(&message(numbers.take_losses(), &updates))?;
            for (rank, message) in all.iter().enumerate().take(present) {
                let fault = || Error::Peer {
                    rank,
                    name: String::new(),
                    why: "it sent numbers of another model; all ranks must run the same program".to_owned(),
                };
                let (losses, moves) = read(params, message).ok_or_else(fault)?;
                self.losses.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss);
                self.moves.push(moves);
            }
        }
        let used = groups_of(params, free);
        self.groups.resize_with(used.len(), || OrderedSum::by(team.transport()));
        for (sum, group) in self.groups.iter_mut().zip(used) {
            sum.add(ranks, gradients.group(group), present)?;
        }
        Ok(())
    }

    /// Leaves the sums in `gradients` and `numbers` and moves the running statistics, on CPUs.
    pub fn finish(
        &mut self,
        team: &Team,
        params: &mut Params,
        (gradients, free): (&mut Gradients, GroupSet),
        numbers: &mut StepNumbers,
    ) -> Result<()> {
        for (sum, group) in self.groups.iter_mut().zip(groups_of(params, free)) {
            sum.finish(team.host(), gradients.group_mut(group))?;
        }
        numbers.add_losses(std::mem::take(&mut self.losses));
        self.moves.drain(..).for_each(|moves| params.apply(moves));
        Ok(())
    }

    /// Begins a step on a GPU: keeps the running statistics.
    pub fn begin_on_gpu(&mut self, team: &Team, params: &Params, statistics: GroupId) {
        let count = params.group_len(statistics);
        if team.place().is_alone() || count == 0 {
            return;
        }
        if let Backend::Gpu(gpu) = params.device().backend() {
            let before = self.before.get_or_insert_with(|| params.device().zeros(count));
            gpu.copy(params.group_ptrs(statistics).0, before.ptr(), 4 * count);
        }
    }

    /// Sums gradients, losses and moves of running statistics on GPUs, after this rank has made `batches` of them out of
    /// `rounds` that a rank can have.
    pub fn sum_on_gpu(
        &mut self,
        team: &Team,
        params: &mut Params,
        (gradients, free): (&mut Gradients, GroupSet),
        numbers: &mut StepNumbers,
        (statistics, [batches, rounds]): (GroupId, [usize; 2]),
    ) -> Result<()> {
        let device = params.device().clone();
        let used = groups_of(params, free);
        if batches == 0 {
            // Nothing has been written in this step.
            used.iter().for_each(|&group| gradients.clear_values(group));
        }
        let moved = self.moves(team, params, statistics, rounds);
        match team.nccl() {
            Some(nccl) => {
                let parts = used.iter().map(|&group| (gradients.group_ptr(group), params.group_len(group)));
                nccl.sum(&parts.collect::<Vec<_>>(), numbers.losses_on_gpu());
                if let Some(moved) = &moved {
                    nccl.sum(&[(moved.ptr(), moved.count())], None);
                }
            }
            None => {
                for group in used {
                    gradients.change_on_host(group, |values| team.sum(values))?;
                }
                let losses = team.host().gather(&bytes_of(numbers.read_losses()?))?;
                numbers.write_losses(losses.iter().fold([0.0; 2], |sum, bytes| {
                    let own = doubles(bytes);
                    [sum[0] + own[0], sum[1] + own[1]]
                }));
                if let Some(moved) = &moved {
                    let mut values = moved.to_host();
                    team.host().sum(&mut values)?;
                    params.set_group(statistics, &values);
                }
            }
        }
        if let (Some(moved), Some(_), Backend::Gpu(gpu)) = (&moved, team.nccl(), device.backend()) {
            gpu.copy(moved.ptr(), params.group_ptrs(statistics).0, 4 * moved.count());
        }
        device.check()
    }

    /// The part of this rank in the new running statistics: `dᴷ⁻¹⁻ᵏ·rₖ − dᴷ⁻ᵏ·r`, without the second term on rank 0.
    fn moves(&self, team: &Team, params: &Params, statistics: GroupId, rounds: usize) -> Option<Buffer> {
        let (before, place, device) = (self.before.as_ref()?, team.place(), params.device());
        let Backend::Gpu(gpu) = device.backend() else { return None };
        let decay = f64::from(1.0 - MOMENTUM).powi(rounds as i32);
        let later = (place.size - 1 - place.rank) as i32;
        let (moved, never) = (device.zeros(before.count()), Block::new(gpu, 4));
        never.clear();
        let now = params.group_ptrs(statistics).0;
        let add = |from, factor: f64| {
            crate::optim::cuda::add_scaled(
                gpu,
                [moved.ptr(), from],
                (factor as f32, never.ptr()),
                before.count(),
            );
        };
        add(now, decay.powi(later));
        if !place.is_first() {
            add(before.ptr(), -decay.powi(later + 1));
        }
        Some(moved)
    }
}

/// Parameters and all that training remembers, as rank 0 has them, on all ranks.
pub(super) fn share_params(team: &Team, params: &mut Params) -> Result<()> {
    for group in (0..32).map(GroupId).filter(|&group| params.group_len(group) > 0).collect::<Vec<_>>() {
        let mut values = params.group_to_host(group);
        team.host().broadcast(&mut values)?;
        if !team.place().is_first() {
            params.set_group(group, &values);
        }
    }
    Ok(())
}

fn groups_of(params: &Params, groups: GroupSet) -> Vec<GroupId> {
    (0..32).map(GroupId).filter(|&group| groups.contains(group) && params.group_len(group) > 0).collect()
}

fn bytes_of(losses: [f64; 2]) -> Vec<u8> {
    losses.map(f64::to_le_bytes).concat()
}

fn doubles(bytes: &[u8]) -> [f64; 2] {
    let number = |at: usize| {
        bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(f64::NAN, f64::from_le_bytes)
    };
    [number(0), number(8)]
}

/// Losses of a batch and its moves of running statistics: number of the block, number of values, values.
fn message(losses: [f64; 2], updates: &Updates) -> Vec<u8> {
    let mut bytes = bytes_of(losses);
    for (id, values) in &updates.0 {
        bytes.extend((id.index() as u32).to_le_bytes());
        bytes.extend((values.count() as u32).to_le_bytes());
        bytes.extend(bytemuck::cast_slice::<f32, u8>(values));
    }
    bytes
}

/// The same read back; `None` if it is not of these parameters.
fn read(params: &Params, bytes: &[u8]) -> Option<([f64; 2], Updates)> {
    let losses = doubles(bytes.get(..16)?);
    let (mut rest, mut updates) = (&bytes[16..], Updates::default());
    while !rest.is_empty() {
        let (head, behind) = rest.split_at_checked(8)?;
        let number = |at: usize| head[at..at + 4].try_into().map(u32::from_le_bytes).map(|n| n as usize);
        let (id, count) = (params.id_at(number(0).ok()?)?, number(4).ok()?);
        let block = params.block(id);
        let (values, behind) = behind.split_at_checked(4usize.checked_mul(count)?)?;
        if block.rows * block.cols != count {
            return None;
        }
        updates.0.push((id, host_buffer(params.device(), values)));
        rest = behind;
    }
    Some((losses, updates))
}

fn host_buffer(device: &Device, bytes: &[u8]) -> Buffer {
    let values: Vec<f32> =
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect();
    let mut buffer = device.scratch_floats(values.len());
    buffer.write(0, &values);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamsBuilder;

    #[test]
    fn messages_of_another_model_are_refused() {
        let mut builder = ParamsBuilder::default();
        let id = builder.vector("mean".into(), 3, GroupId(0));
        let params = builder.finish(&Device::cpu());
        let mut updates = Updates::default();
        updates.0.push((id, host_buffer(params.device(), bytemuck::cast_slice(&[1.0f32, -0.0, 3.5]))));
        let bytes = message([1.5, -2.5], &updates);
        let (losses, moves) = read(&params, &bytes).unwrap();
        assert_eq!(losses, [1.5, -2.5]);
        assert_eq!(
            moves.0[0].1.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            [1.0f32, -0.0, 3.5].map(f32::to_bits)
        );
        for end in (0..bytes.len()).filter(|end| *end != 16) {
            assert!(read(&params, &bytes[..end]).is_none(), "{end} bytes");
        }
        let mut wrong = bytes.clone();
        wrong[16] = 1;
        assert!(read(&params, &wrong).is_none(), "there is no block 1");
        let mut wrong = bytes;
        wrong[20] = 2;
        assert!(read(&params, &wrong).is_none(), "the block has three values");
    }
}
