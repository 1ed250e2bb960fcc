use clap::{Args, ValueEnum};

use super::{NetworkArgs, PolicyArgs};

/// An agent that Ringfence knows how to talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentKind {
    ClaudeCode,
    Codex,
    Gemini,
    Cursor,
    Goose,
    Opencode,
}

impl std::fmt::Display for AgentKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Cursor => "cursor",
            Self::Goose => "goose",
            Self::Opencode => "opencode",
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub(crate) change: SettingsChangeArgs,
    /// For codex: also run all commands and file operations of Codex through `ringfence exec-server`
    #[arg(long, requires = "agent")]
    pub(crate) exec_server: bool,
}

/// Settings of agents that are changed.
#[derive(Debug, Args)]
pub(crate) struct SettingsChangeArgs {
    /// Only this agent [default: every agent that is found]
    pub(crate) agent: Option<AgentKind>,
    /// Show the change without making it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Make the change without asking
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
One connection is one session: its sandbox and its session grants last until the connection ends. A call that needs an
approval waits in the queue of `ringfence approvals`. No parameter of a tool turns a control off.

Examples:
  claude mcp add ringfence -- ringfence mcp
  codex mcp add ringfence -- ringfence mcp --agent codex")]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Let the client ask its user for approvals. A program that controls the client can then answer them
    #[arg(long)]
    pub(crate) elicit: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Serves the exec-server protocol of Codex on standard input and output. Put this into `environments.toml` next to the
`config.toml` of Codex:

  default = \"ringfence\"
  include_local = false

  [[environments]]
  id = \"ringfence\"
  program = \"ringfence\"
  args = [\"exec-server\"]

The sandbox mode of Codex can only narrow the policy. A call that needs an approval waits in the queue of
`ringfence approvals`.")]
pub(crate) struct ExecServerArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
