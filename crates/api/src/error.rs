use ringfence_types::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why there is no answer. The same on every transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: ErrorCode,
    pub message: String,
    /// What would change the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The rule that decided, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// All of the no, where policy or a person said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub refusal: Option<Box<Refusal>>,
    /// Of the request, as it is in the ledger and in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The request makes no sense.
    Malformed,
    /// Nobody knows who asks.
    Unauthenticated,
    /// Whoever asks may not.
    Forbidden,
    /// The policy or a person says no.
    Refused,
    NotFound,
    /// It is not in a state in which that can be done.
    Conflict,
    TooLarge,
    /// Too many requests, sessions or calls.
    Exhausted,
    TimedOut,
    /// The daemon is about to end, or cannot write its ledger.
    Unavailable,
    /// We broke.
    Internal,
}

impl ErrorCode {
    pub const ALL: &'static [Self] = &[
        Self::Malformed,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::Refused,
        Self::NotFound,
        Self::Conflict,
        Self::TooLarge,
        Self::Exhausted,
        Self::TimedOut,
        Self::Unavailable,
        Self::Internal,
    ];

    pub fn http(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::Refused => 422,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::Exhausted => 429,
            Self::TimedOut => 408,
            Self::Unavailable => 503,
            Self::Internal => 500,
        }
    }

    /// In JSON-RPC: what the protocol has a number for, and else one of those it leaves to servers.
    pub fn json_rpc(self) -> i32 {
        match self {
            Self::Malformed => -32602,
            Self::Internal => -32603,
            Self::Unauthenticated => -32001,
            Self::Forbidden => -32003,
            Self::NotFound => -32004,
            Self::TimedOut => -32008,
            Self::Conflict => -32009,
            Self::TooLarge => -32013,
            Self::Refused => -32022,
            Self::Exhausted => -32029,
            Self::Unavailable => -32053,
        }
    }
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, rule: None, refusal: None, request_id: None }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn with_rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
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
