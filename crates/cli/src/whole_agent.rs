//! Whole-agent mode: `ringfence run --agent NAME -- PROGRAM …`, where the program is the agent itself. It
//! runs inside the fence, and its key stays outside.
//!
//! The requirements of each agent are data. Its settings are in the synthetic home, so it reads nothing of
//! the real one. Its program is shown read-only. Its provider is the only reachable host, with a placeholder
//! for the key.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ringfence_runtime::proxy::provider_url;
use ringfence_runtime::secrets::{SecretInfo, SecretStore, SecretStoreError};
use ringfence_types::{ByteString, NetMode, SecretClass};

use crate::args::{AgentKind, EnvArg, RunArgs};
use crate::environment::Environment;
use crate::host;
use crate::init::programs;

/// What an agent needs inside the fence.
struct AgentRequirements {
    agent: AgentKind,
    /// The variable with its key.
    key: &'static str,
    /// The provider's host, for messages.
    provider: &'static str,
    /// Variables; `{url}` is the provider's base URL inside.
    env: &'static [(&'static str, &'static str)],
    /// Put before the given arguments.
    arguments: &'static [&'static str],
}

const NEEDS: &[AgentRequirements] = &[
    AgentRequirements {
        agent: AgentKind::ClaudeCode,
        key: "ANTHROPIC_API_KEY",
        provider: "api.anthropic.com",
        env: &[
            ("ANTHROPIC_BASE_URL", "{url}"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
        ],
        arguments: &[],
    },
    AgentRequirements {
        agent: AgentKind::Codex,
        key: "CODEX_API_KEY",
        provider: "api.openai.com",
        env: &[],
        arguments: &["-c", "openai_base_url=\"{url}/v1\""],
    },
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum WholeAgentError {
    #[error("neither HOME nor XDG_STATE_HOME says where secrets are kept")]
    NoStateDir(#[from] host::NoStateDir),
    #[error("the secrets of the operator cannot be read")]
    Secrets(#[from] SecretStoreError),
    #[error("there is no key for {agent}: no secret of the class `provider` has the variable {key}")]
    NoKey { agent: AgentKind, key: &'static str, provider: &'static str },
    #[error("`{0}` is not found")]
    NoProgram(String),
}

impl WholeAgentError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::NoKey { agent, key, provider } => Some(format!(
                "`ringfence secret set {agent} --class provider --host {provider} --env-name {key}` keeps it; the agent gets a placeholder"
            )),
            Self::Secrets(error) => error.hint(),
            Self::NoStateDir(_) | Self::NoProgram(_) => None,
        }
    }
}

/// Adds what the agent needs. Returns other commands unchanged.
pub(crate) fn prepared(mut run: RunArgs, environment: &Environment) -> Result<RunArgs, WholeAgentError> {
    let Some(needs) = needs(&run) else { return Ok(run) };
    let state_dir = host::state_dir(environment)?;
    let secrets = SecretStore::new(&state_dir).read()?;
    let is_key = |meta: &&SecretInfo| meta.variable == needs.key && meta.class == SecretClass::Provider;
    let AgentRequirements { agent, key, provider, .. } = *needs;
    let meta = secrets.list().find(is_key).ok_or(WholeAgentError::NoKey { agent, key, provider })?;
    let url = provider_url(meta.name.as_str());
    let filled = |text: &str| text.replace("{url}", &url);
    let program = program(&run.argv)?;
    run.place.agent = Some(agent.to_string());
    if !run.secrets.iter().any(|name| name == meta.name.as_str()) {
        run.secrets.push(meta.name.to_string());
    }
    run.network.net.get_or_insert(NetMode::Filtered);
    run.network.allow_hosts.extend(meta.hosts.iter().cloned());
    run.env.extend(
        needs
            .env
            .iter()
            .map(|(name, value)| EnvArg(ByteString::from(*name), ByteString::from(filled(value).as_str()))),
    );
    run.read.extend(shown(&program));
    let given = run.argv.drain(..).skip(1).collect::<Vec<OsString>>();
    run.argv.push(program.into_os_string());
    run.argv.extend(needs.arguments.iter().map(|word| OsString::from(filled(word))));
    run.argv.extend(given);
    Ok(run)
}

/// `--agent` also labels an agent's commands; only the agent's own program runs in whole-agent mode.
fn needs(run: &RunArgs) -> Option<&'static AgentRequirements> {
    let named = run.place.agent.as_deref()?;
    let program = Path::new(run.argv.first()?).file_name()?;
    let is_meant = |needs: &&AgentRequirements| {
        let programs = programs(needs.agent);
        let is_name = needs.agent.to_string() == named || programs.contains(&named);
        is_name && programs.iter().any(|name| OsStr::new(name) == program)
    };
    NEEDS.iter().find(is_meant)
}

/// The real path: names below a home may be links.
fn program(argv: &[OsString]) -> Result<PathBuf, WholeAgentError> {
    let name = argv.first().map(PathBuf::from).unwrap_or_default();
    let found = if name.components().count() == 1 { host::on_path(&name) } else { Some(name.clone()) };
    let real = found.and_then(|path| path.canonicalize().ok());
    real.ok_or_else(|| WholeAgentError::NoProgram(ByteString::from(name.as_path()).display()))
}

/// The directory of a program outside the system directories, which every command sees.
fn shown(program: &Path) -> Option<PathBuf> {
    const SYSTEM: [&str; 4] = ["/usr", "/bin", "/sbin", "/lib"];
    let directory = program.parent()?;
    (!SYSTEM.iter().any(|place| directory.starts_with(place))).then(|| directory.to_owned())
}
