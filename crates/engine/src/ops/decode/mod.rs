//! Inference only: attention of single rows over cached keys and values, means that gates read step by step, rows by
//! index, best continuations, rows of log-probabilities.
//!
//! | file | what is in it |
//! |---|---|
//! | `ancestors` | what hypotheses have left behind on the CPU |
//! | `lineage` | the rows that a hypothesis descends from; running sums |
//! | `attention` | one row per hypothesis against a cache, or against encoded sources |
//! | `keys` | the keys and values that rows attend to |
//! | `kept` | number types of kept keys and values on the CPU |
//! | `memory` | rows that sentences keep for a whole search |
//! | `window` | means of the last inputs |
//! | `best`, `log_probs` | the best next tokens; whole rows of log-probabilities on the host |
//! | `attend`, `cpu` | the CPU's implementation: attention, and the rest |
//! | `cuda` | the GPU's |

mod ancestors;
mod attend;
mod attention;
mod best;
mod cpu;
pub(super) mod cuda;
mod kept;
mod keys;
mod lineage;
mod log_probs;
mod memory;
#[cfg(feature = "suite")]
pub(crate) mod suite;
mod window;

pub(crate) use attend::weigh;
pub use attention::Heads;
pub use best::{Candidate, Continuations, LiveRow, Next, Symbols, continuations};
pub(crate) use kept::{Kept, dtype as dtype_of_kept};
pub use keys::{Keys, KvCache, Memory, Spans};
pub use lineage::{Lineage, Room, RunningSum};
pub use log_probs::{log_probs, mean_log_probs};
pub use memory::SlotTensor;
pub use window::InputWindow;

use crate::device::Backend;
use crate::{Ids, Tape, Tensor};

impl Tape<'_> {
    /// The rows of `x` named by `rows`, in that order; no gradient.
    pub fn gather(&mut self, x: &Tensor, rows: &Ids) -> Tensor {
        let shape = [rows.len(), x.cols()];
        let mut y = self.device().scratch_of(x.dtype(), shape[0] * shape[1]);
        match self.backend() {
            Backend::Cpu => cpu::gather(x, rows, &mut y),
            Backend::Gpu(gpu) => cuda::gather(gpu, x, rows, &y),
        }
        Tensor::new(shape, y)
    }
}
