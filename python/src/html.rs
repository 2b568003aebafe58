//! Tables and heat maps for notebooks: HTML without scripts, readable on white and on black.

use std::fmt::Write;

use mae::Gates;
use mae_study::compare::Comparison;
use mae_study::figures::escape;
use mae_study::score::Score;

const CELL: &str = "padding:1px 6px;text-align:right;font-variant-numeric:tabular-nums";

/// A translation: its tokens with their probabilities, and its gates as a heat map.
pub fn translation(source: &str, found: &mae::Translation) -> String {
    let mut page = format!("<div><p>{}</p><p>", escape(source));
    let best = found.best();
    for token in &best.tokens {
        let probability = token.log_prob.exp();
        // Unlikely tokens stand out.
        let alpha = 0.5 * (1.0 - probability).clamp(0.0, 1.0);
        page += &format!(
            "<span style=\"background:rgba(213,94,0,{alpha:.2})\" title=\"p = {probability:.3}\">{}</span> ",
            escape(&token.piece)
        );
    }
    page += &format!("</p><p>score {:.3} nats</p>", best.score);
    let gates: Vec<&Gates> =
        found.encoder_gates().into_iter().chain(best.gates.as_deref()).flatten().collect();
    if !gates.is_empty() {
        page += &heat_map(&gates);
    }
    page + "</div>"
}

/// A row for each attention, a cell for each expert: its mean weight over the positions, times the number of experts.
fn heat_map(gates: &[&Gates]) -> String {
    let mut table = String::from("<table style=\"border-collapse:collapse\"><tr><th></th>");
    let experts = gates.iter().flat_map(|gate| gate.rows.rows()).map(Vec::len).max().unwrap_or(0);
    for expert in 0..experts {
        table += &format!("<th style=\"{CELL}\">{expert}</th>");
    }
    table += "</tr>";
    for gate in gates {
        let rows = gate.rows.rows();
        table += &format!("<tr><td style=\"padding-right:8px\">{}</td>", escape(&gate.attention));
        for expert in 0..experts {
            let values = rows.iter().filter_map(|row| row.get(expert));
            let mean = values.sum::<f32>() / rows.len().max(1) as f32;
            // 1 is an even share; above it blue, below it orange.
            let share = mean * experts as f32;
            let (colour, alpha) = match share >= 1.0 {
                true => ("0,114,178", (share - 1.0).min(1.0)),
                false => ("213,94,0", 1.0 - share),
            };
            table += &format!(
                "<td style=\"{CELL};background:rgba({colour},{:.2})\" title=\"expert {expert}: {mean:.4}\">{share:.2}</td>",
                0.8 * alpha
            );
        }
        table += "</tr>";
    }
    table + "</table><p>Weights of experts relative to an even share, means over positions.</p>"
}

/// A study: means and deviations by system, differences to the baseline, and the figure.
pub fn study(title: &str, comparison: &Comparison, svg: Option<&str>) -> String {
    let mut page = format!(
        "<div><h4>{}</h4><table><tr><th>system</th><th>seeds</th><th>{}</th><th>difference</th><th>p</th></tr>",
        escape(title),
        escape(comparison.score.label())
    );
    let spread = |value: Option<(f64, f64)>, signed: bool| match value {
        None => String::new(),
        Some((mean, deviation)) if signed => format!("{mean:+.2} ± {deviation:.2}"),
        Some((mean, deviation)) => format!("{mean:.2} ± {deviation:.2}"),
    };
    for row in &comparison.rows {
        let score = match comparison.score {
            Score::Bleu => row.bleu.as_ref(),
            Score::TokenisedBleu => row.bleu_tokenised.as_ref(),
            Score::ExactMatch => row.exact_match.as_ref(),
            Score::Perplexity => row.perplexity.values().last(),
        };
        let score = score.map(|spread| (spread.mean, spread.deviation));
        let difference = row.difference.as_ref().map(|spread| (spread.mean, spread.deviation));
        let p = row.p_value.map_or_else(String::new, |p| format!("{p:.3}"));
        // Writing to a string cannot fail.
        write!(
            page,
            "<tr><td>{}</td><td>{}</td><td style=\"{CELL}\">{}</td><td style=\"{CELL}\">{}</td><td style=\"{CELL}\">{p}</td></tr>",
            escape(&row.system),
            row.seeds.len(),
            spread(score, false),
            spread(difference, true)
        )
        .expect("a string grows");
    }
    page + "</table>" + svg.unwrap_or_default() + "</div>"
}
