//! Placeholders become secrets, on their way to the hosts that the secrets are for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use memchr::memmem;
use zeroize::Zeroizing;

use crate::credential::{BodyUse, Sight};
use crate::sigv4::encode;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of secret `{0}` cannot stand in a header")]
pub(crate) struct InjectError(String);

/// Replaces placeholders in the values of headers, and in the user and password of `Basic`.
pub(crate) fn headers(headers: &mut HeaderMap, sight: &Sight) -> Result<(), InjectError> {
    for (name, value) in headers.iter_mut() {
        for (credential, placeholder) in sight.injected() {
            let replaced =
                replace(value.as_bytes(), placeholder.as_bytes(), &credential.value).or_else(|| {
                    if name == AUTHORIZATION { basic(value, placeholder, &credential.value) } else { None }
                });
            let Some(replaced) = replaced else { continue };
            let made = HeaderValue::from_bytes(&replaced);
            *value = made.ok().ok_or_else(|| InjectError(credential.name.clone()))?;
            value.set_sensitive(true);
        }
    }
    Ok(())
}

/// Replaces placeholders in a query, where nothing but a value can come of it.
pub(crate) fn query(query: &str, sight: &Sight) -> Option<Zeroizing<String>> {
    let mut changed: Option<Zeroizing<String>> = None;
    for (credential, placeholder) in sight.injected() {
        let text = changed.as_ref().map_or(query, |text| text.as_str());
        if text.contains(placeholder) {
            changed = Some(Zeroizing::new(text.replace(placeholder, &encode(&credential.value))));
        }
    }
    changed
}

fn basic(value: &HeaderValue, placeholder: &str, secret: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = value.to_str().ok()?;
    let (scheme, encoded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = Zeroizing::new(STANDARD.decode(encoded.trim()).ok()?);
    let replaced = replace(&pair, placeholder.as_bytes(), secret)?;
    Some(Zeroizing::new(format!("{scheme} {}", STANDARD.encode(&*replaced)).into_bytes()))
}

/// `None`: it is not in there.
fn replace(text: &[u8], what: &[u8], with: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut places = memmem::find_iter(text, what).peekable();
    places.peek()?;
    let mut replaced = Zeroizing::new(Vec::with_capacity(text.len() + with.len()));
    let mut from = 0;
    for at in places {
        replaced.extend_from_slice(text.get(from..at).unwrap_or_default());
        replaced.extend_from_slice(with);
        from = at + what.len();
    }
    replaced.extend_from_slice(text.get(from..).unwrap_or_default());
    Some(replaced)
}

/// Replaces placeholders in a body as it passes. Holds back what may be the beginning of one.
#[derive(Debug)]
pub(crate) struct BodySwap {
    swaps: Vec<(String, Zeroizing<Vec<u8>>)>,
    held: BytesMut,
}

impl BodySwap {
    /// `None`: nothing is to be replaced in bodies that go there.
    pub(crate) fn new(headers: &HeaderMap, sight: &Sight) -> Option<Self> {
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let declared = sight.injected().filter(|(credential, _)| credential.body == BodyUse::Replace);
        let swaps: Vec<_> = declared
            .map(|(credential, placeholder)| (placeholder.to_owned(), spelled(&credential.value, kind)))
            .collect();
        (!swaps.is_empty()).then(|| Self { swaps, held: BytesMut::new() })
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Bytes {
        self.held.extend_from_slice(bytes);
        let keep = self.begun();
        self.give(self.held.len() - keep)
    }

    pub(crate) fn finish(&mut self) -> Bytes {
        self.give(self.held.len())
    }

    fn give(&mut self, length: usize) -> Bytes {
        let mut out = BytesMut::new();
        let mut ready = self.held.split_to(length);
        while let Some((at, placeholder, value)) = self.first_in(&ready) {
            out.extend_from_slice(&ready.split_to(at));
            out.extend_from_slice(value);
            ready.advance(placeholder);
        }
        out.extend_from_slice(&ready);
        out.freeze()
    }

    /// The first placeholder: where, how long, what for.
    fn first_in(&self, bytes: &[u8]) -> Option<(usize, usize, &[u8])> {
        let found = self.swaps.iter().filter_map(|(placeholder, value)| {
            Some((memmem::find(bytes, placeholder.as_bytes())?, placeholder.len(), value.as_slice()))
        });
        found.min_by_key(|(at, ..)| *at)
    }

    /// How many bytes at the end are the beginning of a placeholder.
    fn begun(&self) -> usize {
        let begun = |text: &[u8]| {
            let longest = text.len().saturating_sub(1).min(self.held.len());
            (1..=longest)
                .rev()
                .find(|length| text.get(..*length).is_some_and(|start| self.held.ends_with(start)))
        };
        self.swaps.iter().filter_map(|(placeholder, _)| begun(placeholder.as_bytes())).max().unwrap_or(0)
    }
}

/// As a value is written in a body of this type.
fn spelled(value: &[u8], kind: &str) -> Zeroizing<Vec<u8>> {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/x-www-form-urlencoded" {
        return Zeroizing::new(encode(value).into_bytes());
    }
    let is_json = kind == "application/json" || kind.ends_with("+json");
    let quoted =
        std::str::from_utf8(value).ok().filter(|_| is_json).and_then(|text| serde_json::to_string(text).ok());
    let inner = quoted.as_deref().and_then(|text| text.strip_prefix('"')?.strip_suffix('"'));
    Zeroizing::new(inner.map_or_else(|| value.to_vec(), |text| text.as_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::credential::tests::{credential, target};
    use crate::credential::{Credential, Scheme, Secrets};

    fn sight(credentials: Vec<Credential>) -> std::sync::Arc<Sight> {
        let secrets = Secrets::new(credentials, Vec::new(), None).unwrap();
        secrets.sight(&target("one.example"), Scheme::Https).unwrap()
    }

    fn one() -> (Credential, String, String) {
        let one = credential("one", &["one.example"]);
        let value = String::from_utf8(one.value.to_vec()).unwrap();
        let placeholder = one.placeholder.clone().unwrap().to_string();
        (one, placeholder, value)
    }

    #[test]
    fn placeholders_in_headers_become_values() {
        let (one, placeholder, value) = one();
        let sight = sight(vec![one]);
        let basic = |secret: &str| format!("Basic {}", STANDARD.encode(format!("user:{secret}")));
        for (name, given, expected) in [
            ("authorization", format!("Bearer {placeholder}"), format!("Bearer {value}")),
            ("x-api-key", placeholder.clone(), value.clone()),
            ("cookie", format!("a=b; k={placeholder}; c=d"), format!("a=b; k={value}; c=d")),
            ("authorization", basic(&placeholder), basic(&value)),
            ("authorization", "Basic !!!".into(), "Basic !!!".into()),
            ("accept", "*/*".into(), "*/*".into()),
        ] {
            let mut map = HeaderMap::new();
            map.insert(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), given.parse().unwrap());
            headers(&mut map, &sight).unwrap();
            assert_eq!(map.get(name).unwrap(), expected.as_str());
            assert_eq!(map.get(name).unwrap().is_sensitive(), given != expected);
        }
    }

    #[test]
    fn a_value_cannot_end_a_header() {
        let (one, placeholder, _) = one();
        let broken = Credential { value: Zeroizing::new(b"abcdef\r\nx-evil: 1".to_vec()), ..one };
        let mut map = HeaderMap::new();
        map.insert("x-api-key", placeholder.parse().unwrap());
        assert!(headers(&mut map, &sight(vec![broken.clone()])).is_err());
        let changed = query(&format!("k={placeholder}"), &sight(vec![broken])).unwrap();
        assert_eq!(&*changed, "k=abcdef%0D%0Ax-evil%3A%201");
    }

    #[test]
    fn a_query_is_changed_only_where_a_placeholder_is() {
        let (one, placeholder, value) = one();
        let sight = sight(vec![one]);
        assert_eq!(query("a=b&c=d", &sight), None);
        let changed = query(&format!("a=b&key={placeholder}&c=d"), &sight).unwrap();
        assert_eq!(*changed, format!("a=b&key={value}&c=d"));
    }

    #[test]
    fn bodies_are_changed_only_where_that_is_declared() {
        let (one, ..) = one();
        assert!(BodySwap::new(&HeaderMap::new(), &sight(vec![one])).is_none());
    }

    #[test]
    fn a_value_is_spelled_as_its_body_is() {
        let value = br#"a"b\c d"#;
        assert_eq!(*spelled(value, "application/json; charset=utf-8"), br#"a\"b\\c d"#);
        assert_eq!(*spelled(value, "application/x-www-form-urlencoded"), b"a%22b%5Cc%20d");
        assert_eq!(*spelled(value, "text/plain"), value);
    }

    proptest! {
        #[test]
        fn a_body_is_changed_the_same_however_it_is_cut(
            parts in prop::collection::vec(prop_oneof![Just("@"), Just("rf_"), Just("rf_placeholder_"), Just("x")], 0..12),
            step in 1_usize..40,
        ) {
            let (_, placeholder, value) = one();
            let body = parts.concat().replace('@', &placeholder);
            let swaps = vec![(placeholder.clone(), Zeroizing::new(value.clone().into_bytes()))];
            let mut swap = BodySwap { swaps, held: BytesMut::new() };
            let mut out = Vec::new();
            for part in body.as_bytes().chunks(step) {
                out.extend_from_slice(&swap.push(part));
            }
            out.extend_from_slice(&swap.finish());
            prop_assert_eq!(String::from_utf8(out).unwrap(), body.replace(&placeholder, &value));
        }
    }
}
