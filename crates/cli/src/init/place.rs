//! Which agents are on this machine, and where they keep the settings of their user.

use std::path::PathBuf;

use crate::args::Agent;
use crate::asked::real;
use crate::environment::Environment;
use crate::host::on_path;

/// What an agent is called on the command line.
pub(crate) fn programs(agent: Agent) -> &'static [&'static str] {
    match agent {
        Agent::ClaudeCode => &["claude"],
        Agent::Codex => &["codex"],
        Agent::Gemini => &["gemini"],
        Agent::Cursor => &["cursor", "cursor-agent"],
        Agent::Goose => &["goose"],
        Agent::Opencode => &["opencode"],
    }
}

/// The directory of the user's settings.
pub(crate) fn directory(agent: Agent, environment: &Environment) -> Option<PathBuf> {
    let moved = |name: &str| {
        let value = environment.all.iter().find(|(variable, _)| variable.as_slice() == name.as_bytes());
        value.map(|(_, path)| path.as_path().to_owned()).filter(|path| path.is_absolute())
    };
    let home = |name: &str| environment.home.as_ref().map(|home| home.join(name));
    match agent {
        Agent::ClaudeCode => moved("CLAUDE_CONFIG_DIR").or_else(|| home(".claude")),
        // By this variable Codex follows links, and knows hooks by where they really are.
        Agent::Codex => moved("CODEX_HOME").map(|path| real(&path)).or_else(|| home(".codex")),
        Agent::Gemini => home(".gemini"),
        Agent::Cursor => home(".cursor"),
        Agent::Goose => home(".agents/plugins/ringfence"),
        Agent::Opencode => environment.config_dir.as_ref().map(|config| config.join("opencode")),
    }
}

/// How it is known that an agent is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Program(PathBuf),
    Settings(PathBuf),
    Nothing,
}

pub(crate) fn found(agent: Agent, environment: &Environment) -> Found {
    let program = programs(agent).iter().find_map(|name| on_path(name.as_ref()));
    if let Some(program) = program {
        return Found::Program(program);
    }
    // The directory of goose is one of ours.
    let settings = match agent {
        Agent::Goose => environment.config_dir.as_ref().map(|config| config.join("goose")),
        _ => directory(agent, environment),
    };
    settings.filter(|path| path.is_dir()).map_or(Found::Nothing, Found::Settings)
}

pub(crate) fn is_installed(agent: Agent, environment: &Environment) -> bool {
    found(agent, environment) != Found::Nothing
}
