//! Smuggling guard: refuses headers that make a server perform another request than the evaluated one.

use http::HeaderMap;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE, HOST, TE, TRAILER,
    TRANSFER_ENCODING,
};
use ringfence_types::{Refusal, RuleId};

use crate::request_target::{RequestOrigin, refusal};
use crate::sigv4::decode;

/// Headers that override path or method. Some servers obey them, but policy evaluates the request line.
const OTHER_REQUEST: &[&str] = &[
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-rewrite-uri",
    "x-override-url",
    "x-envoy-original-path",
    "x-http-destinationurl",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    // WebDAV: target of a copy or move.
    "destination",
];

/// The same in a query, as Symfony and Laravel read it.
const METHOD_PARAMETER: &[u8] = b"_method";

/// Headers that a proxy sets for the server behind it. No client inside is such a proxy.
const OF_PROXIES: &[&str] = &[
    "forwarded",
    "via",
    "proxy",
    "x-host",
    "x-original-host",
    "x-http-host-override",
    "x-envoy-original-host",
    "x-real-ip",
    "x-client-ip",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "x-cluster-client-ip",
    "x-remote-ip",
    "x-remote-addr",
];
const FORWARDED: &str = "x-forwarded-";

pub(crate) fn check(headers: &HeaderMap, origin: &RequestOrigin) -> Result<(), Refusal> {
    if let Some(name) = OTHER_REQUEST.iter().find(|name| headers.contains_key(**name)) {
        return Err(steered(&format!("the header `{name}` names another URL or method")));
    }
    let query = origin.path_and_query.query().unwrap_or_default();
    let name = |pair: &str| decode(pair.split('=').next().unwrap_or_default());
    if query.split('&').any(|pair| name(pair).eq_ignore_ascii_case(METHOD_PARAMETER)) {
        return Err(steered("the parameter `_method` of its query names another method"));
    }
    Ok(())
}

/// Refuses trailers that affect evaluation, framing or authorization.
pub(crate) fn check_trailers(trailers: &HeaderMap) -> Result<(), Refusal> {
    let read_by = [
        HOST,
        AUTHORIZATION,
        COOKIE,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
    ];
    let misplaced = |name: &&http::HeaderName| {
        read_by.contains(name) || OTHER_REQUEST.contains(&name.as_str()) || is_of_proxies(name.as_str())
    };
    match trailers.keys().find(misplaced) {
        Some(name) => Err(steered(&format!("`{name}` comes behind its body"))),
        None => Ok(()),
    }
}

/// Removes headers that only proxies set.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let named: Vec<http::HeaderName> =
        headers.keys().filter(|name| is_of_proxies(name.as_str())).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

fn is_of_proxies(name: &str) -> bool {
    OF_PROXIES.contains(&name) || name.starts_with(FORWARDED)
}

fn steered(what: &str) -> Refusal {
    let message = format!("the request is not passed on: {what}");
    refusal(RuleId::NetworkSteering, message, Some("ask for the URL itself, with the method itself"))
}
