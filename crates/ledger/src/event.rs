use ringfence_types::{
    Backend, Bytes, Call, CallId, Decision, Fingerprint, Layer, Limits, Outcome, Posture, Profile, Refusal,
    Risk, Root, SessionId, TransactionId, WorkspaceId,
};
use serde::{Deserialize, Serialize};

/// One entry of the ledger.
///
/// Records are read for years: a new field needs `#[serde(default)]`, a new variant a new schema version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    SessionStarted {
        session: SessionId,
        workspace_id: WorkspaceId,
        workspace: Bytes,
        profile: Profile,
        /// `None`: whichever backend the ladder finds.
        backend_wanted: Option<Backend>,
        /// Of the program that wrote this.
        version: String,
    },
    /// A person is asked. On disk before the question is shown (S001-27).
    ApprovalRequested {
        transaction: TransactionId,
        session: SessionId,
        call: Call,
        fingerprint: Fingerprint,
        rule: String,
        layer: Layer,
        reason: String,
        risk: Risk,
    },
    /// The answer, on disk before anything follows from it (S001-28).
    ApprovalDecided {
        transaction: TransactionId,
        session: SessionId,
        fingerprint: Fingerprint,
        answer: ApprovalAnswer,
    },
    /// What is allowed from now on was changed: a rule was stored, a policy file was approved.
    PolicyChanged {
        session: Option<SessionId>,
        file: Bytes,
        /// Of the file after the change.
        sha256: String,
        change: String,
    },
    /// Something is about to be done. On disk before it happens.
    Intent {
        transaction: TransactionId,
        session: SessionId,
        call_id: CallId,
        call: Call,
        fingerprint: Fingerprint,
        decision: Decision,
        layer: Layer,
        rule: String,
        profile: Profile,
        roots: Vec<Root>,
        limits: Limits,
        findings: Vec<String>,
    },
    /// The answer was no, and nothing was done.
    Refused {
        transaction: Option<TransactionId>,
        session: Option<SessionId>,
        call: Option<Call>,
        refusal: Refusal,
    },
    /// What came of an intent.
    Settled {
        transaction: TransactionId,
        outcome: Option<Outcome>,
        posture: Option<Posture>,
        /// Why there is no outcome: we broke.
        failure: Option<String>,
    },
    SessionEnded {
        session: SessionId,
    },
    /// One run of the escape battery.
    Battery {
        passed: u32,
        total: u32,
        backend: Backend,
        attempts: Vec<BatteryEntry>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalAnswer {
    Once,
    Session,
    AlwaysHere,
    Denied,
    /// Nobody could be asked.
    Unreachable,
}

impl ApprovalAnswer {
    pub fn permits(self) -> bool {
        match self {
            Self::Once | Self::Session | Self::AlwaysHere => true,
            Self::Denied | Self::Unreachable => false,
        }
    }
}

/// One attempt of the escape battery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatteryEntry {
    pub id: String,
    pub verdict: Verdict,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Held,
    Escaped,
    /// The attempt does not even succeed without the fence, so it says nothing.
    ControlFailed,
}

impl Event {
    /// The word that is stored beside the body; the same as its `kind` in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SessionStarted { .. } => "session-started",
            Self::ApprovalRequested { .. } => "approval-requested",
            Self::ApprovalDecided { .. } => "approval-decided",
            Self::PolicyChanged { .. } => "policy-changed",
            Self::Intent { .. } => "intent",
            Self::Refused { .. } => "refused",
            Self::Settled { .. } => "settled",
            Self::SessionEnded { .. } => "session-ended",
            Self::Battery { .. } => "battery",
        }
    }

    pub fn transaction(&self) -> Option<&TransactionId> {
        match self {
            Self::ApprovalRequested { transaction, .. }
            | Self::ApprovalDecided { transaction, .. }
            | Self::Intent { transaction, .. }
            | Self::Settled { transaction, .. } => Some(transaction),
            Self::Refused { transaction, .. } => transaction.as_ref(),
            Self::SessionStarted { .. }
            | Self::SessionEnded { .. }
            | Self::PolicyChanged { .. }
            | Self::Battery { .. } => None,
        }
    }

    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::SessionStarted { session, .. }
            | Self::ApprovalRequested { session, .. }
            | Self::ApprovalDecided { session, .. }
            | Self::Intent { session, .. }
            | Self::SessionEnded { session } => Some(session),
            Self::Refused { session, .. } | Self::PolicyChanged { session, .. } => session.as_ref(),
            Self::Settled { .. } | Self::Battery { .. } => None,
        }
    }

    pub fn call_id(&self) -> Option<&CallId> {
        match self {
            Self::Intent { call_id, .. } => Some(call_id),
            _ => None,
        }
    }

    /// Every id under which a person may ask for this event.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        let transaction = self.transaction().map(TransactionId::as_str);
        let session = self.session().map(SessionId::as_str);
        let call = self.call_id().map(CallId::as_str);
        [transaction, session, call].into_iter().flatten()
    }
}
