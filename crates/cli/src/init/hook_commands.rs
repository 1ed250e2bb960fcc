//! Reads Ringfence's hooks from an agent's settings as the agent would run them, including later edits.

use serde_json::Value;

use super::settings_entry::{self, MARK};
use super::{InitError, current, hooks_json};
use crate::args::AgentKind;
use crate::environment::Environment;
use crate::hook::event;

/// The hook commands, in the order in which the agent runs them.
pub(crate) fn hook_commands(agent: AgentKind, environment: &Environment) -> Result<Vec<String>, InitError> {
    let mut commands = Vec::new();
    for file in settings_entry::files(agent, environment)? {
        let Some(bytes) = current(&file.path)? else { continue };
        if agent == AgentKind::Opencode {
            commands.extend(String::from_utf8_lossy(&bytes).lines().filter_map(of_plugin));
        } else if let Ok(settings) = hooks_json::read(&bytes) {
            let hooks = settings.get("hooks").and_then(|hooks| hooks.get(event(agent)));
            collect(hooks.unwrap_or(&Value::Null), &mut commands);
        }
    }
    let word = format!(" hook {agent}");
    commands.retain(|command| command.contains(MARK) || command.contains(&word));
    Ok(commands)
}

/// The command in Ringfence's plugin.
fn of_plugin(line: &str) -> Option<String> {
    serde_json::from_str(line.strip_prefix("const COMMAND = ")?.strip_suffix(';')?).ok()
}

fn collect(value: &Value, commands: &mut Vec<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| collect(one, commands)),
        Value::Object(fields) => {
            commands.extend(fields.get("command").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| collect(field, commands));
        }
        _ => {}
    }
}
