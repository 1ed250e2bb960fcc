//! The questions that wait, and answering them: from the terminal of the process that asks, from another terminal, from
//! anywhere that can write to the ledger. There is no other way to a decision.

use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use ringfence_ledger::{
    AppendError, ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, Covers, Event, GrantMade,
    Kind, Ledger, LedgerReader, Life, OpenError, ReadError, ReasonRule, Record, Status, Timestamp, Vote,
};
use ringfence_types::{
    Bytes, Call, Exec, Fingerprint, GrantId, Layer, Principal, Refusal, RefusalCode, Risk, ShownCredential,
    TransactionId,
};

use super::grants::is_meant;
use super::{Waiting, binding, is_operator, presence};
use crate::leaks::LeakScanner;
use crate::secrets::{SecretStore, StoreError};

/// More questions than these do not wait at once.
const NEWEST: u32 = 1000;

/// The questions of one ledger.
#[derive(Clone, Copy, Debug)]
pub struct Inbox<'l> {
    ledger: &'l Ledger,
    state_dir: &'l Path,
    shown: Option<&'l ShownCredential>,
    seen: Awaited,
}

/// A question that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    pub request: ApprovalRequest,
    pub votes: Vec<ApprovalVote>,
    pub asked: Timestamp,
    /// Of the record of the question.
    pub seq: u64,
    pub awaited: Awaited,
}

/// Whether somebody waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Awaited {
    BySomebody,
    /// Whoever asked is gone. A yes is for the next who asks the same in the same workspace, once, while the question has time.
    ByNobody,
}

impl Pending {
    /// Whether its time is over, or was over before somebody set the clock back.
    fn is_over(&self, reader: &LedgerReader, now: Timestamp) -> Result<bool, ReadError> {
        Ok(self.request.expires <= now || reader.has_reached(self.request.expires, self.seq)?)
    }
}

/// What a person says to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub by: Principal,
    pub say: Say,
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    Once,
    /// This instead, once.
    Edited(Box<Call>),
    Session(Terms),
    AlwaysHere {
        /// Which of the offers, from 0.
        offer: usize,
        terms: Terms,
    },
    Deny,
}

/// How long a stored answer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// `None`: as long as the session, or 30 days.
    pub expires: Option<Timestamp>,
    pub uses: Option<u32>,
}

impl Terms {
    /// For this long from now on, and this often. What cannot be said so is no longer time than was meant, but an error.
    pub fn within(time: Option<Duration>, uses: Option<u32>) -> Result<Self, AnswerError> {
        if time.is_some_and(|time| time.is_zero()) || uses == Some(0) {
            return Err(AnswerError::Terms("a stored answer that never holds is none"));
        }
        let far = |_overflow| AnswerError::Terms("the end lies too far in the future");
        let end = |time: Duration| Timestamp::now().checked_add(time).map_err(far);
        Ok(Self { expires: time.map(end).transpose()?, uses })
    }
}

impl Say {
    /// These words instead of the command that was asked about; where and with what it would run stays.
    pub fn instead(request: &ApprovalRequest, argv: Vec<Bytes>) -> Result<Self, AnswerError> {
        match &request.call {
            Call::Exec(_) if argv.is_empty() => {
                Err(AnswerError::NotOffered("the command that would run instead is empty"))
            }
            Call::Exec(exec) => Ok(Self::Edited(Box::new(Call::Exec(Exec { argv, ..exec.clone() })))),
            _ => Err(AnswerError::NotOffered("only a command can be replaced by another one")),
        }
    }
}

/// What an answer led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    Decided {
        decision: Box<ApprovalDecision>,
        grant: Option<Box<GrantMade>>,
    },
    /// It takes more people.
    Counted {
        approve: usize,
        deny: usize,
    },
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    #[error("the ledger cannot be read")]
    Open(#[from] OpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] ReadError),
    #[error("the ledger cannot be written")]
    Append(#[from] AppendError),
    /// What is not known cannot be kept out of the ledger.
    #[error("the secrets of the operator cannot be read, so nothing is written")]
    Secrets(#[from] StoreError),
}

/// Why an answer did not count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    #[error("no question is called `{}`", Bytes::from(id.as_str()).display())]
    Unknown { id: String },
    #[error("`{}` could be {}", Bytes::from(id.as_str()).display(), candidates.join(", "))]
    Ambiguous { id: String, candidates: Vec<String> },
    #[error("it was answered before: {} by {by}", answer.word())]
    AnsweredBefore { answer: ApprovalAnswer, by: Box<Principal> },
    #[error("it waited for too long: the answer is no")]
    Expired,
    #[error("{what} `{}` is not what it was when the question was asked; it is asked again", path.display())]
    Changed { what: &'static str, path: Bytes },
    #[error("only an operator answers a question, and never the one who asks")]
    NotAnOperator,
    #[error("an answer has to say why")]
    ReasonRequired,
    #[error("{0}")]
    NotOffered(&'static str),
    /// How long or how often an answer is to hold makes no sense.
    #[error("{0}")]
    Terms(&'static str),
    #[error("you have answered already; it takes somebody else")]
    VotedBefore,
    /// It was read as a question of somebody who waits.
    #[error("whoever asked is gone by now: a yes would be for the next call that is the same")]
    AskerGone,
    #[error(transparent)]
    Inbox(#[from] InboxError),
}

impl AnswerError {
    /// The one thing that would change it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unknown { .. } => Some("`ringfence approvals list` shows the questions that wait"),
            Self::Ambiguous { .. } => Some("write more of the id"),
            Self::ReasonRequired => Some("add `--reason TEXT`"),
            Self::NotOffered(_) => Some("answer `--once`"),
            Self::AskerGone => Some(
                "look at the question again, and answer anew; over the interface such a yes says `asker_gone: true`",
            ),
            _ => None,
        }
    }
}

impl From<ReadError> for AnswerError {
    fn from(error: ReadError) -> Self {
        Self::Inbox(error.into())
    }
}

impl<'l> Inbox<'l> {
    /// `state_dir` is where those who ask say that they are alive.
    pub fn new(ledger: &'l Ledger, state_dir: &'l Path) -> Self {
        Self { ledger, state_dir, shown: None, seen: Awaited::BySomebody }
    }

    /// For somebody who has shown this. It is written down with what they say where it takes several, so that whoever knows which
    /// credentials belong together can tell one person from two.
    pub fn showing(self, shown: Option<&'l ShownCredential>) -> Self {
        Self { shown, ..self }
    }

    /// For somebody who was told this of the question that they answer. Whoever was not told that the asker is gone says no yes to
    /// what comes later.
    pub fn seeing(self, seen: Awaited) -> Self {
        Self { seen, ..self }
    }

    /// The questions that wait, oldest first. What nobody waits for any more is closed on the way.
    pub fn pending(&self, now: Timestamp) -> Result<Vec<Pending>, InboxError> {
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

    /// The question whose id begins with `id`; also one that was answered, with the answer. One that nobody waits for any more
    /// is closed on the way: an answer to it would be taken and lead to nothing.
    pub fn find(&self, id: &str) -> Result<(Pending, Option<ApprovalDecision>), AnswerError> {
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
            [] => Err(AnswerError::Unknown { id: id.to_owned() }),
            [only] => {
                let records = reader.about(only.as_str())?;
                let unknown = || AnswerError::Unknown { id: id.to_owned() };
                let question = question(&records).ok_or_else(unknown)?;
                let decision = decided(&records).map(|(decision, _)| decision);
                let gone = question.awaited == Awaited::ByNobody && decision.is_none();
                if !gone || !question.is_over(&reader, Timestamp::now())? {
                    return Ok((question, decision));
                }
                // Nobody else looks at its time.
                self.expire(&question)?;
                let decision = decision_in(&reader, only)?.map(|(decision, _)| decision);
                Ok((question, decision))
            }
            several => Err(AnswerError::Ambiguous {
                id: id.to_owned(),
                candidates: several.iter().map(ToString::to_string).collect(),
            }),
        }
    }

    /// A question as somebody waits for its answer who has not asked it.
    pub fn wait<'a>(&self, request: &'a ApprovalRequest) -> Result<Waiting<'a>, InboxError> {
        Ok(Waiting::new(request, None, self.ledger.reader()?))
    }

    /// Answers a question. What this returns is on disk.
    pub fn answer(&self, id: &str, reply: &Reply) -> Result<Answered, AnswerError> {
        let leaks = self.leaks()?;
        let reply =
            &Reply { reason: reply.reason.as_deref().map(|reason| leaks.text(reason)), ..reply.clone() };
        let (pending, decision) = self.find(id)?;
        if let Some(decision) = decision {
            return Err(AnswerError::AnsweredBefore { answer: decision.answer, by: Box::new(decision.by) });
        }
        let request = &pending.request;
        if matches!(&reply.say, Say::Edited(call) if holds_secret(call, &leaks)) {
            return Err(AnswerError::NotOffered(
                "what would run instead holds a secret, which is not written down",
            ));
        }
        self.check(&pending, reply)?;
        if request.quorum.approve > 1 || request.quorum.deny > 1 {
            return self.vote(&pending, reply);
        }
        self.decide(&pending, reply)
    }

    /// Says that whoever asks goes, and that the question waits on without them.
    pub(crate) fn leave(&self, request: &ApprovalRequest, why: &str) -> Result<(), InboxError> {
        let (transaction, session) = (request.transaction.clone(), request.session.clone());
        let left = Event::ApprovalLeft { transaction, session, why: why.to_owned() };
        match self.ledger.append(&left) {
            Ok(_receipt) => Ok(()),
            // Somebody was faster, and that counts.
            Err(_) if self.is_decided(request)? => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn is_left(&self, request: &ApprovalRequest) -> Result<bool, InboxError> {
        let records = self.ledger.reader()?.about(request.transaction.as_str())?;
        Ok(question(&records).is_some_and(|question| question.awaited == Awaited::ByNobody))
    }

    fn expire(&self, question: &Pending) -> Result<(), InboxError> {
        self.conclude(question, ApprovalAnswer::Expired, "nobody answered in time")
    }

    /// Closes a question without a person, and what it was about where nobody else will.
    fn conclude(&self, question: &Pending, answer: ApprovalAnswer, reason: &str) -> Result<(), InboxError> {
        self.close(&question.request, answer, reason)?;
        if question.awaited == Awaited::BySomebody {
            return Ok(());
        }
        match self.ledger.append(&abandoned(question.request.clone())) {
            // Somebody else who looked was faster.
            Ok(_) | Err(AppendError::OutOfOrder { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Closes a question without a person.
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
            by: Principal::System,
            reason: Some(reason.to_owned()),
            edited: None,
            bound: Vec::new(),
        };
        let written = self.ledger.append(&Event::ApprovalDecided(Box::new(decision)));
        match written {
            Ok(_receipt) => Ok(()),
            // Somebody was faster, and that counts.
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

    fn check(&self, pending: &Pending, reply: &Reply) -> Result<(), AnswerError> {
        let request = &pending.request;
        if !is_operator(&reply.by) || reply.by.identity() == request.requester.identity() {
            return Err(AnswerError::NotAnOperator);
        }
        let reader = self.ledger.reader().map_err(InboxError::from)?;
        if pending.is_over(&reader, Timestamp::now())? {
            self.expire(pending)?;
            return Err(AnswerError::Expired);
        }
        if request.reason_rule == ReasonRule::Required && reply.reason.as_deref().is_none_or(str::is_empty) {
            return Err(AnswerError::ReasonRequired);
        }
        let voter = reply.by.identity();
        if pending.votes.iter().any(|vote| vote.by.identity() == voter) {
            return Err(AnswerError::VotedBefore);
        }
        offered(pending, &reply.say)?;
        if pending.awaited == Awaited::ByNobody && self.seen == Awaited::BySomebody && reply.say != Say::Deny
        {
            return Err(AnswerError::AskerGone);
        }
        self.check_bound(pending, reply)
    }

    /// Somebody who says yes to what does not exist any more says yes to nothing.
    fn check_bound(&self, pending: &Pending, reply: &Reply) -> Result<(), AnswerError> {
        let Some(bound) = binding::changed(&pending.request.bound).filter(|_| reply.say != Say::Deny) else {
            return Ok(());
        };
        let what = binding::noun(bound.what);
        let reason = format!("{what} `{}` changed", bound.path.display());
        self.conclude(pending, ApprovalAnswer::Superseded, &reason)?;
        Err(AnswerError::Changed { what, path: bound.path.clone() })
    }

    /// Writes the vote down first and counts afterwards: of two who vote at once, both see both.
    fn vote(&self, pending: &Pending, reply: &Reply) -> Result<Answered, AnswerError> {
        let request = &pending.request;
        let vote = ApprovalVote {
            transaction: request.transaction.clone(),
            by: reply.by.clone(),
            vote: if reply.say == Say::Deny { Vote::Deny } else { Vote::Approve },
            reason: reply.reason.clone(),
            shown: self.shown.cloned(),
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
            Say::Deny => deny >= usize::from(request.quorum.deny),
            _ => approve >= usize::from(request.quorum.approve),
        };
        if !enough {
            return Ok(Answered::Counted { approve, deny });
        }
        self.decide(pending, reply)
    }

    fn decide(&self, pending: &Pending, reply: &Reply) -> Result<Answered, AnswerError> {
        let request = &pending.request;
        let decision = decision_of(request, reply);
        let grant =
            grant_of(pending, reply).map_err(|_no_id| AnswerError::NotOffered("no id could be made"))?;
        let mut events = Vec::new();
        if request.quorum.approve == 1 && request.quorum.deny == 1 {
            events.push(authenticated(request, reply));
        }
        events.push(Event::ApprovalDecided(Box::new(decision.clone())));
        events.extend(grant.clone().map(|grant| Event::GrantMade(Box::new(grant))));
        if pending.awaited == Awaited::ByNobody {
            events.push(abandoned(request.clone()));
        }
        self.write(request, events)?;
        Ok(Answered::Decided { decision: Box::new(decision), grant: grant.map(Box::new) })
    }

    /// What cannot be written because somebody was faster is told as that.
    fn write(&self, request: &ApprovalRequest, events: Vec<Event>) -> Result<(), AnswerError> {
        let Err(error) = self.ledger.append_all(&events) else { return Ok(()) };
        let records = self.ledger.reader().map_err(InboxError::from)?.about(request.transaction.as_str())?;
        match decided(&records) {
            Some((decision, _)) => {
                Err(AnswerError::AnsweredBefore { answer: decision.answer, by: Box::new(decision.by) })
            }
            None => Err(AnswerError::Inbox(error.into())),
        }
    }

    /// Closes what was left by processes that are gone: nothing of it was done, and nothing of it will be.
    pub fn sweep(&self) -> Result<(), InboxError> {
        for path in presence::abandoned(self.state_dir) {
            let id = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            let records = self.ledger.reader()?.about(&id)?;
            if let Some(event) = self.leftover(&records)? {
                match self.ledger.append(&event) {
                    // Somebody else who sweeps was faster.
                    Ok(_) | Err(AppendError::OutOfOrder { .. }) => {}
                    // What is forgotten now would never be closed.
                    Err(error) => return Err(error.into()),
                }
            }
            presence::forget(&path);
        }
        Ok(())
    }

    /// What ends a transaction whose process is gone.
    fn leftover(&self, records: &[Record]) -> Result<Option<Event>, InboxError> {
        let Some(transaction) = records.iter().find_map(|record| record.event.transaction()).cloned() else {
            return Ok(None);
        };
        let life = Life::of(records.iter().map(|record| &record.event)).unwrap_or_default();
        let question = question(records);
        if let Some(question) = question.as_ref().filter(|_| life.is_pending()) {
            let request = &question.request;
            if request.next.is_some() {
                if question.awaited == Awaited::BySomebody {
                    self.leave(request, GONE)?;
                }
                return Ok(None);
            }
            self.close(request, ApprovalAnswer::Expired, GONE)?;
        }
        Ok(match (life.status(), question) {
            (Status::InProgress, _) => Some(Event::Interrupted { transaction, why: GONE.to_owned() }),
            (Status::AwaitingApproval | Status::Approved, Some(question)) => {
                Some(abandoned(question.request))
            }
            _ => None,
        })
    }
}

fn abandoned(request: ApprovalRequest) -> Event {
    Event::Refused {
        transaction: Some(request.transaction),
        session: Some(request.session),
        call: Some(request.call),
        by: None,
        refusal: Refusal {
            code: RefusalCode::Approval,
            layer: Layer::Floor,
            rule: "approval.abandoned".to_owned(),
            message: format!("{GONE}; nothing was done"),
            hint: None,
        },
    }
}

const GONE: &str = "the process that worked on it is gone";

/// Too much is at stake for an answer that stands, or it takes several who would have to agree on what stands.
fn offered(pending: &Pending, say: &Say) -> Result<(), AnswerError> {
    let request = &pending.request;
    if pending.awaited == Awaited::ByNobody && matches!(say, Say::Edited(_) | Say::Session(_)) {
        return Err(AnswerError::NotOffered(
            "whoever asked is gone, and their session with them: nothing runs instead, and nothing goes on",
        ));
    }
    let standing = request.risk < Risk::High && request.quorum.approve == 1;
    match say {
        Say::Once | Say::Deny => Ok(()),
        // Those who said yes before said it to something else.
        Say::Edited(_) if request.quorum.approve > 1 => {
            Err(AnswerError::NotOffered("it takes several who agree on the same, so it cannot be edited"))
        }
        Say::Edited(_) if !is_whole(request) => Err(AnswerError::NotOffered(
            "the record does not have all of it (it holds a secret, or it is too long), so it cannot be edited",
        )),
        Say::Edited(_) => Ok(()),
        Say::Session(_) if standing => Ok(()),
        Say::AlwaysHere { offer, .. } if standing && request.offers.get(*offer).is_some() => Ok(()),
        Say::Session(_) => Err(AnswerError::NotOffered("an answer for the session is not offered for this")),
        Say::AlwaysHere { .. } => Err(AnswerError::NotOffered("`always here` is not offered for this")),
    }
}

/// Whether the record is the call, and not the call without its secrets.
fn is_whole(request: &ApprovalRequest) -> bool {
    Fingerprint::of(&request.call, &request.roots) == request.fingerprint
}

fn holds_secret(call: &Call, leaks: &LeakScanner) -> bool {
    let Call::Exec(exec) = call else { return false };
    let argv: Vec<&[u8]> = exec.argv.iter().map(Bytes::as_slice).collect();
    !leaks.scanner().redact_argv(&argv).1.is_empty()
}

fn authenticated(request: &ApprovalRequest, reply: &Reply) -> Event {
    let purpose = format!("answer {}", request.transaction);
    Event::Authenticated { principal: reply.by.clone(), purpose, refusal: None }
}

fn decision_of(request: &ApprovalRequest, reply: &Reply) -> ApprovalDecision {
    let edited = match &reply.say {
        Say::Edited(call) => Some(Call::clone(call)),
        _ => None,
    };
    let fingerprint = edited
        .as_ref()
        .map_or_else(|| request.fingerprint.clone(), |call| Fingerprint::of(call, &request.roots));
    ApprovalDecision {
        transaction: request.transaction.clone(),
        session: request.session.clone(),
        fingerprint,
        answer: match reply.say {
            Say::Once | Say::Edited(_) => ApprovalAnswer::Once,
            Say::Session(_) => ApprovalAnswer::Session,
            Say::AlwaysHere { .. } => ApprovalAnswer::AlwaysHere,
            Say::Deny => ApprovalAnswer::Denied,
        },
        by: reply.by.clone(),
        reason: reply.reason.clone(),
        bound: edited.as_ref().map(binding::of_call).unwrap_or_default(),
        edited,
    }
}

/// How long "always here" holds where nobody says it.
pub(crate) const DEFAULT_EXPIRY: SignedDuration = SignedDuration::from_hours(30 * 24);

fn grant_of(pending: &Pending, reply: &Reply) -> Result<Option<GrantMade>, getrandom::Error> {
    let request = &pending.request;
    let directory = request.roots.first().map_or_else(|| Bytes::from("/"), |root| root.path.clone());
    let (covers, permits, terms) = match &reply.say {
        Say::Once if pending.awaited == Awaited::ByNobody => {
            let Some(binding) = request.next.clone() else { return Ok(None) };
            let terms = Terms { expires: Some(request.expires), uses: Some(1) };
            (Covers::Next { directory, binding }, "the next call that is the same, once".to_owned(), terms)
        }
        Say::Session(terms) => {
            let covers = Covers::Session { binding: request.binding.clone() };
            (covers, "the same action in the same session".to_owned(), *terms)
        }
        Say::AlwaysHere { offer, terms } => {
            let Some(offer) = request.offers.get(*offer) else { return Ok(None) };
            let expires = terms.expires.or_else(|| Timestamp::now().checked_add(DEFAULT_EXPIRY).ok());
            let covers = Covers::Here { directory, rules: offer.stored.clone() };
            (covers, offer.permits.clone(), Terms { expires, ..*terms })
        }
        Say::Once | Say::Edited(_) | Say::Deny => return Ok(None),
    };
    Ok(Some(GrantMade {
        grant: GrantId::random()?,
        transaction: request.transaction.clone(),
        session: request.session.clone(),
        workspace: request.workspace.clone(),
        covers,
        permits,
        by: reply.by.clone(),
        expires: terms.expires,
        uses: terms.uses,
    }))
}

/// The question that these records of a transaction are about.
fn question(records: &[Record]) -> Option<Pending> {
    let mut votes = Vec::new();
    let mut asked = None;
    let mut awaited = Awaited::BySomebody;
    for record in records {
        match &record.event {
            Event::ApprovalRequested(request) => asked = Some((request.as_ref().clone(), record)),
            Event::ApprovalVoted(vote) => votes.push(vote.clone()),
            Event::ApprovalLeft { .. } => awaited = Awaited::ByNobody,
            _ => {}
        }
    }
    asked.map(|(request, record)| Pending {
        request,
        votes,
        asked: time_of(record),
        seq: record.seq,
        awaited,
    })
}

/// A time that cannot be read is the oldest.
pub(super) fn time_of(record: &Record) -> Timestamp {
    record.time.parse().unwrap_or(Timestamp::UNIX_EPOCH)
}

fn waiting(records: &[Record]) -> Option<Pending> {
    let life = Life::of(records.iter().map(|record| &record.event)).ok()?;
    question(records).filter(|_| life.is_pending())
}

/// The decision among these records, and what it stored.
pub(crate) fn decided(records: &[Record]) -> Option<(ApprovalDecision, Option<GrantMade>)> {
    let mut grant = None;
    let mut decision = None;
    for record in records {
        match &record.event {
            Event::ApprovalDecided(decided) => decision = Some(decided.as_ref().clone()),
            Event::GrantMade(made) => grant = Some(made.as_ref().clone()),
            _ => {}
        }
    }
    decision.map(|decision| (decision, grant))
}

/// The decision about a question, once there is one.
pub(crate) fn decision_in(
    reader: &LedgerReader,
    transaction: &TransactionId,
) -> Result<Option<(ApprovalDecision, Option<GrantMade>)>, ReadError> {
    Ok(decided(&reader.about(transaction.as_str())?))
}
