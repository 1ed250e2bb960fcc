//! What the user typed. Parsing reads no environment and touches no file.

mod agent;
mod approvals;
mod config;
mod danger;
mod env;
mod identity;
mod image;
mod layer;
mod ledger;
mod proposal;
mod scan;
mod secret;
mod serve;
mod session;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use ringfence_types::units::{self, ByteSize, CpuCount, HumanDuration};
use ringfence_types::{Access, Backend, ByteString, Control, NetMode, Profile};

use crate::logging::LogSettings;
use crate::output;
use crate::redactor::CliRedactor;

pub(crate) use agent::{AgentKind, ExecServerArgs, InitArgs, McpArgs, SettingsChangeArgs, StatusArgs};
pub(crate) use approvals::{ApprovalsCommand, ApproveArgs, GrantsCommand, RevokeArgs};
pub(crate) use config::ConfigCommand;
pub(crate) use danger::DangerArgs;
pub(crate) use env::EnvArg;
pub(crate) use identity::{DeviceCommand, OperatorCommand, RightsArgs, TokenCommand, TokenCreate};
pub(crate) use image::{ContainerArgs, EngineArgs, ImageCommand, SignatureArgs};
pub(crate) use layer::{ChangesArgs, CommitArgs, DiscardArgs, TryArgs, UndoArgs};
pub(crate) use ledger::{AgeArg, ExportFormat, LedgerCommand, RecordFilterArgs, TimeArg, VerifyArgs};
pub(crate) use proposal::{ProposalCommand, ProposalCreateArgs};
pub(crate) use scan::ScanArgs;
pub(crate) use secret::{ScopeArgs, SecretCommand, SecretKindArgs};
pub(crate) use serve::ServeArgs;
pub(crate) use session::{CallArgs, DaemonArgs, SessionCommand, SessionCreateArgs, SessionRunArgs};

/// Exit code when Ringfence itself failed, usage included (docs/errors.md).
pub(crate) const FAILED: u8 = 125;

#[derive(Debug, Parser)]
#[command(
    name = "ringfence",
    version,
    about = "Run the commands of AI agents inside a kernel-enforced sandbox, and record everything",
    after_help = "Start with:\n  ringfence run -- git status     run a command inside the sandbox\n  ringfence check -- rm -rf /     show the policy decision without running anything\n  ringfence doctor                show what this machine enforces\n  ringfence ledger tail           show what happened",
    max_term_width = 100
)]
struct Cli {
    /// Log level on standard error: error, warn, info, debug or trace; `LEVEL:json` for JSON lines
    #[arg(long, global = true, value_name = "LEVEL", display_order = 990)]
    log: Option<LogSettings>,
    /// Short for --log: -v info, -vv debug, -vvv trace
    #[arg(short, global = true, action = clap::ArgAction::Count, conflicts_with = "log", display_order = 991)]
    verbose: u8,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a command inside the sandbox
    Run(Box<RunArgs>),
    /// Run a command on a copy-on-write view of the workspace; its changes wait until you commit them
    Try(Box<TryArgs>),
    /// Show the changes that wait in a layer
    Changes(Box<ChangesArgs>),
    /// Let changes of a layer land in the workspace
    Commit(Box<CommitArgs>),
    /// Drop the changes of a layer
    Discard(Box<DiscardArgs>),
    /// Take back what landed
    Undo(Box<UndoArgs>),
    /// Show whether policy allows, asks about or denies an action, without executing it
    Check(Box<CheckArgs>),
    /// Show, explain, test and approve policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Read, write, list or link workspace files under the rules for file tools
    #[command(subcommand)]
    File(FileCommand),
    /// Fetch a URL under the host rules, without cookies; each redirect is evaluated
    Fetch(Box<FetchArgs>),
    /// Find secrets in files, directories, standard input and git changes
    Scan(Box<ScanArgs>),
    /// List and answer approval requests
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// List and revoke grants, the stored answers
    #[command(subcommand)]
    Grants(GrantsCommand),
    /// Run the daemon: sessions, approvals and the API on a socket
    Serve(ServeArgs),
    /// Manage daemon sessions and named local sessions
    #[command(subcommand)]
    Session(SessionCommand),
    /// Submit changes as proposals; list, show, apply or discard them
    #[command(subcommand)]
    Proposal(ProposalCommand),
    /// Test each control and show what this machine enforces
    Doctor(DoctorArgs),
    /// Read, verify and export the ledger
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Store encrypted secrets and control where they may be used
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Check and show the operator's configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Manage API tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Pair, list and revoke devices, which are clients with their own key
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Manage operators, who sign in with a name and a password
    #[command(subcommand)]
    Operator(OperatorCommand),
    /// Evaluate one tool call of an agent; the hooks of the agent run this (see `ringfence init`)
    Hook {
        /// The agent
        agent: AgentKind,
    },
    /// Add Ringfence to agent settings; shows the change, asks, and keeps a backup
    Init(InitArgs),
    /// Remove Ringfence from agent settings
    Uninstall(SettingsChangeArgs),
    /// Show protected agents, the decisions of today and the state of the ledger
    Status(StatusArgs),
    /// Serve sandboxed tools to an MCP client over standard input and output
    Mcp(McpArgs),
    /// Run all commands and file operations of Codex in the sandbox; Codex starts this (docs/agents/codex.md)
    ExecServer(ExecServerArgs),
    /// Manage the container images that commands may use, pinned by digest
    #[command(subcommand)]
    Image(ImageCommand),
    /// Print a shell completion script
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
}

impl CliCommand {
    /// Default log settings.
    pub(crate) fn logs(&self) -> Option<LogSettings> {
        match self {
            Self::Serve(serve) if !serve.check => Some(LogSettings::UNATTENDED),
            _ => None,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
The command sees a read-only system, the workspace, a private /tmp and its own home. It has no network, no host
processes and no keys. Hidden files (.env, keys) are absent; .git/hooks, agent and editor settings are read-only.

Exit code: the command's own; 124 timed out, 125 Ringfence failed, 126 refused, 127 not found, 128+n died by signal n.

Examples:
  ringfence run -- git status
  ringfence run --timeout 2m --memory 1g -- make test
  ringfence run --net full -- npm install
  ringfence run --backend container --image dev -- make test
  ringfence run --profile review -- cat README.md     (refused: `review` runs nothing)
  ringfence run --json -- sh -c 'exit 3'")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Sandbox backend [default: the strongest that this machine supports]
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<Backend>,
    #[command(flatten)]
    pub(crate) container: ContainerArgs,
    /// Wall-clock limit: 30s, 5m, 1h, 500ms
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<HumanDuration>,
    /// Memory limit, at least 8m: 512m, 2g
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::memory)]
    pub(crate) memory: Option<ByteSize>,
    /// Limit of processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::PROCESSES))]
    pub(crate) pids: Option<u64>,
    /// CPU limit in cores: 2, 0.5
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<CpuCount>,
    /// CPU time limit of each process
    #[arg(long, value_name = "TIME")]
    pub(crate) cpu_time: Option<HumanDuration>,
    /// Limit of open files of each process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::OPEN_FILES))]
    pub(crate) max_open_files: Option<u64>,
    /// Limit of the size of a written file: 100m
    #[arg(long, value_name = "SIZE")]
    pub(crate) file_size: Option<ByteSize>,
    /// Size of the private /tmp: 1g
    #[arg(long, value_name = "SIZE")]
    pub(crate) tmp_size: Option<ByteSize>,
    /// Limit of the total size of the writable roots and the home: 10g. Measured while the command runs
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<ByteSize>,
    /// Limit of the output of each stream; the rest is dropped [default: 64m with --json, otherwise unlimited]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_output: Option<ByteSize>,
    /// Limit of flows at once, with --net filtered
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::FLOWS))]
    pub(crate) max_flows: Option<u64>,
    /// Limit of new flows per second, with --net filtered
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(units::FLOWS))]
    pub(crate) max_flow_rate: Option<u64>,
    /// Limit of bytes sent through --net filtered: 10m
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_bytes_out: Option<ByteSize>,
    /// Limit of bytes received through --net filtered: 1g
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_bytes_in: Option<ByteSize>,
    /// Variable for the command; names that steer loaders, shells or git are refused
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(EnvArg::try_from))]
    pub(crate) env: Vec<EnvArg>,
    /// Release this secret to the command; a variable names its file. Its value is redacted from output, unless `[leaks]`
    /// says otherwise
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<String>,
    /// Access to the workspace: none (it is absent), read or write
    #[arg(long, value_name = "ACCESS")]
    pub(crate) workspace_access: Option<Access>,
    /// Additional readable directory
    #[arg(long = "read", value_name = "DIR")]
    pub(crate) read: Vec<PathBuf>,
    /// Additional writable directory
    #[arg(long = "write", value_name = "DIR")]
    pub(crate) write: Vec<PathBuf>,
    /// UNSAFE: require only these controls instead of all (fs-read,fs-write,net,pid,ipc,syscalls,limits,env)
    #[arg(long, value_name = "CONTROLS", value_delimiter = ',')]
    pub(crate) danger_required_controls: Option<Vec<Control>>,
    #[command(flatten)]
    pub(crate) danger: DangerArgs,
    /// Continue the session of this name in this workspace, with its answers, denials and loop counts
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Working directory of the agent, if it is not the current one; agent settings cannot be created there
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) agent_in: Vec<PathBuf>,
    /// The agent's stated reason; shown to the approver as untrusted
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Print one JSON object instead of the command's output
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) argv: Vec<OsString>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Profile: review, guarded, workspace (the default), strict, air-gapped or danger
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<Profile>,
    /// Workspace directory [default: the enclosing configured directory or git repository, else the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Policy file of the operator [default: $XDG_CONFIG_HOME/ringfence/config.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Name of the agent; its section of the policy applies
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
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// HTTP method for --url
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NetworkArgs {
    /// Network: none (the default), filtered (only allowed hosts) or full (that of the host; in a container that of the engine)
    #[arg(long, value_name = "MODE")]
    pub(crate) net: Option<NetMode>,
    /// Allowed host: NAME, *.NAME for every name below it, or an address, each with an optional port. Implies --net filtered
    #[arg(long = "allow-host", value_name = "HOST[:PORT]")]
    pub(crate) allow_hosts: Vec<String>,
}

/// The action to evaluate: exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct SubjectArgs {
    /// A shell script
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) shell: Option<OsString>,
    /// Read this file with a file tool
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Option<PathBuf>,
    /// Write this file with a file tool
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Option<PathBuf>,
    /// Request this URL
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<OsString>,
    /// Use this tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<OsString>,
    /// A command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) argv: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show the effective policy, with the origin of each value
    Show {
        #[command(flatten)]
        place: PolicyArgs,
        #[command(flatten)]
        network: NetworkArgs,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Explain a decision: each part, its rule and policy layer, and what would change it
    Explain(Box<CheckArgs>),
    /// Test the policy with cases: files with `[[case]]` entries (docs/policy.md, "Test cases")
    Test {
        #[command(flatten)]
        place: PolicyArgs,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Case files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Approve the policy file of a workspace, in its current version
    Approve {
        #[command(flatten)]
        place: PolicyArgs,
        /// Approve only if the file has this SHA-256
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
        place: PolicyArgs,
        path: PathBuf,
    },
    /// Create or replace a file from standard input
    Write {
        #[command(flatten)]
        place: PolicyArgs,
        path: PathBuf,
    },
    /// List a directory
    List {
        #[command(flatten)]
        place: PolicyArgs,
        #[arg(default_value = ".")]
        path: PathBuf,
    },
    /// Create a symbolic link; its target must be inside the workspace
    Symlink {
        #[command(flatten)]
        place: PolicyArgs,
        target: PathBuf,
        path: PathBuf,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
At most 10 MB, 5 redirects and 60 seconds. Exit code: 0 success, 1 the server answered with 4xx or 5xx,
125 Ringfence or the connection failed, 126 refused.

Examples:
  ringfence fetch --allow-host example.com https://example.com/
  ringfence fetch --json --method HEAD --allow-host example.com https://example.com/file")]
pub(crate) struct FetchArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// HTTP method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The URL, http:// or https://
    pub(crate) url: String,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Run the escape battery: try every known escape on this machine, with and without the sandbox
    #[arg(long)]
    pub(crate) attack: bool,
    /// Test only this backend
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<Backend>,
    #[command(flatten)]
    pub(crate) container: ContainerArgs,
    /// Run only attempts whose id has this prefix
    #[arg(long, value_name = "PREFIX", requires = "attack")]
    pub(crate) only: Option<String>,
}

pub(crate) fn parse(arguments: &[OsString]) -> Result<(Option<LogSettings>, CliCommand), clap::Error> {
    let cli = Cli::try_parse_from(arguments)?;
    Ok((cli.log.or_else(|| LogSettings::counted(cli.verbose)), cli.command))
}

pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ringfence", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Prints help, version or a usage error. A usage error is a failure of Ringfence, not of the command.
pub(crate) fn explain(error: &clap::Error) -> ExitCode {
    let plain = error.render().to_string();
    let safe = safe(&CliRedactor::own().clean(&plain));
    if safe == plain || !error.use_stderr() {
        // The terminal may be closed.
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
            Some(line) => format!("{}\n", ByteString::from(line).display()),
            None => ByteString::from(line).display(),
        })
        .collect()
}
