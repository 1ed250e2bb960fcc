use std::process::ExitCode;

use ringfence_runtime::identity::OperatorMeta;
use ringfence_types::Bytes;
use serde::Serialize;
use zeroize::Zeroizing;

use super::{Desk, rights};
use crate::args::OperatorCommand;
use crate::commands::run::print_json;
use crate::error;
use crate::output::{note, say};
use crate::secret_input;

pub(super) fn run(desk: &Desk, command: OperatorCommand) -> Result<ExitCode, ExitCode> {
    match command {
        OperatorCommand::Add { name, rights: given, typed } => {
            refuse_typed(&typed)?;
            let rights = rights(&given)?;
            let password = password(&name)?;
            say!("added {}", summary(&desk.add_operator(name, rights, &password)?));
        }
        OperatorCommand::Passwd { name, typed } => {
            refuse_typed(&typed)?;
            let password = password(&name)?;
            say!("set the password of {}", summary(&desk.set_password(name, &password)?));
        }
        OperatorCommand::List { json } => {
            let all = desk.operators()?;
            if json {
                print_json(&Listed { schema: 1, operators: &all });
            } else {
                all.iter().for_each(|operator| say!("{}", summary(operator)));
            }
        }
        OperatorCommand::Rm { name } => say!("removed {}", summary(&desk.remove_operator(name)?)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Schema 1.
#[derive(Serialize)]
struct Listed<'a> {
    schema: u32,
    operators: &'a [OperatorMeta],
}

fn summary(operator: &OperatorMeta) -> String {
    format!("{}: may {} in {}", operator.name, operator.rights.scopes, operator.rights.workspaces)
}

/// What was typed is in the history of the shell and was visible to every process. It is not repeated.
fn refuse_typed(typed: &[std::ffi::OsString]) -> Result<(), ExitCode> {
    if typed.is_empty() {
        return Ok(());
    }
    Err(error::failed_text(
        "a password is never taken from the command line, where every process can read it",
        Some("leave it out, and it is asked for; what was typed is in the history of your shell"),
    ))
}

/// From a person twice: nobody sees what they mistype.
fn password(name: &str) -> Result<Zeroizing<String>, ExitCode> {
    let name = Bytes::from(name).display();
    let first = read(&format!("password of {name}"))?;
    if secret_input::is_asked() && read("the same again")? != first {
        return Err(error::failed_text("the two are not the same; nothing was changed", None));
    }
    // Whoever signs in says it as text.
    let text = std::str::from_utf8(&first).map(|text| Zeroizing::new(text.to_owned()));
    text.map_err(|_bytes| error::failed_text("a password is text in UTF-8; nothing was changed", None))
}

fn read(what: &str) -> Result<Zeroizing<Vec<u8>>, ExitCode> {
    let mut read = secret_input::read(what).map_err(|error| error::failed(&error, error.hint()))?;
    if read.last() == Some(&b'\n') {
        read.pop();
        if !secret_input::is_asked() {
            note!("ringfence: one newline at the end was left out");
        }
    }
    Ok(read)
}
