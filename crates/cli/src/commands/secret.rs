//! `ringfence secret`: what the operator keeps for tools and providers.

use std::path::Path;
use std::process::ExitCode;

use ringfence_runtime::Runtime;
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::secrets::{
    ChangeError, Changed, Line, Meta, NewSecret, Scope, SecretName, SecretStore, Value,
};
use ringfence_types::{Bytes, Delivery};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::approval::{self, Need};
use crate::args::{Kind, ScopeArgs, SecretCommand};
use crate::commands::run::{self, print_json};
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::{note, say};
use crate::secret_input;

pub(crate) fn run(command: SecretCommand) -> ExitCode {
    done(command).unwrap_or_else(|code| code)
}

fn done(command: SecretCommand) -> Result<ExitCode, ExitCode> {
    if !matches!(command, SecretCommand::List { .. } | SecretCommand::ShowMeta { .. }) {
        approval::require(&Environment::read(), Need::Nothing, "change the secrets")?;
    }
    match command {
        SecretCommand::Set { name, kind, scope, env_name, typed } => {
            refuse_typed(&typed)?;
            let value = read_value(&name)?;
            let secret = NewSecret {
                variable: env_name,
                ..new(name, kind, scope_of(scope, Missing::Refused)?, value)
            };
            change("set", |store| store.add(vec![secret]))
        }
        SecretCommand::ImportEnv { kind, scope, names } => {
            import(&names, &kind, &scope_of(scope, Missing::Refused)?)
        }
        SecretCommand::Rotate { name, scope, typed } => {
            refuse_typed(&typed)?;
            let scope = scope_of(scope, Missing::ByName)?;
            // Before anybody types a value in vain.
            found(&name, &scope)?;
            let value = read_value(&name)?;
            change("rotated", |store| store.rotate(&name, &scope, value))
        }
        SecretCommand::Rm { name, scope } => {
            let scope = scope_of(scope, Missing::ByName)?;
            change("removed", |store| store.remove(&name, &scope))
        }
        SecretCommand::List { json } => list(json.into()),
        SecretCommand::ShowMeta { name, scope, json } => {
            show(&[found(&name, &scope_of(scope, Missing::ByName)?)?], json.into());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn new(name: SecretName, kind: Kind, scope: Scope, value: Value) -> NewSecret {
    let Kind { class, deliver, hosts, places } = kind;
    NewSecret { name, class, scope, deliver, variable: None, hosts, places, value }
}

/// What was typed is in the history of the shell and was visible to every process. It is not repeated.
fn refuse_typed(typed: &[std::ffi::OsString]) -> Result<(), ExitCode> {
    if typed.is_empty() {
        return Ok(());
    }
    Err(error::failed_text(
        "a value is never taken from the command line, where every process can read it",
        Some("leave it out, and it is asked for; what was typed is in the history of your shell"),
    ))
}

fn read_value(name: &SecretName) -> Result<Value, ExitCode> {
    let read = secret_input::read(&format!("value of {name}"))
        .map_err(|error| error::failed(&error, error.hint()))?;
    let (value, line) = Value::of_stream(read).map_err(|error| error::failed(&error, None))?;
    if line == Line::NewlineLeftOut {
        note!("ringfence: one newline at the end was left out");
    }
    Ok(value)
}

fn import(names: &[SecretName], kind: &Kind, scope: &Scope) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let mut secrets = Vec::new();
    for name in names {
        let found = environment.all.iter().find(|(known, _)| known.as_slice() == name.as_str().as_bytes());
        let Some((_, value)) = found else {
            return Err(error::failed_text(&format!("the environment has no variable `{name}`"), None));
        };
        let value = Value::new(Zeroizing::new(value.as_slice().to_vec()))
            .map_err(|error| error::failed_text(&format!("variable `{name}`: {error}"), None))?;
        secrets.push(new(name.clone(), kind.clone(), scope.clone(), value));
    }
    let code = change("set", |store| store.add(secrets))?;
    note!("ringfence: they are still in the environment of this shell and of what it starts");
    Ok(code)
}

/// A workspace that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Refused,
    /// It may have been removed since.
    ByName,
}

fn scope_of(arguments: ScopeArgs, missing: Missing) -> Result<Scope, ExitCode> {
    let workspace = match arguments.workspace {
        None => None,
        Some(path) => match std::fs::canonicalize(&path) {
            Ok(real) => Some(Bytes::from(real)),
            Err(_) if missing == Missing::ByName && path.is_absolute() => Some(Bytes::from(path)),
            Err(error) => {
                let shown = Bytes::from(path.as_path()).display();
                return Err(error::failed_text(&format!("workspace `{shown}`: {error}"), None));
            }
        },
    };
    Ok(Scope { workspace, agent: arguments.agent })
}

/// No ledger, no change: what is kept for whom is part of what is allowed.
fn change(
    what: &str,
    edit: impl FnOnce(&SecretStore) -> Result<Changed, ChangeError>,
) -> Result<ExitCode, ExitCode> {
    let runtime: Runtime = run::runtime(&Environment::read(), Attendance::Unattended)?;
    let changed = edit(&store(&runtime.setup().state_dir)).map_err(|error| failed(&error))?;
    for meta in &changed.metas {
        let change = format!("secret {} {what}: {}", meta.name, summary(meta));
        if let Err(error) = runtime.policy_changed(&changed.stored, &change) {
            let hint = "the secret was changed; only the record of it is missing";
            return Err(error::failed(&error, Some(hint)));
        }
        say!("{what} {}: {}", meta.name, summary(meta));
        warn_short(what, meta);
    }
    Ok(ExitCode::SUCCESS)
}

fn warn_short(what: &str, meta: &Meta) {
    if what != "removed" && !meta.is_recognised() {
        note!(
            "ringfence: the value is too short to be recognised in text, so it is not taken out of the ledger"
        );
    }
}

fn summary(meta: &Meta) -> String {
    let how = match meta.deliver {
        Delivery::File => format!("file, path in {}", meta.variable),
        Delivery::Env => format!("variable {}", meta.variable),
        Delivery::ProxyOnly => format!("proxy only, placeholder in {}", meta.variable),
    };
    format!("{}, {how}, {} bytes, {}", meta.class, meta.bytes, meta.scope)
}

fn store(state_dir: &Path) -> SecretStore {
    SecretStore::new(state_dir)
}

fn failed(error: &ChangeError) -> ExitCode {
    error::failed(error, error.hint().as_deref())
}

fn read() -> Result<ringfence_runtime::secrets::Secrets, ExitCode> {
    let state_dir = host::state_dir(&Environment::read()).map_err(|error| error::failed(&error, None))?;
    store(&state_dir).read().map_err(|error| error::failed(&error, error.hint().as_deref()))
}

fn found(name: &SecretName, scope: &Scope) -> Result<Meta, ExitCode> {
    read()?.find(name, scope).cloned().map_err(|error| failed(&error))
}

#[derive(Clone, Copy)]
enum Form {
    Text,
    Json,
}

impl From<bool> for Form {
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

fn list(form: Form) -> Result<ExitCode, ExitCode> {
    let metas: Vec<Meta> = read()?.list().cloned().collect();
    if let (true, Form::Text) = (metas.is_empty(), form) {
        note!("ringfence: there are no secrets; `ringfence secret set NAME` adds one");
    }
    show(&metas, form);
    Ok(ExitCode::SUCCESS)
}

/// Schema 1.
#[derive(Serialize)]
struct Listed<'a> {
    schema: u32,
    secrets: &'a [Meta],
}

fn show(metas: &[Meta], form: Form) {
    if let Form::Json = form {
        return print_json(&Listed { schema: 1, secrets: metas });
    }
    for meta in metas {
        say!("{}: {}", meta.name, summary(meta));
        let hosts =
            if meta.hosts.is_empty() { String::new() } else { format!(", for {}", meta.hosts.join(" ")) };
        let places: Vec<String> = meta.places.iter().map(ToString::to_string).collect();
        let places = if places.is_empty() { String::new() } else { format!(", in {}", places.join(" ")) };
        let Meta { fingerprint, created, changed, .. } = meta;
        say!("  fingerprint {fingerprint}, set {created}, changed {changed}{hosts}{places}");
    }
}
