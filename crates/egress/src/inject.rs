//! Placeholders become secrets, on their way to the hosts that the secrets are for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use memchr::memmem;
use zeroize::Zeroizing;

use crate::credential::Sight;
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

#[cfg(test)]
mod tests {
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
}
