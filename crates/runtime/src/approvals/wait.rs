//! Waits for the decision of an approval, from the first approver that answers.

use std::cell::{Cell, OnceCell};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use ringfence_authz::Judgement;
use ringfence_ledger::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, Event, GrantRecord, GrantSubject, Ledger,
    LedgerReadError, LedgerReader, Timestamp,
};
use ringfence_policy::ApprovalSettings;
use ringfence_sandbox::SignalForward;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::inbox::{ApprovalInbox, InboxError, StoredDecision, decision_in};
use super::notify::{self, DeliveryResult};
use super::{
    Approver, ApproverReply, OperatorDecision, OperatorReply, ReplyError, ReplyOutcome, grants, presence,
};

/// Poll interval for decisions made elsewhere.
const LOOK: Duration = Duration::from_millis(100);

/// A pending approval that this process waits for.
#[derive(Debug)]
pub struct ApprovalWait<'a> {
    request: &'a ApprovalRequest,
    judgement: Option<&'a Judgement>,
    reader: LedgerReader,
    seen: Cell<Option<i64>>,
    found: OnceCell<ApprovalDecision>,
    /// The timeout, and the boot time at which it began.
    given: (Duration, Duration),
}

impl<'a> ApprovalWait<'a> {
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

    /// Every part with its decision, if this process has evaluated the call.
    pub fn judgement(&self) -> Option<&Judgement> {
        self.judgement
    }

    /// Remaining time. Setting the wall clock back does not extend it.
    pub fn left(&self) -> Duration {
        let (given, begun) = self.given;
        left(self.request).min(given.saturating_sub(since_boot().saturating_sub(begun)))
    }

    /// The decision, once there is one. Cheap while the ledger does not change.
    pub fn decided(&self) -> Option<ApprovalDecision> {
        if self.found.get().is_none()
            // A failed read is retried until the timeout.
            && let Ok(Some(StoredDecision { decision, .. })) = self.look()
        {
            return Some(self.found.get_or_init(|| decision).clone());
        }
        self.found.get().cloned()
    }

    /// How many of the last approvals this offer would have answered, and how many there were.
    pub fn matched(&self, offer: usize) -> Option<(usize, usize)> {
        let offer = self.request.grant_offers.get(offer)?;
        grants::matched(&self.reader, &self.request.workspace, &offer.stored).ok()
    }

    fn look(&self) -> Result<Option<StoredDecision>, LedgerReadError> {
        let version = self.reader.version()?;
        if self.seen.get() == Some(version) {
            return Ok(None);
        }
        let found = decision_in(&self.reader, &self.request.transaction)?;
        // Only after a successful read, so that a failed read is repeated even if the ledger does not change.
        self.seen.set(Some(version));
        Ok(found)
    }
}

/// Boot time: no user can set it, and it advances during suspend.
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// Remaining time by the wall clock.
fn left(request: &ApprovalRequest) -> Duration {
    let left = request.expires_at.duration_since(Timestamp::now());
    left.try_into().unwrap_or(Duration::ZERO)
}

/// The ledger, settings and approver of one request.
#[derive(Debug)]
pub(crate) struct ApprovalContext<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) state_dir: &'a Path,
    pub(crate) approver: &'a mut dyn Approver,
    pub(crate) settings: &'a ApprovalSettings,
    /// Lifetime of an "always here" grant.
    pub(crate) grant_lifetime: Duration,
}

impl ApprovalContext<'_> {
    /// Whether the request can reach an approver, as far as that is known in advance.
    pub(crate) fn reaches_somebody(&mut self) -> bool {
        self.approver.is_there() || presence::is_watched(self.state_dir) || !self.settings.notify.is_empty()
    }
}

/// Asks every reachable approver and returns the decision from the ledger. `None`: the approval was orphaned
/// and stays pending for the next identical call.
pub(crate) fn decision(
    inquiry: ApprovalContext<'_>,
    request: &ApprovalRequest,
    judgement: &Judgement,
    interrupts: &[SignalForward<'_>],
) -> Result<Option<StoredDecision>, InboxError> {
    let inbox = ApprovalInbox::new(inquiry.ledger, inquiry.state_dir);
    let reader = inquiry.ledger.reader()?;
    let waiting = ApprovalWait::new(request, Some(judgement), reader);
    let here = inquiry.approver.is_there();
    let watched = presence::is_watched(inquiry.state_dir);
    let mut delivery = NotificationTask::start(inquiry.settings, request);
    if !here && !watched {
        delivery.settle(inquiry.ledger, request);
    }
    let reached = watched || delivery.delivered > 0;
    tracing::info!(transaction = %request.transaction, risk = ?request.risk, here, watched, told = delivery.delivered, "approval requested");
    let failure = delivery.failure();
    let mut asking = AskState { inquiry, inbox, waiting: &waiting, delivery };
    match (here, reached) {
        (true, _) => asking.here(interrupts)?,
        (false, true) => asking.elsewhere(interrupts)?,
        (false, false) => {
            let reason =
                failure.unwrap_or_else(|| "there is no terminal, and no approver watches".to_owned());
            inbox.close(request, ApprovalAnswer::Unreachable, &reason)?;
        }
    }
    asking.result()
}

struct AskState<'a, 'i> {
    inquiry: ApprovalContext<'i>,
    inbox: ApprovalInbox<'i>,
    waiting: &'a ApprovalWait<'a>,
    delivery: NotificationTask,
}

impl AskState<'_, '_> {
    /// Asks the person at this terminal. Another approver may answer first.
    fn here(&mut self, interrupts: &[SignalForward<'_>]) -> Result<(), InboxError> {
        match self.inquiry.approver.ask(self.waiting) {
            ApproverReply::Reply(reply) => self.said(&reply, interrupts),
            ApproverReply::Elsewhere => Ok(()),
            ApproverReply::Silence => self.expire(),
            ApproverReply::Left if self.waiting.request.binding_without_session.is_some() => {
                self.inbox.orphan(self.waiting.request, "the daemon that asked has ended")
            }
            ApproverReply::Left | ApproverReply::Interrupted => self.interrupted(),
        }
    }

    fn said(&mut self, reply: &OperatorReply, interrupts: &[SignalForward<'_>]) -> Result<(), InboxError> {
        let request = self.waiting.request;
        let reply = self.with_expiry(reply);
        match self.inbox.answer(request.transaction.as_str(), &reply) {
            Ok(ReplyOutcome::Decided { grant, .. }) => {
                if let Some(text) = grant.and_then(|grant| self.stored(&grant)) {
                    self.inquiry.approver.tell(&text);
                }
                Ok(())
            }
            Ok(ReplyOutcome::Counted { approve, deny }) => {
                let text = format!("{approve} for it, {deny} against; waiting for others");
                self.inquiry.approver.tell(&text);
                self.elsewhere(interrupts)
            }
            Err(
                error @ (ReplyError::AnsweredBefore { .. }
                | ReplyError::Expired
                | ReplyError::AskerGone
                | ReplyError::Changed { .. }),
            ) => {
                self.inquiry.approver.tell(&error.to_string());
                Ok(())
            }
            Err(ReplyError::Inbox(error)) => Err(error),
            Err(error) => {
                self.inquiry.approver.tell(&error.to_string());
                self.inbox.close(request, ApprovalAnswer::Deny, &error.to_string())
            }
        }
    }

    fn with_expiry(&self, reply: &OperatorReply) -> OperatorReply {
        let mut reply = reply.clone();
        if let OperatorDecision::AlwaysHere { terms, .. } = &mut reply.say
            && terms.expires.is_none()
        {
            terms.expires = Timestamp::now().checked_add(self.inquiry.grant_lifetime).ok();
        }
        reply
    }

    /// Describes a new grant and how many past approvals it would have answered.
    fn stored(&self, grant: &GrantRecord) -> Option<String> {
        let GrantSubject::Here { rules, .. } = &grant.covers else { return None };
        let (count, of) = grants::matched(&self.waiting.reader, &grant.workspace, rules).ok()?;
        Some(format!(
            "stored as {}: it would have answered {count} of the last {of} requests; `ringfence grants revoke` revokes it",
            grant.grant
        ))
    }

    /// Waits for a decision through the ledger, without an approver in this process.
    fn elsewhere(&mut self, interrupts: &[SignalForward<'_>]) -> Result<(), InboxError> {
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
        self.inbox.close(self.waiting.request, ApprovalAnswer::Expired, "no answer in time")
    }

    fn interrupted(&self) -> Result<(), InboxError> {
        self.inbox.close(self.waiting.request, ApprovalAnswer::Deny, "interrupted before there was an answer")
    }

    fn result(mut self) -> Result<Option<StoredDecision>, InboxError> {
        self.delivery.note(self.inquiry.ledger, self.waiting.request);
        let transaction = &self.waiting.request.transaction;
        let found = decision_in(&self.waiting.reader, transaction)?;
        if let Some(StoredDecision { decision, grant }) = &found {
            tracing::info!(transaction = %transaction, answer = ?decision.answer, granted = grant.is_some(), "approval decided");
        }
        if found.is_none() && !self.inbox.is_orphaned(self.waiting.request)? {
            return Err(InboxError::Read(LedgerReadError::Unknown { id: transaction.to_string() }));
        }
        Ok(found)
    }
}

/// Waits for `time`. Returns whether a signal asks this process to end.
fn interrupted(interrupts: &[SignalForward<'_>], time: Duration) -> bool {
    use libc::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
    const ENDING: [i32; 5] = [SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM];
    let ending = interrupts.iter().filter(|interrupt| ENDING.contains(&interrupt.signal));
    let mut ready: Vec<PollFd<'_>> =
        ending.map(|interrupt| PollFd::from_borrowed_fd(interrupt.fd.as_fd(), PollFlags::IN)).collect();
    let timeout = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 100_000_000 });
    poll(&mut ready, Some(&timeout)).is_ok_and(|count| count > 0)
}

/// Notifications on their way.
#[derive(Debug)]
struct NotificationTask {
    results: Option<Receiver<DeliveryResult>>,
    delivered: usize,
    failures: Vec<String>,
}

impl NotificationTask {
    fn start(channels: &ApprovalSettings, request: &ApprovalRequest) -> Self {
        let results = (!channels.notify.is_empty()).then(|| notify::deliver(channels, request));
        Self { results, delivered: 0, failures: Vec::new() }
    }

    /// Records the delivery results that have arrived.
    fn note(&mut self, ledger: &Ledger, request: &ApprovalRequest) {
        while let Some(delivered) = self.next() {
            self.keep(ledger, request, delivered);
        }
    }

    /// Waits for the result of every channel; each has a timeout. If no other approver exists, a failed
    /// notification means that the request reached no person.
    fn settle(&mut self, ledger: &Ledger, request: &ApprovalRequest) {
        while let Some(Ok(delivered)) = self.results.as_ref().map(Receiver::recv) {
            self.keep(ledger, request, delivered);
        }
        self.results = None;
    }

    fn next(&mut self) -> Option<DeliveryResult> {
        match self.results.as_ref()?.try_recv() {
            Ok(delivered) => Some(delivered),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.results = None;
                None
            }
        }
    }

    fn keep(&mut self, ledger: &Ledger, request: &ApprovalRequest, delivered: DeliveryResult) {
        let channel = delivered.channel.word();
        match &delivered.failure {
            None => self.delivered += 1,
            Some(why) => self.failures.push(format!("{channel}: {why}")),
        }
        // A decided approval needs no more records, and a failing ledger shows when the decision is written.
        let _written = ledger.append(&Event::ApprovalNotified {
            transaction: request.transaction.clone(),
            channel: channel.to_owned(),
            failure: delivered.failure,
        });
    }

    fn failure(&self) -> Option<String> {
        (!self.failures.is_empty()).then(|| self.failures.join("; "))
    }
}
