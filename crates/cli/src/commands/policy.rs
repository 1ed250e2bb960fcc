//! `ringfence policy`: shows, explains, tests and approves policy.

mod approve;
mod show;
mod test;

use std::process::ExitCode;

use crate::args::PolicyCommand;
use crate::commands::check;
use crate::output::{OutputFormat, say};

/// A test of authz compares it with the types that parse policy files.
const SCHEMA: &str = include_str!("../../../../schema/policy.schema.json");

pub(crate) fn run(command: PolicyCommand) -> ExitCode {
    let done = match command {
        PolicyCommand::Show { place, network, json } => show::run(&place, &network, json.into()),
        PolicyCommand::Explain(asked) => return check::explain(*asked),
        PolicyCommand::Test { place, json, files } => test::run(&place, json.into(), &files),
        PolicyCommand::Approve { place, sha256 } => approve::run(&place, sha256.as_deref()),
        PolicyCommand::Schema => {
            say!("{}", SCHEMA.trim_end());
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|code| code)
}
