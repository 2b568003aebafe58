//! Asynchronous copies of a device's values for the host.

use crate::Result;
use crate::cuda::memory::Dtype;
use crate::cuda::transfer::Arrival;
use crate::device::Buffer;

/// Values as they were when the copy was asked for. A GPU makes it in its turn, while more work is asked of it; any thread
/// may read it.
pub struct HostCopy(Inner);

enum Inner {
    Here(Vec<f32>),
    Coming(Arrival),
}

impl HostCopy {
    pub(crate) fn of(buffer: &Buffer) -> Result<Self> {
        let count = buffer.count();
        Ok(Self(match buffer {
            Buffer::Gpu(gpu) if buffer.dtype() == Dtype::F32 && count > 0 => {
                Inner::Coming(Arrival::of(gpu.block.gpu(), buffer.ptr(), 4 * count)?)
            }
            _ => Inner::Here(buffer.to_host()),
        }))
    }

    /// Values that are on the host.
    pub fn here(values: Vec<f32>) -> Self {
        Self(Inner::Here(values))
    }

    /// The values; waits until they have come.
    pub fn values(&self) -> Result<&[f32]> {
        match &self.0 {
            Inner::Here(values) => Ok(values),
            Inner::Coming(arrival) => arrival.values(),
        }
    }
}
