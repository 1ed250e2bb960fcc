//! Arguments of `ringfence session`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use ringfence_api::{CallSignal, SessionLimits};
use ringfence_types::units::{self, ByteSize, HumanDuration};
use ringfence_types::{NetMode, Profile};

use super::{EnvArg, PolicyArgs};

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  ringfence session create --workspace ~/src -- claude
  id=$(ringfence session create --memory 1g --pids 64)
  echo text | ringfence session run $id -- wc -c
  call=$(ringfence session run --background $id -- make test)
  ringfence session logs $id $call            its output until it ends
  ringfence session signal $id $call INT
  ringfence session stop $id")]
pub(crate) enum SessionCommand {
    /// Start a daemon session, with or without an agent program
    Create(Box<SessionCreateArgs>),
    /// List daemon sessions
    List {
        #[command(flatten)]
        daemon: DaemonArgs,
        /// Also sessions that have ended
        #[arg(long)]
        all: bool,
    },
    /// Show a daemon session
    Show {
        #[command(flatten)]
        daemon: DaemonArgs,
        /// The id of the session
        id: String,
    },
    /// End a daemon session and everything that runs in it
    Stop {
        #[command(flatten)]
        daemon: DaemonArgs,
        /// The id of the session
        id: String,
    },
    /// Run a command in a daemon session
    Run(Box<SessionRunArgs>),
    /// List the calls of a session with number, state and exit code
    Calls {
        #[command(flatten)]
        daemon: DaemonArgs,
        /// The id of the session
        id: String,
    },
    /// Print the output of a background call until it ends
    Logs {
        #[command(flatten)]
        call: CallArgs,
        /// Start after this chunk; `--json` prints the numbers
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: u64,
    },
    /// Send a signal to a call
    Signal {
        #[command(flatten)]
        call: CallArgs,
        /// INT, TERM, KILL, HUP, USR1 or USR2
        signal: SignalName,
    },
    /// Send standard input to a call started with `run --background --interactive`, and close it
    Input {
        #[command(flatten)]
        call: CallArgs,
        /// Do not close the input of the call
        #[arg(long)]
        keep_open: bool,
    },
    /// End a call, also one that waits for an approval
    Cancel {
        #[command(flatten)]
        call: CallArgs,
    },
    /// Print the events of a session until it ends
    Activity {
        #[command(flatten)]
        daemon: DaemonArgs,
        /// The id of the session
        id: String,
        /// Start after this event [default: only new events]
        #[arg(long, value_name = "N")]
        after: Option<u64>,
    },
    /// Report activity of an agent; people see it, marked as untrusted
    ReportActivity {
        #[command(flatten)]
        daemon: DaemonArgs,
        /// The id of the session
        id: String,
        /// The activity: `thinking`, `tool`, `message` or another word
        #[arg(long, value_name = "WORD", default_value = "message")]
        activity: String,
        /// The text
        #[arg(value_name = "TEXT")]
        claim: String,
    },
    /// End a local session, started with `run --session NAME`
    End {
        #[command(flatten)]
        place: PolicyArgs,
        /// The name of the session
        name: String,
    },
}

/// The daemon and the output format.
#[derive(Clone, Debug, Args)]
pub(crate) struct DaemonArgs {
    /// Socket of the daemon [default: the daemon of this user]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print one JSON object, or one per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A call of a session.
#[derive(Clone, Debug, Args)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
    /// The id of the session
    pub(crate) id: String,
    /// The number of the call (see `session calls`)
    pub(crate) call: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without `-- PROGRAM` the session only accepts calls (`ringfence session run`). Limits apply to the whole session.
Limits that are not given come from the policy.")]
pub(crate) struct SessionCreateArgs {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
    /// Profile: review, guarded, workspace, strict, air-gapped, or danger if the daemon allows it
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<Profile>,
    /// Workspace directory [default: the enclosing git repository, else the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Name of the agent; its section of the policy applies
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Network: none, filtered or full
    #[arg(long, value_name = "MODE")]
    pub(crate) net: Option<NetMode>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Variable for every command of the session
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(EnvArg::try_from))]
    pub(crate) env: Vec<EnvArg>,
    /// Release this secret to the session
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<String>,
    /// Stop the session after this time
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<HumanDuration>,
    /// Stop the session after this idle time
    #[arg(long, value_name = "TIME")]
    pub(crate) idle_timeout: Option<HumanDuration>,
    /// The parent session
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// Label for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// The agent program; the session ends with it
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) agent_argv: Vec<String>,
}

/// Limits, with the names of `ringfence run`.
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// Memory limit, at least 8m: 512m, 2g
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::memory)]
    memory: Option<ByteSize>,
    /// Limit of processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::PROCESSES))]
    pids: Option<u64>,
    /// CPU time limit of each process
    #[arg(long, value_name = "TIME")]
    cpu_time: Option<HumanDuration>,
    /// Limit of open files of each process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::OPEN_FILES))]
    max_open_files: Option<u64>,
    /// Limit of the size of a written file: 100m
    #[arg(long, value_name = "SIZE")]
    file_size: Option<ByteSize>,
}

impl From<&LimitArgs> for SessionLimits {
    fn from(typed: &LimitArgs) -> Self {
        Self {
            memory_bytes: typed.memory.map(|size| size.0),
            processes: typed.pids,
            cpu_seconds: typed.cpu_time.map(HumanDuration::whole_seconds),
            open_files: typed.max_open_files,
            file_size_bytes: typed.file_size.map(|size| size.0),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Standard input is sent to the command, at most 700 KiB; a terminal is not read. The exit code is that of the command, as
with `ringfence run`. The command ends with this process, unless it runs in the background.")]
pub(crate) struct SessionRunArgs {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
    /// Working directory, relative to the workspace
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Variable for the command; names that steer loaders, shells or git are refused
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(EnvArg::try_from))]
    pub(crate) env: Vec<EnvArg>,
    /// Wall-clock limit: 30s, 5m, 1h, 500ms
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<HumanDuration>,
    /// The agent's stated reason; shown to the approver as untrusted
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Do not wait; print the number of the call, for `session logs`, `signal`, `input` and `cancel`
    #[arg(long)]
    pub(crate) background: bool,
    /// Keep standard input open for `session input`
    #[arg(long, requires = "background")]
    pub(crate) interactive: bool,
    /// The id of the session
    pub(crate) id: String,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// The name of a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalName(pub(crate) CallSignal);

#[derive(Debug, thiserror::Error)]
#[error("unknown signal; known: INT, TERM, KILL, HUP, USR1, USR2")]
pub(crate) struct SignalNameError;

impl FromStr for SignalName {
    type Err = SignalNameError;

    fn from_str(text: &str) -> Result<Self, SignalNameError> {
        let upper = text.to_ascii_uppercase();
        Ok(Self(match upper.strip_prefix("SIG").unwrap_or(&upper) {
            "INT" => CallSignal::Int,
            "TERM" => CallSignal::Term,
            "KILL" => CallSignal::Kill,
            "HUP" => CallSignal::Hup,
            "USR1" => CallSignal::Usr1,
            "USR2" => CallSignal::Usr2,
            _ => return Err(SignalNameError),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_their_usual_names() {
        for name in ["TERM", "SIGTERM", "term"] {
            assert_eq!(name.parse::<SignalName>().unwrap().0, CallSignal::Term);
        }
        assert!("STOP".parse::<SignalName>().is_err());
    }
}
