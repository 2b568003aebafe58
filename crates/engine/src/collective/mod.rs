//! Several processes that train one model: sums, broadcasts and gathers over flat buffers.
//!
//! | room | what is in it |
//! |---|---|
//! | `mod` | [`Collective`], the interface of all back ends; [`Alone`], that of one process |
//! | `launch` | ranks from the environment that a launcher has set |
//! | `sum` | sums in the order of ranks, made of an exchange and a collection |
//! | `courier` | a thread that sums slices of gradients while the rank computes |
//! | `side` | the same by NCCL, on a stream of its own |
//! | `step` | gradients, losses and running statistics of a training step over all ranks |
//! | `tcp`, `rendezvous`, `sockets` | the back end without a library: a connection between any two ranks, and how ranks find one another |
//! | `mpi` | MPI, opened at run time |
//! | `nccl` | sums in the memory of GPUs by NCCL, opened at run time |
//! | `lifeline` | connections that tell when a rank has ended |
//! | `team` | back ends of a run, chosen by launcher and device |
//!
//! A sum adds the values of the ranks in their order, so that K ranks make the bits of one process that does the same
//! work in that order. Only NCCL has an order of its own, which it keeps from run to run.

mod courier;
mod launch;
mod lifeline;
mod mpi;
mod nccl;
mod rendezvous;
pub(crate) mod side;
mod sockets;
mod step;
mod sum;
mod tcp;
mod team;

use std::ops::Range;

pub use self::launch::{Launch, Launcher, Place};
pub use self::lifeline::OnLoss;
pub use self::mpi::Mpi;
pub use self::step::{Round, StepSum};
pub use self::sum::{OrderedSum, Transport};
pub use self::tcp::Tcp;
pub use self::team::{Overlap, Team};
use crate::Result;

/// Way in which a rank ends its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending<'a> {
    /// All ranks end here.
    Finished,
    /// This rank has met an error, which the others name.
    Failed(&'a str),
}

/// Processes that work together. All ranks make the same calls in the same order, from one thread at a time. An error
/// names the rank that is at fault.
pub trait Collective: Send + Sync {
    /// Returns the place of this process among all.
    fn place(&self) -> Place;

    /// Returns a description for people.
    fn describe(&self) -> String;

    /// Sends the part `slices[j]` of `send` to rank j, for all j. `receive` gets the parts that the ranks sent to this one,
    /// in rank order; all have the length of the slice of this rank.
    fn exchange(&self, send: &[f32], slices: &[Range<usize>], receive: &mut [f32]) -> Result<()>;

    /// Fills `slices[j]` of `values` with what rank j has there, for all j.
    fn collect(&self, values: &mut [f32], slices: &[Range<usize>]) -> Result<()>;

    /// Returns the bytes of all ranks, in rank order. Their lengths may differ.
    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Gives the values of rank 0 to all.
    fn broadcast(&self, values: &mut [f32]) -> Result<()>;

    /// Waits until all ranks have come this far.
    fn barrier(&self) -> Result<()> {
        self.gather(&[]).map(drop)
    }

    /// Sums the values of all ranks in rank order; every rank gets the sum.
    fn sum(&self, values: &mut [f32]) -> Result<()> {
        let mut sum = OrderedSum::default();
        sum.add(self, values, self.place().size)?;
        sum.finish(self, values)
    }

    /// Returns true if a call may wait for ever for a rank that has ended.
    fn may_hang(&self) -> bool {
        false
    }

    /// Sets what is called, on a thread of its own, when a rank has ended. It ends the process: MPI and NCCL may wait for
    /// the rank for ever. Connections by TCP are cut, so that every call returns an error, and need no such end.
    fn on_loss(&self, ended: OnLoss);

    /// Tells the other ranks that this one ends, and how.
    fn leave(&self, ending: Ending<'_>);
}

/// One process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Collective for Alone {
    fn place(&self) -> Place {
        Place::ALONE
    }

    fn describe(&self) -> String {
        "one process".to_owned()
    }

    fn exchange(&self, send: &[f32], _: &[Range<usize>], receive: &mut [f32]) -> Result<()> {
        receive.copy_from_slice(send);
        Ok(())
    }

    fn collect(&self, _: &mut [f32], _: &[Range<usize>]) -> Result<()> {
        Ok(())
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(vec![own.to_vec()])
    }

    fn broadcast(&self, _: &mut [f32]) -> Result<()> {
        Ok(())
    }

    fn on_loss(&self, _: OnLoss) {}

    fn leave(&self, _: Ending<'_>) {}
}
