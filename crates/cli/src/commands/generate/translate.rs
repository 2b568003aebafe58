//! Sentences in, translations out: what `mae generate` and `mae interactive` do with their input.

use anyhow::bail;
use mae_data::PackedBatch;
use mae_eval::bleu::{BleuConfig, BleuStats};
use mae_model::ExpertMode;
use mae_translate::{Hypothesis, SearchOptions, Searcher, SentenceGates, gates_of};

use super::input::Input;
use super::models::Models;
use super::output::Printer;
use super::work::{self, Batched, Limits};

/// Translates input after input with the same models and options.
pub struct Translating<'m> {
    models: &'m Models,
    searcher: Searcher<'m>,
    mode: ExpertMode,
    limits: Limits,
    with_gates: bool,
}

/// What was found for a sentence.
pub struct Found {
    /// Translations, the best first.
    pub hypotheses: Vec<Hypothesis>,
    /// What the gates said, if that is asked for.
    pub gates: Option<SentenceGates>,
}

/// What came of an input.
pub struct Done {
    /// Tokens of the best translations.
    pub tokens: usize,
    /// Counts for BLEU, if there are references.
    pub bleu: Option<BleuStats>,
}

impl<'m> Translating<'m> {
    /// With checked options.
    pub fn new(
        models: &'m Models,
        options: &SearchOptions,
        mode: ExpertMode,
        limits: Limits,
        with_gates: bool,
    ) -> Self {
        let searcher = Searcher::ensemble(&models.all(), options, &mode);
        Self { models, searcher, mode, limits, with_gates }
    }

    /// Translates all of `input` and prints it in order. `what` names the work in a progress bar.
    pub fn run(&mut self, input: &Input, printer: &mut Printer, what: Option<&str>) -> anyhow::Result<Done> {
        let mut bleu = input.references.as_ref().map(|_| BleuStats::new(BleuConfig::fairseq()));
        let mut tokens = 0;
        let Self { models, searcher, mode, limits, with_gates } = self;
        let find = |batch: &PackedBatch, sentences: &[u32]| {
            let hypotheses = match &input.prefixes {
                None => searcher.search(batch)?,
                Some(prefixes) => {
                    let own: Vec<_> = sentences.iter().map(|&i| prefixes[i as usize].clone()).collect();
                    searcher.search_after(batch, &own)?
                }
            };
            let gates = match with_gates {
                false => vec![None; hypotheses.len()],
                true => {
                    let gates = gates_of(&models.first.model, batch, &hypotheses, mode)?;
                    gates.into_iter().map(Some).collect()
                }
            };
            let both = hypotheses.into_iter().zip(gates);
            Ok(both.map(|(hypotheses, gates)| Found { hypotheses, gates }).collect())
        };
        work::in_order(input, limits, what, Batched::SourcesWithWords, find, |i, found| {
            let found = match found {
                None => Found {
                    hypotheses: vec![Hypothesis { tokens: Vec::new(), score: 0.0, positional: Vec::new() }],
                    gates: None,
                },
                Some(found) if found.hypotheses.is_empty() => bail!(
                    "the model gives no numbers for sentence {}; its training has probably diverged: \
                     use an earlier checkpoint",
                    input.first + i
                ),
                Some(found) => found,
            };
            let best = &found.hypotheses[0].tokens;
            tokens += best.len();
            if let (Some(bleu), Some(references)) = (&mut bleu, &input.references) {
                bleu.add(&printer.text(input, best), &references[i..=i])?;
            }
            printer.translation(input, i, &found)
        })?;
        Ok(Done { tokens, bleu })
    }
}
