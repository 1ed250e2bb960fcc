//! What is written into the settings of each agent.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::hooks_json::{self, SettingsError, Spot};
use super::{InitError, place, shown};
use crate::args::Agent;
use crate::environment::Environment;
use crate::hook::{TIMEOUT, quoted};

/// By this a hook of ours is known again, whoever has edited what is around it.
pub(crate) const MARK: &str = "Ringfence gave no answer, so nothing may be done";

/// Skills and commands that a person types hold shell text that Claude Code runs on the host, and no hook sees it.
const NO_SHELL_IN_SKILLS: &str = "disableSkillShellExecution";

/// By this a file of ours that has no command in it is.
const WRITTEN: &str = "# Written by `ringfence init`; `ringfence uninstall` removes it.";

/// Where Codex is told what it works in.
pub(super) const ENVIRONMENTS: &str = "environments.toml";

pub(super) fn has_mark(bytes: &[u8]) -> bool {
    [MARK, WRITTEN].iter().any(|mark| memchr::memmem::find(bytes, mark.as_bytes()).is_some())
}

/// A file that is made or changed.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// A part of a file that belongs to somebody else.
    Hook { spot: Spot, entry: Value },
    /// All of it is ours.
    Own(String),
    /// All of it is ours, and nothing of anybody else is put away for it.
    Alone(String),
}

impl File {
    pub(super) fn with_ours(&self, before: Option<&[u8]>) -> Result<Vec<u8>, InitError> {
        match &self.content {
            Content::Own(text) => Ok(text.clone().into_bytes()),
            Content::Alone(text) if before.is_none_or(has_mark) => Ok(text.clone().into_bytes()),
            Content::Alone(_) => {
                Err(InitError::Settings(shown(&self.path), "it is somebody else's".to_owned()))
            }
            Content::Hook { spot, entry } => {
                let broken = |why: SettingsError| InitError::Settings(shown(&self.path), why.to_string());
                hooks_json::with(before, spot, (entry, MARK)).map_err(broken)
            }
        }
    }

    /// Whether nobody else has a part in it.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.content, Content::Own(_) | Content::Alone(_))
    }

    /// Whether somebody who has put something else there has taken it over.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.content, Content::Alone(_))
    }

    /// What is left when our part is gone; `None`: no file. A file in which nothing is ours stays, whatever is in it.
    /// `original`: what was there before us, where that is known.
    pub(super) fn without_ours(
        &self,
        before: &[u8],
        original: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, InitError> {
        if !has_mark(before) {
            return Ok(Some(before.to_vec()));
        }
        match &self.content {
            Content::Own(_) | Content::Alone(_) => Ok(None),
            Content::Hook { spot, .. } => {
                let broken = |why: SettingsError| InitError::Settings(shown(&self.path), why.to_string());
                hooks_json::without(before, (spot, MARK), original).map(Some).map_err(broken)
            }
        }
    }
}

/// The command that an agent runs before each of its tool calls. Where it ends in any way but well, the answer is no:
/// most agents would go on otherwise. Where things are is said in it, because a repository can change the environment.
pub(crate) fn command(agent: Agent, environment: &Environment) -> Result<String, InitError> {
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

pub(super) fn files(agent: Agent, environment: &Environment) -> Result<Vec<File>, InitError> {
    let directory = place::directory(agent, environment).ok_or(InitError::NoHome)?;
    let command = command(agent, environment)?;
    let hook = |name: &str, event: &'static str, entry: Value| File {
        path: directory.join(name),
        content: Content::Hook { spot: Spot { event, version: None, switches: &[] }, entry },
    };
    Ok(match agent {
        Agent::ClaudeCode => {
            let hooks =
                json!([{ "type": "command", "command": command, "timeout": TIMEOUT, "onFailure": "block" }]);
            let spot = Spot { event: "PreToolUse", version: None, switches: &[NO_SHELL_IN_SKILLS] };
            let entry = json!({ "matcher": "*", "hooks": hooks });
            vec![File { path: directory.join("settings.json"), content: Content::Hook { spot, entry } }]
        }
        Agent::Codex => {
            let hooks = json!([{ "type": "command", "command": command, "timeout": TIMEOUT }]);
            vec![hook("hooks.json", "PreToolUse", json!({ "matcher": ".*", "hooks": hooks }))]
        }
        Agent::Gemini => {
            let (name, timeout) = ("ringfence", TIMEOUT * 1000);
            let hooks = json!([{ "type": "command", "name": name, "command": command, "timeout": timeout }]);
            vec![hook("settings.json", "BeforeTool", json!({ "matcher": ".*", "hooks": hooks }))]
        }
        Agent::Cursor => {
            let entry = json!({ "command": command, "timeout": TIMEOUT, "failClosed": true });
            let spot = Spot { event: "preToolUse", version: Some(1), switches: &[] };
            vec![File { path: directory.join("hooks.json"), content: Content::Hook { spot, entry } }]
        }
        Agent::Goose => {
            let hooks = json!([{ "type": "command", "command": command, "timeout": TIMEOUT }]);
            let hooks = json!({ "hooks": { "PreToolUse": [{ "matcher": "*", "hooks": hooks }] } });
            let about = json!({ "name": "ringfence", "version": env!("CARGO_PKG_VERSION") });
            let own = |name: &str, value: &Value| File {
                path: directory.join(name),
                content: Content::Own(format!("{value:#}\n")),
            };
            vec![own("plugin.json", &about), own("hooks/hooks.json", &hooks)]
        }
        Agent::Opencode => {
            vec![File {
                path: directory.join("plugin/ringfence.js"),
                content: Content::Own(plugin(&command)),
            }]
        }
    })
}

/// What makes Codex leave everything it does to us: the only environment that it can work in.
pub(super) fn environments(agent: Agent, environment: &Environment) -> Result<Option<File>, InitError> {
    if agent != Agent::Codex {
        return Ok(None);
    }
    let directory = place::directory(agent, environment).ok_or(InitError::NoHome)?;
    let program = std::env::current_exe().map_err(InitError::NoProgram)?;
    let program = program.to_str().ok_or_else(|| InitError::NotText(shown(&program)))?;
    let text = format!(
        "{WRITTEN}\ndefault = \"ringfence\"\ninclude_local = false\n\n[[environments]]\nid = \"ringfence\"\nprogram = {}\nargs = [\"exec-server\"]\n",
        toml::Value::from(program),
    );
    Ok(Some(File { path: directory.join(ENVIRONMENTS), content: Content::Alone(text) }))
}

/// A plugin that asks before each tool call. What it throws blocks the call.
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
