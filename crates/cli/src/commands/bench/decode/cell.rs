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
    /// Seconds of each batch, round after round.
    pub seconds: Vec<Vec<f64>>,
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
        let rounds = first.seconds.iter().zip(&own.seconds).filter(|_| number > 0);
        let costs: Vec<Vec<f64>> = rounds.map(|(first, own)| ratios(own, first)).collect();
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
            cost: cost(&costs),
            costs: costs.into_iter().map(median).collect(),
            first: &variants[0],
            peer_tokens_per_s: (!self.peer.is_empty()).then(|| median(self.peer.clone())),
            ratio_to_peer: median_if_any(ratios(&own.rates, &self.peer)),
        }
    }
}

fn ratios(these: &[f64], those: &[f64]) -> Vec<f64> {
    these.iter().zip(those).map(|(this, that)| this / that).collect()
}

fn median_if_any(values: Vec<f64>) -> Option<f64> {
    (!values.is_empty()).then(|| median(values))
}

/// The cost of a variant, given the ratios of all batches, round after round. Every other round has its variants in
/// reverse, and where the order matters, ratios come in two heaps: the median of all of them could lie in either. So it
/// is the mean of two medians, one of each order.
fn cost(rounds: &[Vec<f64>]) -> Option<f64> {
    let of_order = |first| rounds.iter().skip(first).step_by(2).flatten().copied().collect();
    let medians: Vec<f64> = (0..2).map(of_order).filter_map(median_if_any).collect();
    (!medians.is_empty()).then(|| medians.iter().sum::<f64>() / medians.len() as f64)
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
    /// Time of a batch beside that of the first variant: the median over all batches, the mean of both orders.
    cost: Option<f64>,
    /// The median of each round.
    costs: Vec<f64>,
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
        if let [_, _, ..] = self.costs[..] {
            let least = self.costs.iter().copied().fold(f64::INFINITY, f64::min);
            let most = self.costs.iter().copied().fold(0.0, f64::max);
            write!(f, " ({least:.2} to {most:.2} in single rounds)")?;
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

#[cfg(test)]
mod tests {
    use super::cost;

    #[test]
    fn the_order_of_variants_cancels_out() {
        let [first, last] = [vec![1.14, 1.15, 1.13], vec![1.03, 1.05, 1.04]];
        let of = |rounds: &[&Vec<f64>]| cost(&rounds.iter().copied().cloned().collect::<Vec<_>>());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[&first]), Some(1.14));
        for rounds in [vec![&first, &last], vec![&first, &last, &first], vec![&last, &first, &last]] {
            assert!((of(&rounds).unwrap() - 1.09).abs() < 1e-9);
        }
    }
}
