//! Errors of the API, with their codes on every transport.

use ringfence_types::{PolicyLayer, Refusal, RefusalCode, RuleId, RuleName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::CallDetails;

/// An error, the same on every transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: ErrorCode,
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The rule that decided, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub rule: Option<RuleName>,
    /// The refusal, if policy or an approver refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub refusal: Option<Box<Refusal>>,
    /// The id of the request in the ledger and in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(skip)]
    pub details: CallDetails,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The request is malformed.
    InvalidArgument,
    /// The request has no valid credential.
    Unauthenticated,
    /// The credential lacks the required scope or workspace.
    Forbidden,
    /// The policy or an approver refused.
    Refused,
    NotFound,
    /// The current state does not allow this operation.
    FailedPrecondition,
    TooLarge,
    /// Too many requests, sessions or calls.
    ResourceExhausted,
    DeadlineExceeded,
    /// The daemon is stopping, or cannot write its ledger.
    Unavailable,
    /// Ringfence failed. The incident number is in the log of the daemon.
    Internal,
}

impl ErrorCode {
    pub const ALL: &'static [Self] = &[
        Self::InvalidArgument,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::Refused,
        Self::NotFound,
        Self::FailedPrecondition,
        Self::TooLarge,
        Self::ResourceExhausted,
        Self::DeadlineExceeded,
        Self::Unavailable,
        Self::Internal,
    ];

    pub fn http(self) -> u16 {
        match self {
            Self::InvalidArgument => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::Refused => 422,
            Self::NotFound => 404,
            Self::FailedPrecondition => 409,
            Self::TooLarge => 413,
            Self::ResourceExhausted => 429,
            Self::DeadlineExceeded => 408,
            Self::Unavailable => 503,
            Self::Internal => 500,
        }
    }

    /// The code in JSON-RPC: of the protocol where it has one, otherwise from the range for servers.
    pub fn json_rpc(self) -> i32 {
        match self {
            Self::InvalidArgument => -32602,
            Self::Internal => -32603,
            Self::Unauthenticated => -32001,
            Self::Forbidden => -32003,
            Self::NotFound => -32004,
            Self::DeadlineExceeded => -32008,
            Self::FailedPrecondition => -32009,
            Self::TooLarge => -32013,
            Self::Refused => -32022,
            Self::ResourceExhausted => -32029,
            Self::Unavailable => -32053,
        }
    }
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            rule: None,
            refusal: None,
            request_id: None,
            details: None,
        }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The refusal that is recorded and that an agent is told: the policy's own, or one about the caller's identity.
    pub fn as_refusal(&self) -> Refusal {
        if let Some(refusal) = &self.refusal {
            return refusal.as_ref().clone();
        }
        Refusal {
            code: RefusalCode::Identity,
            layer: PolicyLayer::Floor,
            rule: self.rule.clone().unwrap_or_else(|| RuleId::RequestError.into()),
            message: self.message.clone(),
            hint: self.hint.clone(),
        }
    }

    pub fn with_rule(mut self, rule: impl Into<RuleName>) -> Self {
        self.rule = Some(rule.into());
        self
    }
}

/// A refusal by policy or by a person.
impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let mut error =
            Self::new(ErrorCode::Refused, refusal.message.clone()).with_rule(refusal.rule.clone());
        error.hint.clone_from(&refusal.hint);
        error.refusal = Some(Box::new(refusal));
        error
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_code_has_a_status_of_its_own() {
        let statuses: HashSet<u16> = ErrorCode::ALL.iter().map(|code| code.http()).collect();
        assert_eq!(statuses.len(), ErrorCode::ALL.len());
        let numbers: HashSet<i32> = ErrorCode::ALL.iter().map(|code| code.json_rpc()).collect();
        assert_eq!(numbers.len(), ErrorCode::ALL.len());
    }
}
