//! Origin guard: checks which host a request is addressed to and which page sent it.

use std::net::SocketAddr;

use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Method};
use ringfence_types::{BindAddress, BindTransport, ByteString, Host, HostPattern, RuleId};

/// A name and port of a listener, normalised for comparison.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenerName {
    host: String,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a host, with or without a port")]
pub struct ListenerNameError(String);

impl ListenerName {
    pub fn parse(text: &str) -> Result<Self, ListenerNameError> {
        let wrong = || ListenerNameError(ByteString::from(text).display());
        let rule = HostPattern::parse(text).map_err(|_syntax| wrong())?;
        match rule.host() {
            Host::Below(_) => Err(wrong()),
            host => Ok(Self { host: host.to_string(), port: rule.port() }),
        }
    }

    fn with_port(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port: Some(port) }
    }
}

/// Reason why a request is rejected before authentication.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestRejection {
    #[error("the request does not say which host it is for, or says it twice")]
    NoHost,
    #[error("nothing here is called `{0}`")]
    Host(String),
    #[error("pages of `{0}` do not talk to this daemon")]
    Origin(String),
    #[error("a page of another site sent this")]
    CrossSite,
    #[error("a token in an address ends up in logs and histories; it is not looked at")]
    TokenInAddress,
    #[error("the request says more than once who it is from")]
    TwoCredentials,
}

impl RequestRejection {
    pub fn rule(&self) -> RuleId {
        match self {
            Self::NoHost | Self::Host(_) => RuleId::WebHost,
            Self::Origin(_) | Self::CrossSite => RuleId::WebOrigin,
            Self::TokenInAddress => RuleId::WebTokenInUrl,
            Self::TwoCredentials => RuleId::WebCredentials,
        }
    }

    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoHost | Self::Host(_) => {
                "use the address that the daemon listens on, or add the name to `hosts` of `[daemon]`"
            }
            Self::Origin(_) | Self::CrossSite => {
                "use the daemon's own page, or add the site to `origins` of `[daemon]`"
            }
            Self::TokenInAddress => "send it as `Authorization: Bearer …`, and revoke this one",
            Self::TwoCredentials => "send one `Authorization` header",
        }
    }

    /// HTTP status of the rejection.
    pub fn status(&self) -> http::StatusCode {
        match self {
            Self::NoHost | Self::TokenInAddress | Self::TwoCredentials => http::StatusCode::BAD_REQUEST,
            Self::Host(_) => http::StatusCode::MISDIRECTED_REQUEST,
            Self::Origin(_) | Self::CrossSite => http::StatusCode::FORBIDDEN,
        }
    }
}

/// Requirements of one listener for each request.
#[derive(Clone, Debug)]
pub struct OriginGuard {
    sites: Vec<ListenerName>,
    origins: Vec<String>,
    transport: BindTransport,
}

impl OriginGuard {
    /// `names`: names of the listener besides its address; `origins`: sites whose pages may send requests to it.
    pub fn new(bind: BindAddress, names: Vec<ListenerName>, origins: Vec<String>) -> Self {
        let mut sites = own(bind.address());
        // A name without a port has the port of the listener.
        let port = bind.address().port();
        sites.extend(names.into_iter().map(|site| ListenerName { port: site.port.or(Some(port)), ..site }));
        Self { sites, origins, transport: bind.transport() }
    }

    /// Accepts or rejects a request.
    pub fn admit(&self, request: &Parts) -> Result<(), RequestRejection> {
        let site = self.host(request)?;
        self.origin(request, &site)?;
        address(request)?;
        if request.headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
            return Err(RequestRejection::TwoCredentials);
        }
        Ok(())
    }

    fn host(&self, request: &Parts) -> Result<ListenerName, RequestRejection> {
        let mut said: Vec<String> = Vec::new();
        for value in request.headers.get_all(HOST) {
            said.push(value.to_str().map_err(|_bytes| RequestRejection::NoHost)?.to_owned());
        }
        said.extend(request.uri.authority().map(Authority::to_string));
        let mut sites = said.iter().map(|text| self.known(text));
        let first = sites.next().ok_or(RequestRejection::NoHost)??;
        // The request line and the `Host` header must agree.
        for other in sites {
            if other? != first {
                return Err(RequestRejection::NoHost);
            }
        }
        if request.headers.get_all(HOST).iter().nth(1).is_some() {
            return Err(RequestRejection::NoHost);
        }
        Ok(first)
    }

    fn known(&self, text: &str) -> Result<ListenerName, RequestRejection> {
        let turned = || RequestRejection::Host(ByteString::from(text).display());
        let site = ListenerName::parse(text).map_err(|_syntax| turned())?;
        let site = ListenerName { port: site.port.or(Some(self.default_port())), ..site };
        if self.sites.contains(&site) { Ok(site) } else { Err(turned()) }
    }

    fn origin(&self, request: &Parts, site: &ListenerName) -> Result<(), RequestRejection> {
        if let Some(origin) = one(&request.headers, &ORIGIN)? {
            return match origin {
                origin
                    if origin == self.own_origin(site)
                        || self.origins.iter().any(|known| known == origin) =>
                {
                    Ok(())
                }
                other => Err(RequestRejection::Origin(ByteString::from(other).display())),
            };
        }
        // Old browsers omit `Origin` in some requests. A page cannot set this header.
        let fetched = one(&request.headers, &HeaderName::from_static("sec-fetch-site"))?;
        let mode = one(&request.headers, &HeaderName::from_static("sec-fetch-mode"))?;
        let reads = matches!(request.method, Method::GET | Method::HEAD);
        match fetched {
            None | Some("same-origin" | "none") => Ok(()),
            // A user follows a link: the browser shows the response, and no page can read it.
            Some(_) if mode == Some("navigate") && reads => Ok(()),
            Some(_) => Err(RequestRejection::CrossSite),
        }
    }

    fn own_origin(&self, site: &ListenerName) -> String {
        let scheme = match self.transport {
            BindTransport::Plain => "http",
            BindTransport::Tls => "https",
        };
        match site.port {
            Some(port) if port != self.default_port() => format!("{scheme}://{}:{port}", site.host),
            _ => format!("{scheme}://{}", site.host),
        }
    }

    fn default_port(&self) -> u16 {
        match self.transport {
            BindTransport::Plain => 80,
            BindTransport::Tls => 443,
        }
    }
}

/// The address itself, and the usual names of loopback. Not `0.0.0.0`, which is no destination.
fn own(address: SocketAddr) -> Vec<ListenerName> {
    let port = address.port();
    let ip = address.ip().to_canonical();
    let mut sites = Vec::new();
    if ip.is_loopback() || ip.is_unspecified() {
        sites.extend(["localhost", "127.0.0.1", "[::1]"].map(|name| ListenerName::with_port(name, port)));
    }
    if !ip.is_unspecified() {
        let host = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
        sites.push(ListenerName::with_port(&host, port));
    }
    sites
}

/// The single value of a header. Duplicates are rejected, because two parsers could choose different ones.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, RequestRejection> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_bytes| RequestRejection::CrossSite),
        _ => Err(RequestRejection::CrossSite),
    }
}

/// Rejects tokens in the address, which servers, proxies and browsers log.
fn address(request: &Parts) -> Result<(), RequestRejection> {
    const NAMES: [&str; 7] =
        ["token", "access_token", "api_key", "apikey", "authorization", "auth", "password"];
    let text = request.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let kinds = ["rf_api_", "rf_device_", "rf_web_", "rf_session_"];
    // Also with an escaped underscore.
    let plain = text.to_ascii_lowercase().replace("%5f", "_");
    let query = request.uri.query().unwrap_or_default().to_ascii_lowercase();
    let named = query.split('&').any(|pair| NAMES.contains(&pair.split('=').next().unwrap_or_default()));
    if named || kinds.iter().any(|kind| plain.contains(kind)) {
        Err(RequestRejection::TokenInAddress)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn guard() -> OriginGuard {
        let bind = BindAddress::parse("127.0.0.1:7420", BindTransport::Plain).unwrap();
        OriginGuard::new(
            bind,
            vec![ListenerName::parse("box.example").unwrap()],
            vec!["https://console.example".to_owned()],
        )
    }

    fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn admit(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<(), RequestRejection> {
        guard().admit(&request(method, uri, headers))
    }

    #[test]
    fn what_is_meant_for_us_passes() {
        for host in ["127.0.0.1:7420", "localhost:7420", "LOCALHOST:7420", "[::1]:7420", "box.example:7420"] {
            assert_eq!(admit("POST", "/v1/x", &[("host", host)]), Ok(()), "{host}");
        }
        assert_eq!(admit("GET", "http://127.0.0.1:7420/v1", &[]), Ok(()), "as in HTTP/2");
    }

    /// DNS rebinding: a victim's browser requests a name of the attacker that resolves to loopback.
    #[test]
    fn another_name_for_loopback_is_turned_away() {
        for host in [
            "evil.example:7420",
            "localhost.evil.example:7420",
            "localhost",
            "127.0.0.1:80",
            "127.0.0.2:7420",
            "0.0.0.0:7420",
            "2130706433:7420",
            "localhost:7420@evil.example",
            "*.example:7420",
            "",
        ] {
            let turned = admit("GET", "/", &[("host", host)]).unwrap_err();
            assert_eq!(turned.rule(), RuleId::WebHost, "{host}");
        }
        assert_eq!(admit("GET", "/", &[]), Err(RequestRejection::NoHost));
        let two = [("host", "localhost:7420"), ("host", "localhost:7420")];
        assert_eq!(admit("GET", "/", &two), Err(RequestRejection::NoHost));
        let other = admit("GET", "http://localhost:7420/", &[("host", "127.0.0.1:7420")]);
        assert_eq!(other, Err(RequestRejection::NoHost), "two that are both ours are still two");
        assert!(admit("GET", "http://evil.example/", &[("host", "localhost:7420")]).is_err());
    }

    #[test]
    fn only_our_own_page_and_those_that_were_named_may_ask() {
        let from = |origin: &str| admit("POST", "/v1", &[("host", "localhost:7420"), ("origin", origin)]);
        assert_eq!(from("http://localhost:7420"), Ok(()));
        assert_eq!(from("https://console.example"), Ok(()));
        for other in [
            "http://localhost:3000",
            "https://localhost:7420",
            "http://127.0.0.1:7420",
            "null",
            "http://evil.example",
            "https://console.example.evil.example",
            "https://console.example/",
            "",
        ] {
            assert!(matches!(from(other), Err(RequestRejection::Origin(_))), "{other}");
        }
        let two = [("host", "localhost:7420"), ("origin", "http://localhost:7420"), ("origin", "null")];
        assert!(admit("POST", "/", &two).is_err());
    }

    #[test]
    fn a_page_of_another_site_is_seen_also_without_an_origin() {
        let with = |method: &str, site: &str, mode: &str| {
            let headers = [("host", "localhost:7420"), ("sec-fetch-site", site), ("sec-fetch-mode", mode)];
            admit(method, "/", &headers)
        };
        assert_eq!(with("GET", "same-origin", "cors"), Ok(()));
        assert_eq!(with("GET", "none", "navigate"), Ok(()));
        assert_eq!(with("GET", "cross-site", "navigate"), Ok(()), "a link");
        assert_eq!(with("POST", "cross-site", "navigate"), Err(RequestRejection::CrossSite), "a form");
        for mode in ["no-cors", "cors", "websocket"] {
            assert_eq!(with("GET", "cross-site", mode), Err(RequestRejection::CrossSite), "{mode}");
            assert_eq!(
                with("GET", "same-site", mode),
                Err(RequestRejection::CrossSite),
                "another port is another site"
            );
        }
    }

    #[test]
    fn a_token_in_an_address_is_turned_away_with_a_hint() {
        let secret = "0".repeat(64);
        for address in [
            format!("/v1/events?x=rf_api_0011223344556677_{secret}"),
            format!("/v1/events?x=rf%5fdevice%5F0011223344556677_{secret}"),
            format!("/rf_session_0011223344556677_{secret}"),
            "/v1?access_token=x".to_owned(),
            "/v1?a=b&Token=x".to_owned(),
            "/v1?password=x".to_owned(),
        ] {
            let turned = admit("GET", &address, &[("host", "localhost:7420")]).unwrap_err();
            assert_eq!(turned, RequestRejection::TokenInAddress, "{address}");
            assert!(turned.hint().contains("Authorization") && !turned.to_string().contains(&secret));
        }
        assert_eq!(admit("GET", "/v1/events?after=12&tokens=3", &[("host", "localhost:7420")]), Ok(()));
        let two = [("host", "localhost:7420"), ("authorization", "Bearer a"), ("authorization", "Bearer b")];
        assert_eq!(admit("GET", "/", &two), Err(RequestRejection::TwoCredentials));
    }

    #[test]
    fn with_tls_the_default_port_may_be_left_out() {
        let bind = BindAddress::parse("0.0.0.0:443", BindTransport::Tls).unwrap();
        let guard = OriginGuard::new(bind, vec![ListenerName::parse("box.example").unwrap()], Vec::new());
        let admit = |headers: &[(&str, &str)]| guard.admit(&request("POST", "/", headers));
        assert_eq!(admit(&[("host", "box.example"), ("origin", "https://box.example")]), Ok(()));
        assert_eq!(admit(&[("host", "box.example:443")]), Ok(()));
        assert!(admit(&[("host", "box.example"), ("origin", "http://box.example")]).is_err(), "in the clear");
        assert!(admit(&[("host", "10.1.2.3")]).is_err(), "what was not named");
    }
}
