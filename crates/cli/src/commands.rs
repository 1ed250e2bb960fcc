//! One file per subcommand.

mod approvals;
mod check;
mod config;
mod doctor;
mod fetch;
mod file;
mod identity;
mod image;
mod ledger;
mod policy;
pub(crate) mod run;
mod scan;
mod secret;
mod serve;
mod session;
mod tx;

use std::process::ExitCode;

pub(crate) use run::{print_json, runtime as open_runtime};

use crate::args::{self, Command};
use crate::exec_server;
use crate::hook;
use crate::init;
use crate::mcp;
use crate::output::say;
use crate::status;

pub(crate) fn dispatch(command: Command) -> ExitCode {
    match command {
        Command::Run(run) => run::run(*run),
        Command::Check(check) => check::run(*check),
        Command::Policy(policy) => policy::run(policy),
        Command::File(file) => file::run(file),
        Command::Fetch(fetch) => fetch::run(&fetch),
        Command::Scan(scan) => scan::run(*scan),
        Command::Approvals(approvals) => approvals::run(approvals),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Session(session) => session::run(session),
        Command::Tx(tx) => tx::run(tx),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Ledger(ledger) => ledger::run(ledger),
        Command::Secret(secret) => secret::run(secret),
        Command::Config(config) => config::run(config),
        Command::Token(token) => identity::token(token),
        Command::Device(device) => identity::device(device),
        Command::Operator(operator) => identity::operator(operator),
        Command::Hook { agent } => hook::run(agent),
        Command::Init(arguments) => init::init(&arguments),
        Command::Uninstall(arguments) => init::uninstall(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Mcp(arguments) => mcp::run(&arguments),
        Command::ExecServer(arguments) => exec_server::run(&arguments),
        Command::Image(image) => image::run(image),
        Command::Completions { shell } => {
            say!("{}", args::completions(shell).trim_end());
            ExitCode::SUCCESS
        }
    }
}
