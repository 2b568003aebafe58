//! Means and deviations over seeds, differences to the baseline, and p-values.
//!
//! A difference to the baseline is taken seed by seed; its p-value is that of the paired bootstrap.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mae_eval::analysis::one_expert::Spread;
use serde::Serialize;

use crate::error::Result;
use crate::protocol::Test;
use crate::result::{RunResult, Translated};
use crate::score::{Score, value};
use crate::significance::Evidence;
use crate::study::Study;

/// Systems side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Score that they are compared by.
    pub score: Score,
    /// Name of the system that the others are compared with.
    pub baseline: String,
    /// The systems, in the order of the study.
    pub rows: Vec<Row>,
    /// Remarks on runs that cannot be compared, or are not what the study says.
    pub remarks: Vec<String>,
}

/// A system. Means and sample standard deviations are over seeds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// Its name.
    pub system: String,
    /// The seeds that are done.
    pub seeds: Vec<u64>,
    /// sacreBLEU.
    pub bleu: Option<Spread>,
    /// Lines that are exactly right, in per cent.
    pub exact_match: Option<Spread>,
    /// Score by tag.
    pub by_tag: BTreeMap<String, Spread>,
    /// Tokenised BLEU.
    pub bleu_tokenised: Option<Spread>,
    /// Perplexity per token, by text.
    pub perplexity: BTreeMap<String, Spread>,
    /// Difference to the baseline, seed by seed.
    pub difference: Option<Spread>,
    /// p-value of the difference, over all common seeds.
    pub p_value: Option<f64>,
    /// The same for each seed alone.
    pub p_values: BTreeMap<u64, f64>,
    /// The paper's number.
    pub paper: Option<f64>,
    /// Its difference to the paper's baseline.
    pub paper_difference: Option<f64>,
    /// Smoothed development loss of the measured model, bits per token.
    pub dev_loss: Option<Spread>,
    /// Mean gate entropy of the encoder (of language models: of all gates), nats.
    pub gate_entropy: Option<Spread>,
    /// The same of the gates that runs began with.
    pub untrained_entropy: Option<Spread>,
    /// I(expert; sentence) in the encoder, nats.
    pub information: Option<Spread>,
    /// The same of the gates that runs began with.
    pub untrained_information: Option<Spread>,
    /// Largest I(tag; expert) of all attentions, nats.
    pub tag_information: Option<Spread>,
    /// The same of the gates that runs began with.
    pub untrained_tag_information: Option<Spread>,
    /// H(tag), nats.
    pub tag_entropy: Option<f64>,
    /// Updates of the gates.
    pub gate_updates: Option<Spread>,
    /// Score with gates that weigh all experts alike, less that with the learned ones.
    pub uniform_gates: Option<Spread>,
    /// Loss with the experts that an oracle chose by the odd tokens, less that of the mixture, on the even tokens; bits per
    /// token.
    pub oracle: Option<Spread>,
    /// Runs in which a few experts take everything somewhere.
    pub collapsed: usize,
    /// BLEU with the gates' favourite experts less that of the mixture.
    pub argmax: Option<Spread>,
    /// BLEU with random experts, mean over draws, less that of the mixture.
    pub random: Option<Spread>,
    /// Parameters.
    pub parameters: Option<u64>,
    /// Updates.
    pub updates: Option<Spread>,
    /// Seconds of a run, over all its sessions.
    pub wall_seconds: Option<Spread>,
}

/// Compares runs; p-values come from files in the runs' folders, which are in `out`.
pub fn compare(study: &Study, out: &Path, runs: &[RunResult]) -> Result<Comparison> {
    let score = match study.test()? {
        Test::LanguageModel(_) => Score::Perplexity,
        Test::Translation(test) if test.exact_match => Score::ExactMatch,
        Test::Translation(test) if test.reference.is_empty() => Score::TokenisedBleu,
        Test::Translation(_) => Score::Bleu,
    };
    let of = |system: &str| -> Vec<&RunResult> { runs.iter().filter(|run| run.system == system).collect() };
    let value = |run: &RunResult| value(study, score, run);
    let baseline = of(study.baseline());
    let evidence = Evidence::open(study, out, score)?;
    let paper_of_baseline =
        study.systems.iter().find(|system| system.name == study.baseline()).and_then(|system| system.paper);
    let mut rows = Vec::new();
    for system in &study.systems {
        let own = of(&system.name);
        let spread = |of: &dyn Fn(&RunResult) -> Option<f64>| {
            Spread::of(&own.iter().filter_map(|run| of(run)).collect::<Vec<_>>())
        };
        let translated =
            |of: fn(&Translated) -> Option<f64>| spread(&|run| run.translation.as_ref().and_then(of));
        let mut row = Row {
            system: system.name.clone(),
            seeds: own.iter().map(|run| run.seed).collect(),
            bleu: translated(|t| t.bleu),
            bleu_tokenised: translated(|t| Some(t.bleu_tokenised)),
            exact_match: translated(|t| t.exact_match),
            paper: system.paper,
            dev_loss: spread(&|run| Some(run.dev.as_ref()?.loss)),
            gate_entropy: spread(&|run| match &run.gates {
                Some(gates) => gates.encoder,
                None => run.dev.as_ref()?.gate_entropy,
            }),
            untrained_entropy: spread(&|run| run.gates.as_ref()?.untrained.as_ref()?.entropy.encoder),
            information: spread(&|run| run.gates.as_ref()?.information.as_ref()?.encoder),
            untrained_information: spread(&|run| run.gates.as_ref()?.untrained.as_ref()?.information.encoder),
            tag_information: spread(&|run| Some(run.gates.as_ref()?.most_about_tags()?[0])),
            untrained_tag_information: spread(&|run| Some(run.gates.as_ref()?.most_about_tags()?[1])),
            tag_entropy: own.iter().find_map(|run| run.gates.as_ref()?.tag_entropy),
            gate_updates: spread(&|run| Some(run.gates.as_ref()?.updates? as f64)),
            uniform_gates: translated(|t| {
                let uniform = t.uniform_gates.as_ref()?;
                let exact = uniform.exact_match.zip(t.exact_match);
                let (uniform, learned) =
                    exact.or(uniform.bleu.zip(t.bleu)).unwrap_or((uniform.bleu_tokenised, t.bleu_tokenised));
                Some(uniform - learned)
            }),
            oracle: spread(&|run| run.oracle.as_ref().map(|oracle| oracle.chosen - oracle.mixture)),
            collapsed: own.iter().filter(|run| run.gates.as_ref().is_some_and(|g| g.collapsed)).count(),
            argmax: spread(&|run| run.one_expert().and_then(|o| Some(o.argmax? - o.mixture))),
            random: spread(&|run| {
                run.one_expert().and_then(|o| Some(Spread::of(&o.random)?.mean - o.mixture))
            }),
            parameters: own.first().map(|run| run.parameters),
            updates: spread(&|run| Some(run.updates as f64)),
            wall_seconds: spread(&|run| Some(run.wall_seconds)),
            ..Row::default()
        };
        let tags = own.iter().filter_map(|run| run.translation.as_ref()).flat_map(|test| test.by_tag.keys());
        for tag in tags.collect::<BTreeSet<_>>() {
            let score = spread(&|run| run.translation.as_ref()?.by_tag.get(tag).copied());
            row.by_tag.extend(score.map(|score| (tag.clone(), score)));
        }
        if let Some(test) = &study.language_model {
            for split in &test.splits {
                let ppl = spread(&|run| Some(run.language_model.as_ref()?.get(split)?.ppl));
                row.perplexity.extend(ppl.map(|ppl| (split.clone(), ppl)));
            }
        }
        if system.name != study.baseline() {
            let common: Vec<(&RunResult, &RunResult)> = own
                .iter()
                .filter_map(|run| Some((*run, *baseline.iter().find(|base| base.seed == run.seed)?)))
                .collect();
            let differences: Vec<f64> =
                common.iter().filter_map(|(run, base)| Some(value(run)? - value(base)?)).collect();
            row.difference = Spread::of(&differences);
            row.paper_difference = system.paper.zip(paper_of_baseline).map(|(own, base)| own - base);
            if let Some(evidence) = &evidence {
                (row.p_value, row.p_values) = evidence.p_values(&common)?;
            }
        }
        rows.push(row);
    }
    Ok(Comparison { score, baseline: study.baseline().to_owned(), rows, remarks: Vec::new() })
}
