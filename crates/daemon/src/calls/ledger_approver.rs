//! The approver of the daemon's sessions: operators answer through the ledger.

use std::sync::Arc;
use std::time::Duration;

use ringfence_runtime::approvals::ApprovalWait;
use ringfence_runtime::{Approver, ApproverReply};

use crate::calls::live_call::{CallEndReason, CancelFlag};

/// Poll interval for the answer.
const LOOK: Duration = Duration::from_millis(40);

/// Waits for an answer in the ledger. Ledger events push the approval to operators.
#[derive(Clone, Debug)]
pub(crate) struct LedgerApprover {
    pub(crate) cancelled: Arc<CancelFlag>,
}

impl Approver for LedgerApprover {
    /// Always true: the daemon itself accepts answers.
    fn is_there(&mut self) -> bool {
        true
    }

    fn ask(&mut self, question: &ApprovalWait<'_>) -> ApproverReply {
        loop {
            if question.decided().is_some() {
                return ApproverReply::Elsewhere;
            }
            let left = question.left();
            if left.is_zero() {
                return ApproverReply::Silence;
            }
            match self.cancelled.within(left.min(LOOK)) {
                Some(CallEndReason::Cancelled) => return ApproverReply::Interrupted,
                Some(CallEndReason::WithDaemon) => return ApproverReply::Left,
                None => {}
            }
        }
    }
}
