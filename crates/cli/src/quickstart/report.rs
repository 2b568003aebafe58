//! What quickstart found, as tables and as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use mae_eval::bleu::BleuScore;
use mae_eval::gates::GateSummary;
use mae_model::pass::GateValues;
use serde::Serialize;

use super::Quickstart;
use super::corpus::Pair;

/// One system's result.
#[derive(Serialize)]
pub struct Report {
    system: String,
    pairs: usize,
    seed: u64,
    parameters: usize,
    updates: u64,
    /// Training, translation and scoring, in seconds.
    seconds: f64,
    /// Share of held-out lines translated exactly, 0 to 1.
    exact_match: f64,
    /// 0 to 100.
    bleu: f64,
    bleu_signature: String,
    /// ln of the number of experts: the entropy of a gate that favours none. In nats.
    entropy_limit: Option<f64>,
    /// Mean gate entropy by attention, in nats.
    entropy: BTreeMap<String, f64>,
    /// Mean weight of each head by attention, where gates weigh heads.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    head_weights: BTreeMap<String, Vec<f64>>,
    /// Share of rows that each expert leads, by attention.
    experts: BTreeMap<String, Vec<f64>>,
    /// Of each kind of sentence, the expert that most often leads in the first encoder layer, and its share.
    kinds: BTreeMap<String, (usize, f64)>,
    examples: Vec<Example>,
    model: String,
}

/// A held-out line.
#[derive(Serialize)]
struct Example {
    source: String,
    target: String,
    translation: String,
}

impl Report {
    #[expect(clippy::too_many_arguments, reason = "gathers what one run has produced, in one place")]
    pub(super) fn new(
        system: &str,
        job: &Quickstart,
        parameters: usize,
        updates: u64,
        seconds: f64,
        bleu: &BleuScore,
        exact_match: f64,
        gates: Vec<GateSummary>,
        held_out: &[Pair],
        lines: &[String],
        run: &Path,
    ) -> Self {
        let example = |(pair, line): (&Pair, &String)| Example {
            source: pair.source.clone(),
            target: pair.target.clone(),
            translation: line.clone(),
        };
        let (gates, weights): (Vec<_>, Vec<_>) =
            gates.into_iter().partition(|gate| gate.holds == GateValues::Probabilities);
        Self {
            system: system.to_owned(),
            pairs: job.pairs,
            seed: job.seed,
            parameters,
            updates,
            seconds,
            exact_match,
            bleu: bleu.score,
            bleu_signature: format!("BLEU|{}", bleu.signature),
            entropy_limit: gates.first().map(|gate| (gate.shares.len() as f64).ln()),
            kinds: gates.first().map_or_else(BTreeMap::new, |gate| leading_experts(gate, held_out)),
            entropy: gates.iter().filter_map(|gate| Some((gate.attention.clone(), gate.entropy?))).collect(),
            head_weights: weights.into_iter().map(|gate| (gate.attention, gate.means)).collect(),
            experts: gates.into_iter().map(|gate| (gate.attention, gate.shares)).collect(),
            examples: held_out.iter().zip(lines).map(example).take(5).collect(),
            model: run.join("checkpoint_last").display().to_string(),
        }
    }

    /// The tables.
    pub fn print(&self) {
        println!("\nheld-out lines, translated with beam 5:");
        for example in &self.examples {
            let verdict = if example.translation == example.target { "right" } else { "wrong" };
            println!("  {}\n    {} ({verdict})", example.source, example.translation);
        }
        println!(
            "\n{:<12} {:>10} {:>8} {:>12} {:>8} {:>9}",
            "system", "parameters", "updates", "exact match", "BLEU", "seconds"
        );
        println!("{}", self.row());
        if let Some(limit) = self.entropy_limit {
            println!(
                "\ngate entropy in nats (ln {} = {limit:.3} is a gate without favourites), and the share of rows",
                self.expert_count()
            );
            println!(
                "that each expert leads (rows are sentences in the encoder, target positions in the decoder):"
            );
            for (attention, entropy) in &self.entropy {
                let shares: Vec<String> =
                    self.experts[attention].iter().map(|share| format!("{:3.0}%", 100.0 * share)).collect();
                println!("  {attention:<32} {entropy:.3}   {}", shares.join(" "));
            }
            println!("\nwho leads in the first encoder layer, by kind of sentence:");
            for (kind, (expert, share)) in &self.kinds {
                println!(
                    "  {kind:<10} expert {expert} (all heads but {expert}) leads {:.0}% of them",
                    100.0 * share
                );
            }
        }
        if !self.head_weights.is_empty() {
            println!(
                "\nmean weight of each head (1 is plain attention; entropy is not defined for weights):"
            );
            for (attention, weights) in &self.head_weights {
                let weights: Vec<String> = weights.iter().map(|weight| format!("{weight:5.2}")).collect();
                println!("  {attention:<32} {}", weights.join(" "));
            }
        }
        println!("\n{}", self.bleu_signature);
        println!(
            "the model is in {0}; try: echo 'the film begins at half past six' | mae generate {0} --source - --plain",
            self.model
        );
    }

    fn row(&self) -> String {
        format!(
            "{:<12} {:>10} {:>8} {:>10.1} % {:>8.2} {:>9.1}",
            self.system,
            self.parameters,
            self.updates,
            100.0 * self.exact_match,
            self.bleu,
            self.seconds
        )
    }

    fn expert_count(&self) -> usize {
        self.experts.values().next().map_or(0, Vec::len)
    }

    fn mean_entropy(&self) -> Option<f64> {
        let count = self.entropy.len();
        (count > 0).then(|| self.entropy.values().sum::<f64>() / count as f64)
    }
}

/// Systems side by side.
pub fn print_comparison(reports: &[Report]) {
    println!(
        "\n{:<12} {:>10} {:>8} {:>12} {:>8} {:>9} {:>22}",
        "system", "parameters", "updates", "exact match", "BLEU", "seconds", "gate entropy (nats)"
    );
    for report in reports {
        let entropy = match (report.mean_entropy(), report.entropy_limit) {
            (Some(mean), Some(limit)) => format!("{mean:.3} of {limit:.3}"),
            _ if !report.head_weights.is_empty() => "weights of heads".into(),
            _ => "no gates".into(),
        };
        println!("{} {entropy:>22}", report.row());
    }
}

/// For each kind of sentence, who leads most often, and in which share.
fn leading_experts(gate: &GateSummary, held_out: &[Pair]) -> BTreeMap<String, (usize, f64)> {
    let mut counts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (pair, &leader) in held_out.iter().zip(&gate.leaders) {
        counts.entry(pair.kind.to_string()).or_insert_with(|| vec![0; gate.shares.len()])[leader] += 1;
    }
    let most = |counts: Vec<usize>| {
        let best = (0..counts.len()).max_by_key(|&e| counts[e]).unwrap_or(0);
        (best, counts[best] as f64 / counts.iter().sum::<usize>().max(1) as f64)
    };
    counts.into_iter().map(|(kind, counts)| (kind, most(counts))).collect()
}
