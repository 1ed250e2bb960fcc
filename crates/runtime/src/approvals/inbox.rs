//! The approval inbox: lists pending approvals and answers them, from any process that can write the ledger.
//! It is the only way to a decision.

use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use ringfence_ledger::{
    AppendError, ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, Event, GrantRecord,
    GrantSubject, Kind, Ledger, LedgerOpenError, LedgerReadError, LedgerReader, Lifecycle, ReasonRequirement,
    Record, Timestamp, TransactionStatus, Vote,
};
use ringfence_types::{
    ActionFingerprint, ByteString, Call, CredentialRef, ExecCall, GrantId, PolicyLayer, Principal, Refusal,
    RefusalCode, Risk, RuleId, TransactionId,
};

use super::grants::is_meant;
use super::{ApprovalWait, binding, is_operator, presence};
use crate::leaks::LeakScanner;
use crate::secrets::{SecretStore, SecretStoreError};

/// Limit of approval records read at once.
const NEWEST: u32 = 1000;

/// The approvals of one ledger.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalInbox<'l> {
    ledger: &'l Ledger,
    state_dir: &'l Path,
    shown: Option<&'l CredentialRef>,
    seen: WaiterStatus,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingApproval {
    pub request: ApprovalRequest,
    pub votes: Vec<ApprovalVote>,
    pub asked: Timestamp,
    /// Sequence number of the request's record.
    pub seq: u64,
    pub awaited: WaiterStatus,
}

/// Whether the requesting process still waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaiterStatus {
    Waiting,
    /// The requesting process is gone. A yes counts once, for the next identical call in the same
    /// workspace, until the approval expires.
    Orphaned,
}

impl PendingApproval {
    /// Whether the approval has expired, also before the wall clock was set back.
    fn is_over(&self, reader: &LedgerReader, now: Timestamp) -> Result<bool, LedgerReadError> {
        Ok(self.request.expires_at <= now || reader.has_reached(self.request.expires_at, self.seq)?)
    }
}

/// An operator's answer to an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorReply {
    pub by: Principal,
    pub say: OperatorDecision,
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorDecision {
    Once,
    /// Allows this call instead, once.
    Edited(Box<Call>),
    Session(GrantTerms),
    AlwaysHere {
        /// Index of the offer, from 0.
        offer: usize,
        terms: GrantTerms,
    },
    Deny,
}

/// Lifetime and use limit of a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantTerms {
    /// `None`: until the session ends, or 30 days.
    pub expires: Option<Timestamp>,
    pub uses: Option<u32>,
}

impl GrantTerms {
    /// Terms from a duration and a use limit. A value that cannot be represented is an error, never a longer
    /// lifetime.
    pub fn within(time: Option<Duration>, uses: Option<u32>) -> Result<Self, ReplyError> {
        if time.is_some_and(|time| time.is_zero()) || uses == Some(0) {
            return Err(ReplyError::Terms("a grant needs a lifetime above zero and at least one use"));
        }
        let far = |_overflow| ReplyError::Terms("the end lies too far in the future");
        let end = |time: Duration| Timestamp::now().checked_add(time).map_err(far);
        Ok(Self { expires: time.map(end).transpose()?, uses })
    }
}

impl OperatorDecision {
    /// Replaces the argv of the requested command and keeps everything else.
    pub fn instead(request: &ApprovalRequest, argv: Vec<ByteString>) -> Result<Self, ReplyError> {
        match &request.call {
            Call::Exec(_) if argv.is_empty() => {
                Err(ReplyError::NotOffered("the command that would run instead is empty"))
            }
            Call::Exec(exec) => Ok(Self::Edited(Box::new(Call::Exec(ExecCall { argv, ..exec.clone() })))),
            _ => Err(ReplyError::NotOffered("only a command can be replaced by another one")),
        }
    }
}

/// Result of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyOutcome {
    Decided {
        decision: Box<ApprovalDecision>,
        grant: Option<Box<GrantRecord>>,
    },
    /// The vote counts, but the quorum is not reached.
    Counted {
        approve: usize,
        deny: usize,
    },
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    #[error("the ledger cannot be read")]
    Open(#[from] LedgerOpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] LedgerReadError),
    #[error("the ledger cannot be written")]
    Append(#[from] AppendError),
    /// Without the stored secrets Ringfence cannot redact them from the record.
    #[error("the secrets of the operator cannot be read, so nothing is written")]
    Secrets(#[from] SecretStoreError),
}

/// Why an answer did not count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    #[error("no approval with id `{}`", ByteString::from(id.as_str()).display())]
    Unknown { id: String },
    #[error("`{}` could be {}", ByteString::from(id.as_str()).display(), candidates.join(", "))]
    Ambiguous { id: String, candidates: Vec<String> },
    #[error("it was answered before: {} by {by}", answer.word())]
    AnsweredBefore { answer: ApprovalAnswer, by: Box<Principal> },
    #[error("it waited for too long: the answer is no")]
    Expired,
    #[error("{what} `{}` changed since the request was made; a new request is made", path.display())]
    Changed { what: &'static str, path: ByteString },
    #[error("only an operator may answer, and never the requester")]
    NotAnOperator,
    #[error("an answer has to say why")]
    ReasonRequired,
    #[error("{0}")]
    NotOffered(&'static str),
    /// The lifetime or use limit is invalid.
    #[error("{0}")]
    Terms(&'static str),
    #[error("you have already voted; another operator must vote")]
    VotedBefore,
    /// The operator saw the approval before it was orphaned.
    #[error("the requester is gone: an approval would count for the next identical call")]
    AskerGone,
    #[error(transparent)]
    Inbox(#[from] InboxError),
}

impl ReplyError {
    /// The next step for the operator.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unknown { .. } => Some("`ringfence approvals list` shows the questions that wait"),
            Self::Ambiguous { .. } => Some("write more of the id"),
            Self::ReasonRequired => Some("add `--reason TEXT`"),
            Self::NotOffered(_) => Some("answer `--once`"),
            Self::AskerGone => {
                Some("show the approval again and answer it; over the API set `accept_orphaned: true`")
            }
            _ => None,
        }
    }
}

impl From<LedgerReadError> for ReplyError {
    fn from(error: LedgerReadError) -> Self {
        Self::Inbox(error.into())
    }
}

impl<'l> ApprovalInbox<'l> {
    /// `state_dir` holds the presence locks of requesting processes.
    pub fn new(ledger: &'l Ledger, state_dir: &'l Path) -> Self {
        Self { ledger, state_dir, shown: None, seen: WaiterStatus::Waiting }
    }

    /// Records this credential with the vote where a quorum is required, so that linked credentials count as
    /// one person.
    pub fn showing(self, shown: Option<&'l CredentialRef>) -> Self {
        Self { shown, ..self }
    }

    /// Sets the waiter status that the operator saw. A yes to an orphaned approval counts only if the
    /// operator knew that it is orphaned.
    pub fn seeing(self, seen: WaiterStatus) -> Self {
        Self { seen, ..self }
    }

    /// Pending approvals, oldest first. Also closes approvals that cannot be orphaned and whose process is
    /// gone.
    pub fn pending(&self, now: Timestamp) -> Result<Vec<PendingApproval>, InboxError> {
        self.sweep()?;
        let reader = self.ledger.reader()?;
        let records = reader.of_kinds(&[Kind::ApprovalRequested, Kind::ApprovalDecided], NEWEST)?;
        let mut open: Vec<&TransactionId> = Vec::new();
        for record in &records {
            match &record.event {
                Event::ApprovalRequested(request) => open.push(&request.transaction),
                Event::ApprovalDecided(decision) => open.retain(|id| **id != decision.transaction),
                _ => {}
            }
        }
        let mut pending = Vec::new();
        for id in open {
            let Some(question) = waiting(&reader.about(id.as_str())?) else { continue };
            if question.is_over(&reader, now)? {
                self.expire(&question)?;
            } else {
                pending.push(question);
            }
        }
        Ok(pending)
    }

    /// The approval whose id begins with `id`, with its decision if there is one. Closes it first if its
    /// process is gone, because an answer would then have no effect.
    pub fn find(&self, id: &str) -> Result<(PendingApproval, Option<ApprovalDecision>), ReplyError> {
        self.sweep()?;
        let reader = self.ledger.reader().map_err(InboxError::from)?;
        let asked = reader.of_kinds(&[Kind::ApprovalRequested], NEWEST)?;
        let mut found: Vec<TransactionId> = asked
            .iter()
            .filter_map(|record| record.event.transaction())
            .filter(|known| is_meant(known.as_str(), id))
            .cloned()
            .collect();
        found.dedup();
        match found.as_slice() {
            [] => Err(ReplyError::Unknown { id: id.to_owned() }),
            [only] => {
                let records = reader.about(only.as_str())?;
                let unknown = || ReplyError::Unknown { id: id.to_owned() };
                let question = question(&records).ok_or_else(unknown)?;
                let decision = decided(&records).map(|stored| stored.decision);
                let gone = question.awaited == WaiterStatus::Orphaned && decision.is_none();
                if !gone || !question.is_over(&reader, Timestamp::now())? {
                    return Ok((question, decision));
                }
                // No process waits for an orphaned approval, so this look expires it.
                self.expire(&question)?;
                let decision = decision_in(&reader, only)?.map(|stored| stored.decision);
                Ok((question, decision))
            }
            several => Err(ReplyError::Ambiguous {
                id: id.to_owned(),
                candidates: several.iter().map(ToString::to_string).collect(),
            }),
        }
    }

    /// Waits for a decision on an approval that another process requested.
    pub fn wait<'a>(&self, request: &'a ApprovalRequest) -> Result<ApprovalWait<'a>, InboxError> {
        Ok(ApprovalWait::new(request, None, self.ledger.reader()?))
    }

    /// Answers an approval. The result is durable.
    pub fn answer(&self, id: &str, reply: &OperatorReply) -> Result<ReplyOutcome, ReplyError> {
        let leaks = self.leaks()?;
        let reply = &OperatorReply {
            reason: reply.reason.as_deref().map(|reason| leaks.text(reason)),
            ..reply.clone()
        };
        let (pending, decision) = self.find(id)?;
        if let Some(decision) = decision {
            return Err(ReplyError::AnsweredBefore { answer: decision.answer, by: Box::new(decision.actor) });
        }
        let request = &pending.request;
        if matches!(&reply.say, OperatorDecision::Edited(call) if holds_secret(call, &leaks)) {
            return Err(ReplyError::NotOffered(
                "what would run instead holds a secret, which is not written down",
            ));
        }
        self.check(&pending, reply)?;
        if request.quorum.approve > 1 || request.quorum.deny > 1 {
            return self.vote(&pending, reply);
        }
        self.decide(&pending, reply)
    }

    /// Records that the requesting process ends and leaves the approval pending.
    pub(crate) fn orphan(&self, request: &ApprovalRequest, why: &str) -> Result<(), InboxError> {
        let (transaction, session) = (request.transaction.clone(), request.session.clone());
        let left = Event::ApprovalOrphaned { transaction, session, reason: why.to_owned() };
        match self.ledger.append(&left) {
            Ok(_receipt) => Ok(()),
            // Another decision was recorded first, and counts.
            Err(_) if self.is_decided(request)? => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn is_orphaned(&self, request: &ApprovalRequest) -> Result<bool, InboxError> {
        let records = self.ledger.reader()?.about(request.transaction.as_str())?;
        Ok(question(&records).is_some_and(|question| question.awaited == WaiterStatus::Orphaned))
    }

    fn expire(&self, question: &PendingApproval) -> Result<(), InboxError> {
        self.conclude(question, ApprovalAnswer::Expired, "no answer in time")
    }

    /// Closes an approval without a person, and its transaction where no process will settle it.
    fn conclude(
        &self,
        question: &PendingApproval,
        answer: ApprovalAnswer,
        reason: &str,
    ) -> Result<(), InboxError> {
        self.close(&question.request, answer, reason)?;
        if question.awaited == WaiterStatus::Waiting {
            return Ok(());
        }
        match self.ledger.append(&abandoned(question.request.clone())) {
            // Another process closed it first.
            Ok(_) | Err(AppendError::OutOfOrder { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Closes an approval without a person.
    pub(crate) fn close(
        &self,
        request: &ApprovalRequest,
        answer: ApprovalAnswer,
        reason: &str,
    ) -> Result<(), InboxError> {
        let decision = ApprovalDecision {
            transaction: request.transaction.clone(),
            session: request.session.clone(),
            fingerprint: request.fingerprint.clone(),
            answer,
            actor: Principal::System,
            reason: Some(reason.to_owned()),
            replacement: None,
            bound_objects: Vec::new(),
        };
        let written = self.ledger.append(&Event::ApprovalDecided(Box::new(decision)));
        match written {
            Ok(_receipt) => Ok(()),
            // Another decision was recorded first, and counts.
            Err(_) if self.is_decided(request)? => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn leaks(&self) -> Result<LeakScanner, InboxError> {
        Ok(LeakScanner::of_state(&SecretStore::new(self.state_dir).read()?, self.state_dir))
    }

    fn is_decided(&self, request: &ApprovalRequest) -> Result<bool, InboxError> {
        let records = self.ledger.reader()?.about(request.transaction.as_str())?;
        Ok(decided(&records).is_some())
    }

    fn check(&self, pending: &PendingApproval, reply: &OperatorReply) -> Result<(), ReplyError> {
        let request = &pending.request;
        if !is_operator(&reply.by) || reply.by.identity() == request.requester.identity() {
            return Err(ReplyError::NotAnOperator);
        }
        let reader = self.ledger.reader().map_err(InboxError::from)?;
        if pending.is_over(&reader, Timestamp::now())? {
            self.expire(pending)?;
            return Err(ReplyError::Expired);
        }
        if request.reason_requirement == ReasonRequirement::Required
            && reply.reason.as_deref().is_none_or(str::is_empty)
        {
            return Err(ReplyError::ReasonRequired);
        }
        let voter = reply.by.identity();
        if pending.votes.iter().any(|vote| vote.actor.identity() == voter) {
            return Err(ReplyError::VotedBefore);
        }
        offered(pending, &reply.say)?;
        if pending.awaited == WaiterStatus::Orphaned
            && self.seen == WaiterStatus::Waiting
            && reply.say != OperatorDecision::Deny
        {
            return Err(ReplyError::AskerGone);
        }
        self.check_bound(pending, reply)
    }

    /// A yes to bound objects that have changed permits nothing. Those of another node are not on this machine: that node looks at
    /// them before it runs the call.
    fn check_bound(&self, pending: &PendingApproval, reply: &OperatorReply) -> Result<(), ReplyError> {
        let Some(bound) =
            binding::changed(&pending.request.bound_objects).filter(|_| reply.say != OperatorDecision::Deny)
        else {
            return Ok(());
        };
        if !self.is_own(&pending.request)? {
            return Ok(());
        }
        let what = binding::noun(bound.kind);
        let reason = format!("{what} `{}` changed", bound.path.display());
        self.conclude(pending, ApprovalAnswer::Superseded, &reason)?;
        Err(ReplyError::Changed { what, path: bound.path.clone() })
    }

    /// Whether a process of this node has asked.
    fn is_own(&self, request: &ApprovalRequest) -> Result<bool, InboxError> {
        let records = self.ledger.reader()?.own_about(request.transaction.as_str())?;
        Ok(question(&records).is_some())
    }

    /// Writes the vote before counting, so that two concurrent voters each see both votes.
    fn vote(&self, pending: &PendingApproval, reply: &OperatorReply) -> Result<ReplyOutcome, ReplyError> {
        let request = &pending.request;
        let vote = ApprovalVote {
            transaction: request.transaction.clone(),
            actor: reply.by.clone(),
            vote: if reply.say == OperatorDecision::Deny { Vote::Deny } else { Vote::Approve },
            reason: reply.reason.clone(),
            credential: self.shown.cloned(),
        };
        self.write(request, vec![authenticated(request, reply), Event::ApprovalVoted(vote)])?;
        let records = self.ledger.reader().map_err(InboxError::from)?.about(request.transaction.as_str())?;
        let count = |wanted: Vote| {
            let votes = records.iter().filter(|record| match &record.event {
                Event::ApprovalVoted(vote) => vote.vote == wanted,
                _ => false,
            });
            votes.count()
        };
        let (approve, deny) = (count(Vote::Approve), count(Vote::Deny));
        let enough = match reply.say {
            OperatorDecision::Deny => deny >= usize::from(request.quorum.deny),
            _ => approve >= usize::from(request.quorum.approve),
        };
        if !enough {
            return Ok(ReplyOutcome::Counted { approve, deny });
        }
        self.decide(pending, reply)
    }

    fn decide(&self, pending: &PendingApproval, reply: &OperatorReply) -> Result<ReplyOutcome, ReplyError> {
        let request = &pending.request;
        let decision = decision_of(request, reply);
        let grant =
            grant_of(pending, reply).map_err(|_no_id| ReplyError::NotOffered("no id could be made"))?;
        let mut events = Vec::new();
        if request.quorum.approve == 1 && request.quorum.deny == 1 {
            events.push(authenticated(request, reply));
        }
        events.push(Event::ApprovalDecided(Box::new(decision.clone())));
        events.extend(grant.clone().map(|grant| Event::GrantCreated(Box::new(grant))));
        if pending.awaited == WaiterStatus::Orphaned {
            events.push(abandoned(request.clone()));
        }
        self.write(request, events)?;
        Ok(ReplyOutcome::Decided { decision: Box::new(decision), grant: grant.map(Box::new) })
    }

    /// Reports a write that failed because of an earlier decision as that decision.
    fn write(&self, request: &ApprovalRequest, events: Vec<Event>) -> Result<(), ReplyError> {
        let Err(error) = self.ledger.append_all(&events) else { return Ok(()) };
        let records = self.ledger.reader().map_err(InboxError::from)?.about(request.transaction.as_str())?;
        match decided(&records) {
            Some(StoredDecision { decision, .. }) => {
                Err(ReplyError::AnsweredBefore { answer: decision.answer, by: Box::new(decision.actor) })
            }
            None => Err(ReplyError::Inbox(error.into())),
        }
    }

    /// Closes approvals and transactions of processes that are gone. None of them had an effect.
    pub fn sweep(&self) -> Result<(), InboxError> {
        for path in presence::abandoned(self.state_dir) {
            let id = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            let records = self.ledger.reader()?.about(&id)?;
            if let Some(event) = self.orphans(&records)? {
                match self.ledger.append(&event) {
                    // Another process swept first.
                    Ok(_) | Err(AppendError::OutOfOrder { .. }) => {}
                    // Removing the presence file now would leave the approval open for good.
                    Err(error) => return Err(error.into()),
                }
            }
            presence::forget(&path);
        }
        Ok(())
    }

    /// The record that ends a transaction whose process is gone.
    fn orphans(&self, records: &[Record]) -> Result<Option<Event>, InboxError> {
        let Some(transaction) = records.iter().find_map(|record| record.event.transaction()).cloned() else {
            return Ok(None);
        };
        let life = Lifecycle::of(records.iter().map(|record| &record.event)).unwrap_or_default();
        let question = question(records);
        if let Some(question) = question.as_ref().filter(|_| life.is_pending()) {
            let request = &question.request;
            if request.binding_without_session.is_some() {
                if question.awaited == WaiterStatus::Waiting {
                    self.orphan(request, GONE)?;
                }
                return Ok(None);
            }
            self.close(request, ApprovalAnswer::Expired, GONE)?;
        }
        Ok(match (life.status(), question) {
            (TransactionStatus::InProgress, _) => {
                Some(Event::CallInterrupted { transaction, reason: GONE.to_owned() })
            }
            (TransactionStatus::AwaitingApproval | TransactionStatus::Approved, Some(question)) => {
                Some(abandoned(question.request))
            }
            _ => None,
        })
    }
}

fn abandoned(request: ApprovalRequest) -> Event {
    Event::CallRefused {
        transaction: Some(request.transaction),
        session: Some(request.session),
        call: Some(request.call),
        call_origin: None,
        refusal: Refusal {
            code: RefusalCode::Approval,
            layer: PolicyLayer::Floor,
            rule: RuleId::ApprovalRequesterGone.into(),
            message: format!("{GONE}; nothing was done"),
            hint: None,
        },
    }
}

const GONE: &str = "the process that worked on it is gone";

/// Refuses grants for high risks and quorums: a lasting answer is too wide there.
fn offered(pending: &PendingApproval, say: &OperatorDecision) -> Result<(), ReplyError> {
    let request = &pending.request;
    if pending.awaited == WaiterStatus::Orphaned
        && matches!(say, OperatorDecision::Edited(_) | OperatorDecision::Session(_))
    {
        return Err(ReplyError::NotOffered(
            "the requester and its session are gone: a replacement cannot run",
        ));
    }
    let standing = request.risk < Risk::High && request.quorum.approve == 1;
    match say {
        OperatorDecision::Once | OperatorDecision::Deny => Ok(()),
        // Earlier voters approved the original call.
        OperatorDecision::Edited(_) if request.quorum.approve > 1 => {
            Err(ReplyError::NotOffered("it takes several who agree on the same, so it cannot be edited"))
        }
        OperatorDecision::Edited(_) if !is_whole(request) => Err(ReplyError::NotOffered(
            "the record does not have all of it (it holds a secret, or it is too long), so it cannot be edited",
        )),
        OperatorDecision::Edited(_) => Ok(()),
        OperatorDecision::Session(_) if standing => Ok(()),
        OperatorDecision::AlwaysHere { offer, .. }
            if standing && request.grant_offers.get(*offer).is_some() =>
        {
            Ok(())
        }
        OperatorDecision::Session(_) => {
            Err(ReplyError::NotOffered("an answer for the session is not offered for this"))
        }
        OperatorDecision::AlwaysHere { .. } => {
            Err(ReplyError::NotOffered("`always here` is not offered for this"))
        }
    }
}

/// Whether the recorded call is complete, with no secret redacted.
fn is_whole(request: &ApprovalRequest) -> bool {
    ActionFingerprint::of(&request.call, &request.roots) == request.fingerprint
}

fn holds_secret(call: &Call, leaks: &LeakScanner) -> bool {
    let Call::Exec(exec) = call else { return false };
    let argv: Vec<&[u8]> = exec.argv.iter().map(ByteString::as_slice).collect();
    !leaks.scanner().redact_argv(&argv).1.is_empty()
}

fn authenticated(request: &ApprovalRequest, reply: &OperatorReply) -> Event {
    let purpose = format!("answer {}", request.transaction);
    Event::AuthenticationAttempted { principal: reply.by.clone(), purpose, refusal: None }
}

fn decision_of(request: &ApprovalRequest, reply: &OperatorReply) -> ApprovalDecision {
    let edited = match &reply.say {
        OperatorDecision::Edited(call) => Some(Call::clone(call)),
        _ => None,
    };
    let fingerprint = edited
        .as_ref()
        .map_or_else(|| request.fingerprint.clone(), |call| ActionFingerprint::of(call, &request.roots));
    ApprovalDecision {
        transaction: request.transaction.clone(),
        session: request.session.clone(),
        fingerprint,
        answer: match reply.say {
            OperatorDecision::Once | OperatorDecision::Edited(_) => ApprovalAnswer::Once,
            OperatorDecision::Session(_) => ApprovalAnswer::Session,
            OperatorDecision::AlwaysHere { .. } => ApprovalAnswer::AlwaysHere,
            OperatorDecision::Deny => ApprovalAnswer::Deny,
        },
        actor: reply.by.clone(),
        reason: reply.reason.clone(),
        bound_objects: edited.as_ref().map(binding::of_call).unwrap_or_default(),
        replacement: edited,
    }
}

/// Default lifetime of an "always here" grant.
pub(crate) const DEFAULT_EXPIRY: SignedDuration = SignedDuration::from_hours(30 * 24);

fn grant_of(
    pending: &PendingApproval,
    reply: &OperatorReply,
) -> Result<Option<GrantRecord>, getrandom::Error> {
    let request = &pending.request;
    let directory = request.roots.first().map_or_else(|| ByteString::from("/"), |root| root.path.clone());
    let (covers, permits, terms) = match &reply.say {
        OperatorDecision::Once if pending.awaited == WaiterStatus::Orphaned => {
            let Some(binding) = request.binding_without_session.clone() else { return Ok(None) };
            let terms = GrantTerms { expires: Some(request.expires_at), uses: Some(1) };
            (
                GrantSubject::Next { directory, binding },
                "the next call that is the same, once".to_owned(),
                terms,
            )
        }
        OperatorDecision::Session(terms) => {
            let covers = GrantSubject::Session { binding: request.binding.clone() };
            (covers, "the same action in the same session".to_owned(), *terms)
        }
        OperatorDecision::AlwaysHere { offer, terms } => {
            let Some(offer) = request.grant_offers.get(*offer) else { return Ok(None) };
            let expires = terms.expires.or_else(|| Timestamp::now().checked_add(DEFAULT_EXPIRY).ok());
            let covers = GrantSubject::Here { directory, rules: offer.stored.clone() };
            (covers, offer.permits.clone(), GrantTerms { expires, ..*terms })
        }
        OperatorDecision::Once | OperatorDecision::Edited(_) | OperatorDecision::Deny => return Ok(None),
    };
    Ok(Some(GrantRecord {
        grant: GrantId::random()?,
        transaction: request.transaction.clone(),
        session: request.session.clone(),
        workspace: request.workspace.clone(),
        covers,
        permits,
        actor: reply.by.clone(),
        expires_at: terms.expires,
        max_uses: terms.uses,
    }))
}

/// The approval of these records of one transaction.
fn question(records: &[Record]) -> Option<PendingApproval> {
    let mut votes = Vec::new();
    let mut asked = None;
    let mut awaited = WaiterStatus::Waiting;
    for record in records {
        match &record.event {
            Event::ApprovalRequested(request) => asked = Some((request.as_ref().clone(), record)),
            Event::ApprovalVoted(vote) => votes.push(vote.clone()),
            Event::ApprovalOrphaned { .. } => awaited = WaiterStatus::Orphaned,
            _ => {}
        }
    }
    asked.map(|(request, record)| PendingApproval {
        request,
        votes,
        asked: time_of(record),
        seq: record.seq,
        awaited,
    })
}

/// An unreadable time counts as the oldest.
pub(super) fn time_of(record: &Record) -> Timestamp {
    record.time.parse().unwrap_or(Timestamp::UNIX_EPOCH)
}

fn waiting(records: &[Record]) -> Option<PendingApproval> {
    let life = Lifecycle::of(records.iter().map(|record| &record.event)).ok()?;
    question(records).filter(|_| life.is_pending())
}

/// The decision of an approval, and the grant it stored.
#[derive(Debug)]
pub(crate) struct StoredDecision {
    pub(crate) decision: ApprovalDecision,
    pub(crate) grant: Option<GrantRecord>,
}

/// The decision in these records.
pub(crate) fn decided(records: &[Record]) -> Option<StoredDecision> {
    let mut grant = None;
    let mut decision = None;
    for record in records {
        match &record.event {
            Event::ApprovalDecided(decided) => decision = Some(decided.as_ref().clone()),
            Event::GrantCreated(made) => grant = Some(made.as_ref().clone()),
            _ => {}
        }
    }
    decision.map(|decision| StoredDecision { decision, grant })
}

/// The decision of an approval, once there is one.
pub(crate) fn decision_in(
    reader: &LedgerReader,
    transaction: &TransactionId,
) -> Result<Option<StoredDecision>, LedgerReadError> {
    Ok(decided(&reader.about(transaction.as_str())?))
}
