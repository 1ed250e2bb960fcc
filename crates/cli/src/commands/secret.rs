//! `ringfence secret`: manages the operator's stored secrets.

use std::path::Path;
use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_runtime::Runtime;
use ringfence_runtime::secrets::{
    NewSecret, SecretChangeError, SecretInfo, SecretName, SecretScope, SecretStore, SecretValue, StoreChange,
    TrailingNewline,
};
use ringfence_types::{ByteString, Delivery};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::approval::{self, OperatorRequirement};
use crate::args::{ScopeArgs, SecretCommand, SecretKindArgs};
use crate::commands::recorded_change::RecordedChange;
use crate::commands::run::{self, print_json};
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::{OutputFormat, note, say};
use crate::secret_input;

pub(crate) fn run(command: SecretCommand) -> ExitCode {
    done(command).unwrap_or_else(|code| code)
}

fn done(command: SecretCommand) -> Result<ExitCode, ExitCode> {
    if !matches!(command, SecretCommand::List { .. } | SecretCommand::Show { .. }) {
        approval::require(&Environment::read(), OperatorRequirement::Nothing, "change the secrets")?;
    }
    match command {
        SecretCommand::Set { name, kind, scope, env_name, typed } => {
            refuse_typed(&typed)?;
            let value = read_value(&name)?;
            let secret = NewSecret {
                variable: env_name,
                ..new(name, kind, scope_of(scope, UnknownWorkspace::Refused)?, value)
            };
            change("set", |store| store.add(vec![secret]))
        }
        SecretCommand::ImportEnv { kind, scope, names } => {
            import(&names, &kind, &scope_of(scope, UnknownWorkspace::Refused)?)
        }
        SecretCommand::Rotate { name, scope, typed } => {
            refuse_typed(&typed)?;
            let scope = scope_of(scope, UnknownWorkspace::ByName)?;
            // Before the prompt, so that a person does not type a value in vain.
            found(&name, &scope)?;
            let value = read_value(&name)?;
            change("rotated", |store| store.rotate(&name, &scope, value))
        }
        SecretCommand::Rm { name, scope } => {
            let scope = scope_of(scope, UnknownWorkspace::ByName)?;
            change("removed", |store| store.remove(&name, &scope))
        }
        SecretCommand::List { json } => list(json.into()),
        SecretCommand::Show { name, scope, json } => {
            show(&[found(&name, &scope_of(scope, UnknownWorkspace::ByName)?)?], json.into());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn new(name: SecretName, kind: SecretKindArgs, scope: SecretScope, value: SecretValue) -> NewSecret {
    let SecretKindArgs { class, deliver, hosts, credential_locations } = kind;
    NewSecret { name, class, scope, deliver, variable: None, hosts, credential_locations, value }
}

/// A typed value is in the shell history and was visible to every process. It is not repeated.
fn refuse_typed(typed: &[std::ffi::OsString]) -> Result<(), ExitCode> {
    if typed.is_empty() {
        return Ok(());
    }
    Err(error::failed_text(
        "a value is never taken from the command line, where every process can read it",
        Some("leave it out: Ringfence prompts for it; the typed value is now in your shell history"),
    ))
}

fn read_value(name: &SecretName) -> Result<SecretValue, ExitCode> {
    let read = secret_input::read(&format!("value of {name}"))
        .map_err(|error| error::failed(&error, error.hint()))?;
    let (value, line) = SecretValue::of_stream(read).map_err(|error| error::failed(&error, None))?;
    if line == TrailingNewline::NewlineLeftOut {
        note!("ringfence: removed one trailing newline");
    }
    Ok(value)
}

fn import(names: &[SecretName], kind: &SecretKindArgs, scope: &SecretScope) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let mut secrets = Vec::new();
    for name in names {
        let found = environment.all.iter().find(|(known, _)| known.as_slice() == name.as_str().as_bytes());
        let Some((_, value)) = found else {
            return Err(error::failed_text(&format!("the environment has no variable `{name}`"), None));
        };
        let value = SecretValue::new(Zeroizing::new(value.as_slice().to_vec()))
            .map_err(|error| error::failed_text(&format!("variable `{name}`: {error}"), None))?;
        secrets.push(new(name.clone(), kind.clone(), scope.clone(), value));
    }
    let code = change("set", |store| store.add(secrets))?;
    note!("ringfence: the variables are still in the environment of this shell");
    Ok(code)
}

/// How to treat a workspace that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnknownWorkspace {
    Refused,
    /// It may have been removed since.
    ByName,
}

fn scope_of(arguments: ScopeArgs, missing: UnknownWorkspace) -> Result<SecretScope, ExitCode> {
    let workspace = match arguments.workspace {
        None => None,
        Some(path) => match std::fs::canonicalize(&path) {
            Ok(real) => Some(ByteString::from(real)),
            Err(_) if missing == UnknownWorkspace::ByName && path.is_absolute() => {
                Some(ByteString::from(path))
            }
            Err(error) => {
                let shown = ByteString::from(path.as_path()).display();
                return Err(error::failed_text(&format!("workspace `{shown}`: {error}"), None));
            }
        },
    };
    Ok(SecretScope { workspace, agent: arguments.agent })
}

/// Without a record there is no change: stored secrets are part of what sessions may use.
fn change(
    what: &str,
    edit: impl FnOnce(&SecretStore) -> Result<StoreChange, SecretChangeError>,
) -> Result<ExitCode, ExitCode> {
    let runtime: Runtime = run::runtime(&Environment::read(), ApproverPresence::Unattended)?;
    let state_dir = &runtime.setup().state_dir;
    let change = edit(&store(state_dir)).map_err(|error| failed(&error))?;
    let changed = change.changed().to_vec();
    let word = |meta: &SecretInfo| {
        change.redact(state_dir, &format!("secret {} {what}: {}", meta.name, summary(meta)))
    };
    let words = changed.iter().map(word).collect();
    let recorded = RecordedChange { before: change.before(), after: change.after(), words };
    recorded.make(&runtime, || change.make()).map_err(|error| error.report(SecretChangeError::hint))?;
    for meta in &changed {
        say!("{what} {}: {}", meta.name, summary(meta));
        warn_short(what, meta);
    }
    Ok(ExitCode::SUCCESS)
}

fn warn_short(what: &str, meta: &SecretInfo) {
    if what != "removed" && !meta.is_recognised() {
        note!("ringfence: the value is too short to be redacted from the ledger");
    }
}

fn summary(meta: &SecretInfo) -> String {
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

fn failed(error: &SecretChangeError) -> ExitCode {
    error::failed(error, error.hint().as_deref())
}

fn read() -> Result<ringfence_runtime::secrets::SecretSet, ExitCode> {
    let state_dir = host::state_dir(&Environment::read()).map_err(|error| error::failed(&error, None))?;
    store(&state_dir).read().map_err(|error| error::failed(&error, error.hint().as_deref()))
}

fn found(name: &SecretName, scope: &SecretScope) -> Result<SecretInfo, ExitCode> {
    read()?.find(name, scope).cloned().map_err(|error| failed(&error))
}

fn list(form: OutputFormat) -> Result<ExitCode, ExitCode> {
    let metas: Vec<SecretInfo> = read()?.list().cloned().collect();
    if let (true, OutputFormat::Text) = (metas.is_empty(), form) {
        note!("ringfence: there are no secrets; `ringfence secret set NAME` adds one");
    }
    show(&metas, form);
    Ok(ExitCode::SUCCESS)
}

/// Schema 1.
#[derive(Serialize)]
struct SecretListJson<'a> {
    schema: u32,
    secrets: &'a [SecretInfo],
}

fn show(metas: &[SecretInfo], form: OutputFormat) {
    if let OutputFormat::Json = form {
        return print_json(&SecretListJson { schema: 1, secrets: metas });
    }
    for meta in metas {
        say!("{}: {}", meta.name, summary(meta));
        let hosts =
            if meta.hosts.is_empty() { String::new() } else { format!(", for {}", meta.hosts.join(" ")) };
        let places: Vec<String> = meta.credential_locations.iter().map(ToString::to_string).collect();
        let places = if places.is_empty() { String::new() } else { format!(", in {}", places.join(" ")) };
        let SecretInfo { fingerprint, created, changed, .. } = meta;
        say!("  fingerprint {fingerprint}, set {created}, changed {changed}{hosts}{places}");
    }
}
