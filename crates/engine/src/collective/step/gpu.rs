//! Sums of a step on GPUs: by NCCL, on a stream of its own, or through the memory of the host.

use super::message::{bytes_of, doubles};
use super::{StepSum, groups_of};
use crate::Result;
use crate::collective::Team;
use crate::collective::nccl::Kind;
use crate::collective::side::{Lane, Side};
use crate::cuda::memory::Block;
use crate::device::{Backend, Buffer};
use crate::ops::batch_norm::MOMENTUM;
use crate::optim::StepNumbers;
use crate::params::{Gradients, GroupId, GroupSet, Params};

/// What sums on GPUs need.
#[derive(Default)]
pub(super) struct OnGpu {
    side: Option<Side>,
    /// Lanes of NCCL, one for each kind of step, and the number of the present one.
    lanes: Vec<Lane>,
    lane: usize,
    /// True if the last pass marks every slice.
    pub(super) is_marked: bool,
    /// Running statistics as they were before the step.
    before: Option<Buffer>,
}

impl OnGpu {
    pub(super) fn complete(&self, gradients: &Gradients, number: usize) {
        if let Some(lane) = self.lanes.get(self.lane) {
            lane.complete(gradients, number);
        }
    }

    /// Milliseconds from the mark of each slice to the end of the pass.
    pub(super) fn slice_times(&self) -> Vec<f64> {
        match (&self.side, self.lanes.get(self.lane)) {
            (Some(side), Some(lane)) if self.is_marked => side.times(lane),
            _ => Vec::new(),
        }
    }
}

impl StepSum {
    /// Begins a step on a GPU that trains the groups `free`: keeps the running statistics.
    pub fn begin_on_gpu(
        &mut self,
        team: &Team,
        params: &Params,
        (free, statistics): (GroupSet, GroupId),
    ) -> Result<()> {
        let Backend::Gpu(gpu) = params.device().backend() else { return Ok(()) };
        let own = &mut self.on_gpu;
        own.is_marked = false;
        if team.nccl().is_some() {
            if own.side.is_none() {
                own.side = Some(Side::new(gpu)?);
            }
            let known = own.lanes.iter().position(|lane| lane.free == free);
            own.lane = known.unwrap_or(own.lanes.len());
            if known.is_none() {
                own.lanes.push(Lane::new(gpu, params, free, team)?);
            }
            self.slices = own.lanes[own.lane].slices.clone();
        }
        let count = params.group_len(statistics);
        if !team.place().is_alone() && count > 0 {
            let before = own.before.get_or_insert_with(|| params.device().zeros(count));
            gpu.copy(params.group_ptrs(statistics).0, before.ptr(), 4 * count);
        }
        Ok(())
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
        let on_gpu = &self.on_gpu;
        match (team.nccl(), &on_gpu.side) {
            (Some(nccl), Some(side)) => {
                let lane = &on_gpu.lanes[on_gpu.lane];
                if batches == 0 || !on_gpu.is_marked {
                    (0..lane.slices.len()).for_each(|number| lane.complete(gradients, number));
                }
                let losses = numbers.losses_on_gpu().map(|at| (at, 2, Kind::Double));
                let moves = moved.as_ref().map(|moved| (moved.ptr(), moved.count(), Kind::Float));
                let rest: Vec<_> = losses.into_iter().chain(moves).collect();
                side.sum(lane, gradients, &rest, |stream, parts| nccl.sum(stream, parts))?;
            }
            _ => {
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
        let (before, place, device) = (self.on_gpu.before.as_ref()?, team.place(), params.device());
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
