//! A thread that sums slices of gradients over all ranks while this rank computes others.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::sum::PIECE;
use super::{OrderedSum, Round, Team};
use crate::params::{Gradients, GroupId, Slice};
use crate::{Error, Result};

/// Values under way at most, besides one piece: this rank waits rather than hold copies of all gradients.
const MOST_UNDER_WAY: usize = PIECE;
/// Copies that are kept for the next pieces, and values of one.
const SPARE: usize = 16;
const SPARE_VALUES: usize = 1 << 20;

/// A piece of a slice on its way to the thread and back. After the last round it brings the sum.
struct Piece {
    /// Number in the round.
    number: usize,
    group: GroupId,
    range: Range<usize>,
    values: Vec<f32>,
    round: Round,
}

/// The thread and what it was given. It ends with this value.
pub(super) struct Courier {
    to_sum: Sender<Piece>,
    back: Receiver<Result<Piece>>,
    /// Pieces under way, and their values.
    under_way: [usize; 2],
    /// Number of the next piece of the round.
    next: usize,
    spare: Vec<Vec<f32>>,
    failure: Option<Error>,
}

impl Courier {
    /// Starts the thread. It alone calls the ranks while pieces are under way.
    pub(super) fn start(team: &Team) -> Result<Self> {
        let (to_sum, jobs) = channel::<Piece>();
        let (done, back) = channel();
        let team = team.clone();
        let work = move || {
            // The rank may compute on all threads of the pool, and wait for this one.
            let mut sum = OrderedSum::serial(team.transport());
            for mut piece in jobs {
                let summed = add(&mut sum, &team, &mut piece);
                let failed = summed.is_err();
                if done.send(summed.map(|()| piece)).is_err() || failed {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("sums".to_owned()).spawn(work);
        thread.map_err(|error| Error::Launch(format!("a thread for sums of gradients: {error}")))?;
        Ok(Self { to_sum, back, under_way: [0; 2], next: 0, spare: Vec::new(), failure: None })
    }

    /// Takes a slice that is complete, and leaves sums that have come back. All ranks give the same slices in the same order.
    pub(super) fn take(&mut self, gradients: &mut Gradients, slice: &Slice, round: Round) {
        let Range { start, end } = slice.range;
        for first in (start..end).step_by(PIECE) {
            let range = first..end.min(first + PIECE);
            let mut values = self.spare.pop().unwrap_or_default();
            values.clear();
            values.extend_from_slice(&gradients.group(slice.group)[range.clone()]);
            let under_way = [self.under_way[0] + 1, self.under_way[1] + range.len()];
            let piece = Piece { number: self.next, group: slice.group, range, values, round };
            self.next += 1;
            if self.failure.is_none() && self.to_sum.send(piece).is_ok() {
                self.under_way = under_way;
            }
            while let Ok(back) = self.back.try_recv() {
                self.leave(gradients, back);
            }
            while self.under_way[1] > MOST_UNDER_WAY && self.under_way[0] > 1 {
                self.wait(gradients);
            }
        }
    }

    /// Ends a round: waits for everything under way.
    pub(super) fn settle(&mut self, gradients: &mut Gradients) -> Result<()> {
        while self.under_way[0] > 0 {
            self.wait(gradients);
        }
        self.next = 0;
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn wait(&mut self, gradients: &mut Gradients) {
        let ended = || Err(Error::Launch("the thread for sums of gradients has ended".to_owned()));
        let back = self.back.recv().unwrap_or_else(|_| ended());
        self.leave(gradients, back);
    }

    fn leave(&mut self, gradients: &mut Gradients, back: Result<Piece>) {
        match back {
            Ok(piece) => {
                self.under_way[0] -= 1;
                self.under_way[1] -= piece.range.len();
                if piece.round.is_last {
                    gradients.group_mut(piece.group)[piece.range].copy_from_slice(&piece.values);
                }
                if self.spare.len() < SPARE && piece.values.capacity() <= SPARE_VALUES {
                    self.spare.push(piece.values);
                }
            }
            Err(error) => {
                self.under_way = [0; 2];
                self.failure.get_or_insert(error);
            }
        }
    }
}

fn add(sum: &mut OrderedSum, team: &Team, piece: &mut Piece) -> Result<()> {
    let Piece { number, values, round, .. } = piece;
    sum.add_piece(team.host(), (*number, round.is_first), values, round.present)?;
    if round.is_last { sum.finish_piece(team.host(), *number, values) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::collective::{Collective, Ending, Tcp};
    use crate::params::GroupSet;
    use crate::{Device, ParamsBuilder};

    /// Ranks wait for sums on all threads of the pool: those that sum must not need one.
    #[test]
    fn sums_need_no_thread_of_the_pool() {
        let size = rayon::current_num_threads().min(4);
        if size < 2 {
            return;
        }
        let length = 1 << 20;
        let sums = Tcp::among_threads(size, |tcp| {
            let (rank, team) = (tcp.place().rank, Team::of(Arc::new(tcp)));
            let mut summed = Vec::new();
            rayon::scope(|_| {
                let mut builder = ParamsBuilder::default();
                let id = builder.vector("weight".into(), length, GroupId(0));
                let params = builder.finish(&Device::cpu());
                let mut gradients = params.gradients();
                let slices = params.slices(GroupSet::of(&[GroupId(0)]), 1);
                let mut courier = Courier::start(&team).unwrap();
                for [is_first, is_last] in [[true, false], [false, true]] {
                    gradients.clear();
                    gradients.slot(id).0.fill(1.0 + rank as f32);
                    courier.take(&mut gradients, &slices[0], Round { present: size, is_first, is_last });
                    courier.settle(&mut gradients).unwrap();
                }
                summed = gradients.slot(id).0.to_vec();
            });
            team.host().barrier().unwrap();
            team.host().leave(Ending::Finished);
            summed
        });
        let wanted = (size * (size + 1)) as f32;
        assert!(sums.iter().all(|sum| sum.len() == length && sum.iter().all(|v| *v == wanted)));
    }
}
