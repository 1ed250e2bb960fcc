//! How a request says who it is from.

use http::header::{AUTHORIZATION, COOKIE, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method};

use ringfence_types::Transport;

use crate::answer;

/// Where our own page puts what it was given at the login.
pub const CSRF_HEADER: &str = "x-ringfence-csrf";

/// What was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    Nothing,
    /// `Authorization: Bearer`: only a program that means it sends this.
    Bearer(&'a str),
    /// A browser sends this by itself, whoever made it ask.
    Cookie {
        token: &'a str,
        csrf: Option<&'a str>,
        /// Whether `csrf` has to be right.
        needs_csrf: NeedsCsrf,
    },
    /// A scheme that is not ours, or a header that makes no sense.
    Strange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsCsrf {
    Yes,
    /// It changes nothing.
    No,
}

/// A header beats a cookie: the browser adds the cookie by itself.
pub fn shown(request: &Parts, transport: Transport) -> Shown<'_> {
    if let Some(value) = request.headers.get(AUTHORIZATION) {
        let bearer = value.to_str().ok().and_then(bearer);
        return bearer.map_or(Shown::Strange, Shown::Bearer);
    }
    let Some(token) = cookie(&request.headers, answer::cookie_name(transport)) else { return Shown::Nothing };
    let csrf = request.headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
    Shown::Cookie { token, csrf, needs_csrf: needs_csrf(request) }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// A cookie that is there twice is none: one of them was put there by somebody else.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(known, _)| *known == name).map(|(_, value)| value);
    found.next().filter(|_| found.next().is_none())
}

/// A WebSocket can change things after a request that only reads. Its page cannot set headers: what guards it is its
/// `Origin`, which a browser always sends there.
fn needs_csrf(request: &Parts) -> NeedsCsrf {
    let reads = matches!(request.method, Method::GET | Method::HEAD);
    let upgrades = request.headers.contains_key(UPGRADE);
    let has_origin = request.headers.contains_key(http::header::ORIGIN);
    match (reads, upgrades) {
        (true, false) => NeedsCsrf::No,
        (true, true) if has_origin => NeedsCsrf::No,
        _ => NeedsCsrf::Yes,
    }
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
        assert_eq!(shown(&both, Transport::Plain), Shown::Bearer("a"));
        for strange in ["Basic YTpi", "Bearer", "Bearer ", "a"] {
            assert_eq!(shown(&parts("GET", &[("authorization", strange)]), Transport::Plain), Shown::Strange);
        }
        assert_eq!(shown(&parts("GET", &[]), Transport::Tls), Shown::Nothing);
    }

    #[test]
    fn what_changes_something_needs_more_than_a_cookie() {
        let kind = |method: &str, more: &[(&str, &str)]| {
            let headers = [&[("cookie", "x=1; ringfence=t; y=2"), (CSRF_HEADER, "c")], more].concat();
            let Shown::Cookie { token: "t", csrf: Some("c"), needs_csrf } =
                shown(&parts(method, &headers), Transport::Plain)
            else {
                panic!("no cookie")
            };
            needs_csrf
        };
        assert_eq!(kind("GET", &[]), NeedsCsrf::No);
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "INVENTED"] {
            assert_eq!(kind(method, &[]), NeedsCsrf::Yes, "{method}");
        }
        assert_eq!(kind("GET", &[("upgrade", "websocket")]), NeedsCsrf::Yes);
        let page = [("upgrade", "websocket"), ("origin", "http://localhost:7420")];
        assert_eq!(kind("GET", &page), NeedsCsrf::No);
    }

    #[test]
    fn a_cookie_that_somebody_added_makes_both_worthless() {
        let twice = parts("GET", &[("cookie", "ringfence=a; ringfence=b")]);
        assert_eq!(shown(&twice, Transport::Plain), Shown::Nothing);
        let plain = parts("GET", &[("cookie", "ringfence=a")]);
        assert_eq!(
            shown(&plain, Transport::Tls),
            Shown::Nothing,
            "with TLS only what TLS alone can have set"
        );
        let host = parts("GET", &[("cookie", "__Host-ringfence=a")]);
        assert!(matches!(shown(&host, Transport::Tls), Shown::Cookie { token: "a", .. }));
    }
}
