//! Key locations in a request.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ByteString;

/// A header or query parameter made for a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CredentialLocation {
    /// In lower case.
    Header(Cow<'static, str>),
    Query(Cow<'static, str>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialLocationError {
    #[error("`{0}` is no place for a key: write `header:NAME` or `query:NAME`")]
    Form(String),
    #[error("`{0}` is not a name that a header or a parameter of a query has")]
    Name(String),
    #[error("the header `{0}` is about the request itself; no key stands there")]
    Framing(String),
}

/// Headers that frame or route a request. A value there would change the request.
const FRAMING: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "content-encoding",
    "content-type",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "range",
    "cookie",
    "user-agent",
    "referer",
];
const LONGEST: usize = 64;

impl CredentialLocation {
    pub const fn header(name: &'static str) -> Self {
        Self::Header(Cow::Borrowed(name))
    }

    pub const fn query(name: &'static str) -> Self {
        Self::Query(Cow::Borrowed(name))
    }
}

impl FromStr for CredentialLocation {
    type Err = CredentialLocationError;

    fn from_str(text: &str) -> Result<Self, CredentialLocationError> {
        let shown = || ByteString::from(text).display();
        let (kind, name) = text.split_once(':').ok_or_else(|| CredentialLocationError::Form(shown()))?;
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.$~".contains(&byte);
        if name.is_empty() || name.len() > LONGEST || !name.bytes().all(word) {
            return Err(CredentialLocationError::Name(shown()));
        }
        match kind {
            "query" => Ok(Self::Query(name.to_owned().into())),
            "header" => {
                let name = name.to_ascii_lowercase();
                let framing = FRAMING.contains(&name.as_str()) || name.starts_with("proxy-");
                if framing {
                    Err(CredentialLocationError::Framing(name))
                } else {
                    Ok(Self::Header(name.into()))
                }
            }
            _ => Err(CredentialLocationError::Form(shown())),
        }
    }
}

impl TryFrom<String> for CredentialLocation {
    type Error = CredentialLocationError;

    fn try_from(text: String) -> Result<Self, CredentialLocationError> {
        text.parse()
    }
}

impl From<CredentialLocation> for String {
    fn from(place: CredentialLocation) -> Self {
        place.to_string()
    }
}

impl fmt::Display for CredentialLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for (text, place) in [
            ("header:X-Api-Key", CredentialLocation::header("x-api-key")),
            ("query:key", CredentialLocation::query("key")),
            ("query:X-Amz-Security-Token", CredentialLocation::query("X-Amz-Security-Token")),
        ] {
            assert_eq!(text.parse(), Ok(place.clone()), "{text}");
            assert_eq!(place.to_string().parse(), Ok(place));
        }
    }

    #[test]
    fn what_a_request_is_read_by_is_no_place_for_a_key() {
        for text in [
            "",
            "key",
            "header:",
            "query:",
            "body:key",
            "header:a b",
            "header:a\r\nb",
            "query:a&b",
            "query:a=b",
        ] {
            assert!(text.parse::<CredentialLocation>().is_err(), "{text:?}");
        }
        for name in ["Host", "cookie", "user-agent", "proxy-authorization", "content-length"] {
            let error = format!("header:{name}").parse::<CredentialLocation>();
            assert!(matches!(error, Err(CredentialLocationError::Framing(_))), "{name}");
        }
    }
}
