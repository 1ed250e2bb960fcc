//! URLs as everybody reads them, or not at all.
//!
//! WHY NOT the parser of browsers: it repairs. It drops tabs, turns backslashes into slashes, reads `0x7f.1` as an
//! address and finds a host in `http:example.org`. A client with another parser would go elsewhere than what was judged.

use ringfence_types::{ByteString, Host, HostPattern, HostPatternError, RuleId};

use super::request::{HttpMethodError, UrlScheme};

/// Longer URLs are refused by common servers as well.
const MAX: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) scheme: UrlScheme,
    /// Never [`Host::Below`].
    pub(super) host: Host,
    pub(super) port: Option<u16>,
    /// Begins with `/`. Printable ASCII.
    pub(super) path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UrlError {
    #[error("the URL is not UTF-8")]
    NotUtf8,
    #[error("the URL is longer than {MAX} bytes")]
    TooLong,
    #[error("the URL contains `{0}`, which programs read differently")]
    Character(String),
    #[error("`{0}` is not a percent-encoded byte")]
    Percent(String),
    #[error("the URL is not absolute")]
    NotAbsolute,
    #[error("scheme `{0}` is not `http` or `https`")]
    Scheme(String),
    #[error("there is an `@` before the path: a name or password, or another host")]
    UserInfo,
    #[error(transparent)]
    Host(HostPatternError),
    #[error("`{0}` is a pattern, not a host")]
    Pattern(String),
    #[error("host `{0}` has a letter that programs translate differently")]
    Translated(String),
    #[error(transparent)]
    Method(HttpMethodError),
}

impl UrlError {
    pub(super) fn rule(&self) -> RuleId {
        match self {
            Self::Scheme(_) => RuleId::HostScheme,
            Self::Method(_) => RuleId::HostMethod,
            _ => RuleId::HostMalformed,
        }
    }

    pub(super) fn fix(&self) -> &'static str {
        match self {
            Self::UserInfo => "leave the part before the `@` out",
            Self::Method(_) => "name a method such as `GET`",
            Self::Character(_) | Self::Percent(_) => "percent-encode it in the path or query",
            Self::Host(HostPatternError::Ambiguous(..) | HostPatternError::Mapped(..)) => {
                "write the address plainly, as `192.0.2.7` or `[2001:db8::7]`"
            }
            Self::Translated(_) => "write the host in its ASCII form, with `xn--`",
            _ => "write it as `https://host/path`",
        }
    }
}

impl Url {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, UrlError> {
        if bytes.len() > MAX {
            return Err(UrlError::TooLong);
        }
        let text = std::str::from_utf8(bytes).ok().ok_or(UrlError::NotUtf8)?;
        let (scheme, rest) = split_scheme(text)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        if before_path(rest).contains('@') {
            return Err(UrlError::UserInfo);
        }
        check_after(after)?;
        let rule = HostPattern::parse(authority).map_err(UrlError::Host)?;
        if authority.contains(TRANSLATED) {
            return Err(UrlError::Translated(ByteString::from(authority).display()));
        }
        if matches!(rule.host(), Host::Below(_)) {
            return Err(UrlError::Pattern(rule.to_string()));
        }
        Ok(Self { scheme, host: rule.host().clone(), port: rule.port(), path: path_of(after) })
    }
}

/// Letters that older clients turn into others: one host to them, another host to everybody else.
const TRANSLATED: [char; 5] = ['ß', 'ẞ', 'ς', '\u{200c}', '\u{200d}'];

fn split_scheme(text: &str) -> Result<(UrlScheme, &str), UrlError> {
    let (scheme, rest) = text.split_once(':').ok_or(UrlError::NotAbsolute)?;
    if !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte)) {
        return Err(UrlError::NotAbsolute);
    }
    let rest = rest.strip_prefix("//").ok_or(UrlError::NotAbsolute);
    let known = scheme.to_ascii_lowercase().parse::<UrlScheme>();
    Ok((known.ok().ok_or_else(|| UrlError::Scheme(ByteString::from(scheme).display()))?, rest?))
}

/// Everything up to the path. Some parsers look for an `@` there even behind `?` and `#`.
fn before_path(rest: &str) -> &str {
    rest.split_once('/').map_or(rest, |(before, _)| before)
}

/// Path, query and fragment: printable ASCII without what shells, proxies and servers take for something else.
fn check_after(after: &str) -> Result<(), UrlError> {
    let forbidden = |c: &char| !c.is_ascii_graphic() || "\\\"<>^`{|}[]".contains(*c);
    if let Some(c) = after.chars().find(forbidden) {
        return Err(UrlError::Character(ByteString::from(c.to_string().as_str()).display()));
    }
    for (at, _) in after.match_indices('%') {
        let digits = after.get(at + 1..at + 3).unwrap_or_default();
        if digits.len() != 2 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(UrlError::Percent(format!("%{digits}")));
        }
    }
    Ok(())
}

/// Percent-encoded bytes in capitals, so that one path has one spelling.
fn path_of(after: &str) -> String {
    let end = after.find(['?', '#']).unwrap_or(after.len());
    let path = after.get(..end).filter(|path| !path.is_empty()).unwrap_or("/");
    let mut parts = path.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        out.push('%');
        out.push_str(&digits.to_ascii_uppercase());
        out.push_str(rest);
    }
    out
}

/// What keeps a path from having one meaning: the client, a proxy and the server may each fold it differently (N11, B-C18).
pub(super) fn path_oddity(path: &str) -> Option<&'static str> {
    if path.contains("//") {
        return Some("an empty segment");
    }
    if path.contains(';') {
        return Some("a `;`");
    }
    if path.contains('\\') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some("a character that should be encoded");
    }
    if path.split('/').any(|segment| segment.ends_with('.')) {
        return Some("a segment that ends in a dot");
    }
    encoded_oddity(path)
}

fn encoded_oddity(path: &str) -> Option<&'static str> {
    let mut parts = path.split('%');
    let mut decoded = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        let Ok(byte) = u8::from_str_radix(digits, 16) else { return Some("a `%` that encodes nothing") };
        if byte.is_ascii_alphanumeric() || byte.is_ascii_control() || b"-._~/\\%;?#".contains(&byte) {
            return Some("an encoded letter, digit or separator");
        }
        decoded.push(byte);
        decoded.extend_from_slice(rest.as_bytes());
    }
    std::str::from_utf8(&decoded).is_err().then_some("bytes that are not UTF-8")
}

/// A URL that could not be read, safe to show: short, and without what may be a password.
pub(super) fn shown(url: &[u8]) -> String {
    const SHOWN: usize = 200;
    let hidden = url.iter().rposition(|byte| *byte == b'@');
    let start = hidden.map_or(0, |at| at + 1);
    let end = url.iter().position(|byte| *byte == b'?').filter(|at| *at > start).unwrap_or(url.len());
    let part = url.get(start..end.min(start + SHOWN)).unwrap_or_default();
    let text = ByteString::from(part).display();
    format!(
        "{}{text}{}",
        if start > 0 { "…@" } else { "" },
        if start + part.len() < url.len() { "…" } else { "" }
    )
}
