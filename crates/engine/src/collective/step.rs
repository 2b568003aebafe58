//! Gradients, losses and running statistics of a training step over all ranks.
//!
//! On CPUs everything is added in the order of the batches: a step of K ranks has the bits of one process that takes the
//! same batches one after the other. On GPUs each rank adds its own batches first.
//!
//! Running statistics follow one rule: each batch is normalised by its own, and moves the running ones towards them,
//! `r ← 0.9·r + 0.1·s`; the batches of a step do so in their order, after the last of them. On GPUs each rank moves them by
//! its own batches, to rₖ, and the moves of the ranks follow one another: with d = 0.9ⁿ for n batches of a rank,
//! `r ← dᴷ·r + Σₖ dᴷ⁻¹⁻ᵏ·(rₖ − d·r)`.
//!
//! Gradients leave in slices, in an order that all ranks share. A pass hands them over while it walks back, or all at its
//! end; a rank without a batch hands over all at once.
//!
//! | file | what is in it |
//! |---|---|
//! | `gpu` | the same on GPUs |
//! | `message` | losses and moves of running statistics as ranks send them |

mod gpu;
mod message;

use std::sync::Arc;
use std::time::Instant;

use self::gpu::OnGpu;
use self::message::{message, read};
use super::courier::Courier;
use super::{OrderedSum, Team};
use crate::optim::StepNumbers;
use crate::params::{Gradients, GroupId, GroupSet, Params, Slice, Updates};
use crate::{Error, Result};

/// Values of a slice at least, and of the part of it that a rank adds up.
const SLICE: usize = 1 << 18;
const PART: usize = 1 << 16;

/// The batches of a step that are added at once, one of each rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    /// Ranks that have a batch: the first ones.
    pub present: usize,
    /// True for the first batches of a step.
    pub is_first: bool,
    /// True for the last ones.
    pub is_last: bool,
}

/// Sums of a step.
#[derive(Default)]
pub struct StepSum {
    /// Of one process that has several batches.
    groups: Vec<OrderedSum>,
    /// Of several processes.
    courier: Option<Courier>,
    slices: Arc<[Slice]>,
    /// Slices that were handed over in this round.
    handed_over: usize,
    round: Round,
    /// When slices were handed over early, and the end of the pass, on CPUs.
    times: Vec<Instant>,
    losses: [f64; 2],
    /// Moves of running statistics, in the order of the batches.
    moves: Vec<Updates>,
    on_gpu: OnGpu,
}

impl StepSum {
    /// Begins a step on CPUs that trains the groups `free`: forgets one that was not finished.
    pub fn begin(&mut self, team: &Team, params: &Params, free: GroupSet) -> Result<()> {
        self.groups.iter_mut().for_each(OrderedSum::begin);
        self.losses = [0.0; 2];
        self.moves.clear();
        let size = team.place().size;
        if size > 1 {
            self.slices = params.slices(free, team.slice_or(SLICE.max(PART * size))).into();
            if self.courier.is_none() {
                self.courier = Some(Courier::start(team)?);
            }
        }
        Ok(())
    }

    /// Begins the next batches, on CPUs.
    pub fn begin_round(&mut self, round: Round) {
        (self.round, self.handed_over) = (round, 0);
        self.times.clear();
    }

    /// Returns the slices that the next pass hands over while it walks back; `is_last`: it is the last of this rank in the
    /// step.
    pub fn slices_of_pass(&mut self, team: &Team, is_last: bool) -> Arc<[Slice]> {
        let is_due = team.overlaps() && (is_last || self.courier.is_some());
        let slices = if is_due { self.slices.clone() } else { Arc::default() };
        self.on_gpu.is_marked = !slices.is_empty();
        slices
    }

    /// Takes a slice that is complete. Every slice is taken once in a round, in their order.
    pub fn complete(&mut self, gradients: &mut Gradients, number: usize) {
        match &mut self.courier {
            Some(courier) => {
                courier.take(gradients, &self.slices[number], self.round);
                self.handed_over = number + 1;
                self.times.push(Instant::now());
            }
            None => self.on_gpu.complete(gradients, number),
        }
    }

    /// Returns the values of the slices that the last pass handed over early, and milliseconds from then to its end. Waits
    /// for the device.
    pub fn slice_times(&self) -> Vec<(usize, f64)> {
        let times = match (&self.courier, self.times.split_last()) {
            (Some(_), Some((end, times))) => {
                times.iter().map(|time| 1e3 * (*end - *time).as_secs_f64()).collect()
            }
            _ => self.on_gpu.slice_times(),
        };
        self.slices.iter().map(|slice| slice.range.len()).zip(times).collect()
    }

    /// Adds a batch of each rank that is present, on CPUs: gradients of the groups `free`, losses, and moves of running
    /// statistics. Other ranks give nothing. After the last round of several processes the sums are in `gradients`.
    pub fn add(
        &mut self,
        team: &Team,
        params: &Params,
        (gradients, free): (&mut Gradients, GroupSet),
        numbers: &mut StepNumbers,
        updates: Updates,
    ) -> Result<()> {
        let Some(courier) = &mut self.courier else {
            self.moves.push(updates);
            let used = groups_of(params, free);
            self.groups.resize_with(used.len(), OrderedSum::default);
            let mut sums = self.groups.iter_mut().zip(used);
            return sums.try_for_each(|(sum, group)| sum.add(team.host(), gradients.group(group), 1));
        };
        self.times.push(Instant::now());
        for slice in &self.slices[self.handed_over..] {
            courier.take(gradients, slice, self.round);
        }
        courier.settle(gradients)?;
        let all = team.host().gather(&message(numbers.take_losses(), &updates))?;
        for (rank, message) in all.iter().enumerate().take(self.round.present) {
            let fault = || Error::Peer {
                rank,
                name: String::new(),
                why: "it sent numbers of another model; all ranks must run the same program".to_owned(),
            };
            let (losses, moves) = read(params, message).ok_or_else(fault)?;
            self.losses.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss);
            self.moves.push(moves);
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
