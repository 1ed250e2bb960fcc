//! Questions that wait for a person.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Data;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListApprovals {}

/// Be told of questions: at once of those that wait, then of each when it is asked, when whoever asked is gone, and when it is decided.
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
    pub request: Value,
    /// What was said by those of several who have to agree.
    #[serde(default)]
    pub votes: Vec<Value>,
    /// `None`: it waits.
    pub decision: Option<Value>,
    /// Nobody waits for the answer any more. A yes is for the next call that is the same, once, until the question expires.
    #[serde(default)]
    pub asker_gone: bool,
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
    /// Of an answer that is stored: `session` or `always-here`.
    #[serde(default, deserialize_with = "crate::shape::named", skip_serializing_if = "Option::is_none")]
    pub terms: Option<AnswerTerms>,
    #[serde(default)]
    pub reason: Option<String>,
    /// What the question said when it was read. A yes without it is a conflict once nobody waits any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asker_gone: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    Once,
    /// This command instead, once. It is judged like anything else, and takes scope `run` besides `approve`.
    Instead {
        argv: Vec<Data>,
    },
    Session,
    /// One of the offers, from 0.
    AlwaysHere {
        offer: usize,
    },
    Deny,
}

/// How long a stored answer holds, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerTerms {
    /// Without it as long as the session, or what the configuration says.
    #[serde(default)]
    pub expires_ms: Option<u64>,
    /// Without it as often as it is needed.
    #[serde(default)]
    pub uses: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answered", rename_all = "kebab-case")]
pub enum Answered {
    Decided {
        answer: String,
        /// What was stored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stored: Option<Box<StoredAnswer>>,
    },
    /// It takes more people.
    Counted { approve: usize, deny: usize },
}

/// An answer that holds for more than one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredAnswer {
    pub id: String,
    /// All of it: what it covers, who gave it, when it ends.
    pub grant: Value,
    /// RFC 3339.
    pub since: String,
    pub used: u32,
    /// `None`: without a limit.
    pub uses_left: Option<u32>,
    /// Of `always-here`: what it would have saved.
    pub matched: Option<Matched>,
}

/// Of how many of the last questions there something would have been the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Matched {
    pub count: usize,
    pub of: usize,
}

/// The stored answers that hold, in the workspaces you may know of.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListGrants {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GrantList {
    pub grants: Vec<StoredAnswer>,
}

/// Take a stored answer back; a unique beginning of its id is enough.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeGrant {
    pub id: String,
    #[serde(default)]
    pub reason: Option<String>,
}

/// Take back every stored answer that you may know of.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeAllGrants {
    #[serde(default)]
    pub reason: Option<String>,
}

/// The ids of what was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantsRevoked {
    pub grants: Vec<String>,
}
