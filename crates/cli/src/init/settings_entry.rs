//! What `init` writes into the settings of each agent.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::hooks_json::{self, AgentSettingsError, HookSlot};
use super::{InitError, detect, shown};
use crate::args::AgentKind;
use crate::environment::Environment;
use crate::hook::{TIMEOUT, quoted};

/// Identifies Ringfence's hook, also after edits around it.
pub(crate) const MARK: &str = "Ringfence gave no answer, so nothing may be done";

/// Skills and typed commands contain shell text that Claude Code runs on the host without a hook.
const NO_SHELL_IN_SKILLS: &str = "disableSkillShellExecution";

/// Identifies a file of Ringfence without a command.
const WRITTEN: &str = "# Written by `ringfence init`; `ringfence uninstall` removes it.";

/// The file that tells Codex its environments.
pub(super) const ENVIRONMENTS: &str = "environments.toml";

pub(super) fn has_mark(bytes: &[u8]) -> bool {
    [MARK, WRITTEN].iter().any(|mark| memchr::memmem::find(bytes, mark.as_bytes()).is_some())
}

/// A file that is made or changed.
#[derive(Debug)]
pub(super) struct SettingsFile {
    pub(super) path: PathBuf,
    content: SettingsContent,
}

#[derive(Debug)]
enum SettingsContent {
    /// An entry in a file of the user.
    Hook { spot: HookSlot, entry: Value },
    /// The whole file belongs to Ringfence.
    Own(String),
    /// The whole file belongs to Ringfence, and no file of the user is replaced for it.
    Alone(String),
}

impl SettingsFile {
    pub(super) fn with_ours(&self, before: Option<&[u8]>) -> Result<Vec<u8>, InitError> {
        match &self.content {
            SettingsContent::Own(text) => Ok(text.clone().into_bytes()),
            SettingsContent::Alone(text) if before.is_none_or(has_mark) => Ok(text.clone().into_bytes()),
            SettingsContent::Alone(_) => {
                Err(InitError::Settings(shown(&self.path), "Ringfence did not write this file".to_owned()))
            }
            SettingsContent::Hook { spot, entry } => {
                let broken =
                    |why: AgentSettingsError| InitError::Settings(shown(&self.path), why.to_string());
                hooks_json::with(before, spot, entry, MARK).map_err(broken)
            }
        }
    }

    /// Whether the whole file belongs to Ringfence.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.content, SettingsContent::Own(_) | SettingsContent::Alone(_))
    }

    /// Whether the file belongs to the user once its content was replaced.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.content, SettingsContent::Alone(_))
    }

    /// The file without Ringfence's part; `None`: no file. A file without such a part stays. `original` is
    /// the earlier content, if known.
    pub(super) fn without_ours(
        &self,
        before: &[u8],
        original: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, InitError> {
        if !has_mark(before) {
            return Ok(Some(before.to_vec()));
        }
        match &self.content {
            SettingsContent::Own(_) | SettingsContent::Alone(_) => Ok(None),
            SettingsContent::Hook { spot, .. } => {
                let broken =
                    |why: AgentSettingsError| InitError::Settings(shown(&self.path), why.to_string());
                hooks_json::without(before, spot, MARK, original).map(Some).map_err(broken)
            }
        }
    }
}

/// The command that an agent runs before each tool call. Any failure denies the call, because most agents
/// would continue otherwise. It contains all paths, because a repository can change the environment.
pub(crate) fn command(agent: AgentKind, environment: &Environment) -> Result<String, InitError> {
    let program = std::env::current_exe().map_err(InitError::NoProgram)?;
    let word = |path: &Path| quoted(path.as_os_str()).ok_or_else(|| InitError::NotText(shown(path)));
    let mut line = String::new();
    for (name, path) in [
        ("HOME", &environment.home),
        ("XDG_CONFIG_HOME", &environment.config_dir),
        ("XDG_STATE_HOME", &environment.state_dir),
    ] {
        if let Some(path) = path {
            line.push_str(&format!("{name}={} ", word(path)?));
        }
    }
    Ok(format!("{line}{} hook {agent} || {{ echo '{MARK}' >&2; exit 2; }}", word(&program)?))
}

pub(super) fn files(agent: AgentKind, environment: &Environment) -> Result<Vec<SettingsFile>, InitError> {
    let directory = detect::directory(agent, environment).ok_or(InitError::NoHome)?;
    let command = command(agent, environment)?;
    let hook = |name: &str, event: &'static str, entry: Value| SettingsFile {
        path: directory.join(name),
        content: SettingsContent::Hook { spot: HookSlot { event, version: None, switches: &[] }, entry },
    };
    Ok(match agent {
        AgentKind::ClaudeCode => {
            let hooks =
                json!([{ "type": "command", "command": command, "timeout": TIMEOUT, "onFailure": "block" }]);
            let spot = HookSlot { event: "PreToolUse", version: None, switches: &[NO_SHELL_IN_SKILLS] };
            let entry = json!({ "matcher": "*", "hooks": hooks });
            vec![SettingsFile {
                path: directory.join("settings.json"),
                content: SettingsContent::Hook { spot, entry },
            }]
        }
        AgentKind::Codex => {
            let hooks = json!([{ "type": "command", "command": command, "timeout": TIMEOUT }]);
            vec![hook("hooks.json", "PreToolUse", json!({ "matcher": ".*", "hooks": hooks }))]
        }
        AgentKind::Gemini => {
            let (name, timeout) = ("ringfence", TIMEOUT * 1000);
            let hooks = json!([{ "type": "command", "name": name, "command": command, "timeout": timeout }]);
            vec![hook("settings.json", "BeforeTool", json!({ "matcher": ".*", "hooks": hooks }))]
        }
        AgentKind::Cursor => {
            let entry = json!({ "command": command, "timeout": TIMEOUT, "failClosed": true });
            let spot = HookSlot { event: "preToolUse", version: Some(1), switches: &[] };
            vec![SettingsFile {
                path: directory.join("hooks.json"),
                content: SettingsContent::Hook { spot, entry },
            }]
        }
        AgentKind::Goose => {
            let hooks = json!([{ "type": "command", "command": command, "timeout": TIMEOUT }]);
            let hooks = json!({ "hooks": { "PreToolUse": [{ "matcher": "*", "hooks": hooks }] } });
            let about = json!({ "name": "ringfence", "version": env!("CARGO_PKG_VERSION") });
            let own = |name: &str, value: &Value| SettingsFile {
                path: directory.join(name),
                content: SettingsContent::Own(format!("{value:#}\n")),
            };
            vec![own("plugin.json", &about), own("hooks/hooks.json", &hooks)]
        }
        AgentKind::Opencode => {
            vec![SettingsFile {
                path: directory.join("plugin/ringfence.js"),
                content: SettingsContent::Own(plugin(&command)),
            }]
        }
    })
}

/// Makes `ringfence exec-server` the only environment of Codex.
pub(super) fn environments(
    agent: AgentKind,
    environment: &Environment,
) -> Result<Option<SettingsFile>, InitError> {
    if agent != AgentKind::Codex {
        return Ok(None);
    }
    let directory = detect::directory(agent, environment).ok_or(InitError::NoHome)?;
    let program = std::env::current_exe().map_err(InitError::NoProgram)?;
    let program = program.to_str().ok_or_else(|| InitError::NotText(shown(&program)))?;
    let text = format!(
        "{WRITTEN}\ndefault = \"ringfence\"\ninclude_local = false\n\n[[environments]]\nid = \"ringfence\"\nprogram = {}\nargs = [\"exec-server\"]\n",
        toml::Value::from(program),
    );
    Ok(Some(SettingsFile { path: directory.join(ENVIRONMENTS), content: SettingsContent::Alone(text) }))
}

/// A plugin that asks before each tool call. An exception blocks the call.
fn plugin(command: &str) -> String {
    format!(
        r#"// Written by `ringfence init`; `ringfence uninstall` removes it.
import {{ spawnSync }} from "node:child_process";

const COMMAND = {command};

export const Ringfence = async ({{ directory }}) => ({{
  "tool.execute.before": async (input, output) => {{
    const call = {{
      hook_event_name: "tool.execute.before",
      session_id: input.sessionID,
      cwd: directory,
      tool_name: input.tool,
      tool_input: output.args ?? {{}},
    }};
    const done = spawnSync("/bin/sh", ["-c", COMMAND], {{ input: JSON.stringify(call), encoding: "utf8" }});
    if (done.status !== 0) throw new Error(done.stderr || {mark});
    const answer = JSON.parse(done.stdout);
    if (answer.decision !== "allow") throw new Error(answer.reason);
    if (answer.args) Object.assign(output.args, answer.args);
  }},
}});
"#,
        command = Value::from(command),
        mark = Value::from(MARK),
    )
}
