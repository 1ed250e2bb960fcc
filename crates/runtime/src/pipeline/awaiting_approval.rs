use ringfence_authz::{Action, ApprovalNeeded, ApprovalOutcome, AuthzVerdict, decide};
use ringfence_ledger::{ApprovalAnswer, ApprovalDecision, ApprovalRequest, Event, GrantRecord};
use ringfence_sandbox::SignalForward;
use ringfence_types::{
    Call, CallOrigin, Decision, ExecCall, FileCall, GrantId, PolicyLayer, Principal, Refusal, RefusalCode,
    RuleId, StandardInput, TransactionId, hex,
};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::authenticated::is_ended;
use super::context::{Actor, CallContext};
use super::decided::{Decided, chain, describe};
use super::input::Intake;
use super::settled::{RefusedCall, for_the_record, refused};
use crate::approvals::binding::{ApprovalBinding, ApprovedObjects, changed, of_next};
use crate::approvals::prompt_content::{Excerpt, WrittenContent};
use crate::approvals::{
    self, ApprovalSubject, PresenceLock, PromptCall, PromptRedactor, StoredDecision, lease,
};
use crate::effect::Effect;
use crate::observer::PipelineStage;
use crate::proposal::ContentVault;
use crate::session::AgentSession;

/// A call that needs an approval. It has had no effect.
#[derive(Debug)]
pub(super) struct AwaitingApproval<E> {
    pub(super) effect: E,
    pub(super) question: ApprovalNeeded,
    pub(super) transaction: TransactionId,
}

/// What the pipeline needs to ask.
#[derive(Debug)]
pub(crate) struct AskContext<'a, 'i> {
    pub(crate) interrupts: &'a [SignalForward<'a>],
    pub(crate) intake: &'a mut Intake<'i>,
}

/// The grant and the presence lock that come with a yes.
#[derive(Debug, Default)]
struct Yes {
    stored: Option<GrantId>,
    held: Option<PresenceLock>,
    approved: ApprovedObjects,
}

/// What an operator allowed in place of the call.
struct EditedCall {
    call: Call,
    decision: ApprovalDecision,
}

/// Result of evaluating a call once.
#[derive(Debug)]
pub(super) enum DecisionRound<E> {
    Decided(Box<Decided<E>>),
    /// The bound objects changed: the call is evaluated and asked about again.
    Again(E),
}

impl<E: Effect> AwaitingApproval<E> {
    pub(super) fn await_answer(
        self,
        session: &mut impl CallContext,
        asking: &AskContext<'_, '_>,
    ) -> Result<DecisionRound<E>, RefusedCall> {
        let turn = session.wait_turn(self.question.action().fingerprint());
        let _turn = turn.map_err(|refusal| RefusedCall::settle_before_start(self.call(), refusal))?;
        if let Some(refusal) = self.remembered(session) {
            return Err(RefusedCall::settle_before_start(self.call(), refusal));
        }
        let binding = ApprovalBinding::of(&self.question, &session.ground());
        if let Some(grant) = self.granted(session, &binding)? {
            let yes = Yes { stored: Some(grant), held: None, approved: binding.approved };
            return self.follow(ApprovalOutcome::Session, yes);
        }
        let next = session.next_call(&self.question, &binding);
        if let Some(grant) = self.denied_earlier(session, next.as_deref())? {
            let yes = Yes { stored: Some(grant), held: None, approved: binding.approved };
            return self.follow(ApprovalOutcome::Once, yes);
        }
        if let Some(refusal) = session.unreachable(&self.question) {
            return Err(RefusedCall::settle_before_start(self.call(), refusal));
        }
        let request = ApprovalRequest {
            binding_without_session: next,
            ..self.request(session, &binding, asking.intake.bytes())
        };
        let held = approvals::asking(&session.setup().state_dir, &self.transaction).map_err(|error| {
            self.approval_unavailable(&format!("it cannot be said that this process waits: {error}"), None)
        })?;
        let asked = session.append(vec![Event::ApprovalRequested(Box::new(request.clone()))]);
        asked
            .map_err(|error| self.approval_unavailable(&describe(&error), error.hint().map(str::to_owned)))?;
        session.reached(PipelineStage::Ask);
        session.question_opened(&request);
        let judgement = self.question.judgement();
        let decided = approvals::decision(session.inquiry(), &request, judgement, asking.interrupts);
        session.question_closed(&self.transaction);
        let decided = decided.map_err(|error| self.approval_unavailable(&chain(&error), None))?;
        // The approval is orphaned: its record continues without this call.
        let Some(decided) = decided else {
            return Err(RefusedCall::settle_before_start(self.call(), left()));
        };
        self.conclude(session, &request, decided, held)
    }

    /// An orphaned approval's yes to the identical call.
    fn denied_earlier(
        &self,
        session: &impl CallContext,
        next: Option<&str>,
    ) -> Result<Option<GrantId>, RefusedCall> {
        let Some(next) = next else { return Ok(None) };
        let failed = |error: &dyn std::error::Error| self.approval_unavailable(&chain(error), None);
        let reader = session.ledger().reader().map_err(|error| failed(&error))?;
        approvals::next(&reader, session.asker().workspace, next).map_err(|error| failed(&error))
    }

    /// An active session grant with exactly this binding.
    fn granted(
        &self,
        session: &impl CallContext,
        binding: &ApprovalBinding,
    ) -> Result<Option<GrantId>, RefusedCall> {
        if session.ground().secrets.is_none() {
            return Ok(None);
        }
        let granted = session.memory().memory().granted(&binding.digest).cloned();
        let Some(grant) = granted else { return Ok(None) };
        let leased = lease(session.ledger(), &session.setup().state_dir, &[grant.as_str()]);
        let leased = leased.map_err(|error| self.approval_unavailable(&chain(&error), None))?;
        Ok(leased.ok().map(|lease| lease.grant.clone()))
    }

    fn conclude(
        self,
        session: &mut impl CallContext,
        request: &ApprovalRequest,
        stored: StoredDecision,
        held: PresenceLock,
    ) -> Result<DecisionRound<E>, RefusedCall> {
        let decision = &stored.decision;
        match decision.answer {
            ApprovalAnswer::Superseded => self.reevaluate(session),
            ApprovalAnswer::Deny => {
                if decision.actor.is_person() {
                    let call = self.question.action().call();
                    session.memory().memory().deny(request.fingerprint.clone(), call);
                }
                self.follow(ApprovalOutcome::Deny, Yes::default())
                    .map_err(|refused| refused.because(decision))
            }
            ApprovalAnswer::Expired => self.follow(ApprovalOutcome::Expired, Yes::default()),
            ApprovalAnswer::Unreachable => self
                .follow(ApprovalOutcome::Unreachable, Yes::default())
                .map_err(|refused| refused.because(decision)),
            ApprovalAnswer::Once | ApprovalAnswer::Session | ApprovalAnswer::AlwaysHere => {
                self.permitted(session, request, stored, held)
            }
        }
    }

    /// A yes counts only while the bound objects are unchanged.
    fn permitted(
        self,
        session: &mut impl CallContext,
        request: &ApprovalRequest,
        stored: StoredDecision,
        held: PresenceLock,
    ) -> Result<DecisionRound<E>, RefusedCall> {
        let StoredDecision { mut decision, grant } = stored;
        if let Some(call) = decision.replacement.take() {
            return self.edited(session, request, EditedCall { call, decision }, held);
        }
        let binding = ApprovalBinding::of(&self.question, &session.ground());
        if binding.digest != request.binding {
            return self.reevaluate(session);
        }
        let id = grant.as_ref().map(|grant| grant.grant.clone());
        if let Some(id) = id.clone() {
            session.memory().memory().grant(request.binding.clone(), id);
        }
        if decision.answer == ApprovalAnswer::AlwaysHere {
            // The new rule applies from the next call on; this call is already answered.
            let _unchanged = session.refresh();
        }
        let answer = match (decision.answer, &grant) {
            (ApprovalAnswer::Session, _) => ApprovalOutcome::Session,
            (ApprovalAnswer::AlwaysHere, Some(grant)) => ApprovalOutcome::AlwaysHere { stored: rules(grant) },
            _ => ApprovalOutcome::Once,
        };
        self.follow(answer, Yes { stored: id, held: Some(held), approved: binding.approved })
    }

    /// Evaluates the edited call like any other: policy can still deny it.
    fn edited(
        self,
        session: &mut impl CallContext,
        request: &ApprovalRequest,
        edited: EditedCall,
        held: PresenceLock,
    ) -> Result<DecisionRound<E>, RefusedCall> {
        let EditedCall { call, decision } = edited;
        if changed(&request.bound_objects).or_else(|| changed(&decision.bound_objects)).is_some() {
            return self.reevaluate(session);
        }
        let action = Action::new(call.clone(), session.roots());
        let leak = session.refuse_leak(&call, None);
        let fits = E::can_become(&call);
        let no = |refusal| RefusedCall { call, refusal, transaction: Some(self.transaction.clone()) };
        if let Some(refusal) = leak {
            return Err(no(refusal));
        }
        if !fits || *action.fingerprint() != decision.fingerprint {
            return Err(no(other_action()));
        }
        let facts = session.facts();
        let grant = match decide(session.policy(), action, &facts) {
            AuthzVerdict::Allow(grant) => *grant,
            AuthzVerdict::Ask(question) => question.answered(ApprovalOutcome::Once).map_err(no)?,
            AuthzVerdict::Deny(refusal) => return Err(no(refusal)),
        };
        Ok(DecisionRound::Decided(Box::new(Decided {
            effect: self.effect,
            grant,
            transaction: self.transaction,
            decision: Decision::Ask,
            stored: None,
            held: Some(held),
            approved: ApprovedObjects::new(
                [request.bound_objects.as_slice(), &decision.bound_objects].concat(),
            ),
        })))
    }

    fn follow(self, answer: ApprovalOutcome, yes: Yes) -> Result<DecisionRound<E>, RefusedCall> {
        let call = self.call();
        let Yes { stored, held, approved } = yes;
        match self.question.answered(answer) {
            Ok(grant) => Ok(DecisionRound::Decided(Box::new(Decided {
                effect: self.effect,
                grant,
                transaction: self.transaction,
                decision: Decision::Ask,
                stored,
                held,
                approved,
            }))),
            Err(refusal) => Err(RefusedCall { call, refusal, transaction: Some(self.transaction) }),
        }
    }

    /// Ends this transaction without an effect and reloads the policy, which may be what changed.
    fn reevaluate(self, session: &mut impl CallContext) -> Result<DecisionRound<E>, RefusedCall> {
        session.inquiry().approver.tell("what was asked about has changed; it is judged again");
        let (call, transaction) = (self.call(), self.transaction.clone());
        let refusal = match self.question.answered(ApprovalOutcome::Superseded) {
            Err(refusal) => refusal,
            Ok(_) => other_action(),
        };
        let event = refused(session, Some(transaction.clone()), &call, &refusal);
        if session.append(vec![event]).is_err() {
            return Err(RefusedCall { call, refusal, transaction: Some(transaction) });
        }
        match session.refresh() {
            Ok(()) => Ok(DecisionRound::Again(self.effect)),
            Err(refusal) => Err(RefusedCall::settle_before_start(call, refusal)),
        }
    }

    /// Without a record there is no approval: an unrecorded answer permits nothing.
    fn approval_unavailable(&self, why: &str, hint: Option<String>) -> RefusedCall {
        let refusal = Refusal {
            code: RefusalCode::Ledger,
            layer: PolicyLayer::Floor,
            rule: RuleId::LedgerWrittenBeforeDone.into(),
            message: format!("the approval request could not be recorded: {why}"),
            hint,
        };
        RefusedCall { call: self.call(), refusal, transaction: Some(self.transaction.clone()) }
    }

    fn request(
        &self,
        session: &impl CallContext,
        binding: &ApprovalBinding,
        content: Option<&[u8]>,
    ) -> ApprovalRequest {
        let mut recorded = for_the_record(self.question.action().call(), session.leaks());
        let brought = self.brought(session, content);
        let head = match &brought {
            Brought::Content(bytes) => recorded.content(bytes, session.leaks()),
            Brought::Changes(diff) => recorded.content(diff, session.leaks()),
            Brought::Nothing | Brought::Unknown(_) => Vec::new(),
        };
        let sha256 = brought.sha256();
        let written = brought.shown(&head, &sha256);
        let redactor = PromptRedactor::new(&recorded.secrets, Some(session.leaks()));
        // A rule that contains a secret would be stored with it.
        let candidates = if recorded.findings.is_empty() { self.question.candidates() } else { Vec::new() };
        let seen = PromptCall {
            call: &recorded.call,
            written,
            taken_out: &recorded.taken_out(),
            unbound: binding.approved.unbound(),
            rewritten: binding.approved.rewritten(),
            absent: binding.approved.absent(),
            secrets: &self.question.session().secrets,
            stated: None,
        };
        let subject = ApprovalSubject {
            question: &self.question,
            transaction: &self.transaction,
            binding,
            seen,
            candidates: &candidates,
        };
        let request = session.asker().request(&subject, &redactor);
        ApprovalRequest { call_origin: session.made_by().cloned().map(Box::new), ..request }
    }

    /// The content to write, as far as the prompt can show it.
    fn brought<'c>(&self, session: &impl CallContext, content: Option<&'c [u8]>) -> Brought<'c> {
        match (self.question.action().call(), content) {
            (Call::File(FileCall::Write { .. }), Some(content)) => Brought::Content(content),
            (Call::Apply(patch), _) => {
                let vault = ContentVault::new(&session.setup().state_dir);
                match vault.diff(&self.transaction, patch) {
                    Ok(diff) => Brought::Changes(diff),
                    Err(error) => Brought::Unknown(chain(&error)),
                }
            }
            _ => match self.effect.diff(&self.question) {
                Some(Ok(diff)) => Brought::Changes(diff),
                Some(Err(error)) => Brought::Unknown(chain(&error)),
                None => Brought::Nothing,
            },
        }
    }

    /// Refusal because of an earlier answer in this session; it covers all effects.
    fn remembered(&self, session: &impl CallContext) -> Option<Refusal> {
        let action = self.question.action();
        let mut memory = session.memory().memory();
        if Actor::of(action.call()) == Actor::Program && memory.is_over() {
            return Some(is_ended());
        }
        memory.is_denied(action.fingerprint()).then(|| {
            memory.deny_again(action.call());
            approvals::denied_before()
        })
    }

    fn call(&self) -> Call {
        self.question.action().call().clone()
    }
}

/// Content that a call brings along to write.
enum Brought<'c> {
    Nothing,
    Content(&'c [u8]),
    Changes(Zeroizing<Vec<u8>>),
    Unknown(String),
}

impl Brought<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Content(bytes) => bytes,
            Self::Changes(diff) => diff,
            Self::Nothing | Self::Unknown(_) => &[],
        }
    }

    fn sha256(&self) -> String {
        hex(Sha256::digest(self.bytes()))
    }

    fn shown<'s>(&'s self, head: &'s [u8], sha256: &'s str) -> Option<WrittenContent<'s>> {
        let excerpt = Excerpt { head, bytes: self.bytes().len() as u64, sha256 };
        match self {
            Self::Nothing => None,
            Self::Content(_) => Some(WrittenContent::Content(excerpt)),
            Self::Changes(_) => Some(WrittenContent::Changes(excerpt)),
            Self::Unknown(why) => Some(WrittenContent::Unknown(why)),
        }
    }
}

/// Key of an orphaned approval: the same action, input and secrets, from the same origin, session owner and
/// agent. `None` if the origin is unknown or the input is not read yet, because then no later call is
/// provably identical.
pub(crate) fn next_call_key(
    question: &ApprovalNeeded,
    session: &AgentSession<'_>,
    binding: &ApprovalBinding,
) -> Option<String> {
    let by = session.made_by.as_ref()?;
    if let Call::Exec(ExecCall { stdin: StandardInput::Terminal | StandardInput::Stream, .. }) =
        question.action().call()
    {
        return None;
    }
    // An agent's identity differs in every session; only its name is stable.
    let maker = if by.principal.is_person() { store_grant(by) } else { "agent".to_owned() };
    let agent = match session.requester() {
        Principal::Agent { name: Some(name), .. } => name,
        _ => "\0".to_owned(),
    };
    let mut same = vec![maker, store_grant(&session.started()), agent];
    same.extend(session.secrets.given()?);
    Some(of_next(question, &session.ground(), &binding.approved.bound, &same))
}

/// A principal's identity across sessions. Tokens without an account share the owner's identity, so each is
/// distinguished by its credential.
fn store_grant(who: &CallOrigin) -> String {
    let identity = who.principal.identity();
    match (&who.principal, &who.credential) {
        (Principal::Account { .. }, _) | (_, None) => identity,
        (_, Some(shown)) => format!("{identity}\0{} {}", shown.kind, shown.id),
    }
}

fn left() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: PolicyLayer::Floor,
        rule: RuleId::ApprovalOrphaned.into(),
        message: "the daemon ends before there was an answer; nothing was done".to_owned(),
        hint: Some("the request stays pending: after an approval, the next identical call in this workspace runs once without asking".to_owned()),
    }
}

fn rules(grant: &GrantRecord) -> String {
    match &grant.covers {
        ringfence_ledger::GrantSubject::Here { rules, .. } => rules.clone(),
        ringfence_ledger::GrantSubject::Session { .. } | ringfence_ledger::GrantSubject::Next { .. } => {
            String::new()
        }
    }
}

fn other_action() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: PolicyLayer::Call,
        rule: RuleId::ApprovalActionChanged.into(),
        message: "what was approved is not what would be done".to_owned(),
        hint: None,
    }
}
