//! The authority of callers in the identity store, and the queues for passwords.

use std::sync::Arc;

use ringfence_api::{ApiError, ErrorCode};
use ringfence_runtime::identity::{Authority, KnownIdentity};
use ringfence_runtime::operator_api::MethodError;
use ringfence_types::Principal;

use crate::admit::dispatch::{IncomingRequest, authorize_early};
use crate::calls::handle::blocking;
use crate::errors::unavailable;
use crate::limits::budget::Permit;
use crate::server::Daemon;
use crate::transport::http::{PATIENCE, too_many};

/// The caller as the identity store's authority.
pub(crate) fn authority<'a>(principal: &Principal, known: Option<&'a KnownIdentity>) -> Authority<'a> {
    match known {
        Some(known) => Authority::Token(known),
        None => Authority::Owner(principal.clone()),
    }
}

/// The queue for password hashing, which is slow on purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PasswordSlot {
    Stranger,
    Familiar,
}

/// Waits for a turn without holding a thread.
pub(crate) async fn turn(daemon: &Daemon, whose: PasswordSlot) -> Result<Permit, ApiError> {
    let queue = match whose {
        PasswordSlot::Stranger => &daemon.login,
        PasswordSlot::Familiar => &daemon.familiar,
    };
    Permit::acquire(vec![queue.claim(1)], PATIENCE).await.ok_or_else(too_many)
}

/// The turn of a caller that sets a password, after the caller is authorized.
pub(crate) async fn turn_to_make(
    daemon: &Arc<Daemon>,
    arrived: IncomingRequest,
) -> Result<(IncomingRequest, Permit), ApiError> {
    let shared = Arc::clone(daemon);
    let arrived = blocking(move || authorize_early(&shared, &arrived).map(|()| arrived)).await?;
    Ok((arrived, turn(daemon, PasswordSlot::Familiar).await?))
}

/// Maps an error of a method to the error for the client.
pub(crate) fn failed(error: impl Into<MethodError>) -> ApiError {
    match error.into() {
        MethodError::Request(told) => told,
        error if error.code() == ErrorCode::Unavailable => unavailable(&error),
        error => error.into(),
    }
}
