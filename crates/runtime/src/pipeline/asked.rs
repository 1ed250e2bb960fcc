use ringfence_authz::{Action, Answer, Question, Verdict, decide};
use ringfence_ledger::{ApprovalAnswer, ApprovalDecision, ApprovalRequest, Bound, Event, GrantMade};
use ringfence_sandbox::Interrupt;
use ringfence_types::{
    Call, Decision, Exec, FileCall, GrantId, Layer, MadeBy, Principal, Refusal, RefusalCode, StandardInput,
    TransactionId,
};

use super::authenticated::refused_leak;
use super::decided::{Decided, chain, describe};
use super::input::Intake;
use super::settled::{Refused, for_the_record, refused};
use crate::approval::binding::{Binding, Ground, changed, of_next};
use crate::approval::{self, Asker, Held, Redactor, Seen, lease};
use crate::observe::Stage;
use crate::session::AgentSession;

/// A call that a person has to decide. Nothing has happened.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) question: Question,
    pub(super) transaction: TransactionId,
}

/// What a question is asked with.
#[derive(Debug)]
pub(super) struct Asking<'a, 'i> {
    pub(super) interrupts: &'a [Interrupt<'a>],
    pub(super) intake: &'a mut Intake<'i>,
}

/// What a yes comes with.
#[derive(Debug, Default)]
struct Yes {
    stored: Option<GrantId>,
    held: Option<Held>,
    bound: Vec<Bound>,
}

/// What came of judging a call once.
#[derive(Debug)]
pub(super) enum Turn {
    Decided(Box<Decided>),
    /// What was asked about is not what it was: it is judged and asked about anew.
    Again,
}

impl Asked {
    pub(super) fn answer(
        self,
        session: &mut AgentSession<'_>,
        asking: &Asking<'_, '_>,
    ) -> Result<Turn, Refused> {
        if session.common.memory().is_denied(self.question.action().fingerprint()) {
            return Err(self.denied_before(session));
        }
        let binding = binding(&self.question, session);
        if let Some(grant) = self.granted(session, &binding)? {
            let yes = Yes { stored: Some(grant), held: None, bound: binding.bound };
            return self.follow(Answer::Session, yes);
        }
        let next = next(&self.question, session, &binding);
        if let Some(grant) = self.answered_before(session, next.as_deref())? {
            let yes = Yes { stored: Some(grant), held: None, bound: binding.bound };
            return self.follow(Answer::Once, yes);
        }
        let request = ApprovalRequest { next, ..self.request(session, &binding, asking.intake.bytes()) };
        let state_dir = session.runtime.setup.state_dir.clone();
        let held = approval::asking(&state_dir, &self.transaction).map_err(|error| {
            self.unasked(&format!("it cannot be said that this process waits: {error}"), None)
        })?;
        let asked = session.append(vec![Event::ApprovalRequested(Box::new(request.clone()))]);
        asked.map_err(|error| self.unasked(&describe(&error), error.hint().map(str::to_owned)))?;
        session.reach(Stage::Ask);
        let judgement = self.question.judgement();
        let decided = approval::decision(session.inquiry(), &request, judgement, asking.interrupts)
            .map_err(|error| self.unasked(&chain(&error), None))?;
        // The question is not this call's any more, and its record goes on without it.
        let Some(decided) = decided else { return Err(Refused::early(self.call(), left())) };
        self.conclude(session, &request, decided, held)
    }

    /// A yes to the same, from a question whose asker was gone.
    fn answered_before(
        &self,
        session: &AgentSession<'_>,
        next: Option<&str>,
    ) -> Result<Option<GrantId>, Refused> {
        let Some(next) = next else { return Ok(None) };
        let failed = |error: &dyn std::error::Error| self.unasked(&chain(error), None);
        let reader = session.runtime.ledger.reader().map_err(|error| failed(&error))?;
        approval::next(&reader, &session.workspace.id, next).map_err(|error| failed(&error))
    }

    /// An answer for the session that was given for exactly this, and still holds.
    fn granted(&self, session: &AgentSession<'_>, binding: &Binding) -> Result<Option<GrantId>, Refused> {
        let granted = session.common.memory().granted(&binding.digest).cloned();
        let Some(grant) = granted else { return Ok(None) };
        let runtime = session.runtime;
        let leased = lease(&runtime.ledger, &runtime.setup.state_dir, &[grant.as_str()]);
        let leased = leased.map_err(|error| self.unasked(&chain(&error), None))?;
        Ok(leased.ok().map(|lease| lease.grant.clone()))
    }

    fn conclude(
        self,
        session: &mut AgentSession<'_>,
        request: &ApprovalRequest,
        (decision, grant): (ApprovalDecision, Option<GrantMade>),
        held: Held,
    ) -> Result<Turn, Refused> {
        match decision.answer {
            ApprovalAnswer::Superseded => self.again(session),
            ApprovalAnswer::Denied => {
                if decision.by.is_person() {
                    session.common.memory().deny(request.fingerprint.clone(), self.question.action().call());
                }
                self.follow(Answer::Deny, Yes::default()).map_err(|refused| refused.because(&decision))
            }
            ApprovalAnswer::Expired => self.follow(Answer::Expired, Yes::default()),
            ApprovalAnswer::Unreachable => {
                self.follow(Answer::Unreachable, Yes::default()).map_err(|refused| refused.because(&decision))
            }
            ApprovalAnswer::Once | ApprovalAnswer::Session | ApprovalAnswer::AlwaysHere => {
                self.permitted(session, request, (decision, grant), held)
            }
        }
    }

    /// A yes counts only for what is still as it was when the question was asked.
    fn permitted(
        self,
        session: &mut AgentSession<'_>,
        request: &ApprovalRequest,
        (decision, grant): (ApprovalDecision, Option<GrantMade>),
        held: Held,
    ) -> Result<Turn, Refused> {
        if let Some(edited) = decision.edited.clone() {
            return self.edited(session, request, (edited, &decision), held);
        }
        let binding = binding(&self.question, session);
        if binding.digest != request.binding {
            return self.again(session);
        }
        let id = grant.as_ref().map(|grant| grant.grant.clone());
        if let Some(id) = id.clone() {
            session.common.memory().grant(request.binding.clone(), id);
        }
        if decision.answer == ApprovalAnswer::AlwaysHere {
            // The rule counts from the next call on; this one was answered.
            let _unchanged = session.refresh();
        }
        let answer = match (decision.answer, &grant) {
            (ApprovalAnswer::Session, _) => Answer::Session,
            (ApprovalAnswer::AlwaysHere, Some(grant)) => Answer::AlwaysHere { stored: rules(grant) },
            _ => Answer::Once,
        };
        self.follow(answer, Yes { stored: id, held: Some(held), bound: binding.bound })
    }

    /// Something else was approved: it is judged like anything else, and a no of the policy stays one.
    fn edited(
        self,
        session: &mut AgentSession<'_>,
        request: &ApprovalRequest,
        (call, decision): (Call, &ApprovalDecision),
        held: Held,
    ) -> Result<Turn, Refused> {
        if changed(&request.bound).or_else(|| changed(&decision.bound)).is_some() {
            return self.again(session);
        }
        let action = Action::new(call.clone(), session.all_roots());
        let leak = refused_leak(&call, None, session);
        let no = |refusal| Refused { call, refusal, transaction: Some(self.transaction.clone()) };
        if let Some(refusal) = leak {
            return Err(no(refusal));
        }
        if *action.fingerprint() != decision.fingerprint {
            return Err(no(other_action()));
        }
        let facts = session.facts();
        let grant = match decide(&session.policy, action, &facts) {
            Verdict::Allow(grant) => *grant,
            Verdict::Ask(question) => question.answered(Answer::Once).map_err(no)?,
            Verdict::Deny(refusal) => return Err(no(refusal)),
        };
        Ok(Turn::Decided(Box::new(Decided {
            grant,
            transaction: self.transaction,
            decision: Decision::Ask,
            stored: None,
            held: Some(held),
            bound: [request.bound.as_slice(), &decision.bound].concat(),
        })))
    }

    fn follow(self, answer: Answer, yes: Yes) -> Result<Turn, Refused> {
        let call = self.call();
        let Yes { stored, held, bound } = yes;
        match self.question.answered(answer) {
            Ok(grant) => Ok(Turn::Decided(Box::new(Decided {
                grant,
                transaction: self.transaction,
                decision: Decision::Ask,
                stored,
                held,
                bound,
            }))),
            Err(refusal) => Err(Refused { call, refusal, transaction: Some(self.transaction) }),
        }
    }

    /// Ends this transaction without an effect. The policy is read again: it may be what has changed.
    fn again(self, session: &mut AgentSession<'_>) -> Result<Turn, Refused> {
        session.approver.tell("what was asked about has changed; it is judged again");
        let (call, transaction) = (self.call(), self.transaction.clone());
        let refusal = match self.question.answered(Answer::Superseded) {
            Err(refusal) => refusal,
            Ok(_) => other_action(),
        };
        let event = refused(session, Some(transaction.clone()), (&call, &refusal));
        if session.append(vec![event]).is_err() {
            return Err(Refused { call, refusal, transaction: Some(transaction) });
        }
        match session.refresh() {
            Ok(()) => Ok(Turn::Again),
            Err(refusal) => Err(Refused::early(call, refusal)),
        }
    }

    /// No record, no question: an answer that is not written down permits nothing.
    fn unasked(&self, why: &str, hint: Option<String>) -> Refused {
        let refusal = Refusal {
            code: RefusalCode::Ledger,
            layer: Layer::Floor,
            rule: "ledger.written-before-done".to_owned(),
            message: format!("the question could not be written to the ledger: {why}"),
            hint,
        };
        Refused { call: self.call(), refusal, transaction: Some(self.transaction.clone()) }
    }

    fn request(
        &self,
        session: &AgentSession<'_>,
        binding: &Binding,
        content: Option<&[u8]>,
    ) -> ApprovalRequest {
        let mut recorded = for_the_record(self.question.action().call(), &session.leaks);
        let written = content.filter(|_| matches!(recorded.call, Call::File(FileCall::Write { .. })));
        let written = written.map(|content| recorded.content(content, &session.leaks));
        let redactor = Redactor::new(&recorded.secrets, Some(&session.leaks));
        let asker = Asker {
            session: &session.id,
            workspace: &session.workspace.id,
            requester: session.requester(),
            owner: &session.started_by,
            stated: session.stated.as_deref(),
            settings: &session.settings,
            image: session.container.as_ref().map(|chosen| &chosen.image),
        };
        // A rule with a secret in it would be written down with it.
        let candidates = if recorded.findings.is_empty() { self.question.candidates() } else { Vec::new() };
        let question = (&self.question, &self.transaction);
        let seen =
            Seen { call: &recorded.call, written: written.as_deref(), taken_out: &recorded.taken_out() };
        let request = asker.request(question, (seen, candidates), binding, &redactor);
        ApprovalRequest { by: session.made_by.clone(), ..request }
    }

    fn denied_before(self, session: &mut AgentSession<'_>) -> Refused {
        session.common.memory().deny_again(self.question.action().call());
        Refused::early(self.call(), approval::denied_before())
    }

    fn call(&self) -> Call {
        self.question.action().call().clone()
    }
}

fn binding(question: &Question, session: &AgentSession<'_>) -> Binding {
    Binding::of(question, &ground(session))
}

fn ground<'a>(session: &'a AgentSession<'_>) -> Ground<'a> {
    Ground {
        policy: &session.policy_digest,
        policy_files: &session.policy_files,
        session: session.id.as_str(),
        requester: session.requester().identity(),
        image: session.container.as_ref().map(|chosen| chosen.image.id.as_str()),
    }
}

/// What a yes is for when this call cannot wait for it: the same, with the same input and secrets, of the same maker, for the same
/// who began the session, as the same agent. `None` where nobody is known who made it, or what it reads comes later: nobody could
/// tell whether another one is the same.
fn next(question: &Question, session: &AgentSession<'_>, binding: &Binding) -> Option<String> {
    let by = session.made_by.as_ref()?;
    if let Call::Exec(Exec { stdin: StandardInput::Terminal | StandardInput::Stream, .. }) =
        question.action().call()
    {
        return None;
    }
    // An agent is another one in every session; its name is what lasts.
    let maker = if by.principal.is_person() { lasting(by) } else { "agent".to_owned() };
    let agent = match session.requester() {
        Principal::Agent { name: Some(name), .. } => name,
        _ => "\0".to_owned(),
    };
    let mut same = vec![maker, lasting(&session.started()), agent];
    same.extend(session.secrets.given()?);
    Some(of_next(question, &ground(session), &binding.bound, &same))
}

/// Who somebody is from one session to the next. Tokens without an account are all the owner's, and each is somebody else's.
fn lasting(who: &MadeBy) -> String {
    let identity = who.principal.identity();
    match (&who.principal, &who.shown) {
        (Principal::Account { .. }, _) | (_, None) => identity,
        (_, Some(shown)) => format!("{identity}\0{} {}", shown.kind, shown.id),
    }
}

fn left() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Floor,
        rule: "approval.left".to_owned(),
        message: "the daemon ends before there was an answer; nothing was done".to_owned(),
        hint: Some("the question waits on: after a yes, the same call in the same workspace is not asked again, once".to_owned()),
    }
}

fn rules(grant: &GrantMade) -> String {
    match &grant.covers {
        ringfence_ledger::Covers::Here { rules, .. } => rules.clone(),
        ringfence_ledger::Covers::Session { .. } | ringfence_ledger::Covers::Next { .. } => String::new(),
    }
}

fn other_action() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Call,
        rule: "approval.other-action".to_owned(),
        message: "what was approved is not what would be done".to_owned(),
        hint: None,
    }
}
