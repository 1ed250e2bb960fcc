use clap::{Args, ValueEnum};

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
    /// Only this agent; without it every agent that is found
    pub(crate) agent: Option<Agent>,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Change it without a question
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
}
