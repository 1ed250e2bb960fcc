//! Which secrets a session was given, and how they reach its commands.
//!
//! Only the operator names a secret: a flag at startup. Neither an agent nor a file of the workspace can. Whoever the operator let
//! in names those that were kept for the workspace where they work. A release is written to the ledger before the launch that
//! makes it true.

use std::path::Path;
use std::sync::Arc;

use ringfence_authz::env;
use ringfence_egress::{Credential, Provider, Signing, Target};
use ringfence_ledger::{AppendError, Event};
use ringfence_sandbox::{SECRETS_INSIDE, SecretFile};
use ringfence_scan::SHORTEST_SECRET;
use ringfence_types::{
    Backend, Bytes, Delivery, Host, HostRule, Layer, NetMode, Profile, Refusal, RefusalCode, SecretClass,
    TransactionId,
};

use super::entry::{Meta, Scope, SecretName};
use super::input::Value;
use super::placeholder::Placeholder;
use super::store::Secrets;
use crate::home::{self, Prepared};
use crate::pipeline::chain;
use crate::session::{AgentSession, Bound};

/// The variables by which AWS clients know what they sign with.
const SIGNING_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SIGNING_ID: &str = "AWS_ACCESS_KEY_ID";
/// The most secrets that one session gets.
const MAX_RELEASED: usize = 64;

/// What a session knows of secrets: all, so that none is written down, and those it was given.
#[derive(Debug, Default)]
pub(crate) struct SessionSecrets {
    pub(crate) all: Secrets,
    released: Vec<Release>,
}

/// Who names the secrets of a session.
#[derive(Clone, Copy, Debug)]
pub enum NamedBy<'a> {
    /// Whoever starts Ringfence, who says which agent it is for.
    Operator { agent: Option<&'a str> },
    /// Somebody whom the operator let in. A scope is what keeps a secret from them, and which agent they say it is proves
    /// nothing: theirs is what was kept for this very workspace.
    Guest,
}

impl NamedBy<'_> {
    fn may_have(self, scope: &Scope, workspace: &Path) -> bool {
        match self {
            Self::Operator { agent } => scope.covers(workspace, agent),
            Self::Guest => scope.is_of(workspace),
        }
    }
}

#[derive(Debug)]
struct Release {
    meta: Meta,
    content: Content,
}

#[derive(Debug)]
enum Content {
    File(Value),
    Variable(Value),
    Placeholder(Placeholder),
}

impl SessionSecrets {
    pub(crate) fn new(all: Secrets) -> Self {
        Self { all, ..Self::default() }
    }

    /// What the session was given, each as everything that may be shown of it: another value, place or scope is another secret.
    /// `None` where that cannot be said.
    pub(crate) fn given(&self) -> Option<Vec<String>> {
        let shown = |release: &Release| serde_json::to_string(&release.meta).ok();
        let mut given: Vec<String> = self.released.iter().map(shown).collect::<Option<_>>()?;
        given.sort();
        Some(given)
    }

    /// The files that the sandbox of the session starts with.
    pub(crate) fn files(&self) -> Vec<SecretFile> {
        let file = |release: &Release| match &release.content {
            Content::File(value) => {
                Some(SecretFile { name: release.meta.name.to_string(), content: value.copy() })
            }
            Content::Variable(_) | Content::Placeholder(_) => None,
        };
        self.released.iter().filter_map(file).collect()
    }

    /// Where the proxy puts credentials in, so that it has to look inside.
    pub(crate) fn inspected_hosts(&self) -> Vec<HostRule> {
        self.stood_for().flat_map(|(meta, _)| rules(meta)).collect()
    }

    fn stood_for(&self) -> impl Iterator<Item = (&Meta, &Placeholder)> {
        self.released.iter().filter_map(|release| match &release.content {
            Content::Placeholder(placeholder) => Some((&release.meta, placeholder)),
            Content::File(_) | Content::Variable(_) => None,
        })
    }

    /// All that the proxy has to know: what it puts in for a placeholder, what a command was given and may send to its own
    /// hosts, and what must not go anywhere.
    pub(crate) fn credentials(&self) -> Vec<Credential> {
        let known = self.all.values().filter(|(_, value)| value.as_slice().len() >= SHORTEST_SECRET);
        let credential = |(meta, value): (&Meta, &Value)| {
            let same = |other: &Meta| other.name == meta.name && other.scope == meta.scope;
            let placeholder = self.stood_for().find(|(other, _)| same(other));
            let released = self.released.iter().any(|release| same(&release.meta));
            Credential {
                name: meta.name.to_string(),
                placeholder: placeholder.map(|(_, placeholder)| placeholder.as_str().to_owned().into()),
                value: value.copy(),
                hosts: if released { rules(meta) } else { Vec::new() },
                places: meta.places.clone(),
            }
        };
        known.map(credential).collect()
    }

    /// Servers that a client reaches by a base URL, where it takes one and trusts no authority of ours: those with one host.
    pub(crate) fn providers(&self) -> Vec<Provider> {
        let provider = |(meta, _): (&Meta, &Placeholder)| match rules(meta).as_slice() {
            [rule] if !matches!(rule.host(), Host::Below(_)) => Some(Provider {
                name: meta.name.to_string(),
                upstream: Target { host: rule.host().clone(), port: rule.port().unwrap_or(443) },
            }),
            _ => None,
        };
        self.stood_for().filter_map(provider).collect()
    }

    /// What AWS clients sign with: a key id and a secret key, known by the variables that those clients read.
    pub(crate) fn signings(&self) -> Vec<Signing> {
        let in_variable = |name: &str| self.released.iter().find(|release| release.meta.variable == name);
        let key = self.stood_for().find(|(meta, _)| meta.variable == SIGNING_KEY);
        let (Some((key, _)), Some(id)) = (key, in_variable(SIGNING_ID)) else { return Vec::new() };
        let same = |(meta, _): &(&Meta, &Value)| meta.name == id.meta.name && meta.scope == id.meta.scope;
        let real = self.all.values().find(same).and_then(|(_, value)| text(value));
        let inside = match &id.content {
            Content::Placeholder(placeholder) => Some(placeholder.as_str().to_owned()),
            Content::Variable(value) => text(value),
            // A client that has to be told where its key id is knows another way to sign.
            Content::File(_) => None,
        };
        let signing = |(id_inside, id)| Signing { id_inside, id, credential: key.name.to_string() };
        inside.zip(real).map(signing).into_iter().collect()
    }

    /// What tells a command where its secrets are, or what they are.
    pub(crate) fn variables(&self) -> Vec<(Bytes, Bytes)> {
        let value = |release: &Release| match &release.content {
            Content::File(_) => Bytes::from(format!("{SECRETS_INSIDE}/{}", release.meta.name).as_str()),
            Content::Variable(value) => Bytes::from(value.as_slice()),
            Content::Placeholder(placeholder) => Bytes::from(placeholder.as_str()),
        };
        let name = |release: &Release| Bytes::from(release.meta.variable.as_str());
        self.released.iter().map(|release| (name(release), value(release))).collect()
    }
}

fn text(value: &Value) -> Option<String> {
    std::str::from_utf8(value.as_slice()).ok().map(str::to_owned)
}

/// The hosts of a secret. They were checked when it was stored.
fn rules(meta: &Meta) -> Vec<HostRule> {
    meta.hosts.iter().filter_map(|host| HostRule::parse(host).ok()).collect()
}

impl Bound<'_> {
    /// What the session was given.
    pub fn secrets_held(&self) -> impl Iterator<Item = &Meta> {
        self.secrets.released.iter().map(|release| &release.meta)
    }
}

impl AgentSession<'_> {
    /// Gives the session these secrets of the operator, all or none. A no is in the ledger.
    pub fn release(&mut self, names: &[String], by: NamedBy<'_>) -> Result<Result<(), Refusal>, AppendError> {
        match self.released(names, by) {
            Ok(()) => Ok(Ok(())),
            Err(refusal) => {
                if let Ok(secrets) = self.own_secrets() {
                    secrets.released.clear();
                }
                let event = Event::Refused {
                    transaction: None,
                    session: Some(self.id.clone()),
                    call: None,
                    by: None,
                    refusal: refusal.clone(),
                };
                self.append(vec![event]).map(|_receipts| Err(refusal))
            }
        }
    }

    /// Only before anything else is made of the session: what runs was started with what it was given.
    fn own_secrets(&mut self) -> Result<&mut SessionSecrets, Refusal> {
        Arc::get_mut(&mut self.secrets).ok_or_else(|| {
            refuse("secret.late", "the session is under way, and gets no more secrets".to_owned(), None)
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
                return Err(refuse("secret.too-many", message, None));
            }
            let content = match (meta.class, meta.deliver) {
                (SecretClass::Tool, Delivery::File) => Content::File(value),
                (SecretClass::Tool, Delivery::Env) => Content::Variable(value),
                (SecretClass::Provider, _) | (_, Delivery::ProxyOnly) => Self::stand_in(&meta, &value)?,
            };
            self.own_secrets()?.released.push(Release { meta, content });
        }
        self.judge_signing()?;
        self.move_home()
    }

    /// What was in the home before was put there by commands without these secrets, and would be obeyed with them.
    fn move_home(&mut self) -> Result<(), Refusal> {
        let released = &self.secrets.released;
        if released.is_empty() {
            return Ok(());
        }
        let setup = &self.runtime.setup;
        let stays_outside = |release: &Release| matches!(release.content, Content::Placeholder(_));
        let prepared = if released.iter().all(stays_outside) {
            let names = released.iter().map(|release| release.meta.name.to_string()).collect();
            home::kept(setup, &self.resident.with_secrets(names))
        } else {
            home::fresh(setup).map(|(prepared, lease)| {
                self.common.keep_home(lease);
                prepared
            })
        };
        let Prepared { path, repairs } = prepared.map_err(|error| {
            let message = format!("no home of its own could be made for the session: {}", chain(&error));
            refuse("secret.home", message, Some("look at the permissions of the state directory"))
        })?;
        self.common.tell(repairs);
        self.workspace.home = path;
        Ok(())
    }

    /// A key that signs is never sent. Without its id nothing is signed, and what stands for it would be put in like any other.
    fn judge_signing(&self) -> Result<(), Refusal> {
        match self.secrets.stood_for().find(|(meta, _)| meta.variable == SIGNING_KEY) {
            Some((meta, _)) if self.secrets.signings().is_empty() => Err(no_key_id(meta)),
            _ => Ok(()),
        }
    }

    /// The narrowest secret of this name that may be used here.
    fn chosen(&self, name: &str, by: NamedBy<'_>) -> Result<(Meta, Value), Refusal> {
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
            // Of the others they are not told the names.
            NamedBy::Guest => unknown(name, None),
        })
    }

    fn judge(&self, meta: &Meta) -> Result<(), Refusal> {
        let variable = Bytes::from(meta.variable.as_str());
        env::check_released(&variable, &self.policy.rules.env)?;
        if let Some(other) = self.secrets.released.iter().find(|other| other.meta.variable == meta.variable) {
            let message =
                format!("the secrets `{}` and `{}` go into the same variable", other.meta.name, meta.name);
            let hint = "set one of them again with another --env-name";
            return Err(refuse("secret.variable", message, Some(hint)));
        }
        match meta.deliver {
            Delivery::ProxyOnly if self.policy.net != NetMode::Filtered => Err(no_proxy(meta)),
            Delivery::ProxyOnly if meta.hosts.is_empty() => Err(nowhere(meta)),
            Delivery::ProxyOnly => Ok(()),
            Delivery::File | Delivery::Env => self.judge_ground(meta),
        }
    }

    /// Where nothing is kept apart, a secret would be given to the machine and not to the session.
    fn judge_ground(&self, meta: &Meta) -> Result<(), Refusal> {
        let no = |why: String, hint| Err(refuse("secret.backend", why, Some(hint)));
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
            _ => Ok(()),
        }
    }

    fn stand_in(meta: &Meta, value: &Value) -> Result<Content, Refusal> {
        if value.as_slice().len() < SHORTEST_SECRET {
            let message =
                format!("the secret `{}` is too short to be kept from being sent elsewhere", meta.name);
            return Err(refuse("secret.short", message, Some("use a longer one")));
        }
        let placeholder = Placeholder::mint(meta).map_err(|error| {
            refuse("secret.placeholder", format!("no placeholder could be made: {error}"), None)
        })?;
        Ok(Content::Placeholder(placeholder))
    }

    /// Writes down what the command of `transaction` is about to be given. No record, no release.
    pub(crate) fn record_releases(&mut self, transaction: &TransactionId) -> Result<(), Refusal> {
        if self.secrets.released.is_empty() {
            return Ok(());
        }
        let event = |release: &Release| Event::SecretReleased {
            transaction: transaction.clone(),
            session: self.id.clone(),
            name: release.meta.name.to_string(),
            class: release.meta.class,
            how: release.meta.deliver,
            fingerprint: release.meta.fingerprint.clone(),
        };
        let events: Vec<Event> = self.secrets.released.iter().map(event).collect();
        self.append(events).map(drop).map_err(|error| Refusal {
            code: RefusalCode::Ledger,
            layer: Layer::Floor,
            rule: "ledger.written-before-done".to_owned(),
            message: format!("the release of a secret could not be written to the ledger: {}", chain(&error)),
            hint: error.hint().map(str::to_owned),
        })
    }
}

fn no_proxy(meta: &Meta) -> Refusal {
    let (rule, what) = match meta.class {
        SecretClass::Provider => ("secret.provider", "of class `provider` and never enters a sandbox"),
        SecretClass::Tool => ("secret.proxy-only", "kept as `proxy-only`"),
    };
    let message = format!("the secret `{}` is {what}: only the proxy of `--net filtered` uses it", meta.name);
    refuse(rule, message, Some("add `--net filtered`, and `--allow-host` for its host"))
}

fn no_key_id(meta: &Meta) -> Refusal {
    let message = format!(
        "the secret `{}` is a key that AWS clients sign with ({SIGNING_KEY}), and the session has no key id for it",
        meta.name
    );
    let hint = format!(
        "name the secret with its id as well: one whose --env-name is {SIGNING_ID}, not kept as a file"
    );
    refuse("secret.signing", message, Some(&hint))
}

fn nowhere(meta: &Meta) -> Refusal {
    let message = format!("the secret `{}` has no host, so that the proxy may use it nowhere", meta.name);
    let hint = format!("set it again with `ringfence secret set {} --host HOST`", meta.name);
    refuse("secret.nowhere", message, Some(&hint))
}

fn elsewhere<'m>(name: &str, metas: impl Iterator<Item = &'m Meta>) -> Refusal {
    let scopes: Vec<String> = metas.map(|meta| meta.scope.to_string()).collect();
    let message =
        format!("the secret `{name}` is not for this workspace and agent, only for: {}", scopes.join("; "));
    refuse("secret.scope", message, Some("set one for this place with `ringfence secret set --workspace`"))
}

/// To somebody who is not told where else it is kept.
fn not_kept_here(name: &str, workspace: &Path) -> Refusal {
    let message = format!(
        "the secret `{name}` was not kept for this workspace, and with a token a session has no other, whatever its agent is called"
    );
    let hint = format!(
        "the operator keeps one with `ringfence secret set {name} --workspace {}`, without `--agent`, or starts the session at the \
         socket without a token",
        Bytes::from(workspace).display()
    );
    Refusal { layer: Layer::Session, ..refuse("session.ceiling", message, Some(&hint)) }
}

fn unknown(name: &str, nearest: Option<SecretName>) -> Refusal {
    let hint = match nearest {
        Some(nearest) => format!("did you mean `{nearest}`? `ringfence secret list` shows all"),
        None => "`ringfence secret list` shows all; `ringfence secret set` adds one".to_owned(),
    };
    // What names nothing may be a value, also when it looks like a name.
    let shown = match name.parse::<SecretName>() {
        Ok(_) => format!("there is no secret of the name that was given ({} bytes)", name.len()),
        Err(error) => error.to_string(),
    };
    refuse("secret.unknown", shown, Some(&hint))
}

fn refuse(rule: &str, message: String, hint: Option<&str>) -> Refusal {
    Refusal {
        code: RefusalCode::Secret,
        layer: Layer::Flags,
        rule: rule.to_owned(),
        message,
        hint: hint.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use ringfence_ledger::{Life, OutOfOrder};
    use ringfence_types::SessionId;

    use super::*;

    /// The ledger itself takes no release that nothing was intended for.
    #[test]
    fn a_release_without_an_intent_is_out_of_order() {
        let released = Event::SecretReleased {
            transaction: TransactionId::random().unwrap(),
            session: SessionId::random().unwrap(),
            name: "KEY".to_owned(),
            class: SecretClass::Tool,
            how: Delivery::File,
            fingerprint: String::new(),
        };
        assert_eq!(Life::of([&released]), Err(OutOfOrder::NotIntended));
    }
}
