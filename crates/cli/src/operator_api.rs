//! The methods of operators for the commands about approvals and identities: at a running daemon, which decides what an operator
//! may do, otherwise in this process.

use std::process::ExitCode;

use ringfence_api::ErrorCode;
use ringfence_api::methods::ApiRequest;
use ringfence_authz::env::ApproverPresence;
use ringfence_client::ClientError;
use ringfence_runtime::operator_api::{MethodError, OwnerApi};
use ringfence_types::{ByteString, Principal};
use serde::Serialize;

use crate::commands::run;
use crate::daemon_client::{self, DaemonClient};
use crate::environment::Environment;
use crate::error;

#[derive(Debug)]
pub(crate) enum OperatorApi {
    Daemon(Box<DaemonClient>),
    Here(Box<OwnerApi>),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum OperatorApiError {
    #[error(transparent)]
    Daemon(#[from] ClientError),
    #[error(transparent)]
    Here(#[from] MethodError),
}

impl OperatorApi {
    /// The daemon of this user's state directory if it runs, else the stores themselves.
    pub(crate) fn open(environment: &Environment, operator: Principal) -> Result<Self, ExitCode> {
        if let Some(daemon) = DaemonClient::find(environment) {
            return Ok(Self::Daemon(Box::new(daemon)));
        }
        let runtime = run::runtime(environment, ApproverPresence::Unattended)?;
        Ok(Self::Here(Box::new(OwnerApi::new(runtime, operator))))
    }

    pub(crate) fn call<R: ApiRequest + Serialize>(&self, request: R) -> Result<R::Answer, OperatorApiError> {
        match self {
            Self::Daemon(daemon) => Ok(daemon.call(&request)?),
            Self::Here(owner) => Ok(R::answer(owner.perform(request.into())?).map_err(MethodError::from)?),
        }
    }
}

impl OperatorApiError {
    /// Prints the error. `code` is for a valid request that does not count.
    pub(crate) fn told(&self, code: u8) -> ExitCode {
        let (failed, answered) = match self {
            Self::Daemon(ClientError::Api(told)) if is_an_answer(told.code) => {
                let shown = |text: &str| ByteString::from(text).display();
                let hint = told.hint.as_deref().map(shown);
                (error::failed_text(&shown(&told.message), hint.as_deref()), true)
            }
            Self::Daemon(error) => (daemon_client::failed(error), false),
            Self::Here(error) => (error::failed(error, error.hint().as_deref()), is_an_answer(error.code())),
        };
        if answered { ExitCode::from(code) } else { failed }
    }

    /// Whether the daemon ended or hangs, so that a long-running command continues without it.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Daemon(error) if !matches!(error, ClientError::Api(_)))
    }
}

fn is_an_answer(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotFound
            | ErrorCode::InvalidArgument
            | ErrorCode::FailedPrecondition
            | ErrorCode::Forbidden
    )
}
