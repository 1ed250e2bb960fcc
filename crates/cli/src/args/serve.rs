//! What was typed after `ringfence serve` and `ringfence session`.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use ringfence_types::units::{Duration, UnitError};
use ringfence_types::{NetMode, Profile};

use super::{Place, Variable};

#[derive(Debug, Args)]
#[command(after_help = "\
Listens at a socket of this user alone. Whoever owns the socket may do everything; everybody else shows a token
(`ringfence token`). SIGTERM ends it: nothing new begins, what runs may end by itself for a while, then it is ended.

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
}

/// Elsewhere no time at all makes no sense.
fn time_or_none(text: &str) -> Result<Duration, UnitError> {
    match text {
        "0" | "0ms" | "0s" => Ok(Duration(0)),
        text => text.parse(),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Start a session in the daemon, with a program as its agent or for calls alone
    Create(Box<CreateSession>),
    /// The sessions of the daemon
    List {
        #[command(flatten)]
        daemon: AtDaemon,
        /// Also those that are over
        #[arg(long)]
        all: bool,
    },
    /// One session of the daemon
    Show {
        #[command(flatten)]
        daemon: AtDaemon,
        /// Its id
        id: String,
    },
    /// End a session of the daemon, with everything that runs in it
    Stop {
        #[command(flatten)]
        daemon: AtDaemon,
        /// Its id
        id: String,
    },
    /// Run a command in a session of the daemon
    Run(SessionRun),
    /// End a session that was started with `run --session NAME`
    End {
        #[command(flatten)]
        place: Place,
        /// Its name
        name: String,
    },
}

/// Which daemon, and how its answer is shown.
#[derive(Clone, Debug, Args)]
pub(crate) struct AtDaemon {
    /// The socket of the daemon; without it where the daemon of this user says that it listens
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateSession {
    #[command(flatten)]
    pub(crate) daemon: AtDaemon,
    /// What may happen at most: review, guarded, workspace, strict or air-gapped
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<Profile>,
    /// The directory to work in; without it the git repository around the current directory, or that directory
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The agent that asks: its section of the policy narrows what it may do
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// The network of the session: none, filtered or full
    #[arg(long, value_name = "MODE")]
    pub(crate) net: Option<NetMode>,
    /// A variable for everything that runs in it
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(Variable::try_from))]
    pub(crate) env: Vec<Variable>,
    /// A secret of the operator that it gets
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<String>,
    /// It ends after this time
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// It ends when nothing was asked of it for this time
    #[arg(long, value_name = "TIME")]
    pub(crate) idle_timeout: Option<Duration>,
    /// The session that it is a part of
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// A word for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// The program that is the agent; the session ends with it
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) provider: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SessionRun {
    #[command(flatten)]
    pub(crate) daemon: AtDaemon,
    /// The id of the session
    pub(crate) id: String,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
