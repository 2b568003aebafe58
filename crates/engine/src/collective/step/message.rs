//! Losses of a batch and its moves of running statistics, as ranks send them.

use crate::Device;
use crate::device::Buffer;
use crate::params::{Params, Updates};

pub(super) fn bytes_of(losses: [f64; 2]) -> Vec<u8> {
    losses.map(f64::to_le_bytes).concat()
}

pub(super) fn doubles(bytes: &[u8]) -> [f64; 2] {
    let number = |at: usize| {
        bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(f64::NAN, f64::from_le_bytes)
    };
    [number(0), number(8)]
}

/// Losses of a batch and its moves of running statistics: number of the block, number of values, values.
pub(super) fn message(losses: [f64; 2], updates: &Updates) -> Vec<u8> {
    let mut bytes = bytes_of(losses);
    for (id, values) in &updates.0 {
        bytes.extend((id.index() as u32).to_le_bytes());
        bytes.extend((values.count() as u32).to_le_bytes());
        bytes.extend(bytemuck::cast_slice::<f32, u8>(values));
    }
    bytes
}

/// The same read back; `None` if it is not of these parameters.
pub(super) fn read(params: &Params, bytes: &[u8]) -> Option<([f64; 2], Updates)> {
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
    use crate::{GroupId, ParamsBuilder};

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
