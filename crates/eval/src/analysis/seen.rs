//! Gates of one attention that were seen while a data set was read: of the model, or of its untrained gates.

use serde::Serialize;

use super::collapse::entropy_of;
use super::pmi::Together;
use super::tags::Tags;
use super::tally::Tally;

/// Sums over the gates of one attention.
pub(super) struct Seen {
    /// Sums over all rows.
    pub(super) tally: Tally,
    /// Words and who led.
    pub(super) together: Together,
    /// For each tag: rows, and the sum of their gates.
    by_tag: Vec<(u64, Vec<f64>)>,
}

/// Gates of sentences with each tag.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TagReport {
    /// I(tag; expert), in nats: entropy of the mean gate less the mean over rows of the entropy of the mean gate of their
    /// tag.
    pub information: f64,
    /// For each tag, its rows.
    pub rows: Vec<u64>,
    /// For each tag, the mean gate of its rows.
    pub mean_gates: Vec<Vec<f64>>,
}

impl Seen {
    /// Nothing yet.
    pub(super) fn new(tally: Tally, columns: usize, tags: Option<&Tags>) -> Self {
        let none = || (0, vec![0.0; columns]);
        let by_tag = tags.map_or_else(Vec::new, |tags| tags.names.iter().map(|_| none()).collect());
        Self { tally, together: Together::new(columns), by_tag }
    }

    /// Adds a gate of a sentence with this tag; returns the expert that leads it.
    pub(super) fn add(&mut self, gate: &[f32], tag: Option<usize>) -> usize {
        if let Some((rows, sum)) = tag.and_then(|tag| self.by_tag.get_mut(tag)) {
            *rows += 1;
            sum.iter_mut().zip(gate).for_each(|(sum, &g)| *sum += f64::from(g));
        }
        self.tally.add(gate)
    }

    /// Gates by tag, where there are tags.
    pub(super) fn tags(&self) -> Option<TagReport> {
        let all: u64 = self.by_tag.iter().map(|(rows, _)| rows).sum();
        if all == 0 {
            return None;
        }
        let mean = |(rows, sum): &(u64, Vec<f64>)| -> Vec<f64> {
            sum.iter().map(|sum| sum / (*rows).max(1) as f64).collect()
        };
        let mean_gates: Vec<Vec<f64>> = self.by_tag.iter().map(mean).collect();
        let rows: Vec<u64> = self.by_tag.iter().map(|(rows, _)| *rows).collect();
        let share = |rows: u64| rows as f64 / all as f64;
        let within: f64 =
            rows.iter().zip(&mean_gates).map(|(&rows, gate)| share(rows) * entropy_of(gate)).sum();
        let columns = mean_gates.first().map_or(0, Vec::len);
        let overall: Vec<f64> = (0..columns)
            .map(|e| rows.iter().zip(&mean_gates).map(|(&rows, gate)| share(rows) * gate[e]).sum())
            .collect();
        // Below 0 by rounding only.
        Some(TagReport { information: (entropy_of(&overall) - within).max(0.0), rows, mean_gates })
    }
}

#[cfg(test)]
mod tests {
    use mae_model::experts::Experts;
    use mae_model::pass::GateValues;

    use super::*;

    #[test]
    fn information_about_tags_is_mutual_information() {
        let experts = Experts { heads: 2, dropped: 1 };
        let tags = Tags::of_lines(&["x", "y"]);
        let of = |gates: [[f32; 2]; 2]| {
            let tally = Tally::new(&experts.matrix(), 2, GateValues::Probabilities);
            let mut seen = Seen::new(tally, 2, Some(&tags));
            gates.iter().enumerate().for_each(|(tag, gate)| {
                seen.add(gate, Some(tag));
            });
            seen.tags().unwrap()
        };
        assert!((of([[1.0, 0.0], [0.0, 1.0]]).information - 2f64.ln()).abs() < 1e-12);
        let same = of([[0.75, 0.25], [0.75, 0.25]]);
        assert!(same.information < 1e-12);
        assert_eq!((same.rows, same.mean_gates), (vec![1, 1], vec![vec![0.75, 0.25]; 2]));
    }
}
