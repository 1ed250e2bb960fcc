//! Security headers and cookies of every response.

use http::HeaderMap;
use http::header::InvalidHeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

use ringfence_types::BindTransport;

/// Forbids executing, framing, sniffing, caching and referring for a response. An existing header is kept, because a page may have
/// its own policy.
pub fn secure(headers: &mut HeaderMap, transport: BindTransport) {
    const ALWAYS: [(HeaderName, HeaderValue); 7] = [
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(
                "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
            ),
        ),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    for (name, value) in ALWAYS {
        headers.entry(name).or_insert(value);
    }
    if transport == BindTransport::Tls {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.entry(STRICT_TRANSPORT_SECURITY).or_insert(year);
    }
}

/// `__Host-` requires TLS and this exact host. Plain loopback cannot use it.
pub(crate) fn cookie_name(transport: BindTransport) -> &'static str {
    match transport {
        BindTransport::Plain => "ringfence",
        BindTransport::Tls => "__Host-ringfence",
    }
}

/// `Set-Cookie` for a web session: scripts cannot read it and other sites cannot send it.
pub fn cookie(token: &str, transport: BindTransport) -> Result<HeaderValue, InvalidHeaderValue> {
    let name = cookie_name(transport);
    let secure = match transport {
        BindTransport::Plain => "",
        BindTransport::Tls => "; Secure",
    };
    let mut value =
        HeaderValue::try_from(format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// `Set-Cookie` that deletes the cookie.
pub fn cookie_gone(transport: BindTransport) -> Result<HeaderValue, InvalidHeaderValue> {
    let gone = cookie("", transport)?;
    HeaderValue::try_from(format!("{}; Max-Age=0", gone.to_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_runs_nothing_and_is_kept_nowhere() {
        let mut headers = HeaderMap::new();
        secure(&mut headers, BindTransport::Plain);
        assert_eq!(headers[CACHE_CONTROL], "no-store");
        assert!(headers[CONTENT_SECURITY_POLICY].to_str().unwrap().contains("default-src 'none'"));
        assert!(!headers.contains_key(STRICT_TRANSPORT_SECURITY), "loopback has no TLS to insist on");
        let mut page = HeaderMap::new();
        page.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'self'"));
        secure(&mut page, BindTransport::Tls);
        assert_eq!(page[CONTENT_SECURITY_POLICY], "default-src 'self'");
        assert_eq!(page[STRICT_TRANSPORT_SECURITY], "max-age=31536000");
    }

    #[test]
    fn a_cookie_is_for_this_host_and_no_script() {
        let value = cookie("t", BindTransport::Tls).unwrap();
        assert_eq!(value, "__Host-ringfence=t; Path=/; HttpOnly; SameSite=Strict; Secure");
        assert!(value.is_sensitive(), "it is not shown in a log");
        assert!(cookie_gone(BindTransport::Plain).unwrap().to_str().unwrap().ends_with("Max-Age=0"));
        assert!(cookie("a\nb", BindTransport::Plain).is_err());
    }
}
