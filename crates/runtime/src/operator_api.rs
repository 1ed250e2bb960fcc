//! The methods of operators: approvals, grants, tokens, operators and devices. The daemon performs them for its callers, and
//! [`OwnerApi`] for the owner of the machine where no daemon runs.
//!
//! INVARIANT: no method here has an effect of an agent. Those take the pipeline.

pub mod approvals;
pub mod identity;

use std::cell::OnceCell;

use ringfence_api::{ApiError, ErrorCode, Request, Response};
use ringfence_ledger::{LedgerOpenError, LedgerReadError};
use ringfence_types::{Principal, chain};

use crate::Runtime;
use crate::approvals::{GrantError, InboxError, ReplyError};
use crate::identity::{Authority, Identities, IdentityError, LoginSource};
use approvals::ApprovalMethods;

/// Why a method was not performed.
#[derive(Debug, thiserror::Error)]
pub enum MethodError {
    #[error(transparent)]
    Reply(#[from] ReplyError),
    #[error(transparent)]
    Inbox(#[from] InboxError),
    #[error(transparent)]
    Grant(#[from] GrantError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the ledger cannot be read")]
    Open(#[from] LedgerOpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] LedgerReadError),
    #[error(transparent)]
    Request(#[from] ApiError),
}

impl MethodError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Reply(ReplyError::Unknown { .. })
            | Self::Grant(GrantError::Unknown { .. })
            | Self::Identity(IdentityError::NoSuch { .. }) => ErrorCode::NotFound,
            Self::Reply(ReplyError::NotAnOperator)
            | Self::Grant(GrantError::NotAnOperator)
            | Self::Identity(IdentityError::Denied(_)) => ErrorCode::Forbidden,
            Self::Reply(ReplyError::Inbox(_))
            | Self::Identity(
                IdentityError::Store(_) | IdentityError::Unwitnessed(_) | IdentityError::Random(_),
            )
            | Self::Inbox(_)
            | Self::Open(_)
            | Self::Read(_) => ErrorCode::Unavailable,
            Self::Reply(
                ReplyError::Ambiguous { .. }
                | ReplyError::ReasonRequired
                | ReplyError::NotOffered(_)
                | ReplyError::Terms(_),
            )
            | Self::Grant(GrantError::Ambiguous { .. }) => ErrorCode::InvalidArgument,
            Self::Reply(_) | Self::Identity(IdentityError::Exists { .. }) => ErrorCode::FailedPrecondition,
            Self::Grant(_) => ErrorCode::Unavailable,
            Self::Identity(IdentityError::Full(_)) => ErrorCode::ResourceExhausted,
            Self::Identity(_) => ErrorCode::InvalidArgument,
            Self::Request(error) => error.code,
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Reply(error) => error.hint().map(str::to_owned),
            Self::Identity(error) => error.hint(),
            Self::Request(error) => error.hint.clone(),
            Self::Inbox(_) | Self::Grant(_) | Self::Open(_) | Self::Read(_) => None,
        }
    }
}

/// As a client gets it, without the cause.
impl From<MethodError> for ApiError {
    fn from(error: MethodError) -> Self {
        let mut told = Self::new(error.code(), error.to_string());
        told.hint = error.hint();
        match error {
            MethodError::Request(error) => error,
            MethodError::Identity(IdentityError::Denied(denied)) => told.with_rule(denied.rule()),
            _ => told,
        }
    }
}

/// The methods, for the owner of the machine, in this process. It is also the way back when every token is lost.
#[derive(Debug)]
pub struct OwnerApi {
    runtime: Runtime,
    owner: Principal,
    identities: OnceCell<Identities>,
}

impl OwnerApi {
    pub fn new(runtime: Runtime, owner: Principal) -> Self {
        Self { runtime, owner, identities: OnceCell::new() }
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub fn perform(&self, request: Request) -> Result<Response, MethodError> {
        let approvals = ApprovalMethods {
            ledger: self.runtime.ledger(),
            state_dir: &self.runtime.setup().state_dir,
            grant_lifetime: &|| None,
            sees: &|_| true,
        };
        Ok(match request {
            Request::ApprovalList(_) => Response::ApprovalList(approvals.list()?),
            Request::ApprovalShow(request) => Response::ApprovalShow(approvals.show(&request.id)?),
            Request::ApprovalAnswer(request) => {
                let (pending, _) = approvals.find(&request.id)?;
                Response::ApprovalAnswer(approvals.answer(&pending, request, &self.owner, None)?)
            }
            Request::GrantList(_) => Response::GrantList(approvals.grants()?),
            Request::GrantRevoke(request) => {
                let (id, reason) = (Some(request.id.as_str()), request.reason.as_deref());
                Response::GrantRevoke(approvals.revoke(id, &self.owner, reason)?)
            }
            Request::GrantRevokeAll(request) => {
                Response::GrantRevokeAll(approvals.revoke(None, &self.owner, request.reason.as_deref())?)
            }
            request => return self.perform_identity(request),
        })
    }

    fn perform_identity(&self, request: Request) -> Result<Response, MethodError> {
        let identities = match self.identities.get() {
            Some(identities) => identities,
            None => {
                let opened = self.runtime.identities()?;
                self.identities.get_or_init(|| opened)
            }
        };
        if identity::is_of_device(request.method()) {
            let user = LoginSource::User(rustix::process::geteuid().as_raw());
            return identity::of_device(identities, &user, request);
        }
        let ends = matches!(request, Request::TokenRevoke(_) | Request::OperatorRemove(_));
        let mut done = identity::perform(identities, &Authority::Owner(self.owner.clone()), None, request);
        // A revocation takes effect with or without its record.
        if ends
            && let Err(error) = self.runtime.ledger().write_late()
            && let Ok(response) = &mut done
        {
            response.set_record_error(chain(&error));
        }
        done
    }
}
