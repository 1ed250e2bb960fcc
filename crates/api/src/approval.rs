//! Questions that wait for a person.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListApprovals {}

/// Be told of questions: at once of those that wait, then of each when it is asked and again when it is decided.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchApprovals {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalList {
    pub questions: Vec<Question>,
}

/// A question as it is in the ledger, with what was said to it so far.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    pub id: String,
    pub session: String,
    /// RFC 3339.
    pub asked: String,
    pub expires: String,
    pub risk: String,
    /// One plain sentence.
    pub sentence: String,
    /// All of it: blocks, fields, offers.
    pub request: serde_json::Value,
    /// `None`: it waits.
    pub decision: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowApproval {
    pub id: String,
}

/// Answer a question. Whoever asked it cannot.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerApproval {
    pub id: String,
    pub answer: Answer,
    #[serde(default)]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Once,
    Session,
    /// One of the offers, from 0.
    AlwaysHere {
        offer: usize,
    },
    Deny,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answered", rename_all = "kebab-case")]
pub enum Answered {
    Decided {
        answer: String,
    },
    /// It takes more people.
    Counted {
        approve: usize,
        deny: usize,
    },
}
