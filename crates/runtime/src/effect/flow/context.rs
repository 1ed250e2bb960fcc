//! The pipeline context of a flow, as the proxy threads see it.

use std::sync::Arc;

use ringfence_authz::hosts::sought;
use ringfence_authz::{ApprovalNeeded, Policy, SessionFacts};
use ringfence_ledger::{AppendError, ApprovalRequest, Event, Ledger, Receipt};
use ringfence_types::{
    ActionFingerprint, AllOrOnly, Call, CallOrigin, FlowCall, HostRestriction, LeakAction, PolicyLayer,
    Principal, Refusal, RefusalCode, Root, RuleId, SessionId, TransactionId, WorkspaceId,
};

use super::approvals::SerializedApprover;
use super::{SessionGate, locked};
use crate::approvals::binding::{BindingContext, requester};
use crate::approvals::{self, ApprovalContext, ApprovalRequester};
use crate::host_facts::LiveHost;
use crate::leaks::{CallContent, LeakScanner, in_name_refusal};
use crate::pipeline::CallContext;
use crate::policy_reload::CurrentPolicy;
use crate::session::{AskPermit, HostSetup, MOST_ASKING, NoTurn, SharedMemory};

/// The requester of a flow's approval.
#[derive(Debug)]
pub(crate) struct FlowRequester {
    pub(crate) workspace: WorkspaceId,
    pub(crate) requester: Principal,
    pub(crate) owner: Principal,
    pub(crate) stated: Option<String>,
    /// The origin of the call, if the sandbox serves only one call. A shared sandbox runs all calls of its
    /// session.
    pub(crate) by: Option<Box<CallOrigin>>,
    pub(crate) session: SessionFacts,
    /// The secrets of the session, as answers are bound to them.
    pub(crate) given: Option<Vec<String>>,
}

/// One flow in the pipeline.
#[derive(Debug)]
pub(super) struct FlowContext<'g> {
    gate: &'g SessionGate,
    now: Arc<CurrentPolicy>,
    approver: SerializedApprover<'g>,
}

impl<'g> FlowContext<'g> {
    pub(super) fn new(gate: &'g SessionGate) -> Self {
        Self { gate, now: gate.policy.last(), approver: SerializedApprover::new(gate) }
    }

    /// The policy that evaluated the flow.
    pub(super) fn current(&self) -> &Policy {
        &self.now.policy
    }

    /// INVARIANT: every flow is scanned here before its name is resolved, so no name with a secret reaches a
    /// resolver.
    fn refuse_secret(&self, host: &str) -> Option<Refusal> {
        let found = self.gate.leaks.in_name(host, &self.now.policy.leaks)?;
        let written = self.gate.write(&Event::SecretsFound {
            transaction: None,
            session: self.gate.session.clone(),
            action: LeakAction::Block,
            findings: vec![found.finding.clone()],
            omitted: 0,
        });
        Some(written.err().unwrap_or_else(|| in_name_refusal(&found)))
    }

    /// Checks each hop of a fetch, also redirects.
    fn refuse_beyond(&self, call: &FlowCall) -> Option<Refusal> {
        let left = &self.gate.left;
        let host = sought(&Call::Flow(call.clone())).map(|host| HostRestriction::new(&host));
        let is_within = |hosts: &AllOrOnly<HostRestriction>| {
            hosts.is_any() || host.as_ref().is_some_and(|host| hosts.has(host))
        };
        if !is_within(&self.gate.ceiling) {
            return Some(beyond_ceiling(&call.host));
        }
        if is_within(left) {
            return None;
        }
        Some(Refusal {
            code: RefusalCode::Network,
            layer: PolicyLayer::Operator,
            rule: RuleId::HostNotLeft.into(),
            message: format!("`{}` is not one of the hosts of this token", call.host),
            hint: Some("stay with the hosts that the token was handed on with".to_owned()),
        })
    }
}

fn beyond_ceiling(host: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Call,
        rule: RuleId::CeilingHosts.into(),
        message: format!("`{host}` is none of the hosts that the call was to have"),
        hint: Some("name the host in the ceiling of the call, or leave the ceiling out".to_owned()),
    }
}

impl CallContext for FlowContext<'_> {
    fn session_id(&self) -> &SessionId {
        &self.gate.session
    }

    fn ledger(&self) -> &Ledger {
        &self.gate.ledger
    }

    fn setup(&self) -> &HostSetup {
        &self.gate.setup
    }

    fn leaks(&self) -> &LeakScanner {
        &self.gate.leaks
    }

    fn memory(&self) -> &Arc<SharedMemory> {
        &self.gate.memory
    }

    fn policy(&self) -> &Policy {
        &self.now.policy
    }

    fn policy_digest(&self) -> &str {
        &self.now.digest
    }

    fn roots(&self) -> Vec<Root> {
        self.now.roots.clone()
    }

    fn facts(&self) -> LiveHost {
        LiveHost::new(&self.gate.setup).in_session(self.gate.requester.session.clone())
    }

    fn ground(&self) -> BindingContext<'_> {
        BindingContext {
            policy: &self.now.digest,
            policy_files: &self.now.files,
            session: self.gate.session.as_str(),
            requester: requester(&self.gate.requester.requester),
            secrets: self.gate.requester.given.clone(),
            image: None,
        }
    }

    fn asker(&self) -> ApprovalRequester<'_> {
        let FlowRequester { workspace, requester, owner, stated, .. } = &self.gate.requester;
        ApprovalRequester {
            session: &self.gate.session,
            workspace,
            requester: requester.clone(),
            owner,
            stated: stated.as_deref(),
            settings: &self.now.settings,
            image: None,
        }
    }

    fn made_by(&self) -> Option<&CallOrigin> {
        self.gate.requester.by.as_deref()
    }

    fn inquiry(&mut self) -> ApprovalContext<'_> {
        ApprovalContext {
            ledger: &self.gate.ledger,
            state_dir: &self.gate.setup.state_dir,
            approver: &mut self.approver,
            settings: &self.now.settings,
            grant_lifetime: approvals::holds(&self.now.settings),
        }
    }

    fn renew(&mut self) -> Result<(), Refusal> {
        self.now = self.gate.policy.now(&self.gate.ledger)?;
        Ok(())
    }

    fn refresh(&mut self) -> Result<(), Refusal> {
        self.renew()
    }

    fn refuse_leak(&mut self, call: &Call, _content: Option<CallContent<'_>>) -> Option<Refusal> {
        let Call::Flow(flow) = call else { return None };
        self.refuse_secret(&flow.host).or_else(|| self.refuse_beyond(flow))
    }

    fn append(&mut self, events: Vec<Event>) -> Result<Vec<Receipt>, AppendError> {
        self.gate.ledger.append_all(&events)
    }

    fn wait_turn(&self, key: &ActionFingerprint) -> Result<Option<AskPermit>, Refusal> {
        match self.gate.memory.wait_turn(key, &self.gate.flows.closing) {
            Ok(permit) => Ok(Some(permit)),
            Err(NoTurn::Crowded) => Err(crowded()),
            Err(NoTurn::Closing) => Err(unasked("the session has ended")),
        }
    }

    /// Refuses without an approver, naming the rule and the flag that would change it.
    fn unreachable(&mut self, question: &ApprovalNeeded) -> Option<Refusal> {
        if self.inquiry().reaches_somebody() {
            return None;
        }
        let part = question.judgement().decisive();
        Some(
            part.map_or_else(|| unasked("no approver is available"), ringfence_authz::JudgementPart::refusal),
        )
    }

    fn question_opened(&self, request: &ApprovalRequest) {
        locked(&self.gate.flows.questions).insert(request.transaction.clone(), request.clone());
    }

    fn question_closed(&self, transaction: &TransactionId) {
        locked(&self.gate.flows.questions).remove(transaction);
        self.gate.memory.wake();
    }
}

fn crowded() -> Refusal {
    Refusal {
        rule: RuleId::ApprovalTooManyPending.into(),
        hint: Some("answer what waits (`ringfence approvals`), or allow the host beforehand".to_owned()),
        ..unasked(&format!("{MOST_ASKING} flows wait for an answer already"))
    }
}

fn unasked(why: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: PolicyLayer::Session,
        rule: RuleId::ApprovalUnreachable.into(),
        message: why.to_owned(),
        hint: None,
    }
}
