//! The metrics and the description of the interface.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::endpoints;
use super::refusal::Refusal;
use super::reply;
use crate::app::{Answered, App, Peer};

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
