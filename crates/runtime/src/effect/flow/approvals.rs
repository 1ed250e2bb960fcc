//! Approvals of flows, requested from a proxy thread while the command runs.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use ringfence_ledger::{ApprovalAnswer, ApprovalRequest};
use ringfence_sandbox::RelayPause;

use super::{SessionGate, locked};
use crate::approvals::{ApprovalInbox, ApprovalWait, Approver, ApproverReply};

/// How long the end of a session waits for threads that are asking.
const FAREWELL: Duration = Duration::from_secs(2);
/// Poll interval for decisions made elsewhere, while an approval waits for the terminal.
const LOOK: Duration = Duration::from_millis(100);

/// An approver that any thread can use.
#[derive(Debug)]
pub(crate) struct SharedApprover {
    /// Locked while one prompt is shown.
    asked: Mutex<Box<dyn Approver + Send>>,
    /// The same approver, never locked for long, so that a reachability check does not wait for an answer.
    known: Mutex<Box<dyn Approver + Send>>,
}

impl SharedApprover {
    pub(crate) fn new(approver: impl Approver + Clone + Send + 'static) -> Self {
        let known: Box<dyn Approver + Send> = Box::new(approver.clone());
        Self { asked: Mutex::new(Box::new(approver)), known: Mutex::new(known) }
    }
}

impl SessionGate {
    /// Closes pending approvals and accepts no more.
    pub(crate) fn close(&self) {
        self.flows.closing.store(true, Ordering::SeqCst);
        let questions: Vec<ApprovalRequest> = locked(&self.flows.questions).values().cloned().collect();
        let inbox = ApprovalInbox::new(&self.ledger, &self.setup.state_dir);
        for question in &questions {
            // On failure the next process that finds the approval closes it.
            let _left =
                inbox.close(question, ApprovalAnswer::Deny, "the command ended before there was an answer");
        }
        self.memory.wake();
        self.memory.wait_until(FAREWELL, || locked(&self.flows.questions).is_empty());
    }
}

/// An approver that several threads use one at a time.
#[derive(Debug)]
pub(super) struct SerializedApprover<'g> {
    approver: &'g SharedApprover,
    hold: Option<&'g RelayPause>,
}

impl<'g> SerializedApprover<'g> {
    pub(super) fn new(gate: &'g SessionGate) -> Self {
        Self { approver: &gate.approver, hold: gate.hold.as_ref() }
    }

    /// Waits until the terminal is free. `Err`: the approval needs no prompt any more.
    fn reach(
        &self,
        question: &ApprovalWait<'_>,
    ) -> Result<MutexGuard<'_, Box<dyn Approver + Send>>, ApproverReply> {
        loop {
            if question.decided().is_some() {
                return Err(ApproverReply::Elsewhere);
            }
            let left = question.left();
            if left.is_zero() {
                return Err(ApproverReply::Silence);
            }
            match self.approver.asked.try_lock() {
                Ok(approver) => return Ok(approver),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(left.min(LOOK)),
            }
        }
    }
}

impl Approver for SerializedApprover<'_> {
    fn is_there(&mut self) -> bool {
        locked(&self.approver.known).is_there()
    }

    fn ask(&mut self, question: &ApprovalWait<'_>) -> ApproverReply {
        let mut approver = match self.reach(question) {
            Ok(approver) => approver,
            Err(heard) => return heard,
        };
        let _still = self.hold.map(RelayPause::take);
        approver.ask(question)
    }

    fn tell(&mut self, text: &str) {
        let _still = self.hold.map(RelayPause::take);
        locked(&self.approver.known).tell(text);
    }
}
