//! The kernel suite: every op on a GPU against the CPU, whose ops are the definition.
//!
//! | room | what is in it |
//! |---|---|
//! | `case`, `scene` | a case: inputs with names, and a body that calls ops and leaves results |
//! | `values` | numbers that both devices start from |
//! | `compare` | results of both devices side by side |
//! | `network` | whole passes, op by op and captured |
//! | `slices` | slices of gradients that another stream takes during a pass |
//! | [`speed`] | rates of copies and products |
//!
//! A case is run on the CPU and twice on the GPU, where new memory holds garbage of two kinds: what no kernel has
//! written shows, and both runs must give the same bits. Each op is run in a training pass whose outputs get a random
//! gradient, then in another whose gradients are added to existing content. Random numbers are functions of their place,
//! so that both devices drop and draw the same.
//!
//! The cases of an op are in its room, `ops/<op>/suite.rs`.

mod case;
mod compare;
mod network;
mod scene;
mod slices;
pub mod speed;
#[cfg(test)]
mod tests;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(crate) use self::case::{Case, OpCase};
pub use self::compare::Row;
pub(crate) use self::compare::{Outcome, Quantity, Tolerance};
use self::compare::{compare, same_bits};
pub(crate) use self::scene::{Per, Scene};
pub(crate) use self::values::{fit, gradient_of, random, starts};
use crate::cuda::Gpu;
use crate::device::{Device, Numbers};
use crate::{Error, Result};

fn all_cases() -> Vec<Case> {
    let products = crate::cuda::product::suite::cases();
    let mut cases: Vec<Case> =
        [crate::ops::cases(), crate::optim::suite::cases(), products, network::cases()]
            .into_iter()
            .flatten()
            .collect();
    // What is wrong with an op shows soonest in small cases.
    cases.sort_by_key(|case| case.large);
    cases
}

/// The GPU of a device.
fn on(device: &Device) -> Result<&Arc<Gpu>> {
    device.gpu().ok_or_else(|| Error::NoGpu("this is the CPU".into()))
}

/// Selection of cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    /// Those whose op or description contains this.
    pub filter: &'a str,
    /// Those that are quick, even under a sanitizer.
    pub small: bool,
}

/// Runs cases on GPU number `ordinal`, and tells `report` each row.
///
/// An op that fails is a row, too. An error means that no GPU can be used, or none any more: the driver takes a
/// program's GPU away after some faults.
pub fn run(ordinal: usize, numbers: Numbers, choice: Choice<'_>, mut report: impl FnMut(Row)) -> Result<()> {
    let cpu = Device::cpu();
    let mut gpu = Device::cuda(ordinal, numbers)?;
    gpu.compile_kernels()?;
    for case in all_cases().iter().filter(|case| case.matches(numbers, choice)) {
        let want = case.run(&cpu, numbers);
        match run_twice(case, &gpu, numbers) {
            Ok([first, second]) => {
                compare(case, numbers, &want, &first).into_iter().for_each(&mut report);
                report(same_bits(case, numbers, &first, &second));
            }
            Err(failure) => {
                report(Row::failed(case, numbers, failure.to_string()));
                // Errors of a device stick: the next case needs a new one.
                gpu = Device::cuda(ordinal, numbers)?;
            }
        }
    }
    Ok(())
}

/// Fillings of new memory: bytes that make NaN in both number types, and bytes that make 1.3·10⁷.
const GARBAGE: [u8; 2] = [0xff, 0x4b];

fn run_twice(case: &Case, gpu: &Device, numbers: Numbers) -> Result<[Outcome; 2]> {
    let run = |byte: u8| {
        on(gpu)?.pool.fill_new_blocks(byte);
        // A panic in one op must not hide what is wrong with the others.
        let outcome = catch_unwind(AssertUnwindSafe(|| case.run(gpu, numbers)))
            .map_err(|_| Error::Gpu("the op panicked; the message is above".into()));
        gpu.wait()?;
        outcome
    };
    Ok([run(GARBAGE[0])?, run(GARBAGE[1])?])
}
