//! What was typed after `ringfence serve`.

use std::path::PathBuf;

use clap::Args;
use ringfence_types::units::{Duration, UnitError};

use super::DangerArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Listens at a socket of this user alone. Whoever owns the socket may do everything; everybody else shows a token
(`ringfence token`). SIGTERM ends it: nothing new begins, what runs may end by itself for a while, then it is ended.

What a session asks for with a token is at most what the policy gives by itself; the owner of the socket chooses as
`ringfence run` does. `--danger` and the two beside it are nowhere but here: no file, session or token sets them.

Examples:
  ringfence serve
  ringfence serve --check                     look whether it could start, and serve nothing
  ringfence session create --workspace ~/src -- claude")]
pub(crate) struct Serve {
    /// Where to listen; without it `$XDG_RUNTIME_DIR/ringfence/daemon.sock`
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Policy file of the operator instead of `$XDG_CONFIG_HOME/ringfence/config.toml`
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Look whether it could start, say what is wrong, and serve nothing
    #[arg(long)]
    pub(crate) check: bool,
    /// The most sessions at once
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_sessions: usize,
    /// The most calls at once, of all sessions together
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_calls: usize,
    /// How long calls may take to end by themselves when the daemon is ended; 0s: they are ended at once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_or_none)]
    pub(crate) drain: Duration,
    #[command(flatten)]
    pub(crate) danger: DangerArgs,
}

/// Elsewhere no time at all makes no sense.
fn time_or_none(text: &str) -> Result<Duration, UnitError> {
    match text {
        "0" | "0ms" | "0s" => Ok(Duration(0)),
        text => text.parse(),
    }
}
