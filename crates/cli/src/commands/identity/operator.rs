use std::process::ExitCode;

use ringfence_api::{AddOperator, ListOperators, RemoveOperator, SetPassword};
use ringfence_runtime::identity::OperatorSummary;
use ringfence_types::ByteString;
use serde::Serialize;
use zeroize::Zeroizing;

use super::{IdentityClient, rights, unrecorded};
use crate::args::OperatorCommand;
use crate::commands::run::print_json;
use crate::error;
use crate::output::{note, say};
use crate::secret_input;

pub(super) fn run(desk: &IdentityClient, command: OperatorCommand) -> Result<ExitCode, ExitCode> {
    match command {
        OperatorCommand::Add { name, rights: given, typed } => {
            refuse_typed(&typed)?;
            let rights = rights(&given)?;
            let password = password(&name)?.to_string();
            say!("added {}", summary(&desk.ask(AddOperator { name, rights, password })?.operator));
        }
        OperatorCommand::SetPassword { name, typed } => {
            refuse_typed(&typed)?;
            let password = password(&name)?.to_string();
            say!("set the password of {}", summary(&desk.ask(SetPassword { name, password })?.operator));
        }
        OperatorCommand::List { json } => {
            let all = desk.ask(ListOperators {})?.operators;
            if json {
                print_json(&OperatorListJson { schema: 1, operators: &all });
            } else {
                all.iter().for_each(|operator| say!("{}", summary(operator)));
            }
        }
        OperatorCommand::Rm { name } => {
            let removed = desk.ask(RemoveOperator { name })?;
            unrecorded(removed.record_error);
            say!("removed {}", summary(&removed.operator));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Schema 1.
#[derive(Serialize)]
struct OperatorListJson<'a> {
    schema: u32,
    operators: &'a [OperatorSummary],
}

fn summary(operator: &OperatorSummary) -> String {
    format!("{}: may {} in {}", operator.name, operator.rights.scopes, operator.rights.workspaces)
}

/// A typed value is in the shell history and was visible to every process. It is not repeated.
fn refuse_typed(typed: &[std::ffi::OsString]) -> Result<(), ExitCode> {
    if typed.is_empty() {
        return Ok(());
    }
    Err(error::failed_text(
        "a password is never taken from the command line, where every process can read it",
        Some("leave it out: Ringfence prompts for it; the typed value is now in your shell history"),
    ))
}

/// Asks a person twice, because the input is not shown.
fn password(name: &str) -> Result<Zeroizing<String>, ExitCode> {
    let name = ByteString::from(name).display();
    let first = read(&format!("password of {name}"))?;
    if secret_input::is_asked() && read("the same again")? != first {
        return Err(error::failed_text("the two are not the same; nothing was changed", None));
    }
    // A sign-in sends the password as text.
    let text = std::str::from_utf8(&first).map(|text| Zeroizing::new(text.to_owned()));
    text.map_err(|_bytes| error::failed_text("a password is text in UTF-8; nothing was changed", None))
}

fn read(what: &str) -> Result<Zeroizing<Vec<u8>>, ExitCode> {
    let mut read = secret_input::read(what).map_err(|error| error::failed(&error, error.hint()))?;
    if read.last() == Some(&b'\n') {
        read.pop();
        if !secret_input::is_asked() {
            note!("ringfence: removed one trailing newline");
        }
    }
    Ok(read)
}
