//! Inputs of gates over a window in search: the mean of the last inputs of each hypothesis.

use super::ancestors::RowStore;
use super::lineage::{Lineage, Room};
use super::{cpu, cuda};
use crate::cuda::memory::Dtype;
use crate::device::Buffer;
use crate::{Device, Tape, Tensor, Var};

/// The inputs of the last `window` steps.
pub struct InputWindow {
    window: usize,
    inputs: Inputs,
}

enum Inputs {
    /// Rows of D values.
    Host(RowStore),
    /// `[kept, rows, D]`: step s is matrix s mod `kept`.
    Gpu { ring: Buffer, kept: usize },
}

impl InputWindow {
    /// Nothing read yet, for rows of `width` values.
    pub fn new(device: &Device, window: usize, room: Room, width: usize) -> Self {
        assert!(window > 0, "a window holds at least the newest input");
        let kept = window.min(room.steps).next_power_of_two();
        let inputs = match device.is_gpu() {
            true => Inputs::Gpu { ring: device.scratch(kept * room.rows * width), kept },
            false => Inputs::Host(RowStore::new(Dtype::F32, width)),
        };
        Self { window, inputs }
    }
}

impl Tape<'_> {
    /// The mean of x `[R, D]` and of what the rows' hypotheses read in the `window − 1` steps before. The newest step is
    /// in the lineage already.
    pub fn window_step(&mut self, x: &Var, inputs: &mut InputWindow, lineage: &Lineage) -> Tensor {
        let (mut mean, window) = (self.like(x), inputs.window);
        match &mut inputs.inputs {
            Inputs::Host(read) => {
                let newest = x.tensor().values().chunks_exact(x.cols());
                read.put(self.device(), lineage.on_host(), newest);
                cpu::window_mean(read, window, lineage.on_host(), &mut mean, x.cols());
            }
            Inputs::Gpu { ring, kept } => {
                let ring = cuda::Ring { inputs: ring, kept: *kept, window };
                cuda::window_step(x, &ring, lineage.on_gpu(), &mean);
            }
        }
        Tensor::new(x.shape(), mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParamsBuilder, Segments};

    /// Step by step, with hypotheses that change places, as the running mean of the whole.
    #[test]
    fn steps_equal_the_running_mean() {
        let device = Device::cpu();
        let params = ParamsBuilder::default().finish(&device);
        let mut tape = Tape::evaluation(&params);
        let values: Vec<f32> = (0..7).map(|i| (i * i) as f32).collect();
        for window in [1, 2, 3, 7, 20] {
            let x = Var::constant(Tensor::from_host(&device, [7, 1], &values));
            let whole = Segments::from_host(&device, &[0, 7]);
            let want = tape.running_mean(&x, &whole, Some(window)).tensor().to_host();
            let room = Room { rows: 2, steps: 7 };
            let mut inputs = InputWindow::new(&device, window, room, 1);
            let mut lineage = Lineage::new(&device, room);
            lineage.begin(2);
            let mut place = 1;
            for step in 0..7 {
                if step == 4 {
                    lineage.reorder(&[1, 0]);
                    place = 0;
                }
                let mut rows = [100.0; 2];
                rows[place] = values[step];
                let new = Var::constant(Tensor::from_host(&device, [2, 1], &rows));
                tape.advance(&mut lineage, 2);
                let mean = tape.window_step(&new, &mut inputs, &lineage).to_host();
                lineage.count_step();
                assert!((mean[place] - want[step]).abs() < 1e-5, "window {window}, step {step}");
            }
        }
    }
}
