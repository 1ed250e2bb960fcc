//! Secret releases: which secrets a session gets, and how they reach its commands.
//!
//! Only the operator releases a secret, by a flag; an agent or a workspace file cannot. A client with a
//! credential may name secrets that are scoped to its workspace. The ledger records a release before the
//! launch.

use std::path::Path;
use std::sync::Arc;

use ringfence_authz::env;
use ringfence_egress::{AwsSigningKey, FlowTarget, ProviderRoute, SessionCredential};
use ringfence_ledger::{AppendError, Event};
use ringfence_sandbox::{SECRETS_INSIDE, SecretFile};
use ringfence_scan::SHORTEST_SECRET;
use ringfence_types::{
    Backend, ByteString, Delivery, Host, HostPattern, NetMode, PolicyLayer, Profile, Refusal, RefusalCode,
    RuleId, SecretClass, SecretReach, SecretUse, TransactionId,
};

use super::entry::{SecretInfo, SecretName, SecretScope};
use super::placeholder::SecretPlaceholder;
use super::store::SecretSet;
use super::value::SecretValue;
use crate::home::{self, PreparedHome};
use crate::pipeline::chain;
use crate::session::{AgentSession, SessionShared};

/// The variables in which AWS clients look for their signing key.
const SIGNING_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SIGNING_ID: &str = "AWS_ACCESS_KEY_ID";
/// Limit of secrets per session.
const MAX_RELEASED: usize = 64;

/// All secrets, for redaction, and those released to the session.
#[derive(Debug, Default)]
pub(crate) struct SessionSecrets {
    pub(crate) all: SecretSet,
    released: Vec<SecretRelease>,
}

/// What names the secrets of a session.
#[derive(Clone, Copy, Debug)]
pub enum NamedBy<'a> {
    /// The operator who starts Ringfence, with the agent they name.
    Operator { agent: Option<&'a str> },
    /// A client with a credential. Its claimed agent proves nothing, so it gets only secrets scoped to this
    /// very workspace.
    Guest,
}

impl NamedBy<'_> {
    fn may_have(self, scope: &SecretScope, workspace: &Path) -> bool {
        match self {
            Self::Operator { agent } => scope.covers(workspace, agent),
            Self::Guest => scope.is_of(workspace),
        }
    }
}

#[derive(Debug)]
struct SecretRelease {
    meta: SecretInfo,
    content: ReleaseContent,
}

#[derive(Debug)]
enum ReleaseContent {
    File(SecretValue),
    Variable(SecretValue),
    Placeholder(SecretPlaceholder),
}

impl SessionSecrets {
    pub(crate) fn new(all: SecretSet) -> Self {
        Self { all, ..Self::default() }
    }

    /// The metadata of each released secret: another value, place or scope is another secret. `None` if it
    /// cannot be encoded.
    pub(crate) fn given(&self) -> Option<Vec<String>> {
        let shown = |release: &SecretRelease| serde_json::to_string(&release.meta).ok();
        let mut given: Vec<String> = self.released.iter().map(shown).collect::<Option<_>>()?;
        given.sort();
        Some(given)
    }

    /// The same for people: which secrets, and how far their values come.
    pub(crate) fn uses(&self) -> Vec<SecretUse> {
        let shown = |release: &SecretRelease| SecretUse {
            name: release.meta.name.to_string(),
            reach: match release.content {
                ReleaseContent::File(_) | ReleaseContent::Variable(_) => SecretReach::Inside,
                ReleaseContent::Placeholder(_) => SecretReach::Proxy,
            },
        };
        self.released.iter().map(shown).collect()
    }

    /// The secret files that the sandbox starts with.
    pub(crate) fn files(&self) -> Vec<SecretFile> {
        let file = |release: &SecretRelease| match &release.content {
            ReleaseContent::File(value) => {
                Some(SecretFile { name: release.meta.name.to_string(), content: value.copy() })
            }
            ReleaseContent::Variable(_) | ReleaseContent::Placeholder(_) => None,
        };
        self.released.iter().filter_map(file).collect()
    }

    /// Hosts where the proxy inserts credentials, so it inspects their TLS.
    pub(crate) fn inspected_hosts(&self) -> Vec<HostPattern> {
        self.stood_for().flat_map(|(meta, _)| rules(meta)).collect()
    }

    fn stood_for(&self) -> impl Iterator<Item = (&SecretInfo, &SecretPlaceholder)> {
        self.released.iter().filter_map(|release| match &release.content {
            ReleaseContent::Placeholder(placeholder) => Some((&release.meta, placeholder)),
            ReleaseContent::File(_) | ReleaseContent::Variable(_) => None,
        })
    }

    /// Everything the proxy needs: values for placeholders, values that commands may send to certain hosts,
    /// and values that must not leave.
    pub(crate) fn credentials(&self) -> Vec<SessionCredential> {
        let known = self.all.values().filter(|(_, value)| value.as_slice().len() >= SHORTEST_SECRET);
        let credential = |(meta, value): (&SecretInfo, &SecretValue)| {
            let same = |other: &SecretInfo| other.name == meta.name && other.scope == meta.scope;
            let placeholder = self.stood_for().find(|(other, _)| same(other));
            let released = self.released.iter().any(|release| same(&release.meta));
            SessionCredential {
                name: meta.name.to_string(),
                placeholder: placeholder.map(|(_, placeholder)| placeholder.as_str().to_owned().into()),
                value: value.copy(),
                hosts: if released { rules(meta) } else { Vec::new() },
                places: meta.credential_locations.clone(),
            }
        };
        known.map(credential).collect()
    }

    /// Providers with a single host, which a client can reach by a base URL without trusting the session's
    /// CA.
    pub(crate) fn providers(&self) -> Vec<ProviderRoute> {
        let provider = |(meta, _): (&SecretInfo, &SecretPlaceholder)| match rules(meta).as_slice() {
            [rule] if !matches!(rule.host(), Host::Below(_)) => Some(ProviderRoute {
                name: meta.name.to_string(),
                upstream: FlowTarget { host: rule.host().clone(), port: rule.port().unwrap_or(443) },
            }),
            _ => None,
        };
        self.stood_for().filter_map(provider).collect()
    }

    /// Key ids and secret keys of AWS clients, found by the variables that those clients read.
    pub(crate) fn signings(&self) -> Vec<AwsSigningKey> {
        let in_variable = |name: &str| self.released.iter().find(|release| release.meta.variable == name);
        let key = self.stood_for().find(|(meta, _)| meta.variable == SIGNING_KEY);
        let (Some((key, _)), Some(id)) = (key, in_variable(SIGNING_ID)) else { return Vec::new() };
        let same = |(meta, _): &(&SecretInfo, &SecretValue)| {
            meta.name == id.meta.name && meta.scope == id.meta.scope
        };
        let real = self.all.values().find(same).and_then(|(_, value)| text(value));
        let inside = match &id.content {
            ReleaseContent::Placeholder(placeholder) => Some(placeholder.as_str().to_owned()),
            ReleaseContent::Variable(value) => text(value),
            // AWS clients do not read the key id from a file named by this variable.
            ReleaseContent::File(_) => None,
        };
        let signing = |(id_inside, id)| AwsSigningKey { id_inside, id, credential: key.name.to_string() };
        inside.zip(real).map(signing).into_iter().collect()
    }

    /// Variables that hold the path, the value or the placeholder of each secret.
    pub(crate) fn variables(&self) -> Vec<(ByteString, ByteString)> {
        let value = |release: &SecretRelease| match &release.content {
            ReleaseContent::File(_) => {
                ByteString::from(format!("{SECRETS_INSIDE}/{}", release.meta.name).as_str())
            }
            ReleaseContent::Variable(value) => ByteString::from(value.as_slice()),
            ReleaseContent::Placeholder(placeholder) => ByteString::from(placeholder.as_str()),
        };
        let name = |release: &SecretRelease| ByteString::from(release.meta.variable.as_str());
        self.released.iter().map(|release| (name(release), value(release))).collect()
    }
}

fn text(value: &SecretValue) -> Option<String> {
    std::str::from_utf8(value.as_slice()).ok().map(str::to_owned)
}

/// The hosts of a secret. They were validated when it was stored.
fn rules(meta: &SecretInfo) -> Vec<HostPattern> {
    meta.hosts.iter().filter_map(|host| HostPattern::parse(host).ok()).collect()
}

impl SessionShared<'_> {
    /// The released secrets.
    pub fn secrets_held(&self) -> impl Iterator<Item = &SecretInfo> {
        self.secrets.released.iter().map(|release| &release.meta)
    }
}

impl AgentSession<'_> {
    /// Releases these secrets to the session, all or none. The ledger records a refusal.
    pub fn release(&mut self, names: &[String], by: NamedBy<'_>) -> Result<Result<(), Refusal>, AppendError> {
        match self.released(names, by) {
            Ok(()) => Ok(Ok(())),
            Err(refusal) => {
                if let Ok(secrets) = self.own_secrets() {
                    secrets.released.clear();
                }
                let event = Event::CallRefused {
                    transaction: None,
                    session: Some(self.id.clone()),
                    call: None,
                    call_origin: None,
                    refusal: refusal.clone(),
                };
                self.append(vec![event]).map(|_receipts| Err(refusal))
            }
        }
    }

    /// Only before the session is shared: a running sandbox keeps the secrets it started with.
    fn own_secrets(&mut self) -> Result<&mut SessionSecrets, Refusal> {
        Arc::get_mut(&mut self.secrets).ok_or_else(|| {
            refuse(RuleId::SecretLate, "the session is under way, and gets no more secrets".to_owned(), None)
        })
    }

    fn released(&mut self, names: &[String], by: NamedBy<'_>) -> Result<(), Refusal> {
        for name in names {
            let (meta, value) = self.chosen(name, by)?;
            if self.secrets.released.iter().any(|release| release.meta.name == meta.name) {
                continue;
            }
            self.judge(&meta)?;
            if self.secrets.released.len() >= MAX_RELEASED {
                let message = format!("more than {MAX_RELEASED} secrets for one session");
                return Err(refuse(RuleId::SecretTooMany, message, None));
            }
            let content = match (meta.class, meta.deliver) {
                (SecretClass::Tool, Delivery::File) => ReleaseContent::File(value),
                (SecretClass::Tool, Delivery::Env) => ReleaseContent::Variable(value),
                (SecretClass::Provider, _) | (_, Delivery::ProxyOnly) => Self::stand_in(&meta, &value)?,
            };
            self.own_secrets()?.released.push(SecretRelease { meta, content });
        }
        self.judge_signing()?;
        self.move_home()
    }

    /// Commands without these secrets could have left files in the old home that would be obeyed with them.
    fn move_home(&mut self) -> Result<(), Refusal> {
        let released = &self.secrets.released;
        if released.is_empty() {
            return Ok(());
        }
        let setup = &self.runtime.setup;
        let stays_outside =
            |release: &SecretRelease| matches!(release.content, ReleaseContent::Placeholder(_));
        let prepared = if released.iter().all(stays_outside) {
            let names = released.iter().map(|release| release.meta.name.to_string()).collect();
            home::kept(setup, &self.resident.with_secrets(names))
        } else {
            home::fresh(setup).map(|(prepared, lease)| {
                self.common.keep_home(lease);
                prepared
            })
        };
        let PreparedHome { path, repairs } = prepared.map_err(|error| {
            let message = format!("no home of its own could be made for the session: {}", chain(&error));
            refuse(RuleId::SecretHome, message, Some("look at the permissions of the state directory"))
        })?;
        self.common.tell(repairs);
        self.workspace.home = path;
        Ok(())
    }

    /// Refuses an AWS key without its key id: nothing could be signed, and the key itself would be sent like
    /// any other credential.
    fn judge_signing(&self) -> Result<(), Refusal> {
        match self.secrets.stood_for().find(|(meta, _)| meta.variable == SIGNING_KEY) {
            Some((meta, _)) if self.secrets.signings().is_empty() => Err(no_key_id(meta)),
            _ => Ok(()),
        }
    }

    /// The secret of this name with the narrowest matching scope.
    fn chosen(&self, name: &str, by: NamedBy<'_>) -> Result<(SecretInfo, SecretValue), Refusal> {
        let all = &self.secrets.all;
        let named = || all.values().filter(|(meta, _)| meta.name.as_str() == name);
        let here = named().filter(|(meta, _)| by.may_have(&meta.scope, &self.workspace.path));
        if let Some((meta, value)) = here.max_by_key(|(meta, _)| meta.scope.rank()) {
            return Ok((meta.clone(), value.clone()));
        }
        let is_known = named().next().is_some();
        Err(match by {
            NamedBy::Operator { .. } if is_known => elsewhere(name, named().map(|(meta, _)| meta)),
            NamedBy::Operator { .. } => unknown(name, all.nearest(name)),
            NamedBy::Guest if is_known => not_kept_here(name, &self.workspace.path),
            // A client with a credential does not learn the names of other secrets.
            NamedBy::Guest => unknown(name, None),
        })
    }

    fn judge(&self, meta: &SecretInfo) -> Result<(), Refusal> {
        let variable = ByteString::from(meta.variable.as_str());
        env::check_released(&variable, &self.policy.rules.env)?;
        if let Some(other) = self.secrets.released.iter().find(|other| other.meta.variable == meta.variable) {
            let message =
                format!("the secrets `{}` and `{}` go into the same variable", other.meta.name, meta.name);
            let hint = "set one of them again with another --env-name";
            return Err(refuse(RuleId::SecretVariable, message, Some(hint)));
        }
        match meta.deliver {
            Delivery::ProxyOnly if self.policy.net != NetMode::Filtered => Err(no_proxy(meta)),
            Delivery::ProxyOnly if meta.hosts.is_empty() => Err(nowhere(meta)),
            Delivery::ProxyOnly => Ok(()),
            Delivery::File | Delivery::Env => self.judge_ground(meta),
        }
    }

    /// Refuses a release without containment: the whole machine would get the secret.
    fn judge_ground(&self, meta: &SecretInfo) -> Result<(), Refusal> {
        let no = |why: String, hint| Err(refuse(RuleId::SecretBackend, why, Some(hint)));
        let name = &meta.name;
        match (self.policy.profile, self.policy.backend) {
            (Profile::Danger, _) => no(
                format!("profile `danger` has no place of its own for the secret `{name}`"),
                "use another profile",
            ),
            (_, Some(backend @ (Backend::None | Backend::External))) => no(
                format!("backend `{backend}` does not keep the secret `{name}` from the rest of the machine"),
                "leave out --backend: `native` and `bubblewrap` do",
            ),
            (_, Some(Backend::Landlock)) if meta.deliver == Delivery::File => no(
                format!("backend `landlock` has no place of its own for the secret file `{name}`"),
                "leave out --backend, or keep the secret with `--deliver env`",
            ),
            (
                _,
                None | Some(Backend::Native | Backend::Bubblewrap | Backend::Landlock | Backend::Container),
            ) => Ok(()),
        }
    }

    fn stand_in(meta: &SecretInfo, value: &SecretValue) -> Result<ReleaseContent, Refusal> {
        if value.as_slice().len() < SHORTEST_SECRET {
            let message =
                format!("the secret `{}` is too short to be kept from being sent elsewhere", meta.name);
            return Err(refuse(RuleId::SecretShort, message, Some("use a longer one")));
        }
        let placeholder = SecretPlaceholder::mint(meta).map_err(|error| {
            refuse(RuleId::SecretPlaceholder, format!("no placeholder could be made: {error}"), None)
        })?;
        Ok(ReleaseContent::Placeholder(placeholder))
    }

    /// Records the releases before the command of `transaction` starts. Without a record there is no release.
    pub(crate) fn record_releases(&mut self, transaction: &TransactionId) -> Result<(), Refusal> {
        if self.secrets.released.is_empty() {
            return Ok(());
        }
        let event = |release: &SecretRelease| Event::SecretReleased {
            transaction: transaction.clone(),
            session: self.id.clone(),
            name: release.meta.name.to_string(),
            class: release.meta.class,
            delivery: release.meta.deliver,
            fingerprint: release.meta.fingerprint.clone(),
        };
        let events: Vec<Event> = self.secrets.released.iter().map(event).collect();
        self.append(events).map(drop).map_err(|error| Refusal {
            code: RefusalCode::Ledger,
            layer: PolicyLayer::Floor,
            rule: RuleId::LedgerWrittenBeforeDone.into(),
            message: format!("the release of a secret could not be written to the ledger: {}", chain(&error)),
            hint: error.hint().map(str::to_owned),
        })
    }
}

fn no_proxy(meta: &SecretInfo) -> Refusal {
    let (rule, what) = match meta.class {
        SecretClass::Provider => (RuleId::SecretProvider, "of class `provider` and never enters a sandbox"),
        SecretClass::Tool => (RuleId::SecretProxyOnly, "kept as `proxy-only`"),
    };
    let message = format!("the secret `{}` is {what}: only the proxy of `--net filtered` uses it", meta.name);
    refuse(rule, message, Some("add `--net filtered`, and `--allow-host` for its host"))
}

fn no_key_id(meta: &SecretInfo) -> Refusal {
    let message = format!(
        "the secret `{}` is a key that AWS clients sign with ({SIGNING_KEY}), and the session has no key id for it",
        meta.name
    );
    let hint = format!(
        "name the secret with its id as well: one whose --env-name is {SIGNING_ID}, not kept as a file"
    );
    refuse(RuleId::SecretSigning, message, Some(&hint))
}

fn nowhere(meta: &SecretInfo) -> Refusal {
    let message = format!("the secret `{}` has no host, so that the proxy may use it nowhere", meta.name);
    let hint = format!("set it again with `ringfence secret set {} --host HOST`", meta.name);
    refuse(RuleId::SecretNowhere, message, Some(&hint))
}

fn elsewhere<'m>(name: &str, metas: impl Iterator<Item = &'m SecretInfo>) -> Refusal {
    let scopes: Vec<String> = metas.map(|meta| meta.scope.to_string()).collect();
    let message =
        format!("the secret `{name}` is not for this workspace and agent, only for: {}", scopes.join("; "));
    refuse(
        RuleId::SecretScope,
        message,
        Some("set one for this place with `ringfence secret set --workspace`"),
    )
}

/// The client does not learn where else the secret exists.
fn not_kept_here(name: &str, workspace: &Path) -> Refusal {
    let message = format!(
        "the secret `{name}` was not kept for this workspace, and with a token a session has no other, whatever its agent is called"
    );
    let hint = format!(
        "the operator keeps one with `ringfence secret set {name} --workspace {}`, without `--agent`, or starts the session at the \
         socket without a token",
        ByteString::from(workspace).display()
    );
    Refusal { layer: PolicyLayer::Session, ..refuse(RuleId::SessionCeiling, message, Some(&hint)) }
}

fn unknown(name: &str, nearest: Option<SecretName>) -> Refusal {
    let hint = match nearest {
        Some(nearest) => format!("did you mean `{nearest}`? `ringfence secret list` shows all"),
        None => "`ringfence secret list` shows all; `ringfence secret set` adds one".to_owned(),
    };
    // An unknown name may be a value typed by mistake, so it is not repeated.
    let shown = match name.parse::<SecretName>() {
        Ok(_) => format!("there is no secret of the name that was given ({} bytes)", name.len()),
        Err(error) => error.to_string(),
    };
    refuse(RuleId::SecretUnknown, shown, Some(&hint))
}

fn refuse(rule: RuleId, message: String, hint: Option<&str>) -> Refusal {
    Refusal {
        code: RefusalCode::Secret,
        layer: PolicyLayer::Flags,
        rule: rule.into(),
        message,
        hint: hint.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use ringfence_ledger::{Lifecycle, LifecycleError};
    use ringfence_types::SessionId;

    use super::*;

    /// The ledger rejects a release without an intent.
    #[test]
    fn a_release_without_an_intent_is_out_of_order() {
        let released = Event::SecretReleased {
            transaction: TransactionId::random().unwrap(),
            session: SessionId::random().unwrap(),
            name: "KEY".to_owned(),
            class: SecretClass::Tool,
            delivery: Delivery::File,
            fingerprint: String::new(),
        };
        assert_eq!(Lifecycle::of([&released]), Err(LifecycleError::NotIntended));
    }
}
