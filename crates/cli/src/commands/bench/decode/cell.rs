//! A row of the benchmark: what all variants and the peer have reached in it.

use std::fmt;

use mae_engine::ComputeType;
use serde::Serialize;

use super::super::peer::Line;
use super::super::steps::median;
use crate::device::threads_in_words;

/// What is measured in every round, by all variants in turns.
pub struct Cell {
    pub on_gpu: bool,
    pub compute: ComputeType,
    pub batch: usize,
    pub beam: usize,
    /// Of each variant.
    pub own: Vec<Own>,
    /// Target tokens per second of the peer.
    pub peer: Vec<f64>,
}

/// What a variant has reached.
#[derive(Clone, Default)]
pub struct Own {
    /// Target tokens per second, round after round.
    pub rates: Vec<f64>,
    /// Seconds of each batch of all rounds.
    pub seconds: Vec<f64>,
}

impl Cell {
    /// True if a line of the peer is about this.
    pub fn is_measured_by(&self, line: &Line) -> bool {
        let compute = self.compute.to_string();
        line.beam == Some(self.beam)
            && line.batch.is_none_or(|batch| batch == self.batch)
            && line.compute_type.as_ref().is_none_or(|other| *other == compute)
    }

    /// What variant `number` of these has reached.
    pub fn measured<'a>(
        &self,
        number: usize,
        variants: &'a [String],
        length: usize,
        processor: &'a str,
    ) -> Measurement<'a> {
        let (first, own) = (&self.own[0], &self.own[number]);
        let tokens_per_s = median(own.rates.clone());
        Measurement {
            variant: &variants[number],
            beam: self.beam,
            batch: self.batch,
            compute_type: self.compute.to_string(),
            device: if self.on_gpu { "cuda" } else { "cpu" },
            processor,
            threads: rayon::current_num_threads(),
            sentences_per_s: tokens_per_s / length as f64,
            tokens_per_s,
            cost: median_ratio(&own.seconds, &first.seconds).filter(|_| number > 0),
            first: &variants[0],
            peer_tokens_per_s: (!self.peer.is_empty()).then(|| median(self.peer.clone())),
            ratio_to_peer: median_ratio(&own.rates, &self.peer),
        }
    }
}

/// The median of ratios; `None` where there are none.
fn median_ratio(these: &[f64], those: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = these.iter().zip(those).map(|(this, that)| this / that).collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

/// One measurement.
#[derive(Serialize)]
pub struct Measurement<'a> {
    variant: &'a str,
    beam: usize,
    /// Sentences in a batch.
    batch: usize,
    compute_type: String,
    device: &'static str,
    processor: &'a str,
    threads: usize,
    sentences_per_s: f64,
    tokens_per_s: f64,
    /// Time of a batch beside that of the first variant: the median over all batches of all rounds.
    cost: Option<f64>,
    #[serde(skip)]
    first: &'a str,
    /// The peer's rate with the plain transformer of the same sizes.
    peer_tokens_per_s: Option<f64>,
    ratio_to_peer: Option<f64>,
}

impl fmt::Display for Measurement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.beam {
            1 => write!(f, "{} greedy", self.variant)?,
            beam => write!(f, "{} beam {beam}", self.variant)?,
        }
        let threads = threads_in_words(self.threads);
        write!(f, ", batches of {}, {} {}, {threads}: ", self.batch, self.device, self.compute_type)?;
        write!(f, "{:.1} sentences/s, {:.0} target tokens/s", self.sentences_per_s, self.tokens_per_s)?;
        if let Some(cost) = self.cost {
            write!(f, "; {cost:.2} times as long as {}", self.first)?;
        }
        match (self.peer_tokens_per_s, self.ratio_to_peer) {
            (Some(peer), Some(ratio)) => write!(f, "; peer {peer:.0}, ratio {ratio:.2}"),
            _ => Ok(()),
        }
    }
}

/// Name of the processor as Linux gives it, or its architecture.
pub fn processor() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = all.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}
