//! What is done for every request: metrics, a line of the log, headers of the answer.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::json;

use super::endpoints::ENDPOINTS;
use super::reply;
use crate::app::{App, Peer};
use crate::config::LogTexts;
use crate::log::Level;

/// Facts of an answer for the log, in its extensions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    pub(crate) model: String,
    pub(crate) sentences: usize,
    pub(crate) texts: Vec<String>,
    pub(crate) answers: Vec<String>,
}

/// Headers of every answer. The page loads nothing from elsewhere, and nothing may.
const HEADERS: [(&str, &str); 5] = [
    ("access-control-allow-origin", "*"),
    ("access-control-allow-headers", "Authorization, Content-Type"),
    ("access-control-allow-methods", "GET, POST"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
];

/// Wraps the handler of a request.
pub(crate) async fn observe(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let begun = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let peer = request.extensions().get::<Peer>().copied();
    let client = peer.map(|peer| app.address(peer, request.headers()));
    let endpoint =
        ENDPOINTS.iter().find(|endpoint| endpoint.path == path).map_or("other", |endpoint| endpoint.path);
    let mut response = match method {
        // A browser asks whether it may ask.
        Method::OPTIONS => reply::typed(StatusCode::NO_CONTENT, "text/plain", Body::empty()),
        _ => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if !response.headers().contains_key(header::CACHE_CONTROL) {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    let (code, seconds) = (response.status().as_u16(), begun.elapsed().as_secs_f64());
    app.metrics.request(endpoint, code, seconds);
    let notes = response.extensions().get::<Notes>().cloned();
    let mut fields = json!({
        "method": method.as_str(),
        "endpoint": endpoint,
        "status": code,
        "ms": (1e4 * seconds).round() / 10.0,
        "client": client.map(|client| client.to_string()),
    });
    if let Some(notes) = notes {
        fields["model"] = json!(notes.model);
        fields["sentences"] = json!(notes.sentences);
        if app.config.log_texts == LogTexts::Written {
            fields["texts"] = json!(notes.texts);
            fields["answers"] = json!(notes.answers);
        }
    }
    let level = if response.status().is_server_error() { Level::Warning } else { Level::Info };
    app.log.event(level, "request", fields);
    response
}
