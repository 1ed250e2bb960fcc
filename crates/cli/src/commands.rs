//! One file per subcommand.

mod approvals;
mod check;
mod config;
mod doctor;
mod fetch;
mod file;
mod identity;
mod image;
mod layer;
mod ledger;
mod policy;
mod proposal;
mod recorded_change;
pub(crate) mod run;
mod scan;
mod secret;
mod serve;
mod session;

use std::process::ExitCode;

use run::RunMode;
pub(crate) use run::{print_json, runtime as open_runtime};

use crate::args::{self, CliCommand};
use crate::exec_server;
use crate::hook;
use crate::init;
use crate::mcp;
use crate::output::say;
use crate::status;

pub(crate) fn dispatch(command: CliCommand) -> ExitCode {
    match command {
        CliCommand::Run(run) => run::run(*run, RunMode::Direct).unwrap_or_else(|code| code),
        CliCommand::Try(arguments) => run::run(arguments.run, RunMode::Try).unwrap_or_else(|code| code),
        CliCommand::Changes(arguments) => layer::changes(*arguments).unwrap_or_else(|code| code),
        CliCommand::Commit(arguments) => layer::commit(*arguments).unwrap_or_else(|code| code),
        CliCommand::Discard(arguments) => layer::discard(*arguments).unwrap_or_else(|code| code),
        CliCommand::Undo(arguments) => layer::undo(*arguments).unwrap_or_else(|code| code),
        CliCommand::Check(check) => check::run(*check),
        CliCommand::Policy(policy) => policy::run(policy),
        CliCommand::File(file) => file::run(file),
        CliCommand::Fetch(fetch) => fetch::run(&fetch),
        CliCommand::Scan(scan) => scan::run(*scan),
        CliCommand::Approvals(approvals) => approvals::run(approvals),
        CliCommand::Grants(grants) => approvals::run_grants(grants),
        CliCommand::Serve(arguments) => serve::run(&arguments),
        CliCommand::Session(session) => session::run(session),
        CliCommand::Proposal(command) => proposal::run(command),
        CliCommand::Doctor(doctor) => doctor::run(&doctor),
        CliCommand::Ledger(ledger) => ledger::run(ledger),
        CliCommand::Secret(secret) => secret::run(secret),
        CliCommand::Config(config) => config::run(config),
        CliCommand::Token(token) => identity::token(token),
        CliCommand::Device(device) => identity::device(device),
        CliCommand::Operator(operator) => identity::operator(operator),
        CliCommand::Hook { agent } => hook::run(agent),
        CliCommand::Init(arguments) => init::init(&arguments),
        CliCommand::Uninstall(arguments) => init::uninstall(&arguments),
        CliCommand::Status(arguments) => status::run(&arguments),
        CliCommand::Mcp(arguments) => mcp::run(&arguments),
        CliCommand::ExecServer(arguments) => exec_server::run(&arguments),
        CliCommand::Image(image) => image::run(image),
        CliCommand::Completions { shell } => {
            say!("{}", args::completions(shell).trim_end());
            ExitCode::SUCCESS
        }
    }
}
