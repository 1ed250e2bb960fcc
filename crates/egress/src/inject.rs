//! Injection: replaces placeholders by secrets in requests to the hosts of the secret, in key locations only.
//!
//! A client that could choose the location could make a server publish the key, for example as a user agent in statistics. So a
//! placeholder anywhere else in the request head stops the request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;
use ringfence_types::{CredentialLocation, Host};
use zeroize::Zeroizing;

use crate::credential::{CredentialView, SessionCredential};
use crate::key_locations::usual;
use crate::sigv4::{decode, encode};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InjectError {
    #[error("the value of secret `{0}` cannot stand in a header")]
    Value(String),
    #[error("the placeholder of secret `{name}` is in {place}, where no key for this host stands")]
    Misplaced { name: String, place: String, known: String },
}

impl InjectError {
    /// Suggests a location that would work.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Value(_) => None,
            Self::Misplaced { name, known, .. } => Some(format!(
                "send it alone in {known}; an operator declares another place with `ringfence secret set {name} --credential-location …`"
            )),
        }
    }
}

/// Destination of a request and the credentials for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InjectTarget<'s> {
    pub(crate) host: &'s Host,
    pub(crate) sight: &'s CredentialView,
}

impl<'s> InjectTarget<'s> {
    fn places(self, credential: &'s SessionCredential) -> &'s [CredentialLocation] {
        if credential.places.is_empty() { usual(self.host) } else { &credential.places }
    }

    fn misplaced(self, credential: &SessionCredential, place: String) -> InjectError {
        let known: Vec<String> = self.places(credential).iter().map(|place| format!("`{place}`")).collect();
        InjectError::Misplaced { name: credential.name.clone(), place, known: known.join(" or ") }
    }
}

/// Replaces placeholders in headers that are key locations.
pub(crate) fn headers(headers: &mut HeaderMap, towards: InjectTarget<'_>) -> Result<(), InjectError> {
    for (name, value) in headers.iter_mut() {
        for (credential, placeholder) in towards.sight.injected() {
            if !mentions(name, value, placeholder) {
                continue;
            }
            let is_here = |place: &CredentialLocation| matches!(place, CredentialLocation::Header(own) if own == name.as_str());
            let fits = towards.places(credential).iter().any(is_here);
            let made = fits.then(|| in_header(name, value, placeholder, &credential.value)).flatten();
            let made = made.ok_or_else(|| towards.misplaced(credential, format!("the header `{name}`")))?;
            let made = HeaderValue::from_bytes(&made);
            *value = made.ok().ok_or_else(|| InjectError::Value(credential.name.clone()))?;
            value.set_sensitive(true);
        }
    }
    Ok(())
}

/// Replaces placeholders that are the whole value of a key parameter. `None`: the query has none.
pub(crate) fn query(
    query: &str,
    towards: InjectTarget<'_>,
) -> Result<Option<Zeroizing<String>>, InjectError> {
    let mut changed: Option<Zeroizing<String>> = None;
    for (credential, placeholder) in towards.sight.injected() {
        let text = changed.as_ref().map_or(query, |text| text.as_str());
        if !is_in(&decode(text), placeholder) {
            continue;
        }
        let pairs = text.split('&').map(|pair| in_pair(pair, credential, placeholder, towards));
        let pairs: Vec<String> = pairs.collect::<Result<_, _>>()?;
        changed = Some(Zeroizing::new(pairs.join("&")));
    }
    Ok(changed)
}

/// A path is never a key location.
pub(crate) fn path(path: &str, towards: InjectTarget<'_>) -> Result<(), InjectError> {
    let decoded = decode(path);
    let found = towards.sight.injected().find(|(_, placeholder)| is_in(&decoded, placeholder));
    found.map_or(Ok(()), |(credential, _)| Err(towards.misplaced(credential, "the path".to_owned())))
}

fn in_pair(
    pair: &str,
    credential: &SessionCredential,
    placeholder: &str,
    towards: InjectTarget<'_>,
) -> Result<String, InjectError> {
    if !is_in(&decode(pair), placeholder) {
        return Ok(pair.to_owned());
    }
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let is_here = |place: &CredentialLocation| matches!(place, CredentialLocation::Query(own) if own.as_bytes() == decode(name));
    if decode(value) == placeholder.as_bytes() && towards.places(credential).iter().any(is_here) {
        return Ok(format!("{name}={}", encode(&credential.value)));
    }
    Err(towards.misplaced(credential, "the query".to_owned()))
}

fn mentions(name: &HeaderName, value: &HeaderValue, placeholder: &str) -> bool {
    let plain = is_in(value.as_bytes(), placeholder) || is_in(name.as_str().as_bytes(), placeholder);
    plain || (name == AUTHORIZATION && pair_of(value).is_some_and(|(_, pair)| is_in(&pair, placeholder)))
}

fn is_in(text: &[u8], placeholder: &str) -> bool {
    memmem::find(text, placeholder.as_bytes()).is_some()
}

/// Replaces a placeholder that is the whole value, follows an authentication scheme, or is the user or password of `Basic`.
fn in_header(
    name: &HeaderName,
    value: &HeaderValue,
    placeholder: &str,
    secret: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let text = value.to_str().ok()?.trim();
    if text == placeholder {
        return Some(Zeroizing::new(secret.to_vec()));
    }
    if name != AUTHORIZATION {
        return None;
    }
    match text.split_once(' ') {
        Some((scheme, token)) if token == placeholder && is_word(scheme) => {
            Some(Zeroizing::new([scheme.as_bytes(), b" ", secret].concat()))
        }
        _ => basic(value, placeholder, secret),
    }
}

fn is_word(scheme: &str) -> bool {
    !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn basic(value: &HeaderValue, placeholder: &str, secret: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, pair) = pair_of(value)?;
    let at = memchr::memchr(b':', &pair)?;
    let (user, password) = (pair.get(..at)?, pair.get(at + 1..)?);
    let put = |part: &[u8]| {
        let own = part == placeholder.as_bytes();
        Zeroizing::new(if own { secret.to_vec() } else { part.to_vec() })
    };
    let made = Zeroizing::new([put(user).as_slice(), b":", put(password).as_slice()].concat());
    // A placeholder that is only part of the user or password remains.
    let whole = !is_in(&made, placeholder);
    whole.then(|| Zeroizing::new(format!("{scheme} {}", STANDARD.encode(&*made)).into_bytes()))
}

/// Decodes `user:password` of `Basic`.
fn pair_of(value: &HeaderValue) -> Option<(&str, Zeroizing<Vec<u8>>)> {
    let (scheme, encoded) = value.to_str().ok()?.trim().split_once(' ')?;
    let is_basic = scheme.eq_ignore_ascii_case("basic");
    let pair = is_basic.then(|| STANDARD.decode(encoded.trim()).ok()).flatten()?;
    Some((scheme, Zeroizing::new(pair)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::tests::{credential, target};
    use crate::credential::{CredentialScheme, CredentialSet};

    fn sight(credentials: Vec<SessionCredential>) -> std::sync::Arc<CredentialView> {
        let secrets = CredentialSet::new(credentials, Vec::new(), None).unwrap();
        secrets.sight(&target("one.example"), CredentialScheme::Https).unwrap()
    }

    fn one() -> (SessionCredential, String, String) {
        let one = credential("one", &["one.example"]);
        let value = String::from_utf8(one.value.to_vec()).unwrap();
        let placeholder = one.placeholder.clone().unwrap().to_string();
        (one, placeholder, value)
    }

    fn towards(sight: &CredentialView) -> (Host, &CredentialView) {
        (Host::Name("one.example".to_owned()), sight)
    }

    fn put(name: &str, given: &str, sight: &CredentialView) -> Result<HeaderValue, InjectError> {
        let (host, sight) = towards(sight);
        let mut map = HeaderMap::new();
        map.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), given.parse().unwrap());
        headers(&mut map, InjectTarget { host: &host, sight })?;
        Ok(map.remove(name).unwrap())
    }

    fn asked(text: &str, sight: &CredentialView) -> Result<Option<String>, InjectError> {
        let (host, sight) = towards(sight);
        Ok(query(text, InjectTarget { host: &host, sight })?.map(|text| text.to_string()))
    }

    fn basic_of(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[test]
    fn placeholders_in_headers_for_keys_become_values() {
        let (one, placeholder, value) = one();
        let sight = sight(vec![one]);
        for (name, given, expected) in [
            ("authorization", format!("Bearer {placeholder}"), format!("Bearer {value}")),
            ("authorization", format!("token {placeholder}"), format!("token {value}")),
            ("authorization", placeholder.clone(), value.clone()),
            ("x-api-key", placeholder.clone(), value.clone()),
            ("authorization", basic_of(&format!("me:{placeholder}")), basic_of(&format!("me:{value}"))),
            ("authorization", basic_of(&format!("{placeholder}:x")), basic_of(&format!("{value}:x"))),
            ("authorization", "Basic !!!".into(), "Basic !!!".into()),
            ("accept", "*/*".into(), "*/*".into()),
        ] {
            let made = put(name, &given, &sight).unwrap();
            assert_eq!(made, expected.as_str());
            assert_eq!(made.is_sensitive(), given != expected);
        }
    }

    #[test]
    fn anywhere_else_a_placeholder_stops_the_request() {
        let (one, placeholder, _) = one();
        let sight = sight(vec![one]);
        for (name, given) in [
            ("user-agent", placeholder.clone()),
            ("cookie", format!("k={placeholder}")),
            ("x-any", placeholder.clone()),
            ("referer", format!("https://a.test/{placeholder}")),
            ("x-api-key", format!("{placeholder} and more")),
            ("authorization", format!("Bearer {placeholder} and more")),
            ("authorization", format!("Bearer x{placeholder}")),
            ("authorization", format!("two words {placeholder}")),
            ("authorization", basic_of(&format!("me:x{placeholder}"))),
            ("authorization", basic_of(&placeholder)),
            (placeholder.as_str(), "1".to_owned()),
        ] {
            let refused = put(name, &given, &sight);
            assert!(matches!(refused, Err(InjectError::Misplaced { .. })), "{name}: {given}");
        }
        let (host, sight) = towards(&sight);
        for text in [format!("/a/{placeholder}"), format!("/a/{}", placeholder.replace('_', "%5f"))] {
            assert!(path(&text, InjectTarget { host: &host, sight }).is_err(), "{text}");
        }
        assert!(path("/a/b", InjectTarget { host: &host, sight }).is_ok());
    }

    #[test]
    fn a_declared_place_is_the_only_one() {
        let (one, placeholder, value) = one();
        let places = vec![CredentialLocation::query("key"), CredentialLocation::header("x-own")];
        let sight = sight(vec![SessionCredential { places, ..one }]);
        assert_eq!(asked("a=b&c=d", &sight), Ok(None));
        let changed = asked(&format!("a=b&key={placeholder}&c=d"), &sight).unwrap();
        assert_eq!(changed, Some(format!("a=b&key={value}&c=d")));
        assert_eq!(put("x-own", &placeholder, &sight).unwrap(), value.as_str());
        assert!(put("authorization", &format!("Bearer {placeholder}"), &sight).is_err());
        for text in [
            format!("callback={placeholder}"),
            format!("key=x{placeholder}"),
            format!("{placeholder}=key"),
            format!("key={placeholder}&q={placeholder}"),
            format!("q={}", placeholder.replace('_', "%5F")),
        ] {
            assert!(matches!(asked(&text, &sight), Err(InjectError::Misplaced { .. })), "{text}");
        }
    }

    #[test]
    fn nothing_of_a_query_is_for_a_key_unless_that_is_declared() {
        let (one, placeholder, _) = one();
        let sight = sight(vec![one]);
        for name in ["key", "api_key", "access_token", "q"] {
            assert!(asked(&format!("{name}={placeholder}"), &sight).is_err(), "{name}");
        }
    }

    #[test]
    fn a_value_cannot_end_a_header() {
        let (one, placeholder, _) = one();
        let value = Zeroizing::new(b"abcdef\r\nx-evil: 1".to_vec());
        let places = vec![CredentialLocation::query("k"), CredentialLocation::header("x-api-key")];
        let sight = sight(vec![SessionCredential { value, places, ..one }]);
        assert_eq!(put("x-api-key", &placeholder, &sight), Err(InjectError::Value("one".to_owned())));
        let changed = asked(&format!("k={placeholder}"), &sight).unwrap();
        assert_eq!(changed.as_deref(), Some("k=abcdef%0D%0Ax-evil%3A%201"));
    }
}
