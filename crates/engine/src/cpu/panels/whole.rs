//! Whole numbers that stand for weights.

use super::{Half, Number, Weight};
use crate::cpu::gemm::streamed::kernel::Lanes;

/// A type of whole numbers.
pub(crate) trait Whole: Number {
    /// The largest number of a column is from 2 to this power to twice as much.
    const PLACES: u32;
    /// A type that has all of these numbers times a power of two.
    type Exact: Number;
}

/// The whole number nearest to a value, of so many bits with its sign.
fn nearest(value: f32, bits: u32) -> i32 {
    let most = (1 << (bits - 1)) - 1;
    (value.round_ties_even() as i32).clamp(-most, most)
}

/// The upper three bytes of a whole number of 32 bits whose lowest byte is 0, low byte first.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct ThreeBytes([u8; 3]);

impl Whole for ThreeBytes {
    const PLACES: u32 = 30;
    type Exact = f32;
}

impl Number for ThreeBytes {
    fn round(value: f32) -> Self {
        let [low, middle, high, _] = nearest(value / 256.0, 24).to_le_bytes();
        Self([low, middle, high])
    }
}

impl Weight for ThreeBytes {
    #[inline(always)]
    unsafe fn load<L: Lanes>(at: *const Self) -> L {
        // SAFETY: the caller answers for values and instructions, and these are three bytes each.
        unsafe { L::expand(at.cast()) }
    }

    #[inline(always)]
    fn get(self) -> f32 {
        let [low, middle, high] = self.0;
        i32::from_le_bytes([0, low, middle, high]) as f32
    }
}

/// A whole number of 8 bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Byte(i8);

impl Whole for Byte {
    const PLACES: u32 = 6;
    type Exact = Half;
}

impl Number for Byte {
    fn round(value: f32) -> Self {
        Self(nearest(value, 8) as i8)
    }
}

impl Weight for Byte {
    #[inline(always)]
    unsafe fn load<L: Lanes>(at: *const Self) -> L {
        // SAFETY: the caller answers for values and instructions, and these are a byte each.
        unsafe { L::convert(at.cast()) }
    }

    #[inline(always)]
    fn get(self) -> f32 {
        f32::from(self.0)
    }
}
