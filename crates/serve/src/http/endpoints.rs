//! The table of endpoints: the router and the OpenAPI document are made from it.

use std::sync::Arc;

use axum::routing::{MethodRouter, get, post};
use serde_json::{Map, Value, json};

use super::describe::Described;
use super::{gates, libretranslate, openai, opennmt, pages};
use crate::app::App;

/// An endpoint with its description.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    method: Method,
    about: &'static str,
    /// Schema of the body.
    request: Option<fn() -> Value>,
    /// Type and schema of the answer.
    answer: Answer,
    /// Shape of refusals, with their status codes.
    refusals: (fn() -> Value, &'static [u16]),
    handler: fn() -> MethodRouter<Arc<App>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    Post,
}

enum Answer {
    Json(fn() -> Value),
    Text(&'static str),
}

impl Endpoint {
    /// Its handler.
    pub(super) fn handler(&self) -> MethodRouter<Arc<App>> {
        (self.handler)()
    }
}

fn libre_error() -> Value {
    libretranslate::ErrorAnswer::schema()
}

fn openai_error() -> Value {
    json!({"type": "object", "properties": {"error": {
        "type": "object",
        "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "code": {"type": "integer"}},
    }}})
}

fn opennmt_error() -> Value {
    json!({"type": "object", "properties": {"error": {"type": "string"}, "status": {"type": "string"}}})
}

fn settings() -> Value {
    json!({"type": "object"})
}

/// Refusals of every endpoint that computes.
const COMPUTING: &[u16] = &[400, 403, 408, 413, 429, 500, 503];

/// All endpoints.
pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        path: "/translate",
        method: Method::Post,
        about: "Translate a text or a list of texts (LibreTranslate).",
        request: Some(libretranslate::TranslateRequest::schema),
        answer: Answer::Json(libretranslate::TranslateAnswer::schema),
        refusals: (libre_error, COMPUTING),
        handler: || post(libretranslate::translate),
    },
    Endpoint {
        path: "/detect",
        method: Method::Post,
        about: "Recognise the language of a text (LibreTranslate).",
        request: Some(libretranslate::DetectRequest::schema),
        answer: Answer::Json(Vec::<libretranslate::DetectedLanguage>::schema),
        refusals: (libre_error, &[400, 403, 413, 429]),
        handler: || post(libretranslate::detect_language),
    },
    Endpoint {
        path: "/languages",
        method: Method::Get,
        about: "List the languages (LibreTranslate).",
        request: None,
        answer: Answer::Json(Vec::<libretranslate::ServedLanguage>::schema),
        refusals: (libre_error, &[]),
        handler: || get(libretranslate::languages),
    },
    Endpoint {
        path: "/frontend/settings",
        method: Method::Get,
        about: "Settings for front ends (LibreTranslate).",
        request: None,
        answer: Answer::Json(settings),
        refusals: (libre_error, &[]),
        handler: || get(libretranslate::settings),
    },
    Endpoint {
        path: "/health",
        method: Method::Get,
        about: "Tell that the server runs.",
        request: None,
        answer: Answer::Json(libretranslate::Health::schema),
        refusals: (libre_error, &[]),
        handler: || get(libretranslate::health),
    },
    Endpoint {
        path: "/translator/translate",
        method: Method::Post,
        about: "Translate sentences (OpenNMT-py). Faults of the request have status 200.",
        request: Some(Vec::<opennmt::Item>::schema),
        answer: Answer::Json(Vec::<Vec<opennmt::Translated>>::schema),
        refusals: (opennmt_error, &[403, 408, 413, 429, 500, 503]),
        handler: || post(opennmt::translate),
    },
    Endpoint {
        path: "/translator/models",
        method: Method::Get,
        about: "List the translation models (OpenNMT-py).",
        request: None,
        answer: Answer::Json(Vec::<opennmt::ServedModel>::schema),
        refusals: (opennmt_error, &[]),
        handler: || get(opennmt::models),
    },
    Endpoint {
        path: "/translator/health",
        method: Method::Get,
        about: "Tell that the server runs (OpenNMT-py).",
        request: None,
        answer: Answer::Json(libretranslate::Health::schema),
        refusals: (opennmt_error, &[]),
        handler: || get(libretranslate::health),
    },
    Endpoint {
        path: "/v1/completions",
        method: Method::Post,
        about: "Continue texts with a language model (OpenAI); as server-sent events with `stream`.",
        request: Some(openai::CompletionRequest::schema),
        answer: Answer::Json(openai::Completion::schema),
        refusals: (openai_error, &[400, 401, 403, 404, 408, 413, 429, 500, 503]),
        handler: || post(openai::completions),
    },
    Endpoint {
        path: "/v1/models",
        method: Method::Get,
        about: "List the models (OpenAI).",
        request: None,
        answer: Answer::Json(openai::ModelList::schema),
        refusals: (openai_error, &[]),
        handler: || get(openai::models),
    },
    Endpoint {
        path: "/v1/gates",
        method: Method::Post,
        about: "Translate a text and report the gates of every attention.",
        request: Some(gates::GatesRequest::schema),
        answer: Answer::Json(gates::GatesAnswer::schema),
        refusals: (libre_error, COMPUTING),
        handler: || post(gates::gates),
    },
    Endpoint {
        path: "/metrics",
        method: Method::Get,
        about: "Metrics for Prometheus.",
        request: None,
        answer: Answer::Text("text/plain"),
        refusals: (libre_error, &[401]),
        handler: || get(pages::metrics),
    },
    Endpoint {
        path: "/spec",
        method: Method::Get,
        about: "This document.",
        request: None,
        answer: Answer::Json(settings),
        refusals: (libre_error, &[]),
        handler: || get(pages::spec),
    },
    page("/", "text/html", || get(pages::index)),
    page("/style.css", "text/css", || get(pages::style)),
    page("/translate.js", "text/javascript", || get(pages::translate_script)),
    page("/experts.js", "text/javascript", || get(pages::experts_script)),
];

/// A file of the page.
const fn page(path: &'static str, kind: &'static str, handler: fn() -> MethodRouter<Arc<App>>) -> Endpoint {
    Endpoint {
        path,
        method: Method::Get,
        about: "A file of the page.",
        request: None,
        answer: Answer::Text(kind),
        refusals: (libre_error, &[]),
        handler,
    }
}

/// The OpenAPI document.
pub(super) fn spec() -> Value {
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        let method = match endpoint.method {
            Method::Get => "get",
            Method::Post => "post",
        };
        paths.insert(endpoint.path.to_owned(), json!({ method: operation(endpoint) }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "mae",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Translation and language models: LibreTranslate's, OpenNMT-py's and OpenAI's interfaces.",
        },
        "paths": paths,
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let content = match endpoint.answer {
        Answer::Json(schema) => json!({"application/json": {"schema": schema()}}),
        Answer::Text(kind) => json!({kind: {"schema": {"type": "string"}}}),
    };
    let mut responses = Map::new();
    responses.insert("200".into(), json!({"description": "The answer.", "content": content}));
    let (refusal, codes) = endpoint.refusals;
    for code in codes {
        let body = json!({"application/json": {"schema": refusal()}});
        responses.insert(code.to_string(), json!({"description": reason(*code), "content": body}));
    }
    let mut operation = json!({"summary": endpoint.about, "responses": responses});
    if let Some(schema) = endpoint.request {
        let mut content = json!({"application/json": {"schema": schema()}});
        if ["/translate", "/detect"].contains(&endpoint.path) {
            content["application/x-www-form-urlencoded"] = json!({"schema": schema()});
        }
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

fn reason(code: u16) -> &'static str {
    match code {
        400 => "The request is faulty, or its key is missing.",
        401 => "The key is missing.",
        403 => "The key is not valid.",
        404 => "There is no such model.",
        408 => "The body did not arrive in time.",
        413 => "The body is too large.",
        429 => "Too many requests in a minute; see Retry-After.",
        503 => "Too much work waits; see Retry-After.",
        _ => "The model failed.",
    }
}
