//! What is known of a secret besides its value.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ringfence_authz::env;
use ringfence_ledger::Timestamp;
use ringfence_types::{Bytes, Delivery, HostRule, HostRuleError, KeyPlace, SecretClass};
use serde::{Deserialize, Serialize};

use super::input::Value;

const MAX_NAME: usize = 64;
const MAX_AGENT: usize = 128;
const MAX_HOSTS: usize = 64;
const MAX_PLACES: usize = 16;

/// The name of a secret: it is also the name of a file and, in capitals, of a variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "what was given ({0} bytes, not shown: it may be a value) is not a name for a secret: use up to 64 letters, digits, `_` and `-`, beginning with a letter"
)]
pub struct NameError(usize);

impl SecretName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The variable that is meant when none is configured: `github-token` is `GITHUB_TOKEN`.
    fn variable(&self) -> String {
        self.0.to_ascii_uppercase().replace('-', "_")
    }
}

impl FromStr for SecretName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let begins = text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic());
        if begins && text.len() <= MAX_NAME && text.bytes().all(word) {
            return Ok(Self(text.to_owned()));
        }
        // Somebody may have typed the value where the name belongs.
        Err(NameError(text.len()))
    }
}

impl TryFrom<String> for SecretName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
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
pub struct Scope {
    /// Canonical.
    pub workspace: Option<Bytes>,
    pub agent: Option<String>,
}

impl Scope {
    pub(crate) fn covers(&self, workspace: &Path, agent: Option<&str>) -> bool {
        self.workspace.as_ref().is_none_or(|own| own.as_path() == workspace)
            && self.agent.as_deref().is_none_or(|own| Some(own) == agent)
    }

    /// For this workspace and for every agent there.
    pub(crate) fn is_of(&self, workspace: &Path) -> bool {
        self.agent.is_none() && self.workspace.as_ref().is_some_and(|own| own.as_path() == workspace)
    }

    /// The narrower of two secrets with one name is meant.
    pub(crate) fn rank(&self) -> u8 {
        2 * u8::from(self.workspace.is_some()) + u8::from(self.agent.is_some())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agent = self.agent.as_deref().map(|agent| format!("agent `{}`", Bytes::from(agent).display()));
        let workspace = self.workspace.as_ref().map(|path| format!("workspace `{}`", path.display()));
        match (workspace, agent) {
            (None, None) => f.write_str("everywhere"),
            (Some(one), None) | (None, Some(one)) => f.write_str(&one),
            (Some(workspace), Some(agent)) => write!(f, "{workspace}, {agent}"),
        }
    }
}

/// Everything about a secret that may be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    pub name: SecretName,
    pub class: SecretClass,
    pub scope: Scope,
    pub deliver: Delivery,
    /// The variable that says where the file is, or holds the value or the placeholder.
    pub variable: String,
    /// Where the proxy may use it. None: nowhere.
    pub hosts: Vec<String>,
    /// Where in a request it stands. None: where keys for its host usually do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<KeyPlace>,
    pub bytes: u64,
    pub fingerprint: String,
    pub created: Timestamp,
    pub changed: Timestamp,
}

/// A secret as it was asked for.
#[derive(Clone, Debug)]
pub struct NewSecret {
    pub name: SecretName,
    pub class: SecretClass,
    pub scope: Scope,
    /// `None`: the safest that its class has.
    pub deliver: Option<Delivery>,
    pub variable: Option<String>,
    pub hosts: Vec<String>,
    pub places: Vec<KeyPlace>,
    pub value: Value,
}

/// Why a secret cannot be as it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    #[error("a secret of class `provider` never enters a sandbox, so it cannot be delivered as `{0}`")]
    Provider(Delivery),
    #[error("{0}")]
    Variable(String),
    #[error("a value of {0} bytes is too long for a variable")]
    TooLongForVariable(u64),
    #[error("the host is not one")]
    Host(#[from] HostRuleError),
    #[error("more than {MAX_HOSTS} hosts")]
    Hosts,
    #[error("more than {MAX_PLACES} places in a request")]
    Places,
    #[error("`{0}` is not the name of an agent")]
    Agent(String),
}

impl NewSecret {
    pub(crate) fn judged(self, fingerprint: String, now: Timestamp) -> Result<(Meta, Value), EntryError> {
        let deliver = delivery(self.class, self.deliver)?;
        let variable = self.variable.unwrap_or_else(|| default_variable(&self.name, deliver));
        env::check_released(&Bytes::from(variable.as_str()), &env::EnvRules::default())
            .map_err(|refusal| EntryError::Variable(refusal.message))?;
        let bytes = self.value.as_slice().len() as u64;
        if self.hosts.len() > MAX_HOSTS {
            return Err(EntryError::Hosts);
        }
        if self.places.len() > MAX_PLACES {
            return Err(EntryError::Places);
        }
        self.hosts.iter().try_for_each(|host| HostRule::parse(host).map(drop))?;
        check_agent(self.scope.agent.as_deref())?;
        let meta = Meta {
            name: self.name,
            class: self.class,
            scope: self.scope,
            deliver,
            variable,
            hosts: self.hosts,
            places: self.places,
            bytes,
            fingerprint,
            created: now,
            changed: now,
        };
        meta.still_fits()?;
        Ok((meta, self.value))
    }
}

impl Meta {
    /// What a finding calls a value of this secret.
    pub(crate) fn rule(&self) -> String {
        format!("secret/{}", self.name)
    }

    /// Whether the value can be told from ordinary text, and so be taken out of it.
    pub fn is_recognised(&self) -> bool {
        self.bytes >= ringfence_scan::SHORTEST_SECRET as u64
    }

    /// Whether a value of this length can be delivered as it is to be.
    pub(crate) fn still_fits(&self) -> Result<(), EntryError> {
        match self.deliver {
            Delivery::Env if self.bytes > env::MAX_VALUE as u64 => {
                Err(EntryError::TooLongForVariable(self.bytes))
            }
            _ => Ok(()),
        }
    }
}

fn delivery(class: SecretClass, wanted: Option<Delivery>) -> Result<Delivery, EntryError> {
    match (class, wanted) {
        (SecretClass::Provider, None | Some(Delivery::ProxyOnly)) => Ok(Delivery::ProxyOnly),
        (SecretClass::Provider, Some(other)) => Err(EntryError::Provider(other)),
        (SecretClass::Tool, wanted) => Ok(wanted.unwrap_or(Delivery::File)),
    }
}

fn default_variable(name: &SecretName, deliver: Delivery) -> String {
    match deliver {
        Delivery::File => format!("{}_FILE", name.variable()),
        Delivery::Env | Delivery::ProxyOnly => name.variable(),
    }
}

fn check_agent(agent: Option<&str>) -> Result<(), EntryError> {
    let wrong = |name: &str| name.is_empty() || name.len() > MAX_AGENT || name.chars().any(char::is_control);
    match agent {
        Some(name) if wrong(name) => Err(EntryError::Agent(Bytes::from(name).display())),
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
            scope: Scope::default(),
            deliver,
            variable: None,
            hosts: Vec::new(),
            places: Vec::new(),
            value: Value::new(Zeroizing::new(b"value".to_vec())).unwrap(),
        }
    }

    fn judged(secret: NewSecret) -> Result<Meta, EntryError> {
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
            assert!(matches!(refused, Err(EntryError::Provider(_))), "{deliver}");
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
            assert!(matches!(judged(secret), Err(EntryError::Variable(_))), "{variable}");
        }
        for variable in ["CARGO_REGISTRY_TOKEN", "AWS_SECRET_ACCESS_KEY", "ANYTHING"] {
            let secret =
                NewSecret { variable: Some(variable.to_owned()), ..new("K", SecretClass::Tool, None) };
            assert!(judged(secret).is_ok(), "{variable}");
        }
    }

    #[test]
    fn a_scope_covers_what_it_names_and_nothing_else() {
        let scope = |workspace: Option<&str>, agent: Option<&str>| Scope {
            workspace: workspace.map(Bytes::from),
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
