//! Bodies in and out.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::refusal::Refusal;

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => typed(status, "application/json", bytes),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// An answer of a type.
pub(crate) fn typed(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Limits of reading a body.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) bytes: usize,
    pub(crate) time: Duration,
}

/// A request's body within limits.
pub(crate) async fn body(request: Request<Body>, limits: Reading) -> Result<Bytes, Refusal> {
    let too_large = || {
        let text = format!("Invalid request: the body is larger than {} bytes", limits.bytes);
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let length =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > limits.bytes) {
        return Err(too_large());
    }
    match tokio::time::timeout(limits.time, axum::body::to_bytes(request.into_body(), limits.bytes)).await {
        Err(_) => {
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "Invalid request: the body did not arrive in time"))
        }
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let limit =
                std::error::Error::source(&error).is_some_and(|e| e.is::<http_body_util::LengthLimitError>());
            Err(if limit { too_large() } else { Refusal::bad("Invalid request: the body is not complete") })
        }
    }
}

/// Parameters of a request as LibreTranslate reads them: an object in JSON, or values of the query and of a form.
pub(crate) async fn parameters<T: DeserializeOwned>(
    request: Request<Body>,
    limits: Reading,
) -> Result<(T, Encoding), Refusal> {
    let kind =
        request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let is_json = kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json");
    let query = request.uri().query().unwrap_or("").to_owned();
    let bytes = body(request, limits).await?;
    let (values, encoding) = if is_json {
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(values)) => (values, Encoding::Json),
            _ => return Err(Refusal::bad("Invalid JSON format")),
        }
    } else {
        let form = if kind == "application/x-www-form-urlencoded" { &bytes[..] } else { &[] };
        let mut values = Map::new();
        for (name, value) in form_urlencoded::parse(form).chain(form_urlencoded::parse(query.as_bytes())) {
            values.insert(name.into_owned(), Value::String(value.into_owned()));
        }
        (values, Encoding::Form)
    };
    let parameters = serde_json::from_value(Value::Object(values))
        .map_err(|e| Refusal::bad(format!("Invalid request: {e}")))?;
    Ok((parameters, encoding))
}

/// The form in which parameters came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// A JSON object.
    Json,
    /// A form or a query.
    Form,
}

/// A request's body in JSON.
pub(crate) async fn parsed<T: DeserializeOwned>(
    request: Request<Body>,
    limits: Reading,
) -> Result<T, Refusal> {
    let bytes = body(request, limits).await?;
    serde_json::from_slice(&bytes).map_err(|error| Refusal::bad(format!("Invalid request: {error}")))
}
