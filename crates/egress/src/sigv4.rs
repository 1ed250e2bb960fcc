//! AWS Signature Version 4: verifies a signature made with a placeholder and signs again with the key.
//!
//! A signing key is never sent, so there is no placeholder to replace. The proxy verifies the client's signature with the
//! placeholder as key. That shows which variant of the canonical request the service uses, and refuses requests that the service
//! would reject.

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use ringfence_types::hex;
use sha2::{Digest as _, Sha256};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const END: &str = "aws4_request";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SigningError {
    #[error("its AWS signature cannot be read: {0}")]
    Malformed(&'static str),
    #[error(
        "its body is signed chunk by chunk ({0}), which cannot be signed again here; configure the client for unsigned payloads"
    )]
    Chunks(String),
    #[error("it is signed with `{0}`, which cannot be signed again here")]
    Algorithm(String),
    #[error("it signs the header `{0}`, which does not leave")]
    Header(String),
    #[error("its signature is not one of the placeholder of this session")]
    Mismatch,
}

/// Signature claims of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SigV4Claim {
    form: SigV4Form,
    pub(crate) id: String,
    /// `20260101/eu-west-1/s3/aws4_request`.
    scope: SigV4Scope,
    headers: Vec<String>,
    signature: String,
    time: String,
    pub(crate) payload: SigV4Payload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SigV4Form {
    Header,
    /// Presigned.
    Query,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SigV4Scope {
    date: String,
    region: String,
    service: String,
}

/// Representation of the body in the signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SigV4Payload {
    Given(String),
    /// The hash of the body, which the request does not contain.
    Body,
}

/// The parts of a request that are signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignedHead<'r> {
    pub(crate) method: &'r str,
    pub(crate) path: &'r str,
    pub(crate) query: &'r str,
    pub(crate) host: &'r str,
    pub(crate) headers: &'r HeaderMap,
}

/// Variant of the canonical request. Documents and services differ, and the signature tells which one is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CanonicalRules {
    path: PathSpelling,
    query: QuerySpelling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathSpelling {
    /// Encoded once more: everything but S3.
    Twice,
    /// The same, without empty segments.
    TwiceJoined,
    AsIs,
    /// Decoded and encoded by the strict rules: S3.
    Once,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuerySpelling {
    Encoded,
    AsIs,
}

impl SigV4Claim {
    /// Parses the signature of a request, if it has one.
    pub(crate) fn of(head: SignedHead<'_>) -> Result<Option<Self>, SigningError> {
        let authorization = head.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
        if let Some(text) = authorization.filter(|text| text.starts_with("AWS4-")) {
            return Self::in_header(text, head.headers).map(Some);
        }
        if parameter(head.query, "X-Amz-Algorithm").is_some() {
            return Self::in_query(head).map(Some);
        }
        Ok(None)
    }

    fn in_header(text: &str, headers: &HeaderMap) -> Result<Self, SigningError> {
        let (algorithm, fields) = text.split_once(' ').ok_or(SigningError::Malformed("no fields"))?;
        check_algorithm(algorithm)?;
        let field = |name: &str| {
            let prefixed = fields.split(',').map(str::trim).find_map(|field| field.strip_prefix(name));
            prefixed.and_then(|rest| rest.strip_prefix('=')).map(str::to_owned)
        };
        let time = headers.get("x-amz-date").and_then(|value| value.to_str().ok());
        let (id, scope) = credential(&field("Credential").ok_or(SigningError::Malformed("no credential"))?)?;
        let hash = headers.get("x-amz-content-sha256").and_then(|value| value.to_str().ok());
        Ok(Self {
            form: SigV4Form::Header,
            id,
            scope,
            headers: names(&field("SignedHeaders").ok_or(SigningError::Malformed("no signed headers"))?)?,
            signature: field("Signature").ok_or(SigningError::Malformed("no signature"))?,
            time: time.ok_or(SigningError::Malformed("no x-amz-date"))?.to_owned(),
            payload: hash.map_or(Ok(SigV4Payload::Body), given)?,
        })
    }

    fn in_query(head: SignedHead<'_>) -> Result<Self, SigningError> {
        let field = |name| parameter(head.query, name);
        check_algorithm(&field("X-Amz-Algorithm").unwrap_or_default())?;
        let (id, scope) =
            credential(&field("X-Amz-Credential").ok_or(SigningError::Malformed("no credential"))?)?;
        let hash = head.headers.get("x-amz-content-sha256").and_then(|value| value.to_str().ok());
        let payload = match hash {
            Some(hash) => given(hash)?,
            None if scope.service.starts_with("s3") => SigV4Payload::Given(UNSIGNED.to_owned()),
            None => SigV4Payload::Body,
        };
        Ok(Self {
            form: SigV4Form::Query,
            id,
            scope,
            headers: names(
                &field("X-Amz-SignedHeaders").ok_or(SigningError::Malformed("no signed headers"))?,
            )?,
            signature: field("X-Amz-Signature").ok_or(SigningError::Malformed("no signature"))?,
            time: field("X-Amz-Date").ok_or(SigningError::Malformed("no date"))?,
            payload,
        })
    }

    /// Verifies the signature and determines the variant.
    pub(crate) fn check(
        &self,
        head: SignedHead<'_>,
        key: &[u8],
        payload: &str,
    ) -> Result<CanonicalRules, SigningError> {
        use PathSpelling::{AsIs, Once, Twice, TwiceJoined};
        for path in [Twice, AsIs, Once, TwiceJoined] {
            for query in [QuerySpelling::Encoded, QuerySpelling::AsIs] {
                let spelling = CanonicalRules { path, query };
                if self.signature(head, spelling, key, payload)? == self.signature {
                    return Ok(spelling);
                }
            }
        }
        Err(SigningError::Mismatch)
    }

    /// The value of a new `Authorization` header.
    pub(crate) fn authorization(&self, id: &str, signature: &str) -> Result<HeaderValue, SigningError> {
        let (scope, headers) = (self.scope.text(), self.headers.join(";"));
        let text =
            format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={headers}, Signature={signature}");
        let mut value =
            HeaderValue::from_str(&text).ok().ok_or(SigningError::Malformed("the key id is no header"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    pub(crate) fn is_in_query(&self) -> bool {
        self.form == SigV4Form::Query
    }

    /// The query with another access key id and without the signature.
    pub(crate) fn query_with_id(&self, query: &str, id: &str) -> String {
        let credential = encode(format!("{id}/{}", self.scope.text()).as_bytes());
        let changed = query.split('&').filter(|pair| name_of(pair) != "X-Amz-Signature").map(|pair| {
            match name_of(pair).as_str() {
                "X-Amz-Credential" => format!("X-Amz-Credential={credential}"),
                _ => pair.to_owned(),
            }
        });
        changed.collect::<Vec<_>>().join("&")
    }

    pub(crate) fn signature(
        &self,
        head: SignedHead<'_>,
        spelling: CanonicalRules,
        key: &[u8],
        payload: &str,
    ) -> Result<String, SigningError> {
        let canonical = self.canonical(head, spelling, payload)?;
        let text =
            format!("{ALGORITHM}\n{}\n{}\n{}", self.time, self.scope.text(), hex(Sha256::digest(canonical)));
        let prefixed = [b"AWS4", key].concat();
        let SigV4Scope { date, region, service } = &self.scope;
        let steps = [date.as_str(), region, service, END, &text];
        let signature = steps.iter().fold(prefixed, |key, step| mac(&key, step.as_bytes()));
        Ok(hex(signature))
    }

    fn canonical(
        &self,
        head: SignedHead<'_>,
        spelling: CanonicalRules,
        payload: &str,
    ) -> Result<String, SigningError> {
        let mut headers = String::new();
        for name in &self.headers {
            let value = header(head, name).ok_or_else(|| SigningError::Header(name.clone()))?;
            headers.push_str(&format!("{name}:{value}\n"));
        }
        let query = canonical_query(head.query, spelling.query);
        let (path, signed) = (canonical_path(head.path, spelling.path), self.headers.join(";"));
        Ok(format!("{}\n{path}\n{query}\n{headers}\n{signed}\n{payload}", head.method))
    }
}

impl SigV4Scope {
    fn text(&self) -> String {
        format!("{}/{}/{}/{END}", self.date, self.region, self.service)
    }
}

pub(crate) fn payload_hash(body: &[u8]) -> String {
    hex(Sha256::digest(body))
}

fn check_algorithm(name: &str) -> Result<(), SigningError> {
    if name == ALGORITHM { Ok(()) } else { Err(SigningError::Algorithm(name.chars().take(64).collect())) }
}

fn given(hash: &str) -> Result<SigV4Payload, SigningError> {
    match hash {
        // The body is not signed; its trailers carry a checksum that needs no key.
        UNSIGNED | "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(SigV4Payload::Given(hash.to_owned())),
        _ if hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Ok(SigV4Payload::Given(hash.to_owned()))
        }
        _ => Err(SigningError::Chunks(hash.chars().take(64).collect())),
    }
}

fn credential(text: &str) -> Result<(String, SigV4Scope), SigningError> {
    let mut parts = text.rsplitn(5, '/');
    let mut next = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
    let (end, service, region, date, id) = (next(), next(), next(), next(), next());
    match (id, date, region, service, end.as_deref()) {
        (Some(id), Some(date), Some(region), Some(service), Some(END)) => {
            Ok((id, SigV4Scope { date, region, service }))
        }
        _ => Err(SigningError::Malformed("its credential has no scope")),
    }
}

/// Signed header names, sorted and unique. Duplicates would make verification expensive.
fn names(text: &str) -> Result<Vec<String>, SigningError> {
    let names: Vec<String> = text.split(';').map(str::to_ascii_lowercase).collect();
    if names.is_sorted_by(|before, after| before < after) {
        return Ok(names);
    }
    Err(SigningError::Malformed("its signed headers are not in order"))
}

/// Values of a header in canonical form: trimmed, single spaces, joined by commas.
fn header(head: SignedHead<'_>, name: &str) -> Option<String> {
    if name == "host" {
        return Some(head.host.to_owned());
    }
    let spaced = |value: &HeaderValue| {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
    };
    let values: Vec<String> = head.headers.get_all(name).iter().map(spaced).collect();
    (!values.is_empty()).then(|| values.join(","))
}

fn canonical_path(path: &str, spelling: PathSpelling) -> String {
    let path = if path.is_empty() { "/" } else { path };
    match spelling {
        PathSpelling::AsIs => path.to_owned(),
        PathSpelling::Twice => encode_path(path.as_bytes()),
        PathSpelling::Once => encode_path(&decode(path)),
        PathSpelling::TwiceJoined => {
            let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
            let end = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
            encode_path(format!("/{}{end}", parts.join("/")).as_bytes())
        }
    }
}

fn canonical_query(query: &str, spelling: QuerySpelling) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty() && name_of(pair) != "X-Amz-Signature");
    let mut pairs: Vec<(String, String)> = pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match spelling {
                QuerySpelling::Encoded => (encode(&decode(name)), encode(&decode(value))),
                QuerySpelling::AsIs => (name.to_owned(), value.to_owned()),
            }
        })
        .collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn name_of(pair: &str) -> String {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    String::from_utf8_lossy(&decode(name)).into_owned()
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let pair = query.split('&').find(|pair| name_of(pair) == name)?;
    let (_, value) = pair.split_once('=')?;
    String::from_utf8(decode(value)).ok()
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    bytes
        .iter()
        .map(|byte| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn encode_path(path: &[u8]) -> String {
    path.split(|byte| *byte == b'/').map(encode).collect::<Vec<_>>().join("/")
}

/// Percent-decodes text. Invalid escapes stay as they are.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escape =
            after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = escape
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    decoded
}

fn mac(key: &[u8], message: &[u8]) -> Vec<u8> {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests;
