//! Tables of quickstart.

use mae_study::quickstart::report::Report;

/// Prints the results of one system.
pub fn print(report: &Report) {
    println!("\nheld-out lines, translated with beam 5:");
    for example in &report.examples {
        let verdict = if example.translation == example.target { "right" } else { "wrong" };
        println!("  {}\n    {} ({verdict})", example.source, example.translation);
    }
    println!(
        "\n{:<12} {:>10} {:>8} {:>12} {:>8} {:>9}",
        "system", "parameters", "updates", "exact match", "BLEU", "seconds"
    );
    println!("{}", row(report));
    if let Some(limit) = report.gates.entropy_limit {
        println!(
            "\ngate entropy in nats (ln {} = {limit:.3} is a gate without favourites), that of the untrained gate,",
            report.gates.expert_count()
        );
        println!("and the share of rows that each expert leads (rows are sentences in the encoder, target");
        println!("positions in the decoder):");
        for (attention, entropy) in &report.gates.entropy {
            let shares: Vec<String> = report.gates.experts[attention]
                .iter()
                .map(|share| format!("{:3.0}%", 100.0 * share))
                .collect();
            let untrained = report.gates.untrained_entropy.get(attention);
            let untrained = untrained.map_or_else(String::new, |entropy| format!("{entropy:.3}"));
            println!("  {attention:<32} {entropy:.3}  {untrained:>5}   {}", shares.join(" "));
        }
        println!(
            "\nwho leads in the first encoder layer, by kind of sentence, and who did before the training:"
        );
        for (kind, (expert, share)) in &report.gates.kinds {
            let before = report.gates.untrained_kinds.get(kind);
            let before = before.map_or_else(String::new, |(expert, share)| {
                format!("; untrained: expert {expert}, {:.0}%", 100.0 * share)
            });
            println!(
                "  {kind:<10} expert {expert} (all heads but {expert}) leads {:.0}% of them{before}",
                100.0 * share
            );
        }
    }
    if !report.gates.head_weights.is_empty() {
        println!("\nmean weight of each head (1 is plain attention; entropy is not defined for weights):");
        for (attention, weights) in &report.gates.head_weights {
            let weights: Vec<String> = weights.iter().map(|weight| format!("{weight:5.2}")).collect();
            println!("  {attention:<32} {}", weights.join(" "));
        }
    }
    println!("\n{}", report.bleu_signature);
    let example = match report.corpus {
        "two-tasks" => "beta ba de fi go ku la",
        _ => "the film begins at half past six",
    };
    println!(
        "the model is in {0}; try: echo '{example}' | mae generate {0} --source - --plain",
        report.model
    );
}

fn row(report: &Report) -> String {
    format!(
        "{:<12} {:>10} {:>8} {:>10.1} % {:>8.2} {:>9.1}",
        report.system,
        report.parameters,
        report.updates,
        100.0 * report.exact_match,
        report.bleu,
        report.seconds
    )
}

/// Systems side by side.
pub fn print_comparison(reports: &[Report]) {
    println!(
        "\n{:<12} {:>10} {:>8} {:>12} {:>8} {:>9} {:>22}",
        "system", "parameters", "updates", "exact match", "BLEU", "seconds", "gate entropy (nats)"
    );
    for report in reports {
        let entropy = match (report.gates.mean_entropy(), report.gates.entropy_limit) {
            (Some(mean), Some(limit)) => format!("{mean:.3} of {limit:.3}"),
            _ if !report.gates.head_weights.is_empty() => "weights of heads".into(),
            _ => "no gates".into(),
        };
        println!("{} {entropy:>22}", row(report));
    }
}
