//! What a client is told in HTTP when there is no connection: what, why and what next.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use ringfence_types::Refusal;
use serde_json::json;

use crate::gate::{FlowId, Target};
use crate::shared::{Denied, Failure, FailureKind, Stopped};

pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = BoxBody<Bytes, BodyError>;

/// `refused` or `failed`: a 403 of ours is not a 403 of the server, and neither is a 502.
static OUTCOME: HeaderName = HeaderName::from_static("x-ringfence-outcome");
static FLOW: HeaderName = HeaderName::from_static("x-ringfence-flow");
static RULE: HeaderName = HeaderName::from_static("x-ringfence-rule");

pub(crate) fn stopped(stopped: &Stopped, id: FlowId, target: &Target) -> Response<Body> {
    match stopped {
        Stopped::Refused(refusal) => refused(refusal, id, target),
        Stopped::Failed(failure) => failed(failure, id, target),
    }
}

pub(crate) fn denied(denied: &Denied) -> Response<Body> {
    refused(&denied.refusal, denied.id, &denied.target)
}

/// 403: somebody said no.
pub(crate) fn refused(refusal: &Refusal, id: FlowId, target: &Target) -> Response<Body> {
    let body = json!({
        "outcome": "refused",
        "flow": id.0,
        "target": target.to_string(),
        "code": refusal.code,
        "layer": refusal.layer,
        "rule": refusal.rule,
        "message": refusal.message,
        "hint": refusal.hint,
    });
    let mut response = respond(StatusCode::FORBIDDEN, &body, "refused");
    let headers = response.headers_mut();
    headers.insert(&FLOW, HeaderValue::from(id.0));
    headers.insert(&RULE, visible(&refusal.rule));
    response
}

/// 502 or 504: it may be, but it did not work.
pub(crate) fn failed(failure: &Failure, id: FlowId, target: &Target) -> Response<Body> {
    let status = match failure.kind {
        FailureKind::Name | FailureKind::Peer => StatusCode::BAD_GATEWAY,
        FailureKind::Late => StatusCode::GATEWAY_TIMEOUT,
    };
    let body = json!({
        "outcome": "failed",
        "flow": id.0,
        "target": target.to_string(),
        "message": failure.message,
    });
    let mut response = respond(status, &body, "failed");
    response.headers_mut().insert(&FLOW, HeaderValue::from(id.0));
    response
}

/// 400: no flow came of it. Whoever sends such a request may mean the next bytes to be something else than they seem: the
/// connection ends.
pub(crate) fn malformed(message: &str) -> Response<Body> {
    let body = json!({ "outcome": "refused", "code": "malformed", "message": message });
    let mut response = respond(StatusCode::BAD_REQUEST, &body, "refused");
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

pub(crate) fn empty() -> Body {
    Full::default().map_err(|never| match never {}).boxed()
}

fn respond(status: StatusCode, body: &serde_json::Value, outcome: &'static str) -> Response<Body> {
    let text = format!("{body}\n");
    let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(&OUTCOME, HeaderValue::from_static(outcome));
    response
}

/// A server does not speak in our name.
pub(crate) fn disown(headers: &mut HeaderMap) {
    let ours = |name: &&HeaderName| name.as_str().starts_with("x-ringfence-");
    let named: Vec<HeaderName> = headers.keys().filter(ours).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

/// A rule may be named after anything; a header may not contain it.
fn visible(text: &str) -> HeaderValue {
    let plain: String =
        text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
    HeaderValue::from_str(&plain).unwrap_or(HeaderValue::from_static("?"))
}
