//! The session of an agent, as the pipeline sees it.

use std::sync::Arc;

use ringfence_authz::{ApprovalNeeded, Policy};
use ringfence_ledger::{AppendError, Event, Ledger, Receipt};
use ringfence_types::{Call, CallOrigin, Decision, LeakAction, Refusal, Root, SessionId, TransactionId};

use super::core::SessionRecordState;
use super::memory::SharedMemory;
use super::{AgentSession, HostSetup};
use crate::approvals::binding::{ApprovalBinding, BindingContext, requester};
use crate::approvals::{self, ApprovalContext, ApprovalRequester};
use crate::host_facts::{Inside, LiveHost};
use crate::images;
use crate::leaks::{self, CallContent, LeakScanner};
use crate::observer::PipelineStage;
use crate::pipeline::{CallContext, next_call_key};

impl CallContext for AgentSession<'_> {
    fn session_id(&self) -> &SessionId {
        &self.id
    }

    fn ledger(&self) -> &Ledger {
        &self.runtime.ledger
    }

    fn setup(&self) -> &HostSetup {
        &self.runtime.setup
    }

    fn leaks(&self) -> &LeakScanner {
        &self.leaks
    }

    fn memory(&self) -> &Arc<SharedMemory> {
        self.common.memory()
    }

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn policy_digest(&self) -> &str {
        &self.policy_digest
    }

    fn roots(&self) -> Vec<Root> {
        self.all_roots()
    }

    /// The machine as commands of this session see it.
    fn facts(&self) -> LiveHost {
        let setup = &self.runtime.setup;
        let inside = Inside::of(setup, &self.policy, &self.all_roots(), &self.workspace.home);
        let host = LiveHost::of(setup, &self.policy, inside).with_tools(self.workspace.tools.as_deref());
        host.in_session(self.session_facts())
    }

    fn ground(&self) -> BindingContext<'_> {
        BindingContext {
            policy: &self.policy_digest,
            policy_files: &self.policy_files,
            session: self.id.as_str(),
            requester: requester(&self.requester()),
            secrets: self.secrets.given(),
            image: self.container.as_ref().map(|chosen| chosen.image.id.as_str()),
        }
    }

    fn asker(&self) -> ApprovalRequester<'_> {
        ApprovalRequester {
            session: &self.id,
            workspace: &self.workspace.id,
            requester: self.requester(),
            owner: &self.started_by,
            stated: self.stated.as_deref(),
            settings: &self.settings,
            image: self.container.as_ref().map(|chosen| &chosen.image),
        }
    }

    fn made_by(&self) -> Option<&CallOrigin> {
        self.made_by.as_deref()
    }

    fn inquiry(&mut self) -> ApprovalContext<'_> {
        ApprovalContext {
            ledger: &self.bound.runtime.ledger,
            state_dir: &self.bound.runtime.setup.state_dir,
            approver: self.approver.as_mut(),
            settings: &self.bound.settings,
            grant_lifetime: approvals::holds(&self.bound.settings),
        }
    }

    fn renew(&mut self) -> Result<(), Refusal> {
        AgentSession::renew(self)
    }

    fn narrow(&mut self, call: &Call) -> Result<(), Refusal> {
        AgentSession::narrow(self, call)
    }

    fn refresh(&mut self) -> Result<(), Refusal> {
        let Some(source) = &self.attention.source else { return Ok(()) };
        let asked = source.read()?;
        let container = images::select(&self.runtime.setup, &asked)?;
        tracing::info!(before = %self.policy_digest, now = %asked.policy_digest, "policy reloaded");
        self.as_whole(|session| {
            session.replace(asked, container);
            Ok(())
        })
    }

    /// Collects findings of a call; refuses where policy blocks the leak.
    fn refuse_leak(&mut self, call: &Call, content: Option<CallContent<'_>>) -> Option<Refusal> {
        match leaks::judge(call, content, self) {
            Ok(passed) => {
                self.found.merge(passed);
                None
            }
            Err(leak) => {
                self.found.merge(leak.tally);
                if leak.action == LeakAction::Terminate {
                    self.terminate();
                }
                Some(leak.refusal)
            }
        }
    }

    /// The first append also records the start of the session.
    fn append(&mut self, mut events: Vec<Event>) -> Result<Vec<Receipt>, AppendError> {
        let mut standing = self.common.standing();
        if *standing == SessionRecordState::Open {
            drop(standing);
            return self.runtime.ledger.append_all(&events);
        }
        // Of two first calls, the second waits until the start is recorded.
        events.insert(0, self.start());
        let receipts = self.runtime.ledger.append_all(&events)?;
        *standing = SessionRecordState::Open;
        Ok(receipts)
    }

    fn is_named(&self) -> bool {
        self.name.is_some()
    }

    fn next_call(&self, question: &ApprovalNeeded, binding: &ApprovalBinding) -> Option<String> {
        next_call_key(question, self, binding)
    }

    fn reached(&self, stage: PipelineStage) {
        self.observer.iter().for_each(|observer| observer.reached(stage));
    }

    fn begun(&self, transaction: &TransactionId) {
        self.observer.iter().for_each(|observer| observer.begun(transaction));
    }

    fn judged(&self, decision: Decision) {
        self.observer.iter().for_each(|observer| observer.decided(decision));
    }
}
