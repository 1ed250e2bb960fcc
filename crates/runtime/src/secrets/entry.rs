//! Metadata of a secret.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ringfence_authz::env;
use ringfence_ledger::Timestamp;
use ringfence_types::{ByteString, CredentialLocation, Delivery, HostPattern, HostPatternError, SecretClass};
use serde::{Deserialize, Serialize};

use super::value::SecretValue;

const MAX_NAME: usize = 64;
const MAX_AGENT: usize = 128;
const MAX_HOSTS: usize = 64;
const MAX_PLACES: usize = 16;

/// The name of a secret. It is also a file name and, in capitals, a variable name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "what was given ({0} bytes, not shown: it may be a value) is not a name for a secret: use up to 64 letters, digits, `_` and `-`, beginning with a letter"
)]
pub struct SecretNameError(usize);

impl SecretName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The default variable: `github-token` is `GITHUB_TOKEN`.
    fn variable(&self) -> String {
        self.0.to_ascii_uppercase().replace('-', "_")
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let begins = text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic());
        if begins && text.len() <= MAX_NAME && text.bytes().all(word) {
            return Ok(Self(text.to_owned()));
        }
        // The error omits the text: a user may have typed the value in place of the name.
        Err(SecretNameError(text.len()))
    }
}

impl TryFrom<String> for SecretName {
    type Error = SecretNameError;

    fn try_from(text: String) -> Result<Self, SecretNameError> {
        text.parse()
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a secret may be released: everywhere, or only in one workspace, to one agent, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretScope {
    /// Canonical.
    pub workspace: Option<ByteString>,
    pub agent: Option<String>,
}

impl SecretScope {
    pub(crate) fn covers(&self, workspace: &Path, agent: Option<&str>) -> bool {
        self.workspace.as_ref().is_none_or(|own| own.as_path() == workspace)
            && self.agent.as_deref().is_none_or(|own| Some(own) == agent)
    }

    /// Whether it is restricted to this workspace and open to every agent there.
    pub(crate) fn is_of(&self, workspace: &Path) -> bool {
        self.agent.is_none() && self.workspace.as_ref().is_some_and(|own| own.as_path() == workspace)
    }

    /// Of two secrets with one name, the one with the narrower scope wins.
    pub(crate) fn rank(&self) -> u8 {
        2 * u8::from(self.workspace.is_some()) + u8::from(self.agent.is_some())
    }
}

impl fmt::Display for SecretScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agent =
            self.agent.as_deref().map(|agent| format!("agent `{}`", ByteString::from(agent).display()));
        let workspace = self.workspace.as_ref().map(|path| format!("workspace `{}`", path.display()));
        match (workspace, agent) {
            (None, None) => f.write_str("everywhere"),
            (Some(one), None) | (None, Some(one)) => f.write_str(&one),
            (Some(workspace), Some(agent)) => write!(f, "{workspace}, {agent}"),
        }
    }
}

/// All displayable facts about a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretInfo {
    pub name: SecretName,
    pub class: SecretClass,
    pub scope: SecretScope,
    pub deliver: Delivery,
    /// The variable that holds the file path, the value or the placeholder.
    pub variable: String,
    /// Hosts where the proxy may use it; empty: none.
    pub hosts: Vec<String>,
    /// Where it stands in a request; empty: the usual place for its host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credential_locations: Vec<CredentialLocation>,
    pub bytes: u64,
    pub fingerprint: String,
    pub created: Timestamp,
    pub changed: Timestamp,
}

/// A secret to be stored.
#[derive(Clone, Debug)]
pub struct NewSecret {
    pub name: SecretName,
    pub class: SecretClass,
    pub scope: SecretScope,
    /// `None`: the safest delivery of its class.
    pub deliver: Option<Delivery>,
    pub variable: Option<String>,
    pub hosts: Vec<String>,
    pub credential_locations: Vec<CredentialLocation>,
    pub value: SecretValue,
}

/// Why a secret cannot be stored as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    #[error("a secret of class `provider` never enters a sandbox, so it cannot be delivered as `{0}`")]
    Provider(Delivery),
    #[error("{0}")]
    Variable(String),
    #[error("a value of {0} bytes is too long for a variable")]
    TooLongForVariable(u64),
    #[error("the host is not one")]
    Host(#[from] HostPatternError),
    #[error("more than {MAX_HOSTS} hosts")]
    Hosts,
    #[error("more than {MAX_PLACES} credential locations")]
    Places,
    #[error("`{0}` is not the name of an agent")]
    Agent(String),
}

impl NewSecret {
    pub(crate) fn judged(
        self,
        fingerprint: String,
        now: Timestamp,
    ) -> Result<(SecretInfo, SecretValue), SecretError> {
        let deliver = delivery(self.class, self.deliver)?;
        let variable = self.variable.unwrap_or_else(|| default_variable(&self.name, deliver));
        env::check_released(&ByteString::from(variable.as_str()), &env::EnvRules::default())
            .map_err(|refusal| SecretError::Variable(refusal.message))?;
        let bytes = self.value.as_slice().len() as u64;
        if self.hosts.len() > MAX_HOSTS {
            return Err(SecretError::Hosts);
        }
        if self.credential_locations.len() > MAX_PLACES {
            return Err(SecretError::Places);
        }
        self.hosts.iter().try_for_each(|host| HostPattern::parse(host).map(drop))?;
        check_agent(self.scope.agent.as_deref())?;
        let meta = SecretInfo {
            name: self.name,
            class: self.class,
            scope: self.scope,
            deliver,
            variable,
            hosts: self.hosts,
            credential_locations: self.credential_locations,
            bytes,
            fingerprint,
            created: now,
            changed: now,
        };
        meta.still_fits()?;
        Ok((meta, self.value))
    }
}

impl SecretInfo {
    /// The rule name of findings of this secret.
    pub(crate) fn rule(&self) -> String {
        format!("secret/{}", self.name)
    }

    /// Whether the value is long enough to distinguish it from ordinary text, and so to redact it.
    pub fn is_recognised(&self) -> bool {
        self.bytes >= ringfence_scan::SHORTEST_SECRET as u64
    }

    /// Whether the delivery allows a value of this length.
    pub(crate) fn still_fits(&self) -> Result<(), SecretError> {
        match self.deliver {
            Delivery::Env if self.bytes > env::MAX_VALUE as u64 => {
                Err(SecretError::TooLongForVariable(self.bytes))
            }
            _ => Ok(()),
        }
    }
}

fn delivery(class: SecretClass, wanted: Option<Delivery>) -> Result<Delivery, SecretError> {
    match (class, wanted) {
        (SecretClass::Provider, None | Some(Delivery::ProxyOnly)) => Ok(Delivery::ProxyOnly),
        (SecretClass::Provider, Some(other)) => Err(SecretError::Provider(other)),
        (SecretClass::Tool, wanted) => Ok(wanted.unwrap_or(Delivery::File)),
    }
}

fn default_variable(name: &SecretName, deliver: Delivery) -> String {
    match deliver {
        Delivery::File => format!("{}_FILE", name.variable()),
        Delivery::Env | Delivery::ProxyOnly => name.variable(),
    }
}

fn check_agent(agent: Option<&str>) -> Result<(), SecretError> {
    let wrong = |name: &str| name.is_empty() || name.len() > MAX_AGENT || name.chars().any(char::is_control);
    match agent {
        Some(name) if wrong(name) => Err(SecretError::Agent(ByteString::from(name).display())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeroize::Zeroizing;

    fn new(name: &str, class: SecretClass, deliver: Option<Delivery>) -> NewSecret {
        NewSecret {
            name: name.parse().unwrap(),
            class,
            scope: SecretScope::default(),
            deliver,
            variable: None,
            hosts: Vec::new(),
            credential_locations: Vec::new(),
            value: SecretValue::new(Zeroizing::new(b"value".to_vec())).unwrap(),
        }
    }

    fn judged(secret: NewSecret) -> Result<SecretInfo, SecretError> {
        secret.judged("f".to_owned(), Timestamp::UNIX_EPOCH).map(|(meta, _)| meta)
    }

    #[test]
    fn names_are_restricted_and_a_value_in_their_place_is_not_repeated() {
        for name in ["A", "github-token", "OPENAI_KEY", "a1", &"x".repeat(64)] {
            assert!(name.parse::<SecretName>().is_ok(), "{name}");
        }
        for name in ["", "1a", "_a", "-a", "a b", "a/b", "..", "a.b", "é", "a\n", &"x".repeat(65)] {
            assert!(name.parse::<SecretName>().is_err(), "{name}");
        }
        let error = "hunter2-hunter2/hunter2".parse::<SecretName>().unwrap_err().to_string();
        assert!(error.contains("23 bytes") && !error.contains("hunter"), "{error}");
    }

    #[test]
    fn c2_a_provider_secret_has_no_way_inside() {
        let meta = judged(new("KEY", SecretClass::Provider, None)).unwrap();
        assert_eq!(meta.deliver, Delivery::ProxyOnly);
        for deliver in [Delivery::File, Delivery::Env] {
            let refused = judged(new("KEY", SecretClass::Provider, Some(deliver)));
            assert!(matches!(refused, Err(SecretError::Provider(_))), "{deliver}");
        }
    }

    #[test]
    fn a_tool_secret_is_a_file_unless_it_was_opened_to_the_environment() {
        let file = judged(new("github-token", SecretClass::Tool, None)).unwrap();
        assert_eq!((file.deliver, file.variable.as_str()), (Delivery::File, "GITHUB_TOKEN_FILE"));
        let env = judged(new("github-token", SecretClass::Tool, Some(Delivery::Env))).unwrap();
        assert_eq!((env.deliver, env.variable.as_str()), (Delivery::Env, "GITHUB_TOKEN"));
    }

    #[test]
    fn s002_7_no_secret_goes_into_a_variable_that_steers() {
        for variable in ["LD_PRELOAD", "BASH_ENV", "PATH", "GIT_DIR", "RINGFENCE_X", "a b", "", "1A"] {
            let secret =
                NewSecret { variable: Some(variable.to_owned()), ..new("K", SecretClass::Tool, None) };
            assert!(matches!(judged(secret), Err(SecretError::Variable(_))), "{variable}");
        }
        for variable in ["CARGO_REGISTRY_TOKEN", "AWS_SECRET_ACCESS_KEY", "ANYTHING"] {
            let secret =
                NewSecret { variable: Some(variable.to_owned()), ..new("K", SecretClass::Tool, None) };
            assert!(judged(secret).is_ok(), "{variable}");
        }
    }

    #[test]
    fn a_scope_covers_what_it_names_and_nothing_else() {
        let scope = |workspace: Option<&str>, agent: Option<&str>| SecretScope {
            workspace: workspace.map(ByteString::from),
            agent: agent.map(str::to_owned),
        };
        let here = Path::new("/w");
        assert!(scope(None, None).covers(here, None));
        assert!(scope(Some("/w"), None).covers(here, Some("a")));
        assert!(!scope(Some("/w/x"), None).covers(here, None) && !scope(Some("/"), None).covers(here, None));
        assert!(scope(None, Some("a")).covers(here, Some("a")));
        assert!(
            !scope(None, Some("a")).covers(here, Some("b")) && !scope(None, Some("a")).covers(here, None)
        );
        assert!(!scope(Some("/w"), Some("a")).covers(here, None));
        assert!(scope(Some("/w"), None).is_of(here));
        for other in [
            (None, None),
            (None, Some("a")),
            (Some("/w"), Some("a")),
            (Some("/w/x"), None),
            (Some("/"), None),
        ] {
            assert!(!scope(other.0, other.1).is_of(here), "{other:?}");
        }
    }
}
