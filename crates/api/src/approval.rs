//! Methods about approvals and grants.

use ringfence_ledger::{ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, GrantRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TextOrBase64;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListApprovals {}

/// Subscribes to approvals: first all pending ones, then each one when it is requested, orphaned or decided.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchApprovals {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalList {
    pub approvals: Vec<Approval>,
}

/// An approval as the ledger has it, with its votes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    pub id: String,
    pub session: String,
    /// RFC 3339.
    pub requested_at: String,
    /// RFC 3339.
    pub expires_at: String,
    pub risk: String,
    /// One sentence.
    pub summary: String,
    /// The whole request: prompt, binding, offered grants.
    #[schemars(with = "serde_json::Value")]
    pub request: Box<ApprovalRequest>,
    /// The votes so far, where a quorum is required.
    #[serde(default)]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub votes: Vec<ApprovalVote>,
    /// `None`: pending.
    #[schemars(with = "Option<serde_json::Value>")]
    pub decision: Option<ApprovalDecision>,
    /// The requesting process has ended. An approval counts once, for the next identical call, until the request expires.
    #[serde(default)]
    pub orphaned: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowApproval {
    pub id: String,
}

/// Answers an approval. The requester cannot answer its own.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerApproval {
    pub id: String,
    pub answer: ApprovalReply,
    /// Terms of the grant that `session` or `always-here` stores.
    #[serde(default, deserialize_with = "crate::schema::named", skip_serializing_if = "Option::is_none")]
    pub grant_terms: Option<ReplyTerms>,
    #[serde(default)]
    pub reason: Option<String>,
    /// Approve also if the request is orphaned. Without it, approving an orphaned request fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_orphaned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ApprovalReply {
    Once,
    /// Run this command instead, once. Policy evaluates it as any other, and scope `run` is required besides `approve`.
    Replace {
        argv: Vec<TextOrBase64>,
    },
    Session,
    /// The index of an offered grant, from 0.
    AlwaysHere {
        offer: usize,
    },
    Deny,
}

/// How long a grant is valid, and for how many uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplyTerms {
    /// Default: the end of the session, or the `grant_lifetime` of the configuration.
    #[serde(default)]
    pub expires_in_ms: Option<u64>,
    /// Default: unlimited.
    #[serde(default)]
    pub max_uses: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum ReplyResult {
    Decided {
        #[schemars(with = "String")]
        answer: ApprovalAnswer,
        /// The grant that was stored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<Box<GrantInfo>>,
    },
    /// The quorum is not reached yet.
    VoteCounted { approvals: usize, denials: usize },
}

/// A grant and its use so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantInfo {
    pub id: String,
    /// The record of the ledger: what the grant covers, who created it, when it expires.
    #[schemars(with = "serde_json::Value")]
    pub record: GrantRecord,
    /// RFC 3339.
    pub created_at: String,
    pub uses: u32,
    /// `None`: unlimited.
    pub uses_left: Option<u32>,
    /// For `always-here`: how many recent requests it would have answered.
    pub would_have_matched: Option<GrantMatchCount>,
}

/// Number of recent requests in the workspace that a grant matches, and of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantMatchCount {
    pub count: usize,
    pub total: usize,
}

/// Lists the active grants of the workspaces that the caller may see.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListGrants {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GrantList {
    pub grants: Vec<GrantInfo>,
}

/// Revokes a grant, by its id or a unique prefix.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeGrant {
    pub id: String,
    #[serde(default)]
    pub reason: Option<String>,
}

/// Revokes every grant that the caller may see.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeAllGrants {
    #[serde(default)]
    pub reason: Option<String>,
}

/// The ids of the revoked grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantsRevoked {
    pub grants: Vec<String>,
}
