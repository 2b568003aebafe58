//! Policies for lines that are empty or over-long.

use super::{PreprocessOptions, SideReport};
use crate::error::{Error, Result};
use crate::options::Setting;

/// Policy for a pair with an empty or over-long line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinePolicy {
    /// Write it all the same.
    Keep,
    /// Leave the pair out, and count it.
    Skip,
    /// Stop.
    Error,
}

/// Policies for the splits that are trained on and for those that are evaluated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    /// For the training split.
    pub train: LinePolicy,
    /// For validation and test splits, of which every line should come out again.
    pub eval: LinePolicy,
}

/// The policies for the lines of one split.
pub(super) struct SplitPolicy {
    empty: (LinePolicy, Setting),
    too_long: (LinePolicy, Setting),
    max_tokens: usize,
}

impl SplitPolicy {
    pub(super) fn new(options: &PreprocessOptions, split: &str) -> Self {
        let (empty, too_long) = match split {
            "train" => {
                ((options.empty.train, Setting::EmptyTrain), (options.too_long.train, Setting::LongTrain))
            }
            _ => ((options.empty.eval, Setting::EmptyEval), (options.too_long.eval, Setting::LongEval)),
        };
        // Blocks are cut from one text wherever its lines end: none that is kept is too long.
        let is_limited = !options.only_source || too_long.0 != LinePolicy::Keep;
        Self { empty, too_long, max_tokens: if is_limited { options.max_line_tokens } else { usize::MAX } }
    }

    /// Counts a line that is empty or over-long, and returns whether it is left out; `ids` end in the end mark.
    pub(super) fn leaves_out(&self, side: &mut SideReport, line: u64, ids: &[u32]) -> Result<bool> {
        let length = ids.len() - 1;
        let ((policy, setting), tally) = if length == 0 {
            (self.empty, &mut side.empty)
        } else if length > self.max_tokens {
            (self.too_long, &mut side.too_long)
        } else {
            return Ok(false);
        };
        tally.add(line);
        match policy {
            LinePolicy::Keep => Ok(false),
            LinePolicy::Skip => Ok(true),
            LinePolicy::Error => {
                let what = match length {
                    0 => "the line is empty".to_owned(),
                    _ => format!("{length} tokens are over the limit of {}", self.max_tokens),
                };
                Err(Error::Refused { path: side.path.clone(), line, what, policy: setting })
            }
        }
    }
}
