//! The only reader of the process environment.
#![expect(clippy::disallowed_methods, reason = "this is the one place where the environment is read")]

use std::ffi::OsString;
use std::path::PathBuf;

use ringfence_types::ByteString;

/// All values taken from the environment.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) home: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) config_dir: Option<PathBuf>,
    /// For sockets: private to this user, removed with the last logout.
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Where Claude Code was started, and takes its settings from.
    pub(crate) agent_project: Option<PathBuf>,
    /// Claude Code's user settings, if not in the home.
    pub(crate) agent_config: Option<PathBuf>,
    pub(crate) all: Vec<(ByteString, ByteString)>,
}

impl Environment {
    pub(crate) fn read() -> Self {
        // Canonical, because policy evaluates the home by canonical paths.
        let home = absolute(std::env::var_os("HOME")).map(|home| home.canonicalize().unwrap_or(home));
        let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
        Self {
            state_dir: absolute(std::env::var_os("XDG_STATE_HOME")).or_else(|| below_home(".local/state")),
            config_dir: absolute(std::env::var_os("XDG_CONFIG_HOME")).or_else(|| below_home(".config")),
            runtime_dir: absolute(std::env::var_os("XDG_RUNTIME_DIR")),
            agent_project: absolute(std::env::var_os("CLAUDE_PROJECT_DIR")),
            agent_config: absolute(std::env::var_os("CLAUDE_CONFIG_DIR")),
            all: std::env::vars_os()
                .map(|(name, value)| (ByteString::from(name), ByteString::from(value)))
                .collect(),
            home,
        }
    }
}

/// The log setting.
pub(crate) fn log() -> Option<OsString> {
    std::env::var_os("RINGFENCE_LOG").filter(|value| !value.is_empty())
}

/// The number of sockets that the service manager passed to this very process.
pub(crate) fn handed_over() -> u32 {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    match number("LISTEN_PID") {
        Some(pid) if pid == std::process::id() => number("LISTEN_FDS").unwrap_or(0),
        _ => 0,
    }
}

/// The XDG rules ignore relative paths. The same holds here, also for HOME.
fn absolute(value: Option<OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}
