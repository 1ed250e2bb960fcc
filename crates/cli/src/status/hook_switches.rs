//! Whether an agent runs its user's hooks at all: switches in its settings, and the hooks it trusts.

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_types::ByteString;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::args::AgentKind;
use crate::environment::Environment;
use crate::hook::{EVENT_OF_CODEX, switched_off};
use crate::init::{MARK, directory};

/// Why a configured hook may not run, and the fix.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HookSwitch {
    Off(String),
    Unknown(String),
}

/// `None`: as far as visible from outside, the agent runs it.
pub(super) fn look(agent: AgentKind, environment: &Environment) -> Option<HookSwitch> {
    match agent {
        AgentKind::ClaudeCode => claude_code(environment),
        AgentKind::Codex => codex(environment),
        AgentKind::Gemini | AgentKind::Cursor | AgentKind::Goose | AgentKind::Opencode => None,
    }
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

fn claude_code(environment: &Environment) -> Option<HookSwitch> {
    let here = std::env::current_dir().unwrap_or_default();
    if let Some(file) = switched_off(&here, environment) {
        let why = format!("`{}` switches every hook off: remove `disableAllHooks` from it", shown(&file));
        return Some(HookSwitch::Off(why));
    }
    let texts: Vec<(PathBuf, Option<String>)> =
        managed().into_iter().map(|path| (path.clone(), fs::read_to_string(path).ok())).collect();
    if let Some((path, _)) = texts.iter().find(|(_, text)| text.is_none()) {
        let why = format!("`{}` cannot be read: it may let no hook of yours run", shown(path));
        return Some(HookSwitch::Unknown(why));
    }
    let ours = texts.iter().any(|(_, text)| text.as_deref().is_some_and(|text| text.contains(MARK)));
    let closed = texts.iter().find(|(_, text)| text.as_deref().is_some_and(only_managed))?;
    let why = format!(
        "`{}` lets only hooks of the machine's own settings run: put the hook there (docs/agents/claude-code.md)",
        shown(&closed.0)
    );
    (!ours).then_some(HookSwitch::Off(why))
}

/// Machine-wide settings, which a user cannot change.
fn managed() -> Vec<PathBuf> {
    const PLACE: &str = "/etc/claude-code";
    let more = fs::read_dir(Path::new(PLACE).join("managed-settings.d"));
    let more = more.into_iter().flatten().flatten().map(|entry| entry.path());
    let one = Path::new(PLACE).join("managed-settings.json");
    std::iter::once(one).chain(more).filter(|path| path.exists()).collect()
}

fn only_managed(text: &str) -> bool {
    const SWITCHES: [&str; 2] = ["allowManagedHooksOnly", "disableAllHooks"];
    match serde_json::from_str::<Value>(text) {
        Ok(settings) => SWITCHES
            .iter()
            .any(|name| !matches!(settings.get(*name), None | Some(Value::Null | Value::Bool(false)))),
        Err(_) => SWITCHES.iter().any(|name| text.contains(name)),
    }
}

fn codex(environment: &Environment) -> Option<HookSwitch> {
    let directory = directory(AgentKind::Codex, environment)?;
    let requirements = Path::new("/etc/codex/requirements.toml");
    let (config, required) = match (table(&directory.join("config.toml")), table(requirements)) {
        (Ok(config), Ok(required)) => (config, required),
        (Err(why), _) | (_, Err(why)) => return Some(HookSwitch::Unknown(why.to_string())),
    };
    let is = |value: Option<&toml::Value>, wanted: bool| value.and_then(toml::Value::as_bool) == Some(wanted);
    if is(required.get("allow_managed_hooks_only"), true) {
        let why = format!("`{}` lets only hooks of the machine's own settings run", shown(requirements));
        return Some(HookSwitch::Off(why));
    }
    let feature = |name: &str| config.get("features").and_then(|features| features.get(name));
    if is(feature("hooks"), false) || is(feature("codex_hooks"), false) {
        return Some(HookSwitch::Off(
            "hooks are switched off: remove `hooks = false` from `[features]` in codex's config.toml"
                .to_owned(),
        ));
    }
    trust(&directory.join("hooks.json"), &config)
}

/// Why a settings file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentSettingsReadError {
    #[error("`{0}` cannot be read as TOML")]
    Toml(String),
    #[error("`{path}` cannot be read: {source}")]
    Read { path: String, source: std::io::Error },
}

pub(super) fn table(path: &Path) -> Result<toml::Table, AgentSettingsReadError> {
    match fs::read_to_string(path) {
        Ok(text) => text.parse().map_err(|_error| AgentSettingsReadError::Toml(shown(path))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(toml::Table::new()),
        Err(source) => Err(AgentSettingsReadError::Read { path: shown(path), source }),
    }
}

/// Codex runs a hook only in the form its user has trusted: it stores a digest by file and position.
fn trust(hooks: &Path, config: &toml::Table) -> Option<HookSwitch> {
    const HOW: &str = "start codex, type `/hooks`, look at the command and trust it";
    let Some((place, digest)) = identity(hooks) else {
        return Some(HookSwitch::Unknown(format!("`{}` cannot be read as codex reads it", shown(hooks))));
    };
    let state = config.get("hooks").and_then(|hooks| hooks.get("state")).and_then(|state| state.get(&place));
    let field = |name: &str| state.and_then(|state| state.get(name));
    if field("enabled").and_then(toml::Value::as_bool) == Some(false) {
        return Some(HookSwitch::Off("the hook is switched off in codex: `/hooks` there".to_owned()));
    }
    match field("trusted_hash").and_then(toml::Value::as_str) {
        None => {
            Some(HookSwitch::Off(format!("codex does not trust the hook yet, so it does not run: {HOW}")))
        }
        Some(trusted) if trusted == digest => None,
        Some(_) => Some(HookSwitch::Unknown(format!("codex trusts another version of the hook: {HOW}"))),
    }
}

/// The key and digest of Ringfence's hook, as Codex 0.166 computes them.
fn identity(hooks: &Path) -> Option<(String, String)> {
    let file: Value = serde_json::from_slice(&fs::read(hooks).ok()?).ok()?;
    let groups = file.get("hooks")?.get(EVENT_OF_CODEX)?.as_array()?;
    let (group_index, group) =
        groups.iter().enumerate().find(|(_, group)| group.to_string().contains(MARK))?;
    let handlers = group.get("hooks")?.as_array()?;
    let (index, handler) = handlers.iter().enumerate().find(|(_, hook)| hook.to_string().contains(MARK))?;
    let identity = json!({
        "event_name": "pre_tool_use", "matcher": group.get("matcher")?,
        "hooks": [{
            "type": "command", "command": handler.get("command")?, "timeout": handler.get("timeout")?, "async": false,
        }],
    });
    let digest: String = ringfence_types::hex(Sha256::digest(identity.to_string()));
    Some((format!("{}:pre_tool_use:{group_index}:{index}", hooks.display()), format!("sha256:{digest}")))
}
