//! Credentials of a session: the value of each secret, its placeholder, and the hosts and key locations it is allowed in.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_scan::{FingerprintSalt, Scanner, ScannerBuilder, SecretFingerprint};
use ringfence_types::{CredentialLocation, Host, HostPattern};
use zeroize::Zeroizing;

use crate::flow_gate::FlowTarget;

/// Cached views: one for each set of hosts that the secrets distinguish.
const MOST_SIGHTS: usize = 64;

/// A secret that is known to the session's proxy.
#[derive(Clone)]
pub struct SessionCredential {
    /// Name of the secret in findings.
    pub name: String,
    /// Secret placeholder that the sandbox got instead of the value. `None`: the sandbox got the value.
    pub placeholder: Option<Zeroizing<String>>,
    pub value: Zeroizing<Vec<u8>>,
    /// Hosts that may receive the secret. Empty: no host.
    pub hosts: Vec<HostPattern>,
    /// Key locations in a request. Empty: the usual ones of the host.
    pub places: Vec<CredentialLocation>,
}

/// A key that is never sent, because AWS clients sign with it. The proxy checks signatures made with the placeholder and signs
/// again with the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsSigningKey {
    /// Access key id that clients inside use: the real one or an invented one.
    pub id_inside: String,
    pub id: String,
    /// The name of the [`SessionCredential`] that is the secret access key.
    pub credential: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("{0}; it cannot be looked for")]
    Short(#[from] ringfence_scan::RegisteredSecretError),
    #[error("no randomness: {0}")]
    Random(#[from] getrandom::Error),
    #[error(
        "secret `{0}`, with which requests are to be signed, is not one of the session's or has no placeholder"
    )]
    Signing(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CredentialScheme {
    Http,
    Https,
}

impl CredentialScheme {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// All secrets that the session's proxy knows. Immutable; empty by default.
#[derive(Default)]
pub struct CredentialSet {
    credentials: Vec<Arc<SessionCredential>>,
    signings: Vec<AwsSigningKey>,
    salt: Option<FingerprintSalt>,
    sights: Mutex<HashMap<Vec<usize>, Arc<CredentialView>>>,
}

/// The secrets from the point of view of one destination.
pub(crate) struct CredentialView {
    /// Secrets that the destination may receive, without signing keys.
    pub(crate) own: Vec<Arc<SessionCredential>>,
    /// Secrets that a response must not contain: those that the proxy injects or signs with.
    stood_for: Vec<Arc<SessionCredential>>,
    /// Finds secrets that the destination must not receive, placeholders, and text that looks like a secret.
    pub(crate) foreign: Scanner,
    /// Finds injected secrets and signing keys in responses.
    pub(crate) echo: Option<Scanner>,
    /// Fingerprints of the secrets that the destination may receive. A finding with one of them is not reported.
    expected: Vec<SecretFingerprint>,
    pub(crate) signings: Vec<(AwsSigningKey, Arc<SessionCredential>)>,
}

impl CredentialSet {
    /// `salt` is that of the session's findings, so one secret has the same fingerprint in all of them.
    pub fn new(
        credentials: Vec<SessionCredential>,
        signings: Vec<AwsSigningKey>,
        salt: Option<FingerprintSalt>,
    ) -> Result<Self, CredentialError> {
        let salt = match salt {
            Some(salt) => salt,
            None => random_salt()?,
        };
        let credentials: Vec<Arc<SessionCredential>> = credentials.into_iter().map(Arc::new).collect();
        for signing in &signings {
            let usable = |known: &Arc<SessionCredential>| {
                known.name == signing.credential && known.placeholder.is_some()
            };
            if !credentials.iter().any(usable) {
                return Err(CredentialError::Signing(signing.credential.clone()));
            }
        }
        let secrets = Self { credentials, signings, salt: Some(salt), sights: Mutex::default() };
        // Builds one scanner now, so an unusable secret is an error at the start and not at the first request.
        secrets.sight_of(&[])?;
        Ok(secrets)
    }

    pub(crate) fn sight(
        &self,
        target: &FlowTarget,
        scheme: CredentialScheme,
    ) -> Result<Arc<CredentialView>, CredentialError> {
        let may = |credential: &Arc<SessionCredential>| credential.may_go(target, scheme);
        let own: Vec<usize> =
            self.credentials.iter().enumerate().filter(|(_, known)| may(known)).map(|(at, _)| at).collect();
        self.sight_of(&own)
    }

    fn sight_of(&self, own: &[usize]) -> Result<Arc<CredentialView>, CredentialError> {
        let mut sights = self.sights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sight) = sights.get(own) {
            return Ok(sight.clone());
        }
        let sight = Arc::new(self.make_sight(own)?);
        if sights.len() >= MOST_SIGHTS {
            sights.clear();
        }
        sights.insert(own.to_vec(), sight.clone());
        Ok(sight)
    }

    fn make_sight(&self, own: &[usize]) -> Result<CredentialView, CredentialError> {
        let own: Vec<Arc<SessionCredential>> =
            own.iter().filter_map(|at| self.credentials.get(*at)).cloned().collect();
        let (keys, own): (Vec<_>, Vec<_>) = own.into_iter().partition(|known| self.signs(known));
        let is_own = |value: &[u8]| own.iter().any(|known| known.value.as_slice() == value);
        let mut foreign = self.salted(Scanner::builder());
        for credential in &self.credentials {
            if !is_own(&credential.value) {
                foreign = foreign.secret(&credential.name, &credential.value)?;
            } else if !self.signs(credential) {
                continue;
            }
            if let Some(placeholder) = &credential.placeholder {
                foreign = foreign.secret(&placeholder_name(credential), placeholder.as_bytes())?;
            }
        }
        let stood_for: Vec<Arc<SessionCredential>> =
            own.iter().chain(&keys).filter(|known| known.placeholder.is_some()).cloned().collect();
        let mut echo = self.salted(Scanner::builder().rules(Vec::new()));
        for credential in &stood_for {
            echo = echo.secret(&credential.name, &credential.value)?;
        }
        let signings = self.signings.iter().filter_map(|signing| {
            let credential = keys.iter().find(|known| known.name == signing.credential)?;
            Some((signing.clone(), credential.clone()))
        });
        Ok(CredentialView {
            expected: self.fingerprints(&own)?,
            signings: signings.collect(),
            foreign: foreign.build(),
            echo: (!stood_for.is_empty()).then(|| echo.build()),
            stood_for,
            own,
        })
    }

    /// A signing key is never sent, so its placeholder is not allowed in a request either.
    fn signs(&self, credential: &SessionCredential) -> bool {
        self.signings.iter().any(|signing| signing.credential == credential.name)
    }

    fn salted(&self, builder: ScannerBuilder) -> ScannerBuilder {
        match &self.salt {
            Some(salt) => builder.salt(salt.clone()),
            None => builder,
        }
    }

    /// Finds every secret regardless of destination. Used for text that is recorded.
    pub(crate) fn everywhere(&self) -> Result<Arc<CredentialView>, CredentialError> {
        self.sight_of(&[])
    }

    fn fingerprints(
        &self,
        own: &[Arc<SessionCredential>],
    ) -> Result<Vec<SecretFingerprint>, CredentialError> {
        let mut fingerprints = Vec::new();
        let placeholders =
            own.iter().filter_map(|known| known.placeholder.as_ref()).map(|text| text.as_bytes());
        for value in own.iter().map(|known| known.value.as_slice()).chain(placeholders) {
            let alone = self.salted(Scanner::builder().rules(Vec::new())).secret("own", value)?.build();
            fingerprints.extend(alone.scan(value).first().and_then(|finding| finding.fingerprint));
        }
        Ok(fingerprints)
    }
}

fn random_salt() -> Result<FingerprintSalt, CredentialError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(FingerprintSalt::new(bytes))
}

pub(crate) fn placeholder_name(credential: &SessionCredential) -> String {
    format!("{}/placeholder", credential.name)
}

impl CredentialView {
    /// Whether a finding is a secret that the destination may receive, recognised by its shape.
    pub(crate) fn expects(&self, fingerprint: Option<SecretFingerprint>) -> bool {
        fingerprint.is_some_and(|found| self.expected.contains(&found))
    }

    /// Secrets that the proxy injects, each with its placeholder.
    pub(crate) fn injected(&self) -> impl Iterator<Item = (&SessionCredential, &str)> {
        self.own.iter().filter_map(|known| Some((known.as_ref(), known.placeholder.as_ref()?.as_str())))
    }

    /// Placeholder for a finding of [`CredentialView::echo`].
    pub(crate) fn placeholder_of(&self, rule: &str) -> Option<&str> {
        let name = rule.strip_prefix("secret/")?;
        let known = self.stood_for.iter().find(|known| known.name == name)?;
        known.placeholder.as_ref().map(|placeholder| placeholder.as_str())
    }
}

impl SessionCredential {
    /// Secrets are sent over TLS only.
    fn may_go(&self, target: &FlowTarget, scheme: CredentialScheme) -> bool {
        scheme == CredentialScheme::Https && self.hosts.iter().any(|rule| covers(rule, target))
    }
}

/// Whether a host pattern matches this host and port.
pub(crate) fn covers(rule: &HostPattern, target: &FlowTarget) -> bool {
    let port = rule.port().is_none_or(|port| port == target.port);
    let host = match (rule.host(), &target.host) {
        (Host::Below(above), Host::Name(name)) => {
            name.strip_suffix(above.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        }
        (rule, host) => rule == host,
    };
    port && host
}

impl fmt::Debug for SessionCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("name", &self.name)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CredentialSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.credentials.len())
    }
}

impl fmt::Debug for CredentialView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sight({} of its own)", self.own.len())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn credential(name: &str, hosts: &[&str]) -> SessionCredential {
        SessionCredential {
            name: name.into(),
            placeholder: Some(Zeroizing::new(format!("rf_placeholder_{name}_0123456789abcdef"))),
            value: Zeroizing::new(format!("real-{name}-{}", "v1Z9".repeat(5)).into_bytes()),
            hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
            places: Vec::new(),
        }
    }

    pub(crate) fn target(text: &str) -> FlowTarget {
        let rule = HostPattern::parse(text).unwrap();
        FlowTarget { host: rule.host().clone(), port: rule.port().unwrap_or(443) }
    }

    fn found(secrets: &CredentialSet, to: &str, text: &[u8]) -> Vec<String> {
        let sight = secrets.sight(&target(to), CredentialScheme::Https).unwrap();
        sight.foreign.scan(text).iter().map(|finding| finding.rule.to_string()).collect()
    }

    #[test]
    fn a_rule_covers_its_own_hosts() {
        for (rule, host, expected) in [
            ("a.example", "a.example", true),
            ("a.example:8443", "a.example", false),
            ("a.example:8443", "a.example:8443", true),
            ("*.example", "a.example", true),
            ("*.example", "a.b.example", true),
            ("*.example", "example", false),
            ("*.example", "badexample", false),
            ("127.0.0.1", "127.0.0.1", true),
        ] {
            assert_eq!(covers(&HostPattern::parse(rule).unwrap(), &target(host)), expected, "{rule} {host}");
        }
    }

    #[test]
    fn a_secret_is_foreign_everywhere_but_at_its_own_hosts() {
        let credentials = vec![credential("one", &["one.example"]), credential("two", &["two.example"])];
        let (one, two) = (credentials[0].clone(), credentials[1].clone());
        let secrets = CredentialSet::new(credentials, Vec::new(), None).unwrap();
        assert_eq!(found(&secrets, "one.example", &one.value), Vec::<String>::new());
        assert_eq!(found(&secrets, "one.example", &two.value), ["secret/two"]);
        let placeholder = one.placeholder.unwrap();
        assert_eq!(found(&secrets, "one.example", placeholder.as_bytes()), Vec::<String>::new());
        assert_eq!(found(&secrets, "two.example", placeholder.as_bytes()), ["secret/one/placeholder"]);
        assert_eq!(found(&secrets, "three.example", &one.value), ["secret/one"]);
    }

    #[test]
    fn without_tls_a_secret_goes_nowhere() {
        let one = credential("one", &["127.0.0.1", "a.example"]);
        let secrets = CredentialSet::new(vec![one], Vec::new(), None).unwrap();
        let own = |host, scheme| secrets.sight(&target(host), scheme).unwrap().own.len();
        assert_eq!(own("127.0.0.1:80", CredentialScheme::Http), 0);
        assert_eq!(own("a.example:80", CredentialScheme::Http), 0);
        assert_eq!(own("a.example", CredentialScheme::Https), 1);
    }

    #[test]
    fn what_cannot_be_looked_for_is_an_error() {
        let short = SessionCredential { value: Zeroizing::new(b"abc".to_vec()), ..credential("one", &[]) };
        assert!(matches!(CredentialSet::new(vec![short], Vec::new(), None), Err(CredentialError::Short(_))));
        let signing = AwsSigningKey { id_inside: "a".into(), id: "b".into(), credential: "none".into() };
        assert!(matches!(
            CredentialSet::new(Vec::new(), vec![signing], None),
            Err(CredentialError::Signing(_))
        ));
    }

    #[test]
    fn nothing_shows_a_value() {
        let one = credential("one", &["one.example"]);
        let value = String::from_utf8(one.value.to_vec()).unwrap();
        let secrets = CredentialSet::new(vec![one.clone()], Vec::new(), None).unwrap();
        let sight = secrets.sight(&target("one.example"), CredentialScheme::Https).unwrap();
        assert!(!format!("{one:?}{secrets:?}{sight:?}").contains(&value));
    }
}
