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
    /// For codex: besides the hook, leave everything it does to `ringfence exec-server`
    #[arg(long, requires = "agent")]
    pub(crate) exec_server: bool,
}

/// Settings of agents that are changed.
#[derive(Debug, Args)]
pub(crate) struct SettingsChangeArgs {
    /// Only this agent; without it every agent that is found
    pub(crate) agent: Option<AgentKind>,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Change it without a question
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Everything of one connection happens in one session: its sandbox stays, its answers hold. What needs a person waits in the
queue of `ringfence approvals`. There is no parameter of a tool that switches anything off.

Examples:
  claude mcp add ringfence -- ringfence mcp
  codex mcp add ringfence -- ringfence mcp --agent codex")]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Let the client put questions to its user, where it can. A program that controls the client can then answer them
    #[arg(long)]
    pub(crate) elicit: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Speaks the exec-server protocol of Codex on standard input and output. In `environments.toml` beside the `config.toml` of Codex:

  default = \"ringfence\"
  include_local = false

  [[environments]]
  id = \"ringfence\"
  program = \"ringfence\"
  args = [\"exec-server\"]

What Codex says of its own sandbox narrows what policy gives. What needs a person waits in the queue of `ringfence approvals`.")]
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
