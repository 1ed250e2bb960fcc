//! Arguments of `ringfence serve`.

use std::path::PathBuf;

use clap::Args;
use ringfence_types::units::{HumanDuration, UnitError};

use super::DangerArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
The daemon listens on a Unix socket of this user. The owner of the socket has all rights; other clients need a token
(`ringfence token`). SIGTERM stops the daemon: it starts nothing new and ends running calls after --drain-timeout.

A session created with a token never gets more than the defaults of the policy; the owner of the socket chooses as with
`ringfence run`. The danger flags can be set here only, not by a file, a session or a token.

Examples:
  ringfence serve
  ringfence serve --check                     check the configuration and exit
  ringfence session create --workspace ~/src -- claude")]
pub(crate) struct ServeArgs {
    /// Socket path [default: $XDG_RUNTIME_DIR/ringfence/daemon.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Policy file of the operator [default: $XDG_CONFIG_HOME/ringfence/config.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long)]
    pub(crate) check: bool,
    /// Limit of sessions at once
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_sessions: usize,
    /// Limit of calls at once, in all sessions
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_calls: usize,
    /// Time that running calls have when the daemon stops; 0s ends them at once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_or_none)]
    pub(crate) drain_timeout: HumanDuration,
    #[command(flatten)]
    pub(crate) danger: DangerArgs,
}

/// Only here a duration of zero is allowed.
fn time_or_none(text: &str) -> Result<HumanDuration, UnitError> {
    match text {
        "0" | "0ms" | "0s" => Ok(HumanDuration(0)),
        text => text.parse(),
    }
}
