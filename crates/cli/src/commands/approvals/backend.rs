//! Where approvals are answered: at a running daemon, which decides what an operator may do; otherwise in the
//! ledger itself.

use std::cell::{Cell, OnceCell};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringfence_api::{
    AnswerApproval, Approval, ApprovalReply, ErrorCode, GrantInfo, ListApprovals, ListGrants,
    ReplyResult as Said, ReplyTerms, RevokeAllGrants, RevokeGrant, ShowApproval, TextOrBase64,
};
use ringfence_client::ClientError;
use ringfence_ledger::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, GrantRecord, GrantSubject,
    LedgerOpenError, LedgerReadError, LedgerReader, Timestamp,
};
use ringfence_runtime::Runtime;
use ringfence_runtime::approvals::{
    ActiveGrant, ApprovalInbox, GrantError, GrantRevocation, GrantScope, GrantTerms, InboxError,
    OperatorDecision, OperatorReply, PendingApproval, ReplyError, ReplyOutcome, WaiterStatus, live_grants,
    matched, revoke as take_back,
};
use ringfence_types::{ByteString, Call, Principal};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::approval::PromptSource;
use crate::daemon_client::{self, DaemonClient};
use crate::environment::Environment;
use crate::error;
use crate::policy_resolution;

/// Poll interval for decisions, at the daemon.
const LOOK: Duration = Duration::from_millis(250);

pub(super) enum ApprovalBackend {
    Daemon(Box<DaemonClient>),
    Here(Box<Runtime>),
}

/// An approval with its votes and decision.
#[derive(Clone, Debug)]
pub(super) struct ApprovalEntry {
    pub(super) request: ApprovalRequest,
    pub(super) votes: Vec<ApprovalVote>,
    pub(super) asked: Timestamp,
    pub(super) decision: Option<ApprovalDecision>,
    pub(super) awaited: WaiterStatus,
}

/// An active grant.
#[derive(Clone, Debug)]
pub(super) struct GrantEntry {
    pub(super) made: GrantRecord,
    pub(super) since: Timestamp,
    pub(super) used: u32,
    pub(super) left: Option<u32>,
    /// How many of the last approvals it would have answered, and how many there were.
    pub(super) matched: Option<(usize, usize)>,
}

/// Result of an answer.
#[derive(Clone, Debug)]
pub(super) enum AnswerOutcome {
    Decided { answer: ApprovalAnswer, stored: Option<Box<GrantEntry>> },
    Counted { approve: usize, deny: usize },
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ApprovalBackendError {
    #[error(transparent)]
    Answer(#[from] ReplyError),
    #[error(transparent)]
    Inbox(#[from] InboxError),
    #[error(transparent)]
    Grant(#[from] GrantError),
    #[error("the ledger cannot be read")]
    Open(#[from] LedgerOpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] LedgerReadError),
    #[error(transparent)]
    Daemon(#[from] ClientError),
    #[error("unexpected response from the daemon")]
    Strange,
    /// The error is already printed.
    #[error("the configuration cannot be read")]
    Unread(ExitCode),
}

impl ApprovalBackendError {
    /// Prints the error, the same for both backends. `code` is for a valid answer that does not count.
    pub(super) fn told(&self, code: u8) -> ExitCode {
        match self {
            Self::Answer(error) => {
                let _failed = error::failed(error, error.hint());
                ExitCode::from(code)
            }
            Self::Daemon(ClientError::Api(told)) if is_an_answer(told.code) => {
                let shown = |text: &str| ByteString::from(text).display();
                let _failed =
                    error::failed_text(&shown(&told.message), told.hint.as_deref().map(shown).as_deref());
                ExitCode::from(code)
            }
            Self::Daemon(error) => daemon_client::failed(error),
            Self::Strange => {
                error::failed(self, Some("the daemon has another version: restart it with this one"))
            }
            Self::Unread(code) => *code,
            error => error::failed(error, None),
        }
    }

    /// Whether the daemon ended or hangs, so that a long-running command continues without it.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Daemon(error) if !matches!(error, ClientError::Api(_)))
    }
}

fn is_an_answer(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotFound
            | ErrorCode::InvalidArgument
            | ErrorCode::FailedPrecondition
            | ErrorCode::Forbidden
    )
}

impl ApprovalBackend {
    pub(super) fn pending(&self) -> Result<Vec<ApprovalEntry>, ApprovalBackendError> {
        match self {
            Self::Daemon(daemon) => daemon
                .try_ask(&ListApprovals {})?
                .approvals
                .into_iter()
                .map(ApprovalEntry::try_from)
                .collect(),
            Self::Here(runtime) => {
                let pending = inbox(runtime).pending(Timestamp::now())?;
                Ok(pending.into_iter().map(|pending| ApprovalEntry::of(pending, None)).collect())
            }
        }
    }

    /// The approval whose id begins with `id`.
    pub(super) fn find(&self, id: &str) -> Result<ApprovalEntry, ApprovalBackendError> {
        match self {
            Self::Daemon(daemon) => daemon.try_ask(&ShowApproval { id: said(id)? })?.try_into(),
            Self::Here(runtime) => {
                let (pending, decision) = inbox(runtime).find(id)?;
                Ok(ApprovalEntry::of(pending, decision))
            }
        }
    }

    /// Waits for a decision on an approval of another process.
    pub(super) fn wait<'a>(
        &'a self,
        request: &'a ApprovalRequest,
    ) -> Result<Box<dyn PromptSource + 'a>, ApprovalBackendError> {
        Ok(match self {
            Self::Daemon(_) => Box::new(DaemonApproval::new(self, request)),
            Self::Here(runtime) => Box::new(inbox(runtime).wait(request)?),
        })
    }

    /// Gives an answer. It names the operator; a daemon determines the operator itself.
    pub(super) fn answer(
        &self,
        environment: &Environment,
        question: &ApprovalEntry,
        reply: OperatorReply,
    ) -> Result<AnswerOutcome, ApprovalBackendError> {
        match self {
            Self::Daemon(daemon) => daemon.try_ask(&over_the_interface(question, reply)?)?.try_into(),
            Self::Here(runtime) => {
                let reply = with_expiry(environment, runtime, reply)?;
                let inbox = inbox(runtime).seeing(question.awaited);
                let answered = inbox.answer(question.request.transaction.as_str(), &reply)?;
                let reader = runtime.ledger().reader()?;
                Ok(match answered {
                    ReplyOutcome::Counted { approve, deny } => AnswerOutcome::Counted { approve, deny },
                    ReplyOutcome::Decided { decision, grant } => {
                        let live = |made| ActiveGrant { made, since: Timestamp::now(), used: 0 };
                        let stored = grant.map(|made| Box::new(GrantEntry::of(&reader, live(*made))));
                        AnswerOutcome::Decided { answer: decision.answer, stored }
                    }
                })
            }
        }
    }

    pub(super) fn grants(&self) -> Result<Vec<GrantEntry>, ApprovalBackendError> {
        match self {
            Self::Daemon(daemon) => {
                daemon.try_ask(&ListGrants {})?.grants.into_iter().map(GrantEntry::try_from).collect()
            }
            Self::Here(runtime) => {
                let reader = runtime.ledger().reader()?;
                let live = live_grants(&reader, GrantScope::Everywhere, Timestamp::now())?;
                Ok(live.into_iter().map(|grant| GrantEntry::of(&reader, grant)).collect())
            }
        }
    }

    /// Revokes the grant whose id begins with `id`, or all; returns the ids.
    pub(super) fn revoke(
        &self,
        id: Option<&str>,
        by: &Principal,
        reason: Option<&str>,
    ) -> Result<Vec<String>, ApprovalBackendError> {
        let said = reason.map(str::to_owned);
        match (self, id) {
            (Self::Daemon(_), Some("")) => Err(GrantError::Unknown { id: String::new() }.into()),
            (Self::Daemon(daemon), Some(id)) => {
                Ok(daemon.try_ask(&RevokeGrant { id: id.to_owned(), reason: said })?.grants)
            }
            (Self::Daemon(daemon), None) => Ok(daemon.try_ask(&RevokeAllGrants { reason: said })?.grants),
            (Self::Here(runtime), id) => {
                let revocation = GrantRevocation { id, by, reason };
                let gone = take_back(runtime.ledger(), &runtime.setup().state_dir, &|_| true, &revocation)?;
                Ok(gone.iter().map(ToString::to_string).collect())
            }
        }
    }
}

/// Rejects an empty id: it would lead to another URL.
fn said(id: &str) -> Result<String, ApprovalBackendError> {
    if id.is_empty() { Err(ReplyError::Unknown { id: String::new() }.into()) } else { Ok(id.to_owned()) }
}

fn inbox(runtime: &Runtime) -> ApprovalInbox<'_> {
    ApprovalInbox::new(runtime.ledger(), &runtime.setup().state_dir)
}

/// Sets the default lifetime of an "always here" grant.
fn with_expiry(
    environment: &Environment,
    runtime: &Runtime,
    mut reply: OperatorReply,
) -> Result<OperatorReply, ApprovalBackendError> {
    if let OperatorDecision::AlwaysHere { terms, .. } = &mut reply.say
        && terms.expires.is_none()
    {
        let settings = policy_resolution::settings(environment, runtime.setup(), None)
            .map_err(ApprovalBackendError::Unread)?;
        let usual = settings.approvals.grant_lifetime.map(|time| Duration::from_millis(time.0));
        *terms = GrantTerms { uses: terms.uses, ..GrantTerms::within(usual, None)? };
    }
    Ok(reply)
}

fn over_the_interface(
    question: &ApprovalEntry,
    reply: OperatorReply,
) -> Result<AnswerApproval, ApprovalBackendError> {
    let OperatorReply { say, reason, .. } = reply;
    let (answer, terms) = match say {
        OperatorDecision::Once => (ApprovalReply::Once, None),
        OperatorDecision::Deny => (ApprovalReply::Deny, None),
        OperatorDecision::Session(terms) => (ApprovalReply::Session, said_of(terms)),
        OperatorDecision::AlwaysHere { offer, terms } => {
            (ApprovalReply::AlwaysHere { offer }, said_of(terms))
        }
        OperatorDecision::Edited(call) => match *call {
            Call::Exec(exec) => {
                let argv = exec.argv.iter().map(|word| TextOrBase64::from(word.as_slice().to_vec()));
                (ApprovalReply::Replace { argv: argv.collect() }, None)
            }
            _ => return Err(ApprovalBackendError::Strange),
        },
    };
    let id = question.request.transaction.to_string();
    let asker_gone = question.awaited == WaiterStatus::Orphaned;
    Ok(AnswerApproval { id, answer, grant_terms: terms, reason, accept_orphaned: asker_gone })
}

fn said_of(terms: GrantTerms) -> Option<ReplyTerms> {
    let left = |end: Timestamp| {
        let left = Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default();
        u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
    };
    let said = ReplyTerms { expires_in_ms: terms.expires.map(left), max_uses: terms.uses };
    (terms != GrantTerms::default()).then_some(said)
}

impl ApprovalEntry {
    fn of(pending: PendingApproval, decision: Option<ApprovalDecision>) -> Self {
        let PendingApproval { request, votes, asked, awaited, .. } = pending;
        Self { request, votes, asked, decision, awaited }
    }
}

impl TryFrom<Approval> for ApprovalEntry {
    type Error = ApprovalBackendError;

    fn try_from(question: Approval) -> Result<Self, ApprovalBackendError> {
        Ok(Self {
            request: understood(question.request)?,
            votes: question.votes.into_iter().map(understood).collect::<Result<_, _>>()?,
            asked: question.requested_at.parse().map_err(|_strange| ApprovalBackendError::Strange)?,
            decision: question.decision.map(understood).transpose()?,
            awaited: if question.orphaned { WaiterStatus::Orphaned } else { WaiterStatus::Waiting },
        })
    }
}

impl GrantEntry {
    fn of(reader: &LedgerReader, grant: ActiveGrant) -> Self {
        let matched = match &grant.made.covers {
            GrantSubject::Here { rules, .. } => matched(reader, &grant.made.workspace, rules).ok(),
            GrantSubject::Session { .. } | GrantSubject::Next { .. } => None,
        };
        let left = grant.left();
        Self { made: grant.made, since: grant.since, used: grant.used, left, matched }
    }
}

impl TryFrom<GrantInfo> for GrantEntry {
    type Error = ApprovalBackendError;

    fn try_from(stored: GrantInfo) -> Result<Self, ApprovalBackendError> {
        Ok(Self {
            made: understood(stored.record)?,
            since: stored.created_at.parse().map_err(|_strange| ApprovalBackendError::Strange)?,
            used: stored.uses,
            left: stored.uses_left,
            matched: stored.would_have_matched.map(|matched| (matched.count, matched.total)),
        })
    }
}

impl TryFrom<Said> for AnswerOutcome {
    type Error = ApprovalBackendError;

    fn try_from(said: Said) -> Result<Self, ApprovalBackendError> {
        Ok(match said {
            Said::VoteCounted { approvals, denials } => Self::Counted { approve: approvals, deny: denials },
            Said::Decided { answer, grant } => Self::Decided {
                answer: understood(Value::from(answer))?,
                stored: grant.map(|stored| GrantEntry::try_from(*stored).map(Box::new)).transpose()?,
            },
        })
    }
}

fn understood<T: DeserializeOwned>(value: Value) -> Result<T, ApprovalBackendError> {
    serde_json::from_value(value).map_err(|_other| ApprovalBackendError::Strange)
}

/// An approval at the daemon.
struct DaemonApproval<'a> {
    place: &'a ApprovalBackend,
    request: &'a ApprovalRequest,
    /// The timeout and its start. Setting the clock back does not extend it.
    given: (Duration, Instant),
    /// `None`: stop polling.
    look_at: Cell<Option<Instant>>,
    found: OnceCell<ApprovalDecision>,
}

impl<'a> DaemonApproval<'a> {
    fn new(place: &'a ApprovalBackend, request: &'a ApprovalRequest) -> Self {
        let given = (super::left(request), Instant::now());
        Self { place, request, given, look_at: Cell::new(Some(Instant::now())), found: OnceCell::new() }
    }
}

impl PromptSource for DaemonApproval<'_> {
    fn request(&self) -> &ApprovalRequest {
        self.request
    }

    fn left(&self) -> Duration {
        let (given, begun) = self.given;
        super::left(self.request).min(given.saturating_sub(begun.elapsed()))
    }

    fn decided(&self) -> Option<ApprovalDecision> {
        let due = self.look_at.get().is_some_and(|at| at <= Instant::now());
        if self.found.get().is_none() && due {
            let found = self.place.find(self.request.transaction.as_str());
            // A prompt does not wait repeatedly for a daemon that does not answer.
            let gone = found.as_ref().is_err_and(ApprovalBackendError::is_gone);
            self.look_at.set((!gone).then(|| Instant::now() + LOOK));
            if let Some(decision) = found.ok().and_then(|question| question.decision) {
                return Some(self.found.get_or_init(|| decision).clone());
            }
        }
        self.found.get().cloned()
    }
}
