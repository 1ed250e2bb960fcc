//! The secrets of a session: what each is, what stands for it inside, and where it may go.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_scan::{Builder, Fingerprint, Salt, Scanner};
use ringfence_types::{Host, HostRule, KeyPlace};
use zeroize::Zeroizing;

use crate::gate::Target;

/// Sets of secrets whose scanners are kept: one for each set of hosts that the rules tell apart.
const MOST_SIGHTS: usize = 64;

/// A secret that is known to the session.
#[derive(Clone)]
pub struct Credential {
    /// What findings call it.
    pub name: String,
    /// What is given to the sandbox instead of the value. `None`: the value itself was.
    pub placeholder: Option<Zeroizing<String>>,
    pub value: Zeroizing<Vec<u8>>,
    /// Where it may go. None: nowhere.
    pub hosts: Vec<HostRule>,
    /// Where in a request it stands. None: where keys for its host usually do.
    pub places: Vec<KeyPlace>,
}

/// A key that is never sent: AWS clients sign with it. What was signed with its placeholder is signed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signing {
    /// The access key id that clients inside have: the real one or one made up.
    pub id_inside: String,
    pub id: String,
    /// The name of the [`Credential`] that is the secret access key.
    pub credential: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("{0}; it cannot be looked for")]
    Short(#[from] ringfence_scan::ExactError),
    #[error("no randomness: {0}")]
    Random(#[from] getrandom::Error),
    #[error(
        "secret `{0}`, with which requests are to be signed, is not one of the session's or has no placeholder"
    )]
    Signing(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
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

/// Everything the session knows of secrets. Built once; by default it knows none.
#[derive(Default)]
pub struct Secrets {
    credentials: Vec<Arc<Credential>>,
    signings: Vec<Signing>,
    salt: Option<Salt>,
    sights: Mutex<HashMap<Vec<usize>, Arc<Sight>>>,
}

/// The secrets as one destination may see them.
pub(crate) struct Sight {
    /// Those that may go there. None of them signs.
    pub(crate) own: Vec<Arc<Credential>>,
    /// Those that must not come back: what the proxy puts in, and what it signs with.
    stood_for: Vec<Arc<Credential>>,
    /// Finds those that may not, their placeholders, and what looks like a secret.
    pub(crate) foreign: Scanner,
    /// Finds those that the proxy puts in or signs with, so that they do not come back.
    pub(crate) echo: Option<Scanner>,
    /// Of what may go there: a shape that is found and is one of these is no news.
    expected: Vec<Fingerprint>,
    pub(crate) signings: Vec<(Signing, Arc<Credential>)>,
}

impl Secrets {
    /// `salt` is of the session's findings: one secret has one fingerprint wherever it is found.
    pub fn new(
        credentials: Vec<Credential>,
        signings: Vec<Signing>,
        salt: Option<Salt>,
    ) -> Result<Self, CredentialError> {
        let salt = match salt {
            Some(salt) => salt,
            None => random_salt()?,
        };
        let credentials: Vec<Arc<Credential>> = credentials.into_iter().map(Arc::new).collect();
        for signing in &signings {
            let usable =
                |known: &Arc<Credential>| known.name == signing.credential && known.placeholder.is_some();
            if !credentials.iter().any(usable) {
                return Err(CredentialError::Signing(signing.credential.clone()));
            }
        }
        let secrets = Self { credentials, signings, salt: Some(salt), sights: Mutex::default() };
        // A secret that cannot be looked for is an error now, not when the first request comes.
        secrets.sight_of(&[])?;
        Ok(secrets)
    }

    pub(crate) fn sight(&self, target: &Target, scheme: Scheme) -> Result<Arc<Sight>, CredentialError> {
        let may = |credential: &Arc<Credential>| credential.may_go(target, scheme);
        let own: Vec<usize> =
            self.credentials.iter().enumerate().filter(|(_, known)| may(known)).map(|(at, _)| at).collect();
        self.sight_of(&own)
    }

    fn sight_of(&self, own: &[usize]) -> Result<Arc<Sight>, CredentialError> {
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

    fn make_sight(&self, own: &[usize]) -> Result<Sight, CredentialError> {
        let own: Vec<Arc<Credential>> =
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
        let stood_for: Vec<Arc<Credential>> =
            own.iter().chain(&keys).filter(|known| known.placeholder.is_some()).cloned().collect();
        let mut echo = self.salted(Scanner::builder().rules(Vec::new()));
        for credential in &stood_for {
            echo = echo.secret(&credential.name, &credential.value)?;
        }
        let signings = self.signings.iter().filter_map(|signing| {
            let credential = keys.iter().find(|known| known.name == signing.credential)?;
            Some((signing.clone(), credential.clone()))
        });
        Ok(Sight {
            expected: self.fingerprints(&own)?,
            signings: signings.collect(),
            foreign: foreign.build(),
            echo: (!stood_for.is_empty()).then(|| echo.build()),
            stood_for,
            own,
        })
    }

    /// A key that signs is never sent, so that what stands for it has no place in a request either.
    fn signs(&self, credential: &Credential) -> bool {
        self.signings.iter().any(|signing| signing.credential == credential.name)
    }

    fn salted(&self, builder: Builder) -> Builder {
        match &self.salt {
            Some(salt) => builder.salt(salt.clone()),
            None => builder,
        }
    }

    /// Finds every secret, whoever may have it: for what is written down.
    pub(crate) fn everywhere(&self) -> Result<Arc<Sight>, CredentialError> {
        self.sight_of(&[])
    }

    fn fingerprints(&self, own: &[Arc<Credential>]) -> Result<Vec<Fingerprint>, CredentialError> {
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

fn random_salt() -> Result<Salt, CredentialError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(Salt::new(bytes))
}

pub(crate) fn placeholder_name(credential: &Credential) -> String {
    format!("{}/placeholder", credential.name)
}

impl Sight {
    /// Whether a finding is one of the secrets that may go there, seen by its shape.
    pub(crate) fn expects(&self, fingerprint: Option<Fingerprint>) -> bool {
        fingerprint.is_some_and(|found| self.expected.contains(&found))
    }

    /// Those that the proxy puts in, and what stands for each.
    pub(crate) fn injected(&self) -> impl Iterator<Item = (&Credential, &str)> {
        self.own.iter().filter_map(|known| Some((known.as_ref(), known.placeholder.as_ref()?.as_str())))
    }

    /// What a finding of [`Sight::echo`] is called inside.
    pub(crate) fn placeholder_of(&self, rule: &str) -> Option<&str> {
        let name = rule.strip_prefix("secret/")?;
        let known = self.stood_for.iter().find(|known| known.name == name)?;
        known.placeholder.as_ref().map(|placeholder| placeholder.as_str())
    }
}

impl Credential {
    /// Over TLS alone.
    fn may_go(&self, target: &Target, scheme: Scheme) -> bool {
        scheme == Scheme::Https && self.hosts.iter().any(|rule| covers(rule, target))
    }
}

/// Whether a rule means this host and port.
pub(crate) fn covers(rule: &HostRule, target: &Target) -> bool {
    let port = rule.port().is_none_or(|port| port == target.port);
    let host = match (rule.host(), &target.host) {
        (Host::Below(above), Host::Name(name)) => {
            name.strip_suffix(above.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        }
        (rule, host) => rule == host,
    };
    port && host
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("name", &self.name)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.credentials.len())
    }
}

impl fmt::Debug for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sight({} of its own)", self.own.len())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn credential(name: &str, hosts: &[&str]) -> Credential {
        Credential {
            name: name.into(),
            placeholder: Some(Zeroizing::new(format!("rf_placeholder_{name}_0123456789abcdef"))),
            value: Zeroizing::new(format!("real-{name}-{}", "v1Z9".repeat(5)).into_bytes()),
            hosts: hosts.iter().map(|host| HostRule::parse(host).unwrap()).collect(),
            places: Vec::new(),
        }
    }

    pub(crate) fn target(text: &str) -> Target {
        let rule = HostRule::parse(text).unwrap();
        Target { host: rule.host().clone(), port: rule.port().unwrap_or(443) }
    }

    fn found(secrets: &Secrets, to: &str, text: &[u8]) -> Vec<String> {
        let sight = secrets.sight(&target(to), Scheme::Https).unwrap();
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
            assert_eq!(covers(&HostRule::parse(rule).unwrap(), &target(host)), expected, "{rule} {host}");
        }
    }

    #[test]
    fn a_secret_is_foreign_everywhere_but_at_its_own_hosts() {
        let credentials = vec![credential("one", &["one.example"]), credential("two", &["two.example"])];
        let (one, two) = (credentials[0].clone(), credentials[1].clone());
        let secrets = Secrets::new(credentials, Vec::new(), None).unwrap();
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
        let secrets = Secrets::new(vec![one], Vec::new(), None).unwrap();
        let own = |host, scheme| secrets.sight(&target(host), scheme).unwrap().own.len();
        assert_eq!(own("127.0.0.1:80", Scheme::Http), 0);
        assert_eq!(own("a.example:80", Scheme::Http), 0);
        assert_eq!(own("a.example", Scheme::Https), 1);
    }

    #[test]
    fn what_cannot_be_looked_for_is_an_error() {
        let short = Credential { value: Zeroizing::new(b"abc".to_vec()), ..credential("one", &[]) };
        assert!(matches!(Secrets::new(vec![short], Vec::new(), None), Err(CredentialError::Short(_))));
        let signing = Signing { id_inside: "a".into(), id: "b".into(), credential: "none".into() };
        assert!(matches!(Secrets::new(Vec::new(), vec![signing], None), Err(CredentialError::Signing(_))));
    }

    #[test]
    fn nothing_shows_a_value() {
        let one = credential("one", &["one.example"]);
        let value = String::from_utf8(one.value.to_vec()).unwrap();
        let secrets = Secrets::new(vec![one.clone()], Vec::new(), None).unwrap();
        let sight = secrets.sight(&target("one.example"), Scheme::Https).unwrap();
        assert!(!format!("{one:?}{secrets:?}{sight:?}").contains(&value));
    }
}
