//! What was typed after `ringfence session`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use ringfence_api::{CallSignal, SessionLimits};
use ringfence_types::units::{self, Duration, Size};
use ringfence_types::{NetMode, Profile};

use super::{Place, Variable};

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  ringfence session create --workspace ~/src -- claude
  id=$(ringfence session create --memory 1g --pids 64)
  echo text | ringfence session run $id -- wc -c
  call=$(ringfence session run --background $id -- make test)
  ringfence session logs $id $call            its output, until it ends
  ringfence session signal $id $call INT
  ringfence session stop $id")]
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
    Run(Box<SessionRun>),
    /// What was run in a session: numbers, states and exit codes
    Calls {
        #[command(flatten)]
        daemon: AtDaemon,
        /// The id of the session
        id: String,
    },
    /// The output of a call in the background, until it ends
    Logs {
        #[command(flatten)]
        call: OneCall,
        /// Only what comes after this piece; `--json` shows the numbers
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: u64,
    },
    /// Send a signal to a call
    Signal {
        #[command(flatten)]
        call: OneCall,
        /// INT, TERM, KILL, HUP, USR1 or USR2
        signal: SignalName,
    },
    /// Give standard input to a call that was started with `run --background --interactive`, and end its input
    Input {
        #[command(flatten)]
        call: OneCall,
        /// More may come later
        #[arg(long)]
        keep_open: bool,
    },
    /// End a call, also one that waits for a person
    Cancel {
        #[command(flatten)]
        call: OneCall,
    },
    /// What happens in a session, as it happens, until it ends
    Activity {
        #[command(flatten)]
        daemon: AtDaemon,
        /// The id of the session
        id: String,
        /// Begin after this event; without it, from now on
        #[arg(long, value_name = "N")]
        after: Option<u64>,
    },
    /// Say what is done in a session; people see it, marked as an allegation
    Report {
        #[command(flatten)]
        daemon: AtDaemon,
        /// The id of the session
        id: String,
        /// What it is: `thinking`, `tool`, `message` or another word
        #[arg(long, value_name = "WORD", default_value = "message")]
        kind: String,
        /// The text
        text: String,
    },
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
    /// One JSON object, or one on each line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A call of a session.
#[derive(Clone, Debug, Args)]
pub(crate) struct OneCall {
    #[command(flatten)]
    pub(crate) daemon: AtDaemon,
    /// The id of the session
    pub(crate) id: String,
    /// The number of the call; `session calls` has it
    pub(crate) call: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without `-- PROGRAM` the session only takes calls (`ringfence session run`). Limits hold for everything in it together;
what is not said is as the policy says.")]
pub(crate) struct CreateSession {
    #[command(flatten)]
    pub(crate) daemon: AtDaemon,
    /// What may happen at most: review, guarded, workspace, strict, air-gapped, or danger where the daemon permits it
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
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
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

/// Under the names that they have for `ringfence run`.
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// Memory limit, at least 8m: 512m, 2g
    #[arg(long, value_name = "SIZE", value_parser = Size::memory)]
    memory: Option<Size>,
    /// Most processes and threads at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::PROCESSES))]
    pids: Option<u64>,
    /// Processor time limit, of each process
    #[arg(long, value_name = "TIME")]
    cpu_time: Option<Duration>,
    /// Most open files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::OPEN_FILES))]
    open_files: Option<u64>,
    /// Largest file that may be written: 100m
    #[arg(long, value_name = "SIZE")]
    file_size: Option<Size>,
}

impl From<&LimitArgs> for SessionLimits {
    fn from(typed: &LimitArgs) -> Self {
        Self {
            memory_bytes: typed.memory.map(|size| size.0),
            processes: typed.pids,
            cpu_seconds: typed.cpu_time.map(Duration::whole_seconds),
            open_files: typed.open_files,
            file_size_bytes: typed.file_size.map(|size| size.0),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Standard input is read to its end and given to the command, at most 700 KiB; a terminal is not read. The exit code is that
of the command, as with `ringfence run`. When this is ended, so is the command, unless it runs in the background.")]
pub(crate) struct SessionRun {
    #[command(flatten)]
    pub(crate) daemon: AtDaemon,
    /// Directory to run in, relative to the workspace
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Variable for the command (names that steer loaders, shells, git … are refused)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(Variable::try_from))]
    pub(crate) env: Vec<Variable>,
    /// Wall-clock limit: 30s, 5m, 1h, 500ms
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// What it is for: shown to whoever is asked, as an allegation
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Do not wait: print the number of the call, for `session logs`, `signal`, `input` and `cancel`
    #[arg(long)]
    pub(crate) background: bool,
    /// Its input stays open for `session input`
    #[arg(long, requires = "background")]
    pub(crate) interactive: bool,
    /// The id of the session
    pub(crate) id: String,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// A signal as people write it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalName(pub(crate) CallSignal);

#[derive(Debug, thiserror::Error)]
#[error("a call is sent INT, TERM, KILL, HUP, USR1 or USR2")]
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
