//! HTTP responses of the proxy itself for refused and failed requests. They say what happened, why, and what to do next.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use ringfence_types::Refusal;
use serde_json::json;

use crate::flow_gate::{FlowId, FlowTarget};
use crate::live_flow::{DeniedFlow, FlowStop, UpstreamFailure, UpstreamFailureKind};

pub(crate) type HttpBodyError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type ProxyBody = BoxBody<Bytes, HttpBodyError>;

/// `refused` or `failed`. Distinguishes the proxy's own 403 and 502 from those of a server.
static OUTCOME: HeaderName = HeaderName::from_static("x-ringfence-outcome");
static FLOW: HeaderName = HeaderName::from_static("x-ringfence-flow");
static RULE: HeaderName = HeaderName::from_static("x-ringfence-rule");

pub(crate) fn stopped(stopped: &FlowStop, id: FlowId, target: &FlowTarget) -> Response<ProxyBody> {
    match stopped {
        FlowStop::Refused(refusal) => refused(refusal, id, target),
        FlowStop::Failed(failure) => failed(failure, id, target),
    }
}

pub(crate) fn denied(denied: &DeniedFlow) -> Response<ProxyBody> {
    refused(&denied.refusal, denied.id, &denied.target)
}

/// 403: the flow is refused.
pub(crate) fn refused(refusal: &Refusal, id: FlowId, target: &FlowTarget) -> Response<ProxyBody> {
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

/// 502 or 504: the flow is allowed, but the connection failed.
pub(crate) fn failed(failure: &UpstreamFailure, id: FlowId, target: &FlowTarget) -> Response<ProxyBody> {
    let status = match failure.kind {
        UpstreamFailureKind::Name | UpstreamFailureKind::Peer => StatusCode::BAD_GATEWAY,
        UpstreamFailureKind::Late => StatusCode::GATEWAY_TIMEOUT,
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

/// 400: the request is no valid flow. The proxy closes the connection, because what follows a malformed request may be smuggled.
pub(crate) fn malformed(message: &str) -> Response<ProxyBody> {
    let body = json!({ "outcome": "refused", "code": "malformed", "message": message });
    let mut response = respond(StatusCode::BAD_REQUEST, &body, "refused");
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

pub(crate) fn empty() -> ProxyBody {
    Full::default().map_err(|never| match never {}).boxed()
}

fn respond(status: StatusCode, body: &serde_json::Value, outcome: &'static str) -> Response<ProxyBody> {
    let text = format!("{body}\n");
    let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(&OUTCOME, HeaderValue::from_static(outcome));
    response
}

/// Removes the proxy's own headers from a server's response, so a server cannot imitate the proxy.
pub(crate) fn disown(headers: &mut HeaderMap) {
    let ours = |name: &&HeaderName| name.as_str().starts_with("x-ringfence-");
    let named: Vec<HeaderName> = headers.keys().filter(ours).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

/// Escapes a rule name for a header, which allows fewer characters.
fn visible(text: &str) -> HeaderValue {
    let plain: String =
        text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
    HeaderValue::from_str(&plain).unwrap_or(HeaderValue::from_static("?"))
}
