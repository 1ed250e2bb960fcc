use clap::{Args, ValueEnum};

use super::{Network, Place};

/// An agent that Ringfence knows how to talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    ClaudeCode,
    Codex,
    Gemini,
    Cursor,
    Goose,
    Opencode,
}

impl std::fmt::Display for Agent {
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
pub(crate) struct Init {
    #[command(flatten)]
    pub(crate) change: Change,
    /// For codex: besides the hook, leave everything it does to `ringfence exec-server`
    #[arg(long, requires = "agent")]
    pub(crate) exec_server: bool,
}

/// Settings of agents that are changed.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Only this agent; without it every agent that is found
    pub(crate) agent: Option<Agent>,
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
pub(crate) struct Mcp {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) network: Network,
    /// Let the client put questions to its user, where it can. Whoever controls the client can then answer them
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
pub(crate) struct ExecServer {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) network: Network,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
