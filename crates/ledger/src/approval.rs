//! What is written down of a question and its answer.

use jiff::Timestamp;
use ringfence_types::{
    Bytes, Call, Card, Fingerprint, GrantId, Layer, MadeBy, Offer, Principal, Quorum, Risk, Root, SessionId,
    ShownCredential, TransactionId, WorkspaceId,
};
use serde::{Deserialize, Serialize};

/// A person is asked. On disk before the question is shown (S001-27).
///
/// The id of a question is its transaction: a transaction is asked about at most once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    pub transaction: TransactionId,
    pub session: SessionId,
    pub workspace: WorkspaceId,
    /// Without secrets.
    pub call: Call,
    /// What the call may touch: part of its fingerprint.
    #[serde(default)]
    pub roots: Vec<Root>,
    pub fingerprint: Fingerprint,
    /// Digest of everything the answer is bound to: the fingerprint and what it meant when the question was asked.
    pub binding: String,
    /// The same without the session: what a yes is for once whoever asked is gone. `None`: the question ends with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// What of it can change while the question waits.
    pub bound: Vec<Bound>,
    pub rule: String,
    pub layer: Layer,
    pub reason: String,
    pub risk: Risk,
    pub requester: Principal,
    /// After this the answer is no.
    pub expires: Timestamp,
    pub quorum: Quorum,
    pub reason_rule: ReasonRule,
    /// What "always here" could store, narrow first.
    pub offers: Vec<Offer>,
    pub card: Card,
    /// Who made the call, where that is known. `requester` is whose session it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<MadeBy>>,
}

/// Something of the machine that an answer was given for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    pub what: BoundKind,
    pub path: Bytes,
    /// SHA-256 of the content; for a directory, of what it is.
    pub sha256: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoundKind {
    /// The file that would be executed.
    Program,
    /// The program of an image; its digest is the image's.
    Image,
    /// A file that an argument names: what an interpreter would run, for example.
    Operand,
    /// The working directory.
    Directory,
    /// A policy file.
    Policy,
}

/// Whether an answer has to say why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonRule {
    #[default]
    Optional,
    Required,
}

/// What one person said, where it takes several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalVote {
    pub transaction: TransactionId,
    pub by: Principal,
    pub vote: Vote,
    pub reason: Option<String>,
    /// What they showed over the interface of the daemon, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<ShownCredential>,
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

/// The answer, on disk before anything follows from it (S001-28).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDecision {
    pub transaction: TransactionId,
    pub session: SessionId,
    /// Of what was approved: that of the question, or of `edited`.
    pub fingerprint: Fingerprint,
    pub answer: ApprovalAnswer,
    pub by: Principal,
    pub reason: Option<String>,
    /// What may be done instead of what was asked for. Without secrets in the record; the fingerprint is that of the
    /// real one.
    pub edited: Option<Call>,
    /// What the call that was approved instead is for, besides what the question was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound: Vec<Bound>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalAnswer {
    Once,
    Session,
    AlwaysHere,
    Denied,
    /// Nobody answered in time.
    Expired,
    /// Nobody could be asked.
    Unreachable,
    /// What was asked about is not what it was any more; it has to be asked again.
    Superseded,
}

impl ApprovalAnswer {
    pub fn permits(self) -> bool {
        match self {
            Self::Once | Self::Session | Self::AlwaysHere => true,
            Self::Denied | Self::Expired | Self::Unreachable | Self::Superseded => false,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::AlwaysHere => "always-here",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Unreachable => "unreachable",
            Self::Superseded => "superseded",
        }
    }
}

/// A stored answer: what it permits is permitted without a question until it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantMade {
    pub grant: GrantId,
    /// The question that it answers.
    pub transaction: TransactionId,
    pub session: SessionId,
    pub workspace: WorkspaceId,
    pub covers: Covers,
    pub permits: String,
    pub by: Principal,
    pub expires: Option<Timestamp>,
    /// How often it may be used; `None`: without a limit.
    pub uses: Option<u32>,
}

/// What a grant is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "covers", rename_all = "kebab-case")]
pub enum Covers {
    /// The same action, with everything it was bound to, in the same session.
    Session { binding: String },
    /// Whatever these rules allow, in the same workspace.
    Here {
        directory: Bytes,
        /// Text of a policy file.
        rules: String,
    },
    /// The same action, with everything it was bound to but the session, in the same workspace: a yes to a question whose
    /// asker was gone.
    Next { directory: Bytes, binding: String },
}
