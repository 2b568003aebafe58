//! Translations of sentences as an answer.

use mae::Translation;

use super::Warnings;
use super::checks::Checked;
use crate::config::Formatting;
use crate::registry::TranslationModel;
use crate::text::form::like_source;
use crate::text::plan::{Markup, Plan};

/// Translations of a request's texts.
#[derive(Default)]
pub(super) struct Found {
    pub(super) texts: Vec<String>,
    pub(super) alternatives: Vec<Vec<String>>,
    pub(super) warnings: Option<Warnings>,
}

impl Found {
    pub(super) fn new(
        asked: &Checked,
        plan: &Plan,
        translations: &[Translation],
        model: &TranslationModel,
        formatting: Formatting,
    ) -> Self {
        let ranked = |rank: usize| -> Vec<String> {
            let text =
                |found: &Translation| model.finish(&found.nbest().get(rank).unwrap_or(found.best()).text);
            let texts = plan.assemble(&translations.iter().map(text).collect::<Vec<_>>());
            match (formatting, asked.markup) {
                (Formatting::LikeSource, Markup::Text) => {
                    asked.texts.iter().zip(texts).map(|(source, text)| formatted(source, &text)).collect()
                }
                _ => texts,
            }
        };
        let texts = ranked(0);
        let mut alternatives = vec![Vec::new(); texts.len()];
        for rank in 1..=asked.alternatives {
            for ((own, best), other) in alternatives.iter_mut().zip(&texts).zip(ranked(rank)) {
                if other != *best && !other.is_empty() && !own.contains(&other) {
                    own.push(other);
                }
            }
        }
        let sum = |of: fn(&Translation) -> usize| translations.iter().map(of).sum();
        let (cut_tokens, unknown_tokens) = (sum(|t| t.source.cut), sum(|t| t.source.unknown));
        let warnings = (cut_tokens + unknown_tokens > 0).then_some(Warnings { cut_tokens, unknown_tokens });
        Self { texts, alternatives, warnings }
    }
}

/// Case and end of the source, with its blanks around.
fn formatted(source: &str, text: &str) -> String {
    let core = text.trim();
    if !core.chars().any(char::is_alphanumeric) {
        return text.to_owned();
    }
    text.replacen(core, &like_source(source, core), 1)
}
