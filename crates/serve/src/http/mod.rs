//! HTTP: endpoints, and what is done for every request.
//!
//! | room | content |
//! |---|---|
//! | `libretranslate` | `/translate`, `/detect`, `/languages`, `/frontend/settings`, `/health` |
//! | `opennmt` | `/translator/…` |
//! | `openai`, `stream`, `choice` | `/v1/completions`, `/v1/models` |
//! | `gates` | `/v1/gates` |
//! | `pages` | the page at `/`, `/metrics`, `/spec` |
//! | `endpoints`, `describe` | the table of endpoints, from which the router and the OpenAPI document are made |
//! | `observe` | metrics, log and headers of every answer |
//! | `reply`, `refusal` | bodies in and out, refusals in the shapes of the interfaces |

mod choice;
pub(crate) mod describe;
mod endpoints;
mod gates;
mod libretranslate;
mod observe;
mod openai;
mod opennmt;
mod pages;
pub(crate) mod refusal;
pub(crate) mod reply;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;

use crate::app::App;
use refusal::Refusal;

/// The service of a connection.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let router = endpoints::ENDPOINTS
        .iter()
        .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler()));
    let router = router
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "Not found") })
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
        });
    router.layer(from_fn_with_state(app.clone(), observe::observe)).with_state(app.clone())
}
