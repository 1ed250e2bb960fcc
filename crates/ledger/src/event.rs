use std::net::IpAddr;

use jiff::Timestamp;
use ringfence_types::{
    Backend, Bytes, Call, ChainId, Decision, Delivery, Fingerprint, GrantId, HeldChange, IdentityChange,
    Layer, LeakAction, LimitName, Limits, MadeBy, Outcome, Patch, Posture, Principal, Profile, Refusal, Root,
    SecretClass, SessionId, TransactionId, WorkspaceId,
};
use serde::{Deserialize, Serialize};

use crate::approval::{ApprovalDecision, ApprovalRequest, ApprovalVote, GrantMade};
use crate::chain::Head;

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionEnd {
    /// It had nothing more to do.
    Finished,
    /// Somebody ended it.
    Stopped,
    /// Its time was over.
    Timeout,
    /// Nothing was asked of it for too long.
    Idle,
    /// Its token was revoked.
    Revoked,
    /// The program that was its agent ended.
    ProviderEnded,
    /// That program could not be run, or the fence around it broke.
    Crashed,
    /// The session that it was a part of ended.
    WholeEnded,
    /// The daemon was ended.
    DaemonStopped,
    /// The process that it lived in is gone without a word, and it with that process.
    DaemonGone,
    /// A secret was on its way out.
    Secret,
}

/// One entry of the ledger.
///
/// Records are read for years: a new field needs `#[serde(default)]`, a new variant a new schema version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    SessionStarted {
        session: SessionId,
        /// Under which a later process can go on with it.
        name: Option<String>,
        workspace_id: WorkspaceId,
        workspace: Bytes,
        profile: Profile,
        /// `None`: whichever backend the ladder finds.
        backend_wanted: Option<Backend>,
        agent: Option<String>,
        /// Who started it.
        principal: Principal,
        /// Digest of the policy in force.
        policy: String,
        /// Of the program that wrote this.
        version: String,
        /// The process it lives in: whoever finds it gone may close what it left open.
        #[serde(default)]
        process: Option<ProcessId>,
    },
    SessionEnded {
        session: SessionId,
        /// `None`: written by an earlier version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<SessionEnd>,
    },
    ApprovalRequested(Box<ApprovalRequest>),
    /// Somebody who is not at the terminal was told of a question, or could not be.
    Notified {
        transaction: TransactionId,
        /// `desktop`, `webhook`.
        channel: String,
        /// `None`: it was delivered.
        failure: Option<String>,
    },
    ApprovalVoted(ApprovalVote),
    /// Whoever asked is gone, and the question waits on: a yes is for the next who asks the same.
    ApprovalLeft {
        transaction: TransactionId,
        session: SessionId,
        why: String,
    },
    ApprovalDecided(Box<ApprovalDecision>),
    GrantMade(Box<GrantMade>),
    GrantRevoked {
        grant: GrantId,
        by: Principal,
        reason: Option<String>,
    },
    /// What is allowed from now on was changed: a policy file was approved, a setting was made.
    PolicyChanged {
        session: Option<SessionId>,
        file: Bytes,
        /// Of the file after the change.
        sha256: String,
        change: String,
    },
    /// Somebody showed who they are, or failed to.
    Authenticated {
        principal: Principal,
        /// What they wanted to do.
        purpose: String,
        /// `None`: they may. Otherwise why not.
        refusal: Option<Refusal>,
    },
    /// Who may do what was changed: an operator, a token, a device.
    IdentityChanged {
        by: Principal,
        change: Box<IdentityChange>,
    },
    /// A `review` session wants these changes. Nothing was written to the workspace.
    Proposed {
        transaction: TransactionId,
        session: SessionId,
        workspace_id: WorkspaceId,
        workspace: Bytes,
        patch: Patch,
        /// What the agent says about it.
        title: Option<String>,
        findings: Vec<Finding>,
        by: Principal,
    },
    /// The workspace is not what the proposal was made for; nothing was written.
    Conflicted {
        transaction: TransactionId,
        files: Vec<Bytes>,
    },
    /// The proposal will not be applied.
    Discarded {
        transaction: TransactionId,
        by: Principal,
        reason: Option<String>,
    },
    /// Something is about to be done. On disk before it happens.
    Intent {
        transaction: TransactionId,
        session: SessionId,
        call: Call,
        fingerprint: Fingerprint,
        decision: Decision,
        layer: Layer,
        rule: String,
        /// The stored answer that allowed it.
        grant: Option<GrantId>,
        profile: Profile,
        policy: String,
        roots: Vec<Root>,
        limits: Limits,
        findings: Vec<Finding>,
        /// Who made the call, where that is known: several may make calls in one session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<MadeBy>>,
    },
    /// A secret is about to be given to what runs. On disk before it happens; never the value.
    SecretReleased {
        transaction: TransactionId,
        session: SessionId,
        name: String,
        class: SecretClass,
        how: Delivery,
        /// Keyed digest of the value: tells whether two releases were of the same value, and nothing else.
        fingerprint: String,
    },
    /// A sandbox stands, and this is what it enforces.
    Launched {
        transaction: TransactionId,
        session: SessionId,
        posture: Posture,
        /// Stronger backends that could not be used, each with the reason.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        passed_over: Vec<String>,
    },
    LimitHit {
        transaction: TransactionId,
        session: SessionId,
        limit: LimitName,
    },
    /// Secrets were on their way out. Never the values.
    #[serde(rename = "finding")]
    Found {
        /// `None`: the call was not begun.
        transaction: Option<TransactionId>,
        session: SessionId,
        /// What became of them.
        action: LeakAction,
        findings: Vec<Finding>,
        /// How many there were besides.
        more: u64,
    },
    /// What came from inside and would have made a program of the host execute it was made ineffective.
    Held {
        session: SessionId,
        changes: Vec<HeldChange>,
    },
    /// The same again and again, or two in turn.
    LoopFound {
        session: SessionId,
        fingerprint: Fingerprint,
        repeats: u32,
        stopped: bool,
    },
    /// The answer was no, and nothing was done.
    Refused {
        transaction: Option<TransactionId>,
        session: Option<SessionId>,
        call: Option<Call>,
        refusal: Refusal,
        /// Who made the call, as in an intent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<MadeBy>>,
    },
    /// What an agent says that it does: an allegation.
    Activity {
        session: SessionId,
        what: String,
        text: String,
    },
    /// What came of an intent.
    Settled {
        transaction: TransactionId,
        session: SessionId,
        outcome: Option<Outcome>,
        /// Why there is no outcome: we broke.
        failure: Option<String>,
        /// Who does it instead: the call was judged, and what came of it is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_to: Option<String>,
        /// What was put right, moved aside or left out for it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A flow is about to connect to this address, besides the one of its intent.
    FlowOpened {
        transaction: TransactionId,
        session: SessionId,
        address: IpAddr,
    },
    /// What came of a flow that was opened. Its intent says where to.
    FlowEnded {
        transaction: TransactionId,
        session: SessionId,
        /// Bytes that left and that came.
        up: u64,
        down: u64,
        duration_ms: u64,
        /// What went wrong outside; `None`: both sides were done.
        failure: Option<String>,
    },
    /// Whoever worked on the transaction is gone without a word. What it did is not known.
    Interrupted {
        transaction: TransactionId,
        why: String,
    },
    /// Somebody looked into the ledger or took a copy.
    LedgerRead {
        by: Principal,
        how: Reading,
        records: u64,
    },
    /// Bodies of old records were removed; their digests stay in the chain.
    Pruned {
        by: Principal,
        /// Records before this number.
        before: u64,
        records: u64,
        classes: Vec<Class>,
        /// Exactly these: first and last number of each run.
        runs: Vec<(u64, u64)>,
    },
    /// One run of the escape battery.
    Battery {
        passed: u32,
        total: u32,
        backend: Backend,
        attempts: Vec<BatteryEntry>,
    },
    /// The first record of every chain.
    ChainStarted {
        chain: ChainId,
        node: String,
        /// The public key that vouches for it, 64 hexadecimal digits.
        key: String,
        version: String,
        /// The chain that was put aside, or converted, for this one.
        continues: Option<Continued>,
    },
    /// All records since the checkpoint before, signed.
    Checkpoint(Checkpoint),
    /// Another key vouches from here on; both have signed that.
    KeyRotated {
        old: String,
        new: String,
        by_old: String,
        by_new: String,
    },
    /// Where another chain stood, and who vouched for it: whoever cuts it back has to cut this one as well.
    Witnessed {
        chain: ChainId,
        head: Head,
        key: String,
    },
    /// An operator of this node has seen that another chain was set aside without a signature of its key, and accepts it as it is.
    ChainAcknowledged {
        chain: ChainId,
        node: String,
        /// Of everything that is in the chain.
        digest: String,
        by: Principal,
        reason: String,
    },
}

/// What a scanner found where. Never the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub rule: String,
    /// `argv[2]`, `env TOKEN`, a path with a line, `stdout` with the number of its first byte.
    pub place: String,
    /// Salted digest: tells whether two findings are the same secret, and nothing else.
    pub fingerprint: String,
    /// `None`: it was plain. Otherwise as a scanner says it, outermost first: `base64/gzip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    Tail,
    Show,
    Prove,
    Export,
}

/// One process and no other, on one machine and in one boot: a number alone is used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    /// In which the number means something: the inode of `/proc/self/ns/pid`.
    pub namespace: u64,
    /// Clock ticks after boot, as in `/proc/PID/stat`.
    pub start_time: u64,
    /// As in `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// How long a record has to be kept is said by its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// What was done and what came of it.
    Activity,
    /// Questions, answers, grants, policy, who was let in.
    Consent,
    /// What the ledger says of itself. Never pruned.
    Ledger,
}

/// The chain before this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continued {
    /// Where it was put.
    pub file: Bytes,
    /// Its end, as far as it holds.
    pub head: Option<Head>,
    /// What was wrong with it; `None`: it was converted from an older format.
    pub problem: Option<String>,
    pub by: Principal,
    pub reason: Option<String>,
    /// In a database: what was set aside, and the signature for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<AsideProof>,
}

/// Which chain was set aside, with which contents, and that the key of that chain says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsideProof {
    pub chain: ChainId,
    /// Of everything that was in the chain, as it was then.
    pub digest: String,
    /// `None`: the key of the chain was lost.
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

macro_rules! kinds {
    ($($variant:ident $word:literal $class:ident,)+) => {
        /// The kind of an event: the word that is stored beside its body.
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

            pub fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class),+ }
            }
        }
    };
}

kinds! {
    SessionStarted "session-started" Activity,
    SessionEnded "session-ended" Activity,
    ApprovalRequested "approval-requested" Consent,
    Notified "notified" Consent,
    ApprovalVoted "approval-voted" Consent,
    ApprovalLeft "approval-left" Consent,
    ApprovalDecided "approval-decided" Consent,
    GrantMade "grant-made" Consent,
    GrantRevoked "grant-revoked" Consent,
    PolicyChanged "policy-changed" Consent,
    Authenticated "authenticated" Consent,
    IdentityChanged "identity-changed" Consent,
    Proposed "proposed" Activity,
    Conflicted "conflicted" Activity,
    Discarded "discarded" Activity,
    Intent "intent" Activity,
    SecretReleased "secret-released" Consent,
    Launched "launched" Activity,
    LimitHit "limit-hit" Activity,
    Found "finding" Activity,
    Held "held" Activity,
    LoopFound "loop-found" Activity,
    Refused "refused" Activity,
    Activity "activity" Activity,
    Settled "settled" Activity,
    FlowOpened "flow-opened" Activity,
    FlowEnded "flow-ended" Activity,
    Interrupted "interrupted" Activity,
    LedgerRead "ledger-read" Consent,
    Pruned "pruned" Ledger,
    Battery "battery" Activity,
    ChainStarted "chain-started" Ledger,
    Checkpoint "checkpoint" Ledger,
    KeyRotated "key-rotated" Ledger,
    Witnessed "witnessed" Ledger,
    ChainAcknowledged "chain-acknowledged" Ledger,
}

impl Event {
    pub fn kind(&self) -> Kind {
        match self {
            Self::SessionStarted { .. } => Kind::SessionStarted,
            Self::SessionEnded { .. } => Kind::SessionEnded,
            Self::ApprovalRequested(_) => Kind::ApprovalRequested,
            Self::Notified { .. } => Kind::Notified,
            Self::ApprovalVoted(_) => Kind::ApprovalVoted,
            Self::ApprovalLeft { .. } => Kind::ApprovalLeft,
            Self::ApprovalDecided(_) => Kind::ApprovalDecided,
            Self::GrantMade(_) => Kind::GrantMade,
            Self::GrantRevoked { .. } => Kind::GrantRevoked,
            Self::PolicyChanged { .. } => Kind::PolicyChanged,
            Self::Authenticated { .. } => Kind::Authenticated,
            Self::IdentityChanged { .. } => Kind::IdentityChanged,
            Self::Proposed { .. } => Kind::Proposed,
            Self::Conflicted { .. } => Kind::Conflicted,
            Self::Discarded { .. } => Kind::Discarded,
            Self::Intent { .. } => Kind::Intent,
            Self::SecretReleased { .. } => Kind::SecretReleased,
            Self::Launched { .. } => Kind::Launched,
            Self::LimitHit { .. } => Kind::LimitHit,
            Self::Found { .. } => Kind::Found,
            Self::Held { .. } => Kind::Held,
            Self::LoopFound { .. } => Kind::LoopFound,
            Self::Refused { .. } => Kind::Refused,
            Self::Activity { .. } => Kind::Activity,
            Self::Settled { .. } => Kind::Settled,
            Self::FlowOpened { .. } => Kind::FlowOpened,
            Self::FlowEnded { .. } => Kind::FlowEnded,
            Self::Interrupted { .. } => Kind::Interrupted,
            Self::LedgerRead { .. } => Kind::LedgerRead,
            Self::Pruned { .. } => Kind::Pruned,
            Self::Battery { .. } => Kind::Battery,
            Self::ChainStarted { .. } => Kind::ChainStarted,
            Self::Checkpoint(_) => Kind::Checkpoint,
            Self::KeyRotated { .. } => Kind::KeyRotated,
            Self::Witnessed { .. } => Kind::Witnessed,
            Self::ChainAcknowledged { .. } => Kind::ChainAcknowledged,
        }
    }

    pub fn transaction(&self) -> Option<&TransactionId> {
        match self {
            Self::ApprovalRequested(request) => Some(&request.transaction),
            Self::ApprovalVoted(vote) => Some(&vote.transaction),
            Self::ApprovalDecided(decision) => Some(&decision.transaction),
            Self::GrantMade(made) => Some(&made.transaction),
            Self::Notified { transaction, .. }
            | Self::ApprovalLeft { transaction, .. }
            | Self::Proposed { transaction, .. }
            | Self::Conflicted { transaction, .. }
            | Self::Discarded { transaction, .. }
            | Self::Intent { transaction, .. }
            | Self::SecretReleased { transaction, .. }
            | Self::Launched { transaction, .. }
            | Self::LimitHit { transaction, .. }
            | Self::Settled { transaction, .. }
            | Self::FlowOpened { transaction, .. }
            | Self::FlowEnded { transaction, .. }
            | Self::Interrupted { transaction, .. } => Some(transaction),
            Self::Refused { transaction, .. } | Self::Found { transaction, .. } => transaction.as_ref(),
            _ => None,
        }
    }

    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::ApprovalRequested(request) => Some(&request.session),
            Self::ApprovalDecided(decision) => Some(&decision.session),
            Self::GrantMade(made) => Some(&made.session),
            Self::SessionStarted { session, .. }
            | Self::SessionEnded { session, .. }
            | Self::ApprovalLeft { session, .. }
            | Self::Activity { session, .. }
            | Self::Proposed { session, .. }
            | Self::Intent { session, .. }
            | Self::SecretReleased { session, .. }
            | Self::Launched { session, .. }
            | Self::LimitHit { session, .. }
            | Self::Found { session, .. }
            | Self::Held { session, .. }
            | Self::LoopFound { session, .. }
            | Self::Settled { session, .. }
            | Self::FlowOpened { session, .. }
            | Self::FlowEnded { session, .. } => Some(session),
            Self::Refused { session, .. } | Self::PolicyChanged { session, .. } => session.as_ref(),
            _ => None,
        }
    }

    /// The grant that is made, used or revoked.
    pub fn grant(&self) -> Option<&GrantId> {
        match self {
            Self::GrantMade(made) => Some(&made.grant),
            Self::GrantRevoked { grant, .. } => Some(grant),
            Self::Intent { grant, .. } => grant.as_ref(),
            _ => None,
        }
    }

    /// Every id under which a person may ask for this event.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let transaction = self.transaction().map(TransactionId::as_str);
        let session = self.session().map(SessionId::as_str);
        let grant = self.grant().map(GrantId::as_str);
        [transaction, session, grant].into_iter().flatten()
    }
}
