//! Events: the content of every kind of record.

use std::net::IpAddr;

use jiff::Timestamp;
use ringfence_types::{
    ActionFingerprint, Backend, ByteString, Call, CallOrigin, ChainId, Decision, Delivery, GrantId,
    HeldChange, IdentityChange, LandingAction, LeakAction, LimitName, Limits, Outcome, Patch, PolicyLayer,
    Posture, Principal, Profile, Refusal, Root, RuleName, SecretClass, SessionId, TransactionId,
    UnlandedEntry, WorkspaceId,
};
use serde::{Deserialize, Serialize};

use crate::approval::{ApprovalDecision, ApprovalRequest, ApprovalVote, GrantRecord};
use crate::chain::ChainHead;

/// Reason for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionEndReason {
    /// The session was complete.
    Finished,
    /// A client stopped it.
    Stopped,
    /// Its time limit was reached.
    Timeout,
    /// It was idle for too long.
    Idle,
    /// Its token was revoked.
    Revoked,
    /// The agent program ended.
    AgentExited,
    /// The agent program could not run, or its sandbox failed.
    Crashed,
    /// The parent session ended.
    ParentEnded,
    /// The daemon stopped.
    DaemonStopped,
    /// The daemon died without recording an end, and the session with it.
    DaemonLost,
    /// A secret leaked, and policy ends the session.
    Leak,
}

/// One entry of the ledger.
///
/// Records are read for years, so a new field needs `#[serde(default)]`. An older program refuses a ledger with a kind that it
/// does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    SessionStarted {
        session: SessionId,
        /// Name under which a later process can continue the session.
        name: Option<String>,
        workspace_id: WorkspaceId,
        workspace: ByteString,
        profile: Profile,
        /// `None`: chosen automatically.
        requested_backend: Option<Backend>,
        agent: Option<String>,
        /// Principal that started the session.
        principal: Principal,
        /// Digest of the effective policy.
        policy_digest: String,
        /// Version of Ringfence that wrote the record.
        version: String,
        /// Process of the session. When it is gone, another process may close the open transactions.
        #[serde(default)]
        process: Option<ProcessId>,
    },
    SessionEnded {
        session: SessionId,
        /// `None`: written by an earlier version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<SessionEndReason>,
    },
    ApprovalRequested(Box<ApprovalRequest>),
    /// A notification about an approval was sent, or failed.
    ApprovalNotified {
        transaction: TransactionId,
        /// `desktop`, `webhook`.
        channel: String,
        /// `None`: delivered.
        failure: Option<String>,
    },
    ApprovalVoted(ApprovalVote),
    /// The requester is gone and the approval is orphaned: a yes counts for the next identical call.
    ApprovalOrphaned {
        transaction: TransactionId,
        session: SessionId,
        reason: String,
    },
    ApprovalDecided(Box<ApprovalDecision>),
    GrantCreated(Box<GrantRecord>),
    GrantRevoked {
        grant: GrantId,
        actor: Principal,
        reason: Option<String>,
    },
    /// The policy was changed: a policy file was approved or a setting changed.
    PolicyChanged {
        session: Option<SessionId>,
        file: ByteString,
        /// Digest of the file after the change.
        sha256: String,
        change: String,
    },
    /// An authentication attempt.
    AuthenticationAttempted {
        principal: Principal,
        /// What the client wanted to do.
        purpose: String,
        /// `None`: authenticated.
        refusal: Option<Refusal>,
    },
    /// An operator, token or device was changed.
    IdentityChanged {
        actor: Principal,
        change: Box<IdentityChange>,
    },
    /// A `review` session submitted a proposal. The workspace is unchanged.
    ProposalCreated {
        transaction: TransactionId,
        session: SessionId,
        workspace_id: WorkspaceId,
        workspace: ByteString,
        patch: Patch,
        /// The agent's title, untrusted.
        title: Option<String>,
        findings: Vec<RecordedFinding>,
        actor: Principal,
    },
    /// The workspace differs from the base of the proposal; nothing was written.
    ProposalConflicted {
        transaction: TransactionId,
        files: Vec<ByteString>,
    },
    /// The proposal was discarded.
    ProposalDiscarded {
        transaction: TransactionId,
        actor: Principal,
        reason: Option<String>,
    },
    /// An effect is about to happen. Durable before it does.
    CallIntended {
        transaction: TransactionId,
        session: SessionId,
        call: Call,
        fingerprint: ActionFingerprint,
        decision: Decision,
        layer: PolicyLayer,
        rule: RuleName,
        /// The grant that allowed it.
        grant: Option<GrantId>,
        profile: Profile,
        policy_digest: String,
        roots: Vec<Root>,
        limits: Limits,
        findings: Vec<RecordedFinding>,
        /// Origin of the call, if known: one session may have several callers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_origin: Option<Box<CallOrigin>>,
    },
    /// A secret is about to be released. Durable before it is; never holds the value.
    SecretReleased {
        transaction: TransactionId,
        session: SessionId,
        name: String,
        class: SecretClass,
        delivery: Delivery,
        /// Keyed digest of the value. Tells only whether two releases had the same value.
        fingerprint: String,
    },
    /// A sandbox is running; the posture it enforces.
    SandboxStarted {
        transaction: TransactionId,
        session: SessionId,
        posture: Posture,
        /// Stronger backends that could not be used, each with the reason.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped_backends: Vec<String>,
    },
    LimitReached {
        transaction: TransactionId,
        session: SessionId,
        limit: LimitName,
    },
    /// Secrets were found in output or requests. Never holds the values.
    SecretsFound {
        /// `None`: the call was not started.
        transaction: Option<TransactionId>,
        session: SessionId,
        /// What policy did about them.
        action: LeakAction,
        findings: Vec<RecordedFinding>,
        /// Number of further findings.
        omitted: u64,
    },
    /// Changes from inside that a host program would execute were made ineffective.
    ChangesHeld {
        session: SessionId,
        changes: Vec<HeldChange>,
    },
    /// The changes of a layer are in the roots, or out of them. The intent has every path with its states before and after.
    ChangesLanded {
        transaction: TransactionId,
        session: SessionId,
        layer: TransactionId,
        action: LandingAction,
        /// Number of paths that landed.
        landed: u64,
        /// The other paths of the intent.
        unlanded: Vec<UnlandedEntry>,
    },
    /// The changes of a layer are about to be dropped.
    LayerDiscarded {
        layer: TransactionId,
        actor: Principal,
        changes: u64,
    },
    /// The loop guard saw repeated or alternating calls.
    LoopDetected {
        session: SessionId,
        fingerprint: ActionFingerprint,
        repeats: u32,
        stopped: bool,
    },
    /// The call was refused; nothing was executed.
    CallRefused {
        transaction: Option<TransactionId>,
        session: Option<SessionId>,
        call: Option<Call>,
        refusal: Refusal,
        /// Origin of the call, as in an intent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_origin: Option<Box<CallOrigin>>,
    },
    /// A claim of the agent about its activity; untrusted.
    ActivityReported {
        session: SessionId,
        activity: String,
        claim: String,
    },
    /// The outcome of an intent.
    CallSettled {
        transaction: TransactionId,
        session: SessionId,
        outcome: Option<Outcome>,
        /// Reason why there is no outcome: an internal error.
        failure: Option<String>,
        /// The agent to which the call was delegated. Its outcome is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delegated_to: Option<String>,
        /// Notes about repairs, moved files and omissions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A flow is about to connect to this address, in addition to that of its intent.
    FlowOpened {
        transaction: TransactionId,
        session: SessionId,
        address: IpAddr,
    },
    /// The end of a flow that was opened. Its intent has the target.
    FlowEnded {
        transaction: TransactionId,
        session: SessionId,
        /// Bytes sent and received.
        bytes_out: u64,
        bytes_in: u64,
        duration_ms: u64,
        /// Upstream error; `None`: both sides closed.
        failure: Option<String>,
    },
    /// The process of the transaction died. Its effect is unknown.
    CallInterrupted {
        transaction: TransactionId,
        reason: String,
    },
    /// The ledger was read or exported.
    LedgerRead {
        actor: Principal,
        operation: LedgerReadKind,
        records: u64,
    },
    /// Bodies of old records were pruned; their digests stay in the chain.
    LedgerPruned {
        actor: Principal,
        /// Records before this number.
        before: u64,
        records: u64,
        classes: Vec<RetentionClass>,
        /// The pruned records: first and last number of each range.
        ranges: Vec<(u64, u64)>,
    },
    /// One run of the escape battery.
    BatteryFinished {
        passed: u32,
        total: u32,
        backend: Backend,
        attempts: Vec<AttemptRecord>,
    },
    /// The first record of every chain.
    ChainStarted {
        chain: ChainId,
        node: String,
        /// The public key of the chain, 64 hexadecimal digits.
        key: String,
        version: String,
        /// The chain that this one continues: set aside or converted.
        continues: Option<PreviousChain>,
    },
    /// A signed statement about all records since the previous checkpoint.
    CheckpointSigned(Checkpoint),
    /// The key of the chain changes; both keys have signed this.
    LedgerKeyRotated {
        old: String,
        new: String,
        by_old: String,
        by_new: String,
    },
    /// Witness record: the head of another chain and its key. To roll that chain back unnoticed, an attacker must roll this one
    /// back too.
    ChainWitnessed {
        chain: ChainId,
        head: ChainHead,
        key: String,
    },
    /// The head of another chain has no valid signature of its node, so it was not witnessed.
    ChainWitnessRefused {
        chain: ChainId,
        head: ChainHead,
    },
    /// An operator of this node accepts that another chain was set aside without a signature of its key.
    ChainAcknowledged {
        chain: ChainId,
        node: String,
        /// Digest of the content of that chain.
        digest: String,
        actor: Principal,
        reason: String,
    },
}

/// A finding of the scanner and its location. Never holds the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFinding {
    pub rule: String,
    /// `argv[2]`, `env TOKEN`, a path with a line, `stdout` with the number of its first byte.
    pub location: String,
    /// Salted digest. Tells only whether two findings are the same secret.
    pub fingerprint: String,
    /// `None`: plain. Otherwise the encodings, outermost first: `base64/gzip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerReadKind {
    Tail,
    Show,
    Prove,
    Export,
}

/// Identity of a process on one machine and boot. A pid alone can be reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    /// PID namespace of the pid: the inode of `/proc/self/ns/pid`.
    pub namespace: u64,
    /// Clock ticks after boot, as in `/proc/PID/stat`.
    pub start_time: u64,
    /// As in `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// Retention class: determines how long a record is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetentionClass {
    /// Effects and outcomes.
    Activity,
    /// Approvals, grants, policy and authentication.
    Consent,
    /// Records about the ledger itself. Never pruned.
    Ledger,
}

/// The previous chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousChain {
    /// The file it was moved to.
    pub file: ByteString,
    /// Its last valid head.
    pub head: Option<ChainHead>,
    /// Reason why it was set aside; `None`: converted from an older format.
    pub problem: Option<String>,
    pub actor: Principal,
    pub reason: Option<String>,
    /// Which chain it was: the newest that the anchor knew, or else the one that was put aside. `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainId>,
    /// In a database: proof of what was set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<AsideProof>,
}

impl PreviousChain {
    pub(crate) fn is_chain(&self, chain: &ChainId) -> bool {
        self.chain.as_ref() == Some(chain) || self.proof.as_ref().is_some_and(|proof| proof.chain == *chain)
    }
}

/// Proof that the key of a chain has signed that it is set aside with this content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsideProof {
    pub chain: ChainId,
    /// Digest of the whole chain at that time.
    pub digest: String,
    /// `None`: the key was lost.
    pub signature: Option<String>,
}

/// A signed statement about the records `first ..= last`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub chain: ChainId,
    pub first: u64,
    pub last: u64,
    /// The hash of record `last`.
    pub head: String,
    /// Merkle root (RFC 6962) over the hashes of the records.
    pub root: String,
    pub time: Timestamp,
    pub key: String,
    pub signature: String,
}

/// One attempt of the escape battery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub id: String,
    pub verdict: AttemptVerdictWord,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptVerdictWord {
    Held,
    Escaped,
    /// The attempt fails even without the fence, so its result has no meaning.
    ControlFailed,
}

macro_rules! kinds {
    ($($variant:ident $word:literal $class:ident,)+) => {
        /// The kind of an event, stored beside its body.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($variant),+ }

        impl Kind {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            pub fn of_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }

            pub fn class(self) -> RetentionClass {
                match self { $(Self::$variant => RetentionClass::$class),+ }
            }
        }
    };
}

kinds! {
    SessionStarted "session-started" Activity,
    SessionEnded "session-ended" Activity,
    ApprovalRequested "approval-requested" Consent,
    ApprovalNotified "approval-notified" Consent,
    ApprovalVoted "approval-voted" Consent,
    ApprovalOrphaned "approval-orphaned" Consent,
    ApprovalDecided "approval-decided" Consent,
    GrantCreated "grant-created" Consent,
    GrantRevoked "grant-revoked" Consent,
    PolicyChanged "policy-changed" Consent,
    AuthenticationAttempted "authentication-attempted" Consent,
    IdentityChanged "identity-changed" Consent,
    ProposalCreated "proposal-created" Activity,
    ProposalConflicted "proposal-conflicted" Activity,
    ProposalDiscarded "proposal-discarded" Activity,
    CallIntended "call-intended" Activity,
    SecretReleased "secret-released" Consent,
    SandboxStarted "sandbox-started" Activity,
    LimitReached "limit-reached" Activity,
    SecretsFound "secrets-found" Activity,
    ChangesHeld "changes-held" Activity,
    ChangesLanded "changes-landed" Activity,
    LayerDiscarded "layer-discarded" Activity,
    LoopDetected "loop-detected" Activity,
    CallRefused "call-refused" Activity,
    ActivityReported "activity-reported" Activity,
    CallSettled "call-settled" Activity,
    FlowOpened "flow-opened" Activity,
    FlowEnded "flow-ended" Activity,
    CallInterrupted "call-interrupted" Activity,
    LedgerRead "ledger-read" Consent,
    LedgerPruned "ledger-pruned" Ledger,
    BatteryFinished "battery-finished" Activity,
    ChainStarted "chain-started" Ledger,
    CheckpointSigned "checkpoint-signed" Ledger,
    LedgerKeyRotated "ledger-key-rotated" Ledger,
    ChainWitnessed "chain-witnessed" Ledger,
    ChainWitnessRefused "chain-witness-refused" Ledger,
    ChainAcknowledged "chain-acknowledged" Ledger,
}

impl Event {
    pub fn kind(&self) -> Kind {
        match self {
            Self::SessionStarted { .. } => Kind::SessionStarted,
            Self::SessionEnded { .. } => Kind::SessionEnded,
            Self::ApprovalRequested(_) => Kind::ApprovalRequested,
            Self::ApprovalNotified { .. } => Kind::ApprovalNotified,
            Self::ApprovalVoted(_) => Kind::ApprovalVoted,
            Self::ApprovalOrphaned { .. } => Kind::ApprovalOrphaned,
            Self::ApprovalDecided(_) => Kind::ApprovalDecided,
            Self::GrantCreated(_) => Kind::GrantCreated,
            Self::GrantRevoked { .. } => Kind::GrantRevoked,
            Self::PolicyChanged { .. } => Kind::PolicyChanged,
            Self::AuthenticationAttempted { .. } => Kind::AuthenticationAttempted,
            Self::IdentityChanged { .. } => Kind::IdentityChanged,
            Self::ProposalCreated { .. } => Kind::ProposalCreated,
            Self::ProposalConflicted { .. } => Kind::ProposalConflicted,
            Self::ProposalDiscarded { .. } => Kind::ProposalDiscarded,
            Self::CallIntended { .. } => Kind::CallIntended,
            Self::SecretReleased { .. } => Kind::SecretReleased,
            Self::SandboxStarted { .. } => Kind::SandboxStarted,
            Self::LimitReached { .. } => Kind::LimitReached,
            Self::SecretsFound { .. } => Kind::SecretsFound,
            Self::ChangesHeld { .. } => Kind::ChangesHeld,
            Self::ChangesLanded { .. } => Kind::ChangesLanded,
            Self::LayerDiscarded { .. } => Kind::LayerDiscarded,
            Self::LoopDetected { .. } => Kind::LoopDetected,
            Self::CallRefused { .. } => Kind::CallRefused,
            Self::ActivityReported { .. } => Kind::ActivityReported,
            Self::CallSettled { .. } => Kind::CallSettled,
            Self::FlowOpened { .. } => Kind::FlowOpened,
            Self::FlowEnded { .. } => Kind::FlowEnded,
            Self::CallInterrupted { .. } => Kind::CallInterrupted,
            Self::LedgerRead { .. } => Kind::LedgerRead,
            Self::LedgerPruned { .. } => Kind::LedgerPruned,
            Self::BatteryFinished { .. } => Kind::BatteryFinished,
            Self::ChainStarted { .. } => Kind::ChainStarted,
            Self::CheckpointSigned(_) => Kind::CheckpointSigned,
            Self::LedgerKeyRotated { .. } => Kind::LedgerKeyRotated,
            Self::ChainWitnessed { .. } => Kind::ChainWitnessed,
            Self::ChainWitnessRefused { .. } => Kind::ChainWitnessRefused,
            Self::ChainAcknowledged { .. } => Kind::ChainAcknowledged,
        }
    }

    pub fn transaction(&self) -> Option<&TransactionId> {
        match self {
            Self::ApprovalRequested(request) => Some(&request.transaction),
            Self::ApprovalVoted(vote) => Some(&vote.transaction),
            Self::ApprovalDecided(decision) => Some(&decision.transaction),
            Self::GrantCreated(made) => Some(&made.transaction),
            Self::ApprovalNotified { transaction, .. }
            | Self::ApprovalOrphaned { transaction, .. }
            | Self::ProposalCreated { transaction, .. }
            | Self::ProposalConflicted { transaction, .. }
            | Self::ProposalDiscarded { transaction, .. }
            | Self::CallIntended { transaction, .. }
            | Self::SecretReleased { transaction, .. }
            | Self::SandboxStarted { transaction, .. }
            | Self::LimitReached { transaction, .. }
            | Self::ChangesLanded { transaction, .. }
            | Self::CallSettled { transaction, .. }
            | Self::FlowOpened { transaction, .. }
            | Self::FlowEnded { transaction, .. }
            | Self::CallInterrupted { transaction, .. } => Some(transaction),
            Self::CallRefused { transaction, .. } | Self::SecretsFound { transaction, .. } => {
                transaction.as_ref()
            }
            Self::SessionStarted { .. }
            | Self::SessionEnded { .. }
            | Self::GrantRevoked { .. }
            | Self::PolicyChanged { .. }
            | Self::AuthenticationAttempted { .. }
            | Self::IdentityChanged { .. }
            | Self::ChangesHeld { .. }
            | Self::LayerDiscarded { .. }
            | Self::LoopDetected { .. }
            | Self::ActivityReported { .. }
            | Self::LedgerRead { .. }
            | Self::LedgerPruned { .. }
            | Self::BatteryFinished { .. }
            | Self::ChainStarted { .. }
            | Self::CheckpointSigned(_)
            | Self::LedgerKeyRotated { .. }
            | Self::ChainWitnessed { .. }
            | Self::ChainWitnessRefused { .. }
            | Self::ChainAcknowledged { .. } => None,
        }
    }

    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::ApprovalRequested(request) => Some(&request.session),
            Self::ApprovalDecided(decision) => Some(&decision.session),
            Self::GrantCreated(made) => Some(&made.session),
            Self::SessionStarted { session, .. }
            | Self::SessionEnded { session, .. }
            | Self::ApprovalOrphaned { session, .. }
            | Self::ActivityReported { session, .. }
            | Self::ProposalCreated { session, .. }
            | Self::CallIntended { session, .. }
            | Self::SecretReleased { session, .. }
            | Self::SandboxStarted { session, .. }
            | Self::LimitReached { session, .. }
            | Self::SecretsFound { session, .. }
            | Self::ChangesHeld { session, .. }
            | Self::ChangesLanded { session, .. }
            | Self::LoopDetected { session, .. }
            | Self::CallSettled { session, .. }
            | Self::FlowOpened { session, .. }
            | Self::FlowEnded { session, .. } => Some(session),
            Self::CallRefused { session, .. } | Self::PolicyChanged { session, .. } => session.as_ref(),
            Self::ApprovalNotified { .. }
            | Self::ApprovalVoted(_)
            | Self::GrantRevoked { .. }
            | Self::AuthenticationAttempted { .. }
            | Self::IdentityChanged { .. }
            | Self::ProposalConflicted { .. }
            | Self::ProposalDiscarded { .. }
            | Self::LayerDiscarded { .. }
            | Self::CallInterrupted { .. }
            | Self::LedgerRead { .. }
            | Self::LedgerPruned { .. }
            | Self::BatteryFinished { .. }
            | Self::ChainStarted { .. }
            | Self::CheckpointSigned(_)
            | Self::LedgerKeyRotated { .. }
            | Self::ChainWitnessed { .. }
            | Self::ChainWitnessRefused { .. }
            | Self::ChainAcknowledged { .. } => None,
        }
    }

    /// The grant that is created, used or revoked.
    pub fn grant(&self) -> Option<&GrantId> {
        match self {
            Self::GrantCreated(made) => Some(&made.grant),
            Self::GrantRevoked { grant, .. } => Some(grant),
            Self::CallIntended { grant, .. } => grant.as_ref(),
            _ => None,
        }
    }

    /// Ids under which the event can be looked up.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let transaction = self.transaction().map(TransactionId::as_str);
        let session = self.session().map(SessionId::as_str);
        let grant = self.grant().map(GrantId::as_str);
        [transaction, session, grant].into_iter().flatten()
    }
}
