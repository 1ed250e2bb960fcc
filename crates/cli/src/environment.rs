//! The only reader of the process environment.
#![expect(clippy::disallowed_methods, reason = "this is the one place where the environment is read")]

use std::ffi::OsString;
use std::path::PathBuf;

use ringfence_types::Bytes;

/// All that is taken from the environment, as plain values.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) home: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) config_dir: Option<PathBuf>,
    /// For sockets: of this user alone, gone with the last login.
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Where Claude Code was started, which is where it takes its settings from.
    pub(crate) agent_project: Option<PathBuf>,
    /// Where Claude Code keeps the settings of its user, if not in the home.
    pub(crate) agent_config: Option<PathBuf>,
    pub(crate) all: Vec<(Bytes, Bytes)>,
}

impl Environment {
    pub(crate) fn read() -> Self {
        // By where it really is: every judgement about the home is made on canonical paths.
        let home = absolute(std::env::var_os("HOME")).map(|home| home.canonicalize().unwrap_or(home));
        let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
        Self {
            state_dir: absolute(std::env::var_os("XDG_STATE_HOME")).or_else(|| below_home(".local/state")),
            config_dir: absolute(std::env::var_os("XDG_CONFIG_HOME")).or_else(|| below_home(".config")),
            runtime_dir: absolute(std::env::var_os("XDG_RUNTIME_DIR")),
            agent_project: absolute(std::env::var_os("CLAUDE_PROJECT_DIR")),
            agent_config: absolute(std::env::var_os("CLAUDE_CONFIG_DIR")),
            all: std::env::vars_os().map(|(name, value)| (Bytes::from(name), Bytes::from(value))).collect(),
            home,
        }
    }
}

/// What is to be logged. Nothing else follows from it.
pub(crate) fn log() -> Option<OsString> {
    std::env::var_os("RINGFENCE_LOG").filter(|value| !value.is_empty())
}

/// How many sockets whoever starts services has handed to this process, and to no other.
pub(crate) fn handed_over() -> u32 {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    match number("LISTEN_PID") {
        Some(pid) if pid == std::process::id() => number("LISTEN_FDS").unwrap_or(0),
        _ => 0,
    }
}

/// The XDG rules ignore relative paths; so do we, for HOME as well.
fn absolute(value: Option<OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}
