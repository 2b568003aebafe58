//! LibreTranslate's interface, with its messages.

mod checks;
mod found;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use mae::TranslateOptions;
use serde_json::{Value, json};

use super::describe::{Count, OneOrMany, described};
use super::observe::Notes;
use super::reply;
use crate::app::{Answered, App, Peer};
use crate::text::detect::{Detected, detect};
use crate::text::languages::{name, public};
use crate::text::plan::Plan;
use checks::{Checked, given_texts};
use found::Found;

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
