//! The page, the metrics and the description of the interface.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

use super::endpoints;
use super::refusal::Refusal;
use super::reply;
use crate::app::{Answered, App, Peer};

/// The page may load and ask nothing but its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = reply::typed(StatusCode::OK, kind, Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// `GET /`.
pub(super) async fn index() -> Response {
    file("text/html; charset=utf-8", include_str!("../page/index.html"))
}

/// `GET /style.css`.
pub(super) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../page/style.css"))
}

/// `GET /translate.js`.
pub(super) async fn translate_script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../page/translate.js"))
}

/// `GET /experts.js`.
pub(super) async fn experts_script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../page/experts.js"))
}

/// `GET /metrics`.
pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    axum::Extension(peer): axum::Extension<Peer>,
    headers: HeaderMap,
) -> Answered<Response> {
    if app.needs_key() {
        let unknown = |refusal| Refusal { status: StatusCode::UNAUTHORIZED, ..refusal };
        app.admit(peer, &headers, None, 0).map_err(unknown)?;
    }
    Ok(reply::typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", app.metrics.text()))
}

/// `GET /spec`.
pub(super) async fn spec() -> Response {
    reply::json(StatusCode::OK, &endpoints::spec())
}
