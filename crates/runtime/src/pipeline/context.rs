use std::sync::Arc;

use ringfence_authz::{ApprovalNeeded, Policy};
use ringfence_ledger::{AppendError, ApprovalRequest, Event, Ledger, Receipt};
use ringfence_types::{
    ActionFingerprint, Call, CallOrigin, Decision, Refusal, Root, SessionId, TransactionId, Way,
};

use crate::approvals::binding::{ApprovalBinding, BindingContext};
use crate::approvals::{ApprovalContext, ApprovalRequester};
use crate::host_facts::LiveHost;
use crate::leaks::{CallContent, LeakScanner};
use crate::observer::PipelineStage;
use crate::session::{AskPermit, HostSetup, SharedMemory};

/// The session of a call, as the pipeline sees it. A call of the agent has its session; a flow has what the
/// proxy threads know of it. Both share the session memory and the ledger.
pub(crate) trait CallContext {
    fn session_id(&self) -> &SessionId;
    fn ledger(&self) -> &Ledger;
    fn setup(&self) -> &HostSetup;
    fn leaks(&self) -> &LeakScanner;
    fn memory(&self) -> &Arc<SharedMemory>;
    fn policy(&self) -> &Policy;
    fn policy_digest(&self) -> &str;
    fn roots(&self) -> Vec<Root>;
    fn facts(&self) -> LiveHost;

    /// What an answer is bound to besides the action.
    fn ground(&self) -> BindingContext<'_>;
    /// The principal that an approval is requested for.
    fn asker(&self) -> ApprovalRequester<'_>;
    fn made_by(&self) -> Option<&CallOrigin>;
    /// The ledger, settings and approver to ask with.
    fn inquiry(&mut self) -> ApprovalContext<'_>;

    /// Reloads the policy if it changed.
    fn renew(&mut self) -> Result<(), Refusal>;
    /// Applies the ceiling that the call sets for itself.
    fn narrow(&mut self, _call: &Call) -> Result<(), Refusal> {
        Ok(())
    }
    /// Reloads the policy.
    fn refresh(&mut self) -> Result<(), Refusal>;
    /// Refuses a call that would leak a secret, whatever other rules allow.
    fn refuse_leak(&mut self, call: &Call, content: Option<CallContent<'_>>) -> Option<Refusal>;
    /// Appends events in one step.
    fn append(&mut self, events: Vec<Event>) -> Result<Vec<Receipt>, AppendError>;

    /// Whether the session spans several processes, so that each process marks its own transactions.
    fn is_named(&self) -> bool {
        false
    }

    /// Key by which a later identical call finds the answer of an orphaned approval.
    fn next_call(&self, _question: &ApprovalNeeded, _binding: &ApprovalBinding) -> Option<String> {
        None
    }

    /// Waits while an identical approval is pending, so that both become one.
    fn wait_turn(&self, _key: &ActionFingerprint) -> Result<Option<AskPermit>, Refusal> {
        Ok(None)
    }

    /// Refusal without an approver, where a request would only fill the ledger.
    fn unreachable(&mut self, _question: &ApprovalNeeded) -> Option<Refusal> {
        None
    }

    /// An approval was recorded and is pending.
    fn question_opened(&self, _request: &ApprovalRequest) {}
    /// The approval is no longer pending.
    fn question_closed(&self, _transaction: &TransactionId) {}

    fn reached(&self, _stage: PipelineStage) {}
    fn begun(&self, _transaction: &TransactionId) {}
    fn judged(&self, _decision: Decision) {}
}

/// What requests an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    /// The agent, through a call.
    Agent,
    /// A program inside an admitted command. It may retry by itself.
    Program,
}

impl Actor {
    pub(crate) fn of(call: &Call) -> Self {
        match call {
            Call::Flow(flow) if flow.way != Way::Fetch => Self::Program,
            _ => Self::Agent,
        }
    }
}
