//! Slices of gradients that are taken while a walk back goes on, as sums over ranks take them: by another stream on a GPU.

use cudarc::driver::result;

use crate::Result;
use crate::collective::side::{Lane, Side};
use crate::collective::{Team, Transport};
use crate::cuda::memory::Block;
use crate::device::{Buffer, Device, Numbers};
use crate::params::{Gradients, GroupSet, Params, Slice};
use crate::suite::fit;

/// Takes a copy of every slice as soon as it is complete; rounds it if it travels as bfloat16.
pub(super) struct Taker {
    slices: Vec<Slice>,
    transport: Transport,
    copies: Buffer,
    stream: Option<(Side, Lane, Block)>,
}

/// Bytes that a GPU clears before a pass, and how often: until then nothing of the pass is there, and who does not wait
/// for it gets something else.
const BUSY_BYTES: usize = 256 << 20;
const BUSY: usize = 50;

impl Taker {
    pub(super) fn new(
        device: &Device,
        params: &Params,
        free: GroupSet,
        transport: Transport,
    ) -> Result<Self> {
        let slices = params.slices(free, 1);
        let copies = device.zeros(slices.iter().map(|slice| slice.range.len()).sum());
        let stream = match device.gpu() {
            None => None,
            Some(gpu) => {
                let team = Team::alone().sending(transport).in_slices_of(1);
                let lane = Lane::new(gpu, params, free, &team)?;
                Some((Side::new(gpu)?, lane, Block::new(gpu, BUSY_BYTES)))
            }
        };
        Ok(Self { slices, transport, copies, stream })
    }

    pub(super) fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Before a pass.
    pub(super) fn begin(&self) {
        if let Some((.., busy)) = &self.stream {
            (0..BUSY).for_each(|_| busy.clear());
        }
    }

    /// In a pass.
    pub(super) fn complete(&mut self, gradients: &mut Gradients, number: usize) {
        if let Some((_, lane, _)) = &self.stream {
            return lane.complete(gradients, number);
        }
        let Slice { group, range, .. } = &self.slices[number];
        let first = self.first(number);
        let values = &mut gradients.group_mut(*group)[range.clone()];
        if self.transport == Transport::Bf16 {
            values.iter_mut().for_each(|value| *value = fit(Numbers::Bf16, *value));
        }
        self.copies[first..first + values.len()].copy_from_slice(values);
    }

    /// After a pass; the copies, of f32 only.
    pub(super) fn finish(&self, gradients: &Gradients) -> Result<Option<Vec<f32>>> {
        let is_exact = self.transport == Transport::F32;
        if let Some((side, lane, _)) = &self.stream {
            let next = std::cell::Cell::new(self.copies.ptr());
            side.sum(lane, gradients, &[], |stream, parts| {
                for &(from, count, _) in parts.iter().filter(|_| is_exact) {
                    let to = next.get();
                    next.set(to.plus(4 * count));
                    // SAFETY: the copies have room for all slices, which are of living blocks.
                    let copied =
                        unsafe { result::memcpy_dtod_async(to.address(), from.address(), 4 * count, stream) };
                    lane.gpu().note(copied);
                }
            })?;
            lane.gpu().check()?;
        }
        Ok(is_exact.then(|| self.copies.to_host()))
    }

    fn first(&self, number: usize) -> usize {
        self.slices[..number].iter().map(|slice| slice.range.len()).sum()
    }
}
