//! LibreTranslate's interface, with its messages.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use mae::{TranslateOptions, Translation};
use serde_json::{Value, json};

use super::describe::{Count, OneOrMany, described};
use super::observe::Notes;
use super::refusal::Refusal;
use super::reply::{self, Encoding};
use crate::app::{Answered, App, Peer};
use crate::config::Formatting;
use crate::registry::{Registry, TranslationModel};
use crate::text::detect::{Detected, detect};
use crate::text::form::like_source;
use crate::text::languages::{canonical, name, public};
use crate::text::plan::{Markup, Plan};

described! {
    request
    /// Texts to translate. The same names are read from forms and queries.
    TranslateRequest {
        /// Text, or a list of texts (in JSON only).
        q: Option<OneOrMany<String>>,
        /// Code of the source language, or `auto`.
        source: Option<String>,
        /// Code of the target language.
        target: Option<String>,
        /// `text` or `html`, whose tags are kept (`text`).
        format: Option<String>,
        /// Number of other translations (0).
        alternatives: Option<Count>,
        /// API key, where the server needs one.
        api_key: Option<String>,
        /// Name of the model, where several translate between these languages (the first).
        model: Option<String>,
    }
}

described! {
    answer camel
    /// Translations; lists if a list was sent.
    TranslateAnswer {
        /// Translation of the text, or of each.
        translated_text: OneOrMany<String>,
        /// Recognised language, with `auto`.
        detected_language: Option<OneOrMany<DetectedLanguage>>,
        /// Other translations, the best first, if they were asked for.
        alternatives: Option<Value>,
        /// What the model did not read, if there was anything.
        warnings: Option<Warnings>,
    }
}

described! {
    answer
    /// A recognised language.
    DetectedLanguage {
        /// Confidence in percent.
        confidence: f64,
        /// Code of the language.
        language: String,
    }
}

described! {
    answer camel
    /// What a model did not read.
    Warnings {
        /// Tokens at the ends of sentences that were cut off.
        cut_tokens: usize,
        /// Tokens that are not in the model's dictionary.
        unknown_tokens: usize,
    }
}

described! {
    request
    /// A text whose language is asked for.
    DetectRequest {
        /// The text.
        q: Option<OneOrMany<String>>,
        /// API key, where the server needs one.
        api_key: Option<String>,
    }
}

described! {
    answer
    /// A language of the server.
    ServedLanguage {
        /// Its code.
        code: String,
        /// Its English name.
        name: String,
        /// Codes of the languages that it can be translated to.
        targets: Vec<String>,
    }
}

described! {
    answer
    /// Status of the server.
    Health {
        /// `ok`.
        status: &'static str,
    }
}

described! {
    answer
    /// A refusal.
    ErrorAnswer {
        /// The reason.
        error: String,
    }
}

/// `POST /translate`.
pub(super) async fn translate(
    State(app): State<Arc<App>>,
    axum::Extension(peer): axum::Extension<Peer>,
    request: Request<Body>,
) -> Answered<Response> {
    let headers = request.headers().clone();
    let (asked, encoding) = reply::parameters::<TranslateRequest>(request, app.reading()).await?;
    let cost = if let Some(OneOrMany::Many(texts)) = &asked.q { texts.len() } else { 1 };
    let client = app.admit(peer, &headers, asked.api_key.as_deref(), cost)?;
    let registry = app.registry();
    let checked = Checked::new(&asked, encoding, &registry, &app)?;
    let Checked { texts, source, target, markup, alternatives, .. } = &checked;
    let (found, notes) = if source == target {
        (Found { texts: texts.clone(), ..Found::default() }, Notes::default())
    } else {
        let model = checked.model(&registry, asked.model.as_deref())?;
        let plan = Plan::new(texts, source, *markup);
        let mut options =
            TranslateOptions { search: app.config.search.clone(), ..TranslateOptions::default() };
        options.search.nbest = 1 + alternatives;
        options.search.beam = options.search.beam.max(options.search.nbest);
        let translations = app.translate(&model, client, &plan.sentences, options).await?;
        let notes = Notes { model: model.name.clone(), sentences: plan.sentences.len(), ..Notes::default() };
        (Found::new(&checked, &plan, &translations, &model, app.config.formatting), notes)
    };
    let many = matches!(asked.q, Some(OneOrMany::Many(_)));
    let shaped =
        |texts: Vec<String>| if many { OneOrMany::Many(texts) } else { OneOrMany::One(texts.concat()) };
    let language = checked
        .detected
        .as_ref()
        .map(|found| DetectedLanguage { confidence: found.confidence, language: public(&found.language) });
    let body = TranslateAnswer {
        detected_language: language.map(|language| match many {
            true => OneOrMany::Many(vec![language; texts.len()]),
            false => OneOrMany::One(language),
        }),
        alternatives: (*alternatives > 0).then(|| match many {
            true => json!(found.alternatives),
            false => json!(found.alternatives.concat()),
        }),
        warnings: found.warnings,
        translated_text: shaped(found.texts.clone()),
    };
    let mut response = reply::json(StatusCode::OK, &body);
    let notes = Notes { texts: texts.clone(), answers: found.texts, ..notes };
    response.extensions_mut().insert(notes);
    Ok(response)
}

/// A request that can be answered.
struct Checked {
    texts: Vec<String>,
    source: String,
    target: String,
    detected: Option<Detected>,
    markup: Markup,
    alternatives: usize,
}

impl Checked {
    /// LibreTranslate's checks, in its order and with its words.
    fn new(asked: &TranslateRequest, encoding: Encoding, registry: &Registry, app: &App) -> Answered<Self> {
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

    fn model(&self, registry: &Registry, wanted: Option<&str>) -> Answered<Arc<TranslationModel>> {
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
fn given_texts(q: Option<&OneOrMany<String>>, encoding: Encoding) -> Answered<Vec<String>> {
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

/// Translations of a request's texts.
#[derive(Default)]
struct Found {
    texts: Vec<String>,
    alternatives: Vec<Vec<String>>,
    warnings: Option<Warnings>,
}

impl Found {
    fn new(
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

/// `POST /detect`.
pub(super) async fn detect_language(
    State(app): State<Arc<App>>,
    axum::Extension(peer): axum::Extension<Peer>,
    request: Request<Body>,
) -> Answered<Response> {
    let headers = request.headers().clone();
    let (asked, encoding) = reply::parameters::<DetectRequest>(request, app.reading()).await?;
    app.admit(peer, &headers, asked.api_key.as_deref(), 1)?;
    let texts = given_texts(asked.q.as_ref(), encoding)?;
    let found = detect(texts.iter().map(String::as_str), &app.registry().languages())
        .unwrap_or(Detected { language: "en".into(), confidence: 0.0 });
    let found = DetectedLanguage { confidence: found.confidence, language: public(&found.language) };
    Ok(reply::json(StatusCode::OK, &[found]))
}

/// `GET /languages`.
pub(super) async fn languages(State(app): State<Arc<App>>) -> Response {
    let registry = app.registry();
    let language = |code: &String| ServedLanguage {
        code: public(code),
        name: name(code).to_owned(),
        targets: registry.targets(code).iter().map(|code| public(code)).collect(),
    };
    reply::json(StatusCode::OK, &registry.languages().iter().map(language).collect::<Vec<_>>())
}

/// `GET /health`.
pub(super) async fn health() -> Response {
    reply::json(StatusCode::OK, &Health { status: "ok" })
}

/// `GET /frontend/settings`.
pub(super) async fn settings(State(app): State<Arc<App>>) -> Response {
    let registry = app.registry();
    let limit = app.config.limits.characters.map_or(-1, |limit| limit as i64);
    let target = registry.translators.first().map_or("en", |model| &model.target);
    let body = json!({
        "charLimit": limit,
        "frontendTimeout": 500,
        "apiKeys": app.needs_key(),
        "keyRequired": app.needs_key(),
        "suggestions": false,
        "filesTranslation": false,
        "supportedFilesFormat": [],
        "language": {
            "source": {"code": "auto", "name": "Auto Detect"},
            "target": {"code": public(target), "name": name(target)},
        },
    });
    reply::json(StatusCode::OK, &body)
}
