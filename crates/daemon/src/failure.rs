//! From what went wrong below to what a client is told.

use std::error::Error;

use ringfence_api::{ApiError, ErrorCode};
use ringfence_types::{Layer, Refusal, RefusalCode};

/// The answer of policy or of a person.
pub(crate) fn refused(refusal: &Refusal) -> ApiError {
    let mut error =
        ApiError::new(ErrorCode::Refused, refusal.message.clone()).with_rule(refusal.rule.clone());
    error.refusal = Some(Box::new(refusal.clone()));
    match &refusal.hint {
        Some(hint) => error.with_hint(hint.clone()),
        None => error,
    }
}

/// What is written down of somebody who may not, and what agents are told of it: the answer that it is, or one for who they are.
pub(crate) fn refusal_of(error: &ApiError) -> Refusal {
    if let Some(refusal) = &error.refusal {
        return refusal.as_ref().clone();
    }
    Refusal {
        code: RefusalCode::Identity,
        layer: Layer::Floor,
        rule: error.rule.clone().unwrap_or_default(),
        message: error.message.clone(),
        hint: error.hint.clone(),
    }
}

/// An error with everything it was caused by.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// We broke. The log has the rest.
pub(crate) fn internal(error: &dyn Error) -> ApiError {
    let text = chain(error);
    tracing::error!(why = %text, "internal");
    ApiError::new(ErrorCode::Internal, text)
}

pub(crate) fn unavailable(why: &dyn Error) -> ApiError {
    let mut error = internal(why);
    error.code = ErrorCode::Unavailable;
    error
}

pub(crate) fn not_found(what: &str, id: &str) -> ApiError {
    ApiError::new(
        ErrorCode::NotFound,
        format!("there is no {what} `{}`", ringfence_types::Bytes::from(id).display()),
    )
}

pub(crate) fn malformed(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Malformed, message)
}

pub(crate) fn unauthenticated(message: &str, rule: &str) -> ApiError {
    ApiError::new(ErrorCode::Unauthenticated, message).with_rule(rule)
}

pub(crate) fn exhausted(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Exhausted, message).with_hint("try again when others are done")
}
