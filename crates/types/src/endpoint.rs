//! Endpoints for telemetry: any host with TLS, this machine also without.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::{ByteString, Host, HostPattern};

/// An HTTP server of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Tls(EndpointBase),
    /// Plain HTTP on this machine.
    Loopback(EndpointBase),
    /// A Unix socket of this machine.
    Unix(PathBuf),
}

/// Host, port and path prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointBase {
    host: Host,
    port: u16,
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    #[error("`{0}` is not an address")]
    Syntax(String),
    #[error("`{0}` has a name, a password or a question in it")]
    Extra(String),
    #[error("`{0}` would be sent to in the clear, and others could read it on the way")]
    InTheClear(String),
    #[error("`{0}` is not the absolute path of a socket")]
    Socket(String),
}

impl EndpointError {
    /// The one thing to write instead.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "write `https://HOST:PORT`, `http://127.0.0.1:PORT` or `unix:/PATH`",
            Self::Extra(_) => "write the address alone; what proves who sends belongs in a header",
            Self::InTheClear(_) => {
                "write `https://…`, or send to a collector on `127.0.0.1` that passes it on with TLS"
            }
            Self::Socket(_) => "write `unix:/run/…`",
        }
    }
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let whole = path.starts_with('/') && !path.contains("/../") && !path.contains('\0');
            let socket = || EndpointError::Socket(shown(text));
            return if whole { Ok(Self::Unix(PathBuf::from(path))) } else { Err(socket()) };
        }
        if let Some(rest) = text.strip_prefix("https://") {
            return EndpointBase::parse(text, rest, 443).map(Self::Tls);
        }
        let rest = text.strip_prefix("http://").ok_or_else(|| EndpointError::Syntax(shown(text)))?;
        let site = EndpointBase::parse(text, rest, 80)?;
        if site.is_loopback() {
            return Ok(Self::Loopback(site));
        }
        Err(EndpointError::InTheClear(shown(text)))
    }
}

impl EndpointBase {
    fn parse(text: &str, rest: &str, port: u16) -> Result<Self, EndpointError> {
        if rest.contains(['@', '?', '#']) {
            return Err(EndpointError::Extra(scheme_and_host(text)));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let syntax = || EndpointError::Syntax(shown(text));
        let rule = HostPattern::parse(authority).map_err(|_host| syntax())?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
        if matches!(rule.host(), Host::Below(_)) || !path.bytes().all(plain) {
            return Err(syntax());
        }
        let prefix = path.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        Ok(Self { host: rule.host().clone(), port: rule.port().unwrap_or(port), prefix })
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path prefix: empty, or with a leading and without a trailing slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// `localhost` is this machine whatever a resolver says: the client does not resolve it.
    fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Name(name) => name == "localhost",
            Host::V4(address) => address.is_loopback(),
            Host::V6(address) => address.is_loopback(),
            Host::Below(_) => false,
        }
    }

    /// Where it is, unless that has to be looked up.
    pub fn address(&self) -> Option<IpAddr> {
        match &self.host {
            Host::V4(address) => Some((*address).into()),
            Host::V6(address) => Some((*address).into()),
            Host::Name(_) | Host::Below(_) => None,
        }
    }
}

fn shown(text: &str) -> String {
    ByteString::from(text).display()
}

/// What is left when a password may be in it.
fn scheme_and_host(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    shown(&format!("{scheme}://{host}/…"))
}

impl fmt::Display for EndpointBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}", self.host, self.port, self.prefix)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(site) => write!(f, "https://{site}"),
            Self::Loopback(site) => write!(f, "http://{site}"),
            Self::Unix(path) => write!(f, "unix:{}", ByteString::from(Path::new(path)).display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_clear_only_to_this_machine() {
        for here in
            ["http://127.0.0.1:4318", "http://127.9.9.9", "http://[::1]:4318/otlp", "http://localhost:1/"]
        {
            assert!(matches!(Endpoint::parse(here), Ok(Endpoint::Loopback(_))), "{here}");
        }
        for there in [
            "http://10.0.0.1:4318",
            "http://example.com",
            "http://localhost.example.com",
            "http://0.0.0.0:4318",
            "http://[fe80::1]:4318",
            "http://127.0.0.1.example.com/",
        ] {
            let error = Endpoint::parse(there).unwrap_err();
            assert!(matches!(error, EndpointError::InTheClear(_)), "{there}: {error}");
            assert!(error.hint().contains("https://"));
        }
        for open in ["https://example.com", "https://10.0.0.1:4318/a/b", "https://localhost"] {
            assert!(matches!(Endpoint::parse(open), Ok(Endpoint::Tls(_))), "{open}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        for wrong in [
            "",
            "example.com",
            "ftp://x",
            "https://",
            "https://a b",
            "https://*.x.org",
            "https://x/%2e",
            "http:/127.0.0.1",
        ] {
            assert!(matches!(Endpoint::parse(wrong), Err(EndpointError::Syntax(_))), "{wrong}");
        }
        for extra in
            ["https://me:hunter2@example.com/x", "https://example.com/?key=hunter2", "http://x@127.0.0.1"]
        {
            let error = Endpoint::parse(extra).unwrap_err();
            assert!(matches!(error, EndpointError::Extra(_)), "{extra}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        for wrong in ["unix:", "unix:relative", "unix://host/x/../y"] {
            assert!(matches!(Endpoint::parse(wrong), Err(EndpointError::Socket(_))), "{wrong}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_was_understood() {
        for (text, shown) in [
            ("https://Example.COM", "https://example.com:443"),
            ("https://example.com:4318/otlp/", "https://example.com:4318/otlp"),
            ("http://[::1]:4318", "http://[::1]:4318"),
            ("unix:/run/otel.sock", "unix:/run/otel.sock"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), shown);
        }
    }
}
