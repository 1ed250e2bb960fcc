//! `ringfence token`, `device` and `operator`: who may do what.

mod device;
mod operator;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_runtime::Runtime;
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::identity::{Authority, CredentialId, Identities, IdentityError, Meta};
use ringfence_runtime::ledger::Timestamp;
use ringfence_types::{Bytes, Rights, Subtree, Within};

use crate::approval::{self, Need};
use crate::args::{DeviceCommand, OperatorCommand, RightsArgs, TokenCommand};
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::output::say;

pub(crate) fn token(command: TokenCommand) -> ExitCode {
    Desk::open().and_then(|desk| token::run(&desk, command)).unwrap_or_else(|code| code)
}

pub(crate) fn device(command: DeviceCommand) -> ExitCode {
    Desk::open().and_then(|desk| device::run(&desk, command)).unwrap_or_else(|code| code)
}

pub(crate) fn operator(command: OperatorCommand) -> ExitCode {
    Desk::open().and_then(|desk| operator::run(&desk, command)).unwrap_or_else(|code| code)
}

/// Where the owner of the state directory says who may do what. The way back in: it needs no token.
struct Desk {
    identities: Identities,
    authority: Authority<'static>,
    /// What was recovered on the way stays held while something is changed.
    _runtime: Runtime,
}

impl Desk {
    fn open() -> Result<Self, ExitCode> {
        let environment = Environment::read();
        let operator = approval::require(&environment, Need::Nothing, "say who may do what")?;
        let runtime = run::runtime(&environment, Attendance::Unattended)?;
        let identities = runtime.identities().map_err(|error| failed(&error))?;
        Ok(Self { identities, authority: Authority::Owner(operator), _runtime: runtime })
    }

    /// The credential whose id begins with `text`.
    fn find(&self, text: &str) -> Result<Meta, ExitCode> {
        let all = self.identities.credentials().map_err(|error| failed(&error))?;
        let mut found = all.into_iter().filter(|meta| !text.is_empty() && meta.id.as_str().starts_with(text));
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => {
                let shown = Bytes::from(text).display();
                Err(error::failed_text(
                    &format!("`{shown}` begins more than one id"),
                    Some("write more of it"),
                ))
            }
            _ => Err(failed(&IdentityError::NoSuch { what: "token", id: text.to_owned() })),
        }
    }

    fn revoke(&self, id: &CredentialId) -> Result<ExitCode, ExitCode> {
        let meta = self.identities.revoke(&self.authority, id).map_err(|error| failed(&error))?;
        say!("revoked {}: {}", meta.id, summary(&meta));
        Ok(ExitCode::SUCCESS)
    }
}

fn failed(error: &IdentityError) -> ExitCode {
    error::failed(error, error.hint().as_deref())
}

/// Workspaces by their real paths, so that a link is the same workspace as what it leads to.
fn rights(arguments: &RightsArgs) -> Result<Rights, ExitCode> {
    let real = |path: &PathBuf| {
        let wrong = |what: String| {
            error::failed_text(
                &format!("workspace `{}`: {what}", Bytes::from(path.as_path()).display()),
                None,
            )
        };
        let real = std::fs::canonicalize(path).map_err(|error| wrong(error.to_string()))?;
        Subtree::new(&real).map_err(|error| wrong(error.to_string()))
    };
    let workspaces: Vec<Subtree> = arguments.workspaces.iter().map(real).collect::<Result<_, _>>()?;
    let workspaces = if workspaces.is_empty() { Within::Any } else { Within::of(Some(workspaces)) };
    Ok(Rights { scopes: arguments.scopes.iter().copied().collect(), workspaces })
}

fn summary(meta: &Meta) -> String {
    let end = meta.expires.map_or("no end".to_owned(), |end| format!("until {end}"));
    let label = Bytes::from(meta.label.as_str()).display();
    format!(
        "{} `{label}` of {}, may {} in {}, {}",
        meta.kind,
        meta.owner,
        meta.rights.scopes,
        meta.rights.workspaces,
        meta.revoked.map_or(end, |when| format!("revoked {when}"))
    )
}

/// By the clock on the wall: only for a list.
fn is_over(meta: &Meta) -> bool {
    meta.revoked.is_some() || meta.expires.is_some_and(|end| end <= Timestamp::now())
}
