//! What the user typed. Parsing reads no environment and touches no file.

mod agent;
mod approvals;
mod config;
mod danger;
mod identity;
mod image;
mod ledger;
mod scan;
mod secret;
mod serve;
mod session;
mod tx;
mod variable;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use ringfence_types::units::{self, Cpus, Duration, Size};
use ringfence_types::{Access, Backend, Bytes, Control, NetMode, Profile};

use crate::logging::Logs;
use crate::output;
use crate::redactor::Redactor;

pub(crate) use agent::{Agent, Change, ExecServer, Init, Mcp, Status};
pub(crate) use approvals::{ApprovalsCommand, Approve, Revoke};
pub(crate) use config::ConfigCommand;
pub(crate) use danger::DangerArgs;
pub(crate) use identity::{DeviceCommand, OperatorCommand, RightsArgs, TokenCommand, TokenCreate};
pub(crate) use image::{EngineArgs, ImageCommand, InContainer, SignatureArgs};
pub(crate) use ledger::{ExportFormat, LedgerCommand, Moment, Span, Verify, Wanted};
pub(crate) use scan::Scan;
pub(crate) use secret::{Kind, ScopeArgs, SecretCommand};
pub(crate) use serve::Serve;
pub(crate) use session::{AtDaemon, CreateSession, OneCall, SessionCommand, SessionRun};
pub(crate) use tx::{Propose, TxCommand};
pub(crate) use variable::Variable;

/// Exit code when Ringfence itself failed, usage included (docs/errors.md).
pub(crate) const FAILED: u8 = 125;

#[derive(Debug, Parser)]
#[command(
    name = "ringfence",
    version,
    about = "Runs what an agent wants to do inside a kernel-enforced fence, and records everything.",
    after_help = "Start with:\n  ringfence run -- git status     run a command inside the fence\n  ringfence check -- rm -rf /     what policy says about an action, without doing it\n  ringfence doctor                what this machine enforces\n  ringfence ledger tail           what happened so far",
    max_term_width = 100
)]
struct Cli {
    /// Log to standard error: error, warn, info, debug or trace; `LEVEL:json` as JSON lines
    #[arg(long, global = true, value_name = "LEVEL", display_order = 990)]
    log: Option<Logs>,
    /// The same, shorter: -v info, -vv debug, -vvv trace
    #[arg(short, global = true, action = clap::ArgAction::Count, conflicts_with = "log", display_order = 991)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command inside the fence
    Run(Box<Run>),
    /// Would this be allowed, asked or denied? Judges without doing anything
    Check(Box<Check>),
    /// Show, explain, test and approve policy
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Read, write, list or link files of the workspace as an agent's file tool would
    #[command(subcommand)]
    File(FileCommand),
    /// Get a page as an agent's fetch tool would: by the rules about hosts, without cookies, redirects judged one by one
    Fetch(Box<Fetch>),
    /// Find credentials in files, directories, standard input and git changes
    Scan(Box<Scan>),
    /// Answer questions of agents, from any terminal; list and take back stored answers
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Serve sessions of agents to operators and programs, at a socket
    Serve(Serve),
    /// Sessions of the daemon, and those that go on from one command to the next
    #[command(subcommand)]
    Session(SessionCommand),
    /// Propose changes without making them; look at, apply or discard what was proposed
    #[command(subcommand)]
    Tx(TxCommand),
    /// Show what this machine enforces, by trying each control
    Doctor(Doctor),
    /// Read and verify the record of everything that happened
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Keep secrets for tools and providers, encrypted, and say who may have them
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Check and show the operator's file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Tokens for programs and people who talk to the daemon
    #[command(subcommand)]
    Token(TokenCommand),
    /// Clients with a key of their own: let them in, list them, revoke them
    #[command(subcommand)]
    Device(DeviceCommand),
    /// People who sign in with a name and a password
    #[command(subcommand)]
    Operator(OperatorCommand),
    /// Judge what an agent is about to do; its own hooks call this (`ringfence init` sets them up)
    Hook {
        /// The agent that calls
        agent: Agent,
    },
    /// Plug Ringfence into the agents of this user: shows the change to their settings, asks, keeps a copy
    Init(Init),
    /// Take Ringfence out of the settings of agents again
    Uninstall(Change),
    /// What is protected, what was decided today, where the ledger stands
    Status(Status),
    /// Serve tools to an MCP client on standard input and output: commands and files inside the fence
    Mcp(Mcp),
    /// Run all commands and file work of Codex inside the fence; Codex starts this itself (docs/agents/codex.md)
    ExecServer(ExecServer),
    /// The images that commands may run in, each pinned by its digest
    #[command(subcommand)]
    Image(ImageCommand),
    /// Print a shell completion script
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
}

impl Command {
    /// What is logged where nobody has said.
    pub(crate) fn logs(&self) -> Option<Logs> {
        match self {
            Self::Serve(serve) if !serve.check => Some(Logs::UNATTENDED),
            _ => None,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Inside, a command sees a read-only system, the workspace, a private /tmp and a home of its own; no network, no host
processes, no keys. Hidden files (.env, keys) are masked; .git/hooks, agent and editor settings are read-only.

Exit code: the command's own; 124 timed out, 125 Ringfence failed, 126 refused, 127 not found, 128+n died by signal n.

Examples:
  ringfence run -- git status
  ringfence run --timeout 2m --memory 1g -- make test
  ringfence run --net full -- npm install
  ringfence run --backend container --image dev -- make test
  ringfence run --profile review -- cat README.md     (refused: `review` runs nothing)
  ringfence run --json -- sh -c 'exit 3'")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) network: Network,
    /// How the sandbox is made; without it the strongest that this machine has
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<Backend>,
    #[command(flatten)]
    pub(crate) container: InContainer,
    /// Wall-clock limit: 30s, 5m, 1h, 500ms
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// Memory limit, at least 8m: 512m, 2g
    #[arg(long, value_name = "SIZE", value_parser = Size::memory)]
    pub(crate) memory: Option<Size>,
    /// Most processes and threads at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::PROCESSES))]
    pub(crate) pids: Option<u64>,
    /// Processor limit in cores: 2, 0.5
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<Cpus>,
    /// Processor time limit, of each process
    #[arg(long, value_name = "TIME")]
    pub(crate) cpu_time: Option<Duration>,
    /// Most open files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::OPEN_FILES))]
    pub(crate) open_files: Option<u64>,
    /// Largest file that may be written: 100m
    #[arg(long, value_name = "SIZE")]
    pub(crate) file_size: Option<Size>,
    /// Size of the private /tmp: 1g
    #[arg(long, value_name = "SIZE")]
    pub(crate) tmp_size: Option<Size>,
    /// All that the writable roots and the home may hold together: 10g. Measured while the command runs
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Size>,
    /// Most output per stream; what goes beyond is dropped and marked (with --json 64m, otherwise all is passed on)
    #[arg(long, value_name = "SIZE")]
    pub(crate) output: Option<Size>,
    /// Most flows at once, with --net filtered
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::FLOWS))]
    pub(crate) flows: Option<u64>,
    /// Most new flows in a second, with --net filtered
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::FLOWS))]
    pub(crate) flow_rate: Option<u64>,
    /// Most bytes that leave through --net filtered: 10m
    #[arg(long, value_name = "SIZE")]
    pub(crate) net_up: Option<Size>,
    /// Most bytes that come in through --net filtered: 1g
    #[arg(long, value_name = "SIZE")]
    pub(crate) net_down: Option<Size>,
    /// Variable for the command (names that steer loaders, shells, git … are refused)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(Variable::try_from))]
    pub(crate) env: Vec<Variable>,
    /// Secret of `ringfence secret` that the command gets; a variable says where it is. Its value is taken out of what the
    /// command prints, unless `[leaks]` of the policy says otherwise
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<String>,
    /// What the workspace itself gives: none, read or write. With none nothing of it is there
    #[arg(long, value_name = "ACCESS")]
    pub(crate) access: Option<Access>,
    /// Directory that is readable besides the workspace
    #[arg(long = "read", value_name = "DIR")]
    pub(crate) read: Vec<PathBuf>,
    /// Directory that is writable besides the workspace
    #[arg(long = "write", value_name = "DIR")]
    pub(crate) write: Vec<PathBuf>,
    /// UNSAFE: require only these controls instead of all (fs-read,fs-write,net,pid,ipc,syscalls,limits,env)
    #[arg(long, value_name = "CONTROLS", value_delimiter = ',')]
    pub(crate) danger_floor: Option<Vec<Control>>,
    #[command(flatten)]
    pub(crate) danger: DangerArgs,
    /// Go on with the session of this name in this workspace: its answers, denials and loop counts hold
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Directory that the agent itself works in, where it is not the current one: its settings cannot come to be there
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) agent_in: Vec<PathBuf>,
    /// What the agent says about it: shown to whoever is asked, as an allegation
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// One JSON object on stdout instead of the command's output
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) argv: Vec<OsString>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// What may happen: review, guarded, workspace (the default), strict, air-gapped or danger
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<Profile>,
    /// The directory to work in; without it a configured directory or the git repository around the current one, or that directory
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Policy file of the operator instead of `$XDG_CONFIG_HOME/ringfence/config.toml`
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The agent that asks: its section of the policy narrows what it may do
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code: 0 allow, 10 ask, 11 deny; 125 Ringfence failed. Nothing is executed and nothing is written.

Examples:
  ringfence check --profile guarded -- git status
  ringfence check --profile guarded --shell 'cd src && cat main.rs | head'
  ringfence check --read .env
  ringfence check --write .github/workflows/ci.yml --profile guarded
  ringfence check --allow-host api.example.com --url https://api.example.com/v1 --method POST
  ringfence check --tool write_file --profile review")]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) network: Network,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// Method of the request that `--url` is about
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Network {
    /// Network inside: none (the default), filtered (hosts that are allowed, and no others) or full (the host's; in a container the engine's)
    #[arg(long, value_name = "MODE")]
    pub(crate) net: Option<NetMode>,
    /// Host that may be reached: NAME, *.NAME for all below it, or an address; with a port only that one. Implies --net filtered
    #[arg(long = "allow-host", value_name = "HOST[:PORT]")]
    pub(crate) allow_hosts: Vec<String>,
}

/// What is judged: exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct SubjectArgs {
    /// Text for a shell
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) shell: Option<OsString>,
    /// Reading this file, as the file tools would
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Option<PathBuf>,
    /// Writing this file, as the file tools would
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Option<PathBuf>,
    /// Reaching this address
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<OsString>,
    /// Using this tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<OsString>,
    /// A command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) argv: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// The policy in force, with the origin of each value
    Show {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        network: Network,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Why an action is allowed, asked or denied: each part, its rule, its layer, what would change it
    Explain(Box<Check>),
    /// Check policy against cases: files with `[[case]]` entries (docs/policy.md)
    Test {
        #[command(flatten)]
        place: Place,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
        /// Files of cases
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Approve what the policy file of a workspace asks for, as it is now
    Approve {
        #[command(flatten)]
        place: Place,
        /// Only if the file has this SHA-256; what it asks for is shown and asked about all the same
        #[arg(long, value_name = "HEX")]
        sha256: Option<String>,
    },
    /// Print the JSON Schema of policy files
    Schema,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FileCommand {
    /// Print a file
    Read {
        #[command(flatten)]
        place: Place,
        path: PathBuf,
    },
    /// Replace or create a file with what comes on standard input
    Write {
        #[command(flatten)]
        place: Place,
        path: PathBuf,
    },
    /// List a directory
    List {
        #[command(flatten)]
        place: Place,
        #[arg(default_value = ".")]
        path: PathBuf,
    },
    /// Make a symbolic link; its target must stay inside the workspace
    Symlink {
        #[command(flatten)]
        place: Place,
        target: PathBuf,
        path: PathBuf,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
At most 10 MB, 5 redirects and 60 seconds. Exit code: 0 for a page, 1 where the server says that there is none (4xx, 5xx),
125 Ringfence or the connection failed, 126 refused.

Examples:
  ringfence fetch --allow-host example.com https://example.com/
  ringfence fetch --json --method HEAD --allow-host example.com https://example.com/file")]
pub(crate) struct Fetch {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) network: Network,
    /// Method of the request
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// http:// or https://
    pub(crate) url: String,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Run the escape battery: every known way out, tried on this machine, with and without the fence
    #[arg(long)]
    pub(crate) attack: bool,
    /// Only this backend
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<Backend>,
    #[command(flatten)]
    pub(crate) container: InContainer,
    /// Only attempts whose id begins with this
    #[arg(long, value_name = "PREFIX", requires = "attack")]
    pub(crate) only: Option<String>,
}

pub(crate) fn parse(arguments: &[OsString]) -> Result<(Option<Logs>, Command), clap::Error> {
    let cli = Cli::try_parse_from(arguments)?;
    Ok((cli.log.or_else(|| Logs::counted(cli.verbose)), cli.command))
}

pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ringfence", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Help and version are answers; everything else is a usage error, which is our failure and not the command's.
pub(crate) fn explain(error: &clap::Error) -> ExitCode {
    let plain = error.render().to_string();
    let safe = safe(&Redactor::own().clean(&plain));
    if safe == plain || !error.use_stderr() {
        // A closed terminal has nobody to tell.
        let _closed = error.print();
    } else {
        output::written(&safe);
    }
    if error.use_stderr() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

/// A usage error repeats what was typed: each line without what a terminal acts upon.
fn safe(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => format!("{}\n", Bytes::from(line).display()),
            None => Bytes::from(line).display(),
        })
        .collect()
}
