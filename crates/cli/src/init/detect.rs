//! Detects installed agents and the directories of their user settings.

use std::path::PathBuf;

use crate::args::AgentKind;
use crate::environment::Environment;
use crate::host::on_path;
use crate::policy_resolution::real;

/// The agent's program names.
pub(crate) fn programs(agent: AgentKind) -> &'static [&'static str] {
    match agent {
        AgentKind::ClaudeCode => &["claude"],
        AgentKind::Codex => &["codex"],
        AgentKind::Gemini => &["gemini"],
        AgentKind::Cursor => &["cursor", "cursor-agent"],
        AgentKind::Goose => &["goose"],
        AgentKind::Opencode => &["opencode"],
    }
}

/// The directory of the user's settings.
pub(crate) fn directory(agent: AgentKind, environment: &Environment) -> Option<PathBuf> {
    let moved = |name: &str| {
        let value = environment.all.iter().find(|(variable, _)| variable.as_slice() == name.as_bytes());
        value.map(|(_, path)| path.as_path().to_owned()).filter(|path| path.is_absolute())
    };
    let home = |name: &str| environment.home.as_ref().map(|home| home.join(name));
    match agent {
        AgentKind::ClaudeCode => moved("CLAUDE_CONFIG_DIR").or_else(|| home(".claude")),
        // With this variable Codex resolves links and identifies hooks by their real path.
        AgentKind::Codex => moved("CODEX_HOME").map(|path| real(&path)).or_else(|| home(".codex")),
        AgentKind::Gemini => home(".gemini"),
        AgentKind::Cursor => home(".cursor"),
        AgentKind::Goose => home(".agents/plugins/ringfence"),
        AgentKind::Opencode => environment.config_dir.as_ref().map(|config| config.join("opencode")),
    }
}

/// How an agent was detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentDetection {
    Program(PathBuf),
    Settings(PathBuf),
    Nothing,
}

pub(crate) fn found(agent: AgentKind, environment: &Environment) -> AgentDetection {
    let program = programs(agent).iter().find_map(|name| on_path(name.as_ref()));
    if let Some(program) = program {
        return AgentDetection::Program(program);
    }
    // goose's hook directory is made by Ringfence, so it proves nothing.
    let settings = match agent {
        AgentKind::Goose => environment.config_dir.as_ref().map(|config| config.join("goose")),
        _ => directory(agent, environment),
    };
    settings.filter(|path| path.is_dir()).map_or(AgentDetection::Nothing, AgentDetection::Settings)
}

pub(crate) fn is_installed(agent: AgentKind, environment: &Environment) -> bool {
    found(agent, environment) != AgentDetection::Nothing
}
