//! Records of approvals: request, votes, decision and grant.

use jiff::Timestamp;
use ringfence_types::{
    ActionFingerprint, ApprovalPrompt, ByteString, Call, CallOrigin, CredentialRef, GrantId, GrantOffer,
    PolicyLayer, Principal, Quorum, Risk, Root, RuleName, SessionId, TransactionId, WorkspaceId,
};
use serde::{Deserialize, Serialize};

/// A request for approval. Durable before a person sees it (S001-27).
///
/// The id of an approval is its transaction: a transaction has at most one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    pub transaction: TransactionId,
    pub session: SessionId,
    pub workspace: WorkspaceId,
    /// Secrets are redacted.
    pub call: Call,
    /// Roots of the call: part of its fingerprint.
    #[serde(default)]
    pub roots: Vec<Root>,
    pub fingerprint: ActionFingerprint,
    /// Digest of everything the answer is valid for: the fingerprint, and the state of the named files when the request was made.
    pub binding: String,
    /// The binding without the session, for an answer after the requester is gone. `None`: the request ends with its requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding_without_session: Option<String>,
    /// Bound objects that may change while the request is pending.
    pub bound_objects: Vec<BoundObject>,
    pub rule: RuleName,
    pub layer: PolicyLayer,
    pub reason: String,
    pub risk: Risk,
    pub requester: Principal,
    /// The request is denied after this time.
    pub expires_at: Timestamp,
    pub quorum: Quorum,
    pub reason_requirement: ReasonRequirement,
    /// Grants that "always here" could store, narrowest first.
    pub grant_offers: Vec<GrantOffer>,
    pub prompt: ApprovalPrompt,
    /// Origin of the call, if known. `requester` is the principal of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_origin: Option<Box<CallOrigin>>,
}

/// An object of the machine that an answer is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundObject {
    pub kind: BoundObjectKind,
    pub path: ByteString,
    /// SHA-256 of the content; for a directory, of its identity.
    pub sha256: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoundObjectKind {
    /// The program to execute.
    Program,
    /// A program of an image; the digest is that of the image.
    Image,
    /// A file named by an argument, such as a script for an interpreter.
    Operand,
    /// The working directory.
    Directory,
    /// A policy file.
    Policy,
}

/// Whether an answer needs a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonRequirement {
    #[default]
    Optional,
    Required,
}

/// The vote of one person, where a quorum is required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalVote {
    pub transaction: TransactionId,
    pub actor: Principal,
    pub vote: Vote,
    pub reason: Option<String>,
    /// Credential that the voter used at the daemon, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialRef>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vote {
    Approve,
    Deny,
}

impl Vote {
    pub fn word(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

/// The answer. Durable before it takes effect (S001-28).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDecision {
    pub transaction: TransactionId,
    pub session: SessionId,
    /// Fingerprint of the approved action: that of the request, or of `edited`.
    pub fingerprint: ActionFingerprint,
    pub answer: ApprovalAnswer,
    pub actor: Principal,
    pub reason: Option<String>,
    /// Replacement for the requested call. Redacted in the record; the fingerprint is that of the real call.
    pub replacement: Option<Call>,
    /// Objects that the replacement is bound to, besides those of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound_objects: Vec<BoundObject>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalAnswer {
    Once,
    Session,
    AlwaysHere,
    Deny,
    /// No answer in time.
    Expired,
    /// No approver was available.
    Unreachable,
    /// The bound objects changed, so a new request is needed.
    Superseded,
}

impl ApprovalAnswer {
    pub fn permits(self) -> bool {
        match self {
            Self::Once | Self::Session | Self::AlwaysHere => true,
            Self::Deny | Self::Expired | Self::Unreachable | Self::Superseded => false,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::AlwaysHere => "always-here",
            Self::Deny => "deny",
            Self::Expired => "expired",
            Self::Unreachable => "unreachable",
            Self::Superseded => "superseded",
        }
    }
}

/// A stored grant: matching actions need no approval until it expires or is revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantRecord {
    pub grant: GrantId,
    /// The approval that created it.
    pub transaction: TransactionId,
    pub session: SessionId,
    pub workspace: WorkspaceId,
    pub covers: GrantSubject,
    pub permits: String,
    pub actor: Principal,
    pub expires_at: Option<Timestamp>,
    /// Maximum number of uses; `None`: unlimited.
    pub max_uses: Option<u32>,
}

/// What a grant covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "covers", rename_all = "kebab-case")]
pub enum GrantSubject {
    /// The same action with the same binding, in the same session.
    Session { binding: String },
    /// Everything these rules allow, in the same workspace.
    Here {
        directory: ByteString,
        /// Text of a policy file.
        rules: String,
    },
    /// The same action with the same binding except for the session, in the same workspace: an approval of an orphaned request.
    Next { directory: ByteString, binding: String },
}
