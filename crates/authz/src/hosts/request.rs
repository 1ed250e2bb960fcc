//! A request in the one form that rules are compared with.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use ringfence_types::{ByteString, Host, Risk, UnknownKeyword};

use super::url::{Url, UrlError, path_oddity};
use super::{HostMismatch, HostQuery, HostRule};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UrlScheme {
    Http,
    Https,
}

impl UrlScheme {
    pub const WORDS: &'static [&'static str] = &["http", "https"];

    pub(super) fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl FromStr for UrlScheme {
    type Err = UnknownKeyword;

    fn from_str(word: &str) -> Result<Self, UnknownKeyword> {
        match word {
            "http" => Ok(Self::Http),
            "https" => Ok(Self::Https),
            _ => Err(UnknownKeyword::new("scheme", word, Self::WORDS)),
        }
    }
}

impl fmt::Display for UrlScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

/// A method as it is sent. Methods are case-sensitive: `get` is not `GET`, but some servers take it for one (N12).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpMethod(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpMethodError {
    #[error("`{0}` is not a method")]
    NotAToken(String),
    #[error("an empty list of methods allows none; leave it out for every ordinary method")]
    Empty,
}

impl HttpMethod {
    const READING: &'static [&'static str] = &["GET", "HEAD", "OPTIONS"];
    const WRITING: &'static [&'static str] = &["POST", "PUT", "PATCH", "DELETE"];

    pub fn parse(text: &str) -> Result<Self, HttpMethodError> {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let fine = !text.is_empty() && text.len() <= 32 && text.bytes().all(token);
        if fine {
            Ok(Self(text.to_owned()))
        } else {
            Err(HttpMethodError::NotAToken(ByteString::from(text).display()))
        }
    }

    /// Methods that a rule need not name.
    pub(super) fn is_ordinary(&self) -> bool {
        self.only_reads() || Self::WRITING.contains(&self.0.as_str())
    }

    pub(super) fn only_reads(&self) -> bool {
        Self::READING.contains(&self.0.as_str())
    }
}

impl fmt::Display for HttpMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// At least one method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpMethods(BTreeSet<HttpMethod>);

impl HttpMethods {
    pub fn parse<T: AsRef<str>>(words: &[T]) -> Result<Self, HttpMethodError> {
        let methods: BTreeSet<HttpMethod> =
            words.iter().map(|word| HttpMethod::parse(word.as_ref())).collect::<Result<_, _>>()?;
        if methods.is_empty() { Err(HttpMethodError::Empty) } else { Ok(Self(methods)) }
    }

    pub fn contains(&self, method: &HttpMethod) -> bool {
        self.0.contains(method)
    }
}

impl fmt::Display for HttpMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(|method| method.0.as_str()).collect();
        f.write_str(&words.join(", "))
    }
}

/// The beginning of a path, by whole segments: `/api` covers `/api` and `/api/x`, not `/apix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPrefix(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathPrefixError {
    #[error("path `{0}` does not begin with `/`")]
    Relative(String),
    #[error("path `{0}` has {1}; servers and clients disagree about what that is")]
    Odd(String, &'static str),
}

impl PathPrefix {
    pub fn parse(text: &str) -> Result<Self, PathPrefixError> {
        if !text.starts_with('/') {
            return Err(PathPrefixError::Relative(ByteString::from(text).display()));
        }
        match path_oddity(text) {
            Some(oddity) => Err(PathPrefixError::Odd(ByteString::from(text).display(), oddity)),
            None => Ok(Self(text.trim_end_matches('/').to_owned())),
        }
    }

    fn covers(&self, path: &str) -> bool {
        path.strip_prefix(self.0.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Some servers ignore letter case, and a rule that denies must hold there too.
    fn covers_loosely(&self, path: &str) -> bool {
        Self(self.0.to_ascii_lowercase()).covers(&path.to_ascii_lowercase())
    }
}

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.0)
    }
}

/// The path of a request, with what keeps it from having one meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestPath {
    pub(super) text: String,
    pub(super) oddity: Option<&'static str>,
}

impl RequestPath {
    pub(super) fn why_no_match(&self) -> String {
        match self.oddity {
            Some(oddity) => format!("the path has {oddity}, so no rule about paths allows it"),
            None => "the path is not allowed for this host".to_owned(),
        }
    }
}

/// What a matching rule would do: what opens must match for certain, what closes must match already in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchStrictness {
    Grant,
    Restrict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UrlRequest {
    pub(super) scheme: UrlScheme,
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) path: RequestPath,
    pub(super) method: HttpMethod,
}

impl UrlRequest {
    pub(super) fn read(url: &[u8], method: Option<&str>) -> Result<Self, UrlError> {
        let method = HttpMethod::parse(method.unwrap_or("GET")).map_err(UrlError::Method)?;
        let Url { scheme, host, port, path } = Url::parse(url)?;
        let oddity = path_oddity(&path);
        Ok(Self {
            scheme,
            host,
            port: port.unwrap_or(scheme.default_port()),
            path: RequestPath { text: path, oddity },
            method,
        })
    }

    fn path_matches(&self, prefix: Option<&PathPrefix>, side: MatchStrictness) -> bool {
        let Some(prefix) = prefix else { return true };
        match side {
            MatchStrictness::Grant => self.path.oddity.is_none() && prefix.covers(&self.path.text),
            MatchStrictness::Restrict => self.path.oddity.is_some() || prefix.covers_loosely(&self.path.text),
        }
    }

    /// A rule that denies `DELETE` also denies `delete`.
    fn method_matches(&self, methods: Option<&HttpMethods>, side: MatchStrictness) -> bool {
        match (methods, side) {
            (None, MatchStrictness::Grant) => self.method.is_ordinary(),
            (None, MatchStrictness::Restrict) => true,
            (Some(methods), MatchStrictness::Grant) => methods.contains(&self.method),
            (Some(methods), MatchStrictness::Restrict) => {
                methods.0.iter().any(|method| method.0.eq_ignore_ascii_case(&self.method.0))
            }
        }
    }
}

impl HostQuery for UrlRequest {
    fn host(&self) -> &Host {
        &self.host
    }

    fn mismatch(&self, entry: &HostRule, side: MatchStrictness) -> Option<HostMismatch> {
        if entry.host.port().is_some_and(|port| port != self.port) {
            return Some(HostMismatch::Port);
        }
        if entry.scheme.is_some_and(|scheme| scheme != self.scheme) {
            return Some(HostMismatch::Scheme);
        }
        if !self.path_matches(entry.path_prefix.as_ref(), side) {
            return Some(HostMismatch::Path);
        }
        (!self.method_matches(entry.methods.as_ref(), side)).then_some(HostMismatch::Method)
    }

    fn risk(&self) -> Risk {
        if self.method.only_reads() { Risk::Low } else { Risk::Medium }
    }

    fn lacks(&self, mismatch: HostMismatch) -> String {
        match mismatch {
            HostMismatch::Port => format!("port {} is not allowed for this host", self.port),
            HostMismatch::Scheme => format!("`{}` is not allowed for this host", self.scheme),
            HostMismatch::Path => self.path.why_no_match(),
            HostMismatch::Method => format!("method `{}` is not allowed here", self.method),
        }
    }

    fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Without the query, which may hold a secret.
impl fmt::Display for UrlRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}://{}{}", self.method, self.scheme, self.authority(), self.path.text)
    }
}
