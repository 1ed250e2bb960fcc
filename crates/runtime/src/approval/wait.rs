//! Waiting for an answer, from whoever gives it first.

use std::cell::{Cell, OnceCell};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use ringfence_authz::Judgement;
use ringfence_authz::policy::ApprovalSettings;
use ringfence_ledger::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, Covers, Event, GrantMade, Ledger, LedgerReader,
    ReadError, Timestamp,
};
use ringfence_sandbox::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::channel::{self, Delivered};
use super::inbox::{Inbox, InboxError, decision_in};
use super::{AnswerError, Answered, Approver, Heard, Reply, Say, grants, presence};

/// How often somebody who waits looks for an answer from elsewhere.
const LOOK: Duration = Duration::from_millis(100);

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Waiting<'a> {
    request: &'a ApprovalRequest,
    judgement: Option<&'a Judgement>,
    reader: LedgerReader,
    seen: Cell<Option<i64>>,
    found: OnceCell<ApprovalDecision>,
    /// How long it had, and since when.
    given: (Duration, Duration),
}

impl<'a> Waiting<'a> {
    pub(super) fn new(
        request: &'a ApprovalRequest,
        judgement: Option<&'a Judgement>,
        reader: LedgerReader,
    ) -> Self {
        let given = (left(request), since_boot());
        Self { request, judgement, reader, seen: Cell::new(None), found: OnceCell::new(), given }
    }

    pub fn request(&self) -> &ApprovalRequest {
        self.request
    }

    /// Every part with its decision, where this process has judged it.
    pub fn judgement(&self) -> Option<&Judgement> {
        self.judgement
    }

    /// How long it waits yet. A clock that is set back gives nobody more time.
    pub fn left(&self) -> Duration {
        let (given, begun) = self.given;
        left(self.request).min(given.saturating_sub(since_boot().saturating_sub(begun)))
    }

    /// The decision, once there is one. Cheap while nobody writes to the ledger.
    pub fn decided(&self) -> Option<ApprovalDecision> {
        if self.found.get().is_none()
            // What cannot be read now is read later; the time runs.
            && let Ok(Some((decision, _))) = self.look()
        {
            return Some(self.found.get_or_init(|| decision).clone());
        }
        self.found.get().cloned()
    }

    /// Of how many of the last questions this offer would have been the answer, and how many there were.
    pub fn matched(&self, offer: usize) -> Option<(usize, usize)> {
        let offer = self.request.offers.get(offer)?;
        grants::matched(&self.reader, &self.request.workspace, &offer.stored).ok()
    }

    fn look(&self) -> Result<Option<(ApprovalDecision, Option<GrantMade>)>, ReadError> {
        let version = self.reader.version()?;
        if self.seen.get() == Some(version) {
            return Ok(None);
        }
        let found = decision_in(&self.reader, &self.request.transaction)?;
        // Only now: what could not be read is looked for again, also where nobody writes any more.
        self.seen.set(Some(version));
        Ok(found)
    }
}

/// By a clock that nobody sets, and that runs while the machine sleeps.
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// How long a question waits yet, by the clock on the wall.
fn left(request: &ApprovalRequest) -> Duration {
    let left = request.expires.duration_since(Timestamp::now());
    left.try_into().unwrap_or(Duration::ZERO)
}

/// What asking takes: where the question is written, and who is asked.
#[derive(Debug)]
pub(crate) struct Inquiry<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) state_dir: &'a Path,
    pub(crate) approver: &'a mut dyn Approver,
    pub(crate) settings: &'a ApprovalSettings,
    /// How long "always here" holds.
    pub(crate) grant_expiry: Duration,
}

impl Inquiry<'_> {
    /// Whether a question would reach anybody, as far as that is known before it is asked.
    pub(crate) fn reaches_somebody(&mut self) -> bool {
        self.approver.is_there() || presence::is_watched(self.state_dir) || !self.settings.notify.is_empty()
    }
}

/// Asks whoever can be asked, and returns the decision that is in the ledger. There always is one, unless the question was left
/// to whoever asks the same next: `None`.
pub(crate) fn decision(
    inquiry: Inquiry<'_>,
    request: &ApprovalRequest,
    judgement: &Judgement,
    interrupts: &[Interrupt<'_>],
) -> Result<Option<(ApprovalDecision, Option<GrantMade>)>, InboxError> {
    let inbox = Inbox::new(inquiry.ledger, inquiry.state_dir);
    let reader = inquiry.ledger.reader()?;
    let waiting = Waiting::new(request, Some(judgement), reader);
    let here = inquiry.approver.is_there();
    let watched = presence::is_watched(inquiry.state_dir);
    let mut delivery = Delivery::start(inquiry.settings, request);
    if !here && !watched {
        delivery.settle(inquiry.ledger, request);
    }
    let reached = watched || delivery.delivered > 0;
    tracing::info!(transaction = %request.transaction, risk = ?request.risk, here, watched, told = delivery.delivered, "question asked");
    let failure = delivery.failure();
    let mut asking = Asking { inquiry, inbox, waiting: &waiting, delivery };
    match (here, reached) {
        (true, _) => asking.here(interrupts)?,
        (false, true) => asking.elsewhere(interrupts)?,
        (false, false) => {
            let reason = failure.unwrap_or_else(|| "there is no terminal, and nobody watches".to_owned());
            inbox.close(request, ApprovalAnswer::Unreachable, &reason)?;
        }
    }
    asking.result()
}

struct Asking<'a, 'i> {
    inquiry: Inquiry<'i>,
    inbox: Inbox<'i>,
    waiting: &'a Waiting<'a>,
    delivery: Delivery,
}

impl Asking<'_, '_> {
    /// The person at this terminal, while others may be faster.
    fn here(&mut self, interrupts: &[Interrupt<'_>]) -> Result<(), InboxError> {
        match self.inquiry.approver.ask(self.waiting) {
            Heard::Reply(reply) => self.said(&reply, interrupts),
            Heard::Elsewhere => Ok(()),
            Heard::Silence => self.expire(),
            Heard::Left if self.waiting.request.next.is_some() => {
                self.inbox.leave(self.waiting.request, "the daemon that asked has ended")
            }
            Heard::Left | Heard::Interrupted => self.interrupted(),
        }
    }

    fn said(&mut self, reply: &Reply, interrupts: &[Interrupt<'_>]) -> Result<(), InboxError> {
        let request = self.waiting.request;
        let reply = self.with_expiry(reply);
        match self.inbox.answer(request.transaction.as_str(), &reply) {
            Ok(Answered::Decided { grant, .. }) => {
                if let Some(text) = grant.and_then(|grant| self.stored(&grant)) {
                    self.inquiry.approver.tell(&text);
                }
                Ok(())
            }
            Ok(Answered::Counted { approve, deny }) => {
                let text = format!("{approve} for it, {deny} against; waiting for others");
                self.inquiry.approver.tell(&text);
                self.elsewhere(interrupts)
            }
            Err(
                error @ (AnswerError::AnsweredBefore { .. }
                | AnswerError::Expired
                | AnswerError::AskerGone
                | AnswerError::Changed { .. }),
            ) => {
                self.inquiry.approver.tell(&error.to_string());
                Ok(())
            }
            Err(AnswerError::Inbox(error)) => Err(error),
            Err(error) => {
                self.inquiry.approver.tell(&error.to_string());
                self.inbox.close(request, ApprovalAnswer::Denied, &error.to_string())
            }
        }
    }

    fn with_expiry(&self, reply: &Reply) -> Reply {
        let mut reply = reply.clone();
        if let Say::AlwaysHere { terms, .. } = &mut reply.say
            && terms.expires.is_none()
        {
            terms.expires = Timestamp::now().checked_add(self.inquiry.grant_expiry).ok();
        }
        reply
    }

    /// What a standing answer is called, and what it would have saved.
    fn stored(&self, grant: &GrantMade) -> Option<String> {
        let Covers::Here { rules, .. } = &grant.covers else { return None };
        let (count, of) = grants::matched(&self.waiting.reader, &grant.workspace, rules).ok()?;
        Some(format!(
            "stored as {}: it would have matched {count} of your last {of} asks; `ringfence approvals revoke` ends it",
            grant.grant
        ))
    }

    /// Nobody at this terminal: others answer through the ledger.
    fn elsewhere(&mut self, interrupts: &[Interrupt<'_>]) -> Result<(), InboxError> {
        loop {
            self.delivery.note(self.inquiry.ledger, self.waiting.request);
            if self.waiting.decided().is_some() {
                return Ok(());
            }
            let left = self.waiting.left();
            if left.is_zero() {
                return self.expire();
            }
            if interrupted(interrupts, left.min(LOOK)) {
                return self.interrupted();
            }
        }
    }

    fn expire(&self) -> Result<(), InboxError> {
        self.inbox.close(self.waiting.request, ApprovalAnswer::Expired, "nobody answered in time")
    }

    fn interrupted(&self) -> Result<(), InboxError> {
        self.inbox.close(
            self.waiting.request,
            ApprovalAnswer::Denied,
            "interrupted before there was an answer",
        )
    }

    fn result(mut self) -> Result<Option<(ApprovalDecision, Option<GrantMade>)>, InboxError> {
        self.delivery.note(self.inquiry.ledger, self.waiting.request);
        let transaction = &self.waiting.request.transaction;
        let found = decision_in(&self.waiting.reader, transaction)?;
        if let Some((decision, grant)) = &found {
            tracing::info!(transaction = %transaction, answer = ?decision.answer, granted = grant.is_some(), "question answered");
        }
        if found.is_none() && !self.inbox.is_left(self.waiting.request)? {
            return Err(InboxError::Read(ReadError::Unknown { id: transaction.to_string() }));
        }
        Ok(found)
    }
}

/// Waits for a little while; whether a signal came that asks this process to end.
fn interrupted(interrupts: &[Interrupt<'_>], time: Duration) -> bool {
    use libc::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
    const ENDING: [i32; 5] = [SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM];
    let ending = interrupts.iter().filter(|interrupt| ENDING.contains(&interrupt.signal));
    let mut ready: Vec<PollFd<'_>> =
        ending.map(|interrupt| PollFd::from_borrowed_fd(interrupt.fd.as_fd(), PollFlags::IN)).collect();
    let timeout = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 100_000_000 });
    poll(&mut ready, Some(&timeout)).is_ok_and(|count| count > 0)
}

/// Word to people who are not here, on its way.
#[derive(Debug)]
struct Delivery {
    results: Option<Receiver<Delivered>>,
    delivered: usize,
    failures: Vec<String>,
}

impl Delivery {
    fn start(channels: &ApprovalSettings, request: &ApprovalRequest) -> Self {
        let results = (!channels.notify.is_empty()).then(|| channel::deliver(channels, request));
        Self { results, delivered: 0, failures: Vec::new() }
    }

    /// Takes in what is known by now.
    fn note(&mut self, ledger: &Ledger, request: &ApprovalRequest) {
        while let Some(delivered) = self.next() {
            self.keep(ledger, request, delivered);
        }
    }

    /// Waits until it is known of every channel; each has its own bound. Where nobody else can answer, a word that did
    /// not arrive reached nobody.
    fn settle(&mut self, ledger: &Ledger, request: &ApprovalRequest) {
        while let Some(Ok(delivered)) = self.results.as_ref().map(Receiver::recv) {
            self.keep(ledger, request, delivered);
        }
        self.results = None;
    }

    fn next(&mut self) -> Option<Delivered> {
        match self.results.as_ref()?.try_recv() {
            Ok(delivered) => Some(delivered),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.results = None;
                None
            }
        }
    }

    fn keep(&mut self, ledger: &Ledger, request: &ApprovalRequest, delivered: Delivered) {
        let channel = delivered.channel.word();
        match &delivered.failure {
            None => self.delivered += 1,
            Some(why) => self.failures.push(format!("{channel}: {why}")),
        }
        // A question that is over needs no more words, and one whose record fails says so with its decision.
        let _written = ledger.append(&Event::Notified {
            transaction: request.transaction.clone(),
            channel: channel.to_owned(),
            failure: delivered.failure,
        });
    }

    fn failure(&self) -> Option<String> {
        (!self.failures.is_empty()).then(|| self.failures.join("; "))
    }
}
