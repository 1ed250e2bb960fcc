//! `ringfence token`, `device` and `operator`: manages credentials and operators.

mod device;
mod operator;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_api::methods::ApiRequest;
use ringfence_api::{ListTokens, RevokeToken};
use ringfence_ledger::Timestamp;
use ringfence_runtime::identity::{CredentialId, CredentialSummary, IdentityError};
use ringfence_types::{AllOrOnly, ByteString, Rights, Subtree};
use serde::Serialize;

use crate::approval::{self, OperatorRequirement};
use crate::args::{DeviceCommand, FAILED, OperatorCommand, RightsArgs, TokenCommand};
use crate::environment::Environment;
use crate::error;
use crate::operator_api::OperatorApi;
use crate::output::{note, say};

pub(crate) fn token(command: TokenCommand) -> ExitCode {
    IdentityClient::open().and_then(|desk| token::run(&desk, command)).unwrap_or_else(|code| code)
}

pub(crate) fn device(command: DeviceCommand) -> ExitCode {
    IdentityClient::open().and_then(|desk| device::run(&desk, command)).unwrap_or_else(|code| code)
}

pub(crate) fn operator(command: OperatorCommand) -> ExitCode {
    IdentityClient::open().and_then(|desk| operator::run(&desk, command)).unwrap_or_else(|code| code)
}

/// An operator's access to identities. A daemon closes connections of a revoked credential before it answers. Without a
/// daemon the owner of the state directory needs no token.
struct IdentityClient(OperatorApi);

impl IdentityClient {
    fn open() -> Result<Self, ExitCode> {
        let environment = Environment::read();
        let operator = approval::require(&environment, OperatorRequirement::Nothing, "say who may do what")?;
        OperatorApi::open(&environment, operator).map(Self)
    }

    /// Performs a request. Prints an error with the next step.
    fn ask<R: ApiRequest + Serialize>(&self, request: R) -> Result<R::Answer, ExitCode> {
        self.0.call(request).map_err(|error| error.told(FAILED))
    }

    /// The credential whose id begins with `text`.
    fn find(&self, text: &str) -> Result<CredentialSummary, ExitCode> {
        let all = self.ask(ListTokens {})?.tokens;
        let mut found = all.into_iter().filter(|meta| !text.is_empty() && meta.id.as_str().starts_with(text));
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => {
                let shown = ByteString::from(text).display();
                Err(error::failed_text(
                    &format!("`{shown}` begins more than one id"),
                    Some("write more of it"),
                ))
            }
            _ => Err(failed(&IdentityError::NoSuch { what: "token", id: text.to_owned() })),
        }
    }

    fn revoke(&self, id: &CredentialId) -> Result<ExitCode, ExitCode> {
        let done = self.ask(RevokeToken { id: id.to_string() })?;
        unrecorded(done.record_error);
        let meta = self.find(id.as_str())?;
        say!("revoked {}: {}", meta.id, summary(&meta));
        Ok(ExitCode::SUCCESS)
    }
}

/// Tells the operator that the record of a revocation is missing, which takes effect with or without it.
fn unrecorded(why: Option<String>) {
    if let Some(why) = why {
        note!("ringfence: done, but it could not be recorded: {}", ByteString::from(why.as_str()).display());
    }
}

fn failed(error: &IdentityError) -> ExitCode {
    error::failed(error, error.hint().as_deref())
}

/// Rights with workspaces by real path, so that a link equals its target.
fn rights(arguments: &RightsArgs) -> Result<Rights, ExitCode> {
    let real = |path: &PathBuf| {
        let wrong = |what: String| {
            error::failed_text(
                &format!("workspace `{}`: {what}", ByteString::from(path.as_path()).display()),
                None,
            )
        };
        let real = std::fs::canonicalize(path).map_err(|error| wrong(error.to_string()))?;
        Subtree::new(&real).map_err(|error| wrong(error.to_string()))
    };
    let workspaces: Vec<Subtree> = arguments.workspaces.iter().map(real).collect::<Result<_, _>>()?;
    let workspaces = if workspaces.is_empty() { AllOrOnly::Any } else { AllOrOnly::of(Some(workspaces)) };
    Ok(Rights { scopes: arguments.scopes.iter().copied().collect(), workspaces })
}

fn summary(meta: &CredentialSummary) -> String {
    let end = meta.expires_at.map_or("no end".to_owned(), |end| format!("until {end}"));
    let label = ByteString::from(meta.label.as_str()).display();
    format!(
        "{} `{label}` of {}, may {} in {}, {}",
        meta.kind,
        meta.owner,
        meta.rights.scopes,
        meta.rights.workspaces,
        meta.revoked_at.map_or(end, |when| format!("revoked {when}"))
    )
}

/// By the wall clock: only for display.
fn is_over(meta: &CredentialSummary) -> bool {
    meta.revoked_at.is_some() || meta.expires_at.is_some_and(|end| end <= Timestamp::now())
}
