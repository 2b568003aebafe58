//! Answers to requests that are refused, in the shapes of the interfaces.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::reply;
use crate::work::worker::{Cause, Overload};

/// A request that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// Seconds after which it can be tried again.
    pub(crate) retry: Option<u64>,
}

impl Refusal {
    /// A fault of the request.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Any other.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry: None }
    }

    /// Too much work waits.
    pub(crate) fn overloaded(overload: Overload) -> Self {
        let message = match overload.cause {
            Cause::Jobs(waiting) => format!("Overloaded: {waiting} sentences wait; try again later"),
            Cause::Wait(wait) => {
                format!("Overloaded: the wait would be about {:.0} s; try again later", wait.as_secs_f64())
            }
        };
        let retry = overload.retry.as_secs() + u64::from(overload.retry.subsec_nanos() > 0);
        Self { retry: Some(retry), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// There was no answer in time.
    pub(crate) fn late(limit: Duration) -> Self {
        let message = format!("Overloaded: there was no answer within {} s", limit.as_secs());
        Self { retry: Some(5), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// A fault of the server.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The answer with this body.
    fn with(self, body: &Value) -> Response {
        let mut response = reply::json(self.status, body);
        if let Some(seconds) = self.retry {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// The answer as OpenAI's clients read it.
    pub(crate) fn openai(self) -> Response {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        let error =
            json!({"message": self.message, "type": kind, "param": null, "code": self.status.as_u16()});
        self.with(&json!({ "error": error }))
    }

    /// The answer as OpenNMT-py's clients read it: status 200 for a fault of the request.
    pub(crate) fn opennmt(self) -> Response {
        let body = json!({"error": self.message, "status": "error"});
        let faulty = self.status == StatusCode::BAD_REQUEST;
        Self { status: if faulty { StatusCode::OK } else { self.status }, ..self }.with(&body)
    }
}

/// LibreTranslate's shape.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"error": self.message});
        self.with(&body)
    }
}
