//! Credentials of a request: bearer token, or cookie with CSRF token.

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::request::Parts;

use ringfence_types::BindTransport;

use crate::response_headers;

/// Header in which the daemon's own page sends the CSRF token from its login.
pub const CSRF_HEADER: &str = "x-ringfence-csrf";
/// Subprotocol of WebSockets. A page cannot set headers of a WebSocket, so it offers this protocol, and the CSRF token after
/// [`CSRF_PROTOCOL`].
pub const PROTOCOL: &str = "ringfence";
pub const CSRF_PROTOCOL: &str = "ringfence.csrf.";

/// The credential of a request, not yet verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresentedCredential<'a> {
    Nothing,
    /// `Authorization: Bearer`. A browser never adds this by itself.
    Bearer(&'a str),
    /// A browser adds a cookie to every request to the host, on every port and caused by any page. So a cookie counts only together
    /// with its CSRF token, also for reads.
    Cookie {
        token: &'a str,
        csrf: Option<&'a str>,
    },
    /// An unknown scheme or a malformed header.
    Strange,
}

/// Reads the credential. A header takes precedence over a cookie, because the browser adds the cookie by itself.
pub fn shown(request: &Parts, transport: BindTransport) -> PresentedCredential<'_> {
    if let Some(value) = request.headers.get(AUTHORIZATION) {
        let bearer = value.to_str().ok().and_then(bearer);
        return bearer.map_or(PresentedCredential::Strange, PresentedCredential::Bearer);
    }
    let Some(token) = cookie(&request.headers, response_headers::cookie_name(transport)) else {
        return PresentedCredential::Nothing;
    };
    let csrf = request.headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
    PresentedCredential::Cookie { token, csrf: csrf.or_else(|| offered(request)) }
}

/// The CSRF token in the subprotocols of a WebSocket.
fn offered(request: &Parts) -> Option<&str> {
    if !request.headers.contains_key(UPGRADE) {
        return None;
    }
    let values =
        request.headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).find_map(|offer| offer.trim().strip_prefix(CSRF_PROTOCOL))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Reads a cookie. A duplicate counts as missing: another site may have set one of the two.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(known, _)| *known == name).map(|(_, value)| value);
    found.next().filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_header_beats_a_cookie_and_another_scheme_is_not_ours() {
        let both = parts("POST", &[("authorization", "bearer  a "), ("cookie", "ringfence=b")]);
        assert_eq!(shown(&both, BindTransport::Plain), PresentedCredential::Bearer("a"));
        for strange in ["Basic YTpi", "Bearer", "Bearer ", "a"] {
            assert_eq!(
                shown(&parts("GET", &[("authorization", strange)]), BindTransport::Plain),
                PresentedCredential::Strange
            );
        }
        assert_eq!(shown(&parts("GET", &[]), BindTransport::Tls), PresentedCredential::Nothing);
    }

    #[test]
    fn a_page_shows_what_it_was_given_in_a_header_or_where_a_socket_has_room() {
        let csrf = |method: &str, more: &[(&str, &str)]| {
            let headers = [&[("cookie", "x=1; ringfence=t; y=2")], more].concat();
            match shown(&parts(method, &headers), BindTransport::Plain) {
                PresentedCredential::Cookie { token: "t", csrf } => csrf.map(str::to_owned),
                other => panic!("{other:?}"),
            }
        };
        for method in ["GET", "HEAD", "POST", "INVENTED"] {
            assert_eq!(csrf(method, &[]), None, "{method}");
            assert_eq!(csrf(method, &[(CSRF_HEADER, "c")]).as_deref(), Some("c"));
        }
        let protocols = ("sec-websocket-protocol", "ringfence, ringfence.csrf.c");
        assert_eq!(csrf("GET", &[("upgrade", "websocket"), protocols]).as_deref(), Some("c"));
        assert_eq!(csrf("GET", &[protocols]), None, "nothing else has protocols");
        let page = [("upgrade", "websocket"), ("origin", "http://localhost:7420")];
        assert_eq!(csrf("GET", &page), None, "an origin is what somebody says of themselves");
    }

    #[test]
    fn a_cookie_that_somebody_added_makes_both_worthless() {
        let twice = parts("GET", &[("cookie", "ringfence=a; ringfence=b")]);
        assert_eq!(shown(&twice, BindTransport::Plain), PresentedCredential::Nothing);
        let plain = parts("GET", &[("cookie", "ringfence=a")]);
        assert_eq!(
            shown(&plain, BindTransport::Tls),
            PresentedCredential::Nothing,
            "with TLS only what TLS alone can have set"
        );
        let host = parts("GET", &[("cookie", "__Host-ringfence=a")]);
        assert!(matches!(shown(&host, BindTransport::Tls), PresentedCredential::Cookie { token: "a", .. }));
    }
}
