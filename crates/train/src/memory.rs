//! Trial of the largest batch: a memory that is too small is found before training, and not at update 40,000.

use mae_data::sampler::{BatchBound, BatchSampler};
use mae_data::{EOS, PackedBatch};
use mae_model::Model;
use serde::{Deserialize, Serialize};

use crate::{Error, Learner, Result};

/// Memory that the largest batch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Its source tokens; 0 of a language model.
    pub source_tokens: u32,
    /// Its target tokens.
    pub target_tokens: u32,
    /// Bytes held on the device for parameters, gradients, moments and this batch.
    pub bytes: usize,
}

/// On a CPU the first trial has about so many tokens, and each one after it so many times as many.
const FIRST: u32 = 1024;
const STEP: u32 = 4;

/// Runs the largest batch that `sampler` can make forward and backward, and changes nothing. A GPU that has too little
/// memory says so. A CPU may be killed for it, so there smaller batches are tried first, and what they take is scaled
/// up and compared with the `available` bytes.
pub fn check<M: Model>(
    learner: &mut Learner<M>,
    sampler: &BatchSampler,
    max_tokens: u32,
    available: Option<u64>,
) -> Result<MemoryUse> {
    let bound = sampler.bound();
    let (source_tokens, target_tokens) = bound.tokens;
    let (device, types) = (learner.model.params().device().clone(), learner.model.target_types());
    let fault = |needed: String| Error::Memory { tokens: bound.tokens, needed, max_tokens };
    if let (false, Some(available)) = (device.is_gpu(), available) {
        let most = source_tokens.max(target_tokens);
        let parts = std::iter::successors(Some(STEP), |part| part.checked_mul(STEP));
        let mut parts: Vec<u32> = parts.take_while(|part| *part == STEP || most / part >= FIRST).collect();
        while let Some(part) = parts.pop() {
            let before = device.memory_held();
            learner.try_out(&batch(bound, part, types))?;
            let taken = (device.memory_held() - before) as u64;
            device.trim();
            if taken * u64::from(STEP) > available {
                let (needed, available) = (gib(taken * u64::from(part)), gib(available));
                return Err(fault(format!("about {needed}, and {available} are available")));
            }
        }
    }
    learner.try_out(&batch(bound, 1, types)).map_err(|error| match error {
        Error::Engine(error @ (mae_engine::Error::OutOfMemory { .. } | mae_engine::Error::Gpu(_))) => {
            fault(format!("more than there is ({error})"))
        }
        other => other,
    })?;
    Ok(MemoryUse { source_tokens, target_tokens, bytes: device.memory_held() })
}

/// Source and target tokens in words.
pub fn tokens_of((source, target): (u32, u32)) -> String {
    if source == 0 {
        format!("{target} tokens")
    } else {
        format!("{source} source and {target} target tokens")
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// A batch of as many tokens as `bound` allows, divided by `part`, in sentences that are as long as they come. Targets
/// are of all `types`: in a vocabulary with bands, frequent words alone would take less.
fn batch(bound: BatchBound, part: u32, types: usize) -> PackedBatch {
    let share = |tokens: u32| tokens.div_ceil(part) as usize;
    let (source, target) = (share(bound.tokens.0), share(bound.tokens.1));
    let sentences = |tokens: usize, longest: u32| tokens.div_ceil(longest.max(1) as usize);
    let sentences = sentences(source, bound.longest.0).max(sentences(target, bound.longest.1));
    // A language model has no source.
    let most = if source == 0 { target } else { source.min(target) };
    let sentences = sentences.min(most).max(1);
    let ids: Vec<u32> = (0..target).map(|i| (i * 7919 % types.max(1)) as u32).collect();
    let starts = |tokens: usize| (0..=sentences).map(|b| (b * tokens / sentences) as u32).collect();
    PackedBatch {
        src: vec![EOS; source],
        src_starts: starts(source),
        prev: ids.clone(),
        tgt: ids,
        tgt_starts: starts(target),
        ids: (0..sentences as u32).collect(),
    }
}

/// Bytes of main memory that this process may still take, if the system reports them.
pub fn available() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let number = |path: &str| read(path)?.trim().parse::<u64>().ok();
    let meminfo = read("/proc/meminfo")?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = 1024 * line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?;
    // A container may have less.
    let (limit, used) = (number("/sys/fs/cgroup/memory.max"), number("/sys/fs/cgroup/memory.current"));
    let container = limit.zip(used).map_or(u64::MAX, |(limit, used)| limit.saturating_sub(used));
    Some(machine.min(container))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_is_as_large_as_allowed() {
        let bound = BatchBound { tokens: (100, 70), longest: (30, 9) };
        let whole = batch(bound, 1, 11);
        assert_eq!((whole.src_tokens(), whole.tgt_tokens(), whole.sentences()), (100, 70, 8));
        for starts in [&whole.src_starts, &whole.tgt_starts] {
            assert!(starts.len() == 9 && starts.windows(2).all(|w| w[0] < w[1]));
        }
        assert_eq!(batch(bound, 8, 11).src_tokens(), 13);
        let tiny = batch(BatchBound { tokens: (1, 1), longest: (1, 1) }, 8, 11);
        assert_eq!((tiny.src_tokens(), tiny.sentences()), (1, 1));
        let blocks = batch(BatchBound { tokens: (0, 70), longest: (0, 9) }, 1, 11);
        assert_eq!((blocks.src_tokens(), blocks.tgt_tokens(), blocks.sentences()), (0, 70, 8));
        assert!((0..11).all(|id| blocks.tgt.contains(&id)));
    }
}
