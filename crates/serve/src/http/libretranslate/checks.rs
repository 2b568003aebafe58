//! LibreTranslate's checks of a request, in its order and with its words.

use std::sync::Arc;

use super::TranslateRequest;
use crate::app::{Answered, App};
use crate::http::describe::OneOrMany;
use crate::http::refusal::Refusal;
use crate::http::reply::Encoding;
use crate::registry::{Registry, TranslationModel};
use crate::text::detect::{Detected, detect};
use crate::text::languages::{canonical, name, public};
use crate::text::plan::Markup;

/// A request that can be answered.
pub(super) struct Checked {
    pub(super) texts: Vec<String>,
    pub(super) source: String,
    pub(super) target: String,
    pub(super) detected: Option<Detected>,
    pub(super) markup: Markup,
    pub(super) alternatives: usize,
}

impl Checked {
    /// LibreTranslate's checks, in its order and with its words.
    pub(super) fn new(
        asked: &TranslateRequest,
        encoding: Encoding,
        registry: &Registry,
        app: &App,
    ) -> Answered<Self> {
        let limits = &app.config.limits;
        let texts = given_texts(asked.q.as_ref(), encoding)?;
        let missing = |name: &str| Refusal::bad(format!("Invalid request: missing {name} parameter"));
        let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        let source = given(&asked.source).ok_or_else(|| missing("source"))?;
        let target = given(&asked.target).ok_or_else(|| missing("target"))?;
        let no_number = || Refusal::bad("Invalid request: alternatives parameter is not a number");
        let alternatives = match &asked.alternatives {
            None => 0,
            Some(count) => count.value().ok_or_else(no_number)?,
        };
        if alternatives > limits.alternatives {
            let most = limits.alternatives;
            return Err(Refusal::bad(format!("Invalid request: alternatives parameter must be <= {most}")));
        }
        let within = |size: usize, limit: Option<usize>| match limit.filter(|limit| size > *limit) {
            None => Ok(()),
            Some(limit) => {
                Err(Refusal::bad(format!("Invalid request: request ({size}) exceeds text limit ({limit})")))
            }
        };
        within(texts.len(), limits.batch.filter(|_| matches!(asked.q, Some(OneOrMany::Many(_)))))?;
        for text in &texts {
            within(text.chars().count(), limits.characters)?;
        }
        let known = registry.languages();
        let (source, detected) = match canonical(&source).as_str() {
            "auto" => {
                let found = detect(texts.iter().map(String::as_str), &registry.sources());
                let found = found.ok_or_else(|| Refusal::bad("auto is not supported"))?;
                (found.language.clone(), Some(found))
            }
            code => (code.to_owned(), None),
        };
        let target = canonical(&target);
        for (code, sent) in [(&source, &asked.source), (&target, &asked.target)] {
            if !known.contains(code) {
                return Err(Refusal::bad(format!("{} is not supported", sent.as_deref().unwrap_or(code))));
            }
        }
        let markup = match asked.format.as_deref().filter(|format| !format.is_empty()) {
            None | Some("text") => Markup::Text,
            Some("html") => Markup::Html,
            Some(other) => return Err(Refusal::bad(format!("{other} format is not supported"))),
        };
        Ok(Self { texts, source, target, detected, markup, alternatives })
    }

    pub(super) fn model(&self, registry: &Registry, wanted: Option<&str>) -> Answered<Arc<TranslationModel>> {
        let Self { source, target, .. } = self;
        let found = match wanted {
            None => registry.pair(source, target),
            Some(wanted) => {
                let model = registry.translator(wanted);
                let model = model.ok_or_else(|| Refusal::bad(format!("the model {wanted} is not there")))?;
                Some(model).filter(|model| model.source == *source && model.target == *target)
            }
        };
        let unavailable = || {
            Refusal::bad(format!(
                "{} ({}) is not available as a target language from {} ({})",
                name(target),
                public(target),
                name(source),
                public(source)
            ))
        };
        found.cloned().ok_or_else(unavailable)
    }
}

/// The texts of a request; those of forms with plain line ends.
pub(super) fn given_texts(q: Option<&OneOrMany<String>>, encoding: Encoding) -> Answered<Vec<String>> {
    let texts = q.cloned().map(OneOrMany::into_vec).unwrap_or_default();
    let empty = matches!(q, Some(OneOrMany::One(text)) if text.is_empty());
    if texts.is_empty() || empty {
        return Err(Refusal::bad("Invalid request: missing q parameter"));
    }
    Ok(match encoding {
        Encoding::Json => texts,
        Encoding::Form => texts.iter().map(|text| text.lines().collect::<Vec<_>>().join("\n")).collect(),
    })
}
