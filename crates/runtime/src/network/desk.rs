//! Asking about a flow, from a thread of the proxy, while the command it belongs to runs.
//!
//! The same machinery as for calls: the question is written, whoever answers first decides, the answer is written. Two flows
//! that ask the same wait for one answer; flows that nobody has to be asked about wait for nobody.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use ringfence_authz::{Answer, Question};
use ringfence_ledger::{ApprovalAnswer, ApprovalDecision, ApprovalRequest, Event, GrantMade};
use ringfence_sandbox::Hold;
use ringfence_types::{
    Bytes, Call, Decision, Fingerprint, FlowCall, GrantId, Layer, MadeBy, Principal, Refusal, RefusalCode,
    TransactionId, WorkspaceId,
};

use super::gate::{Permitted, SessionGate, key, locked, unwritable};
use super::in_force::InForce;
use crate::approval::binding::{Binding, Ground};
use crate::approval::{
    self, Approver, Asker, BREAKER, Heard, Held, Inbox, Inquiry, Memory, Redactor, Seen, Waiting, lease,
};
use crate::pipeline::{chain, for_the_record};

/// How long the end of a session waits for those who were asking.
const FAREWELL: Duration = Duration::from_secs(2);
/// Flows that wait for a person at the same time: far fewer than the proxy lets wait for a decision, so that flows nobody has
/// to be asked about always find a place.
const MOST_ASKING: usize = 64;
/// How often a question that waits for its turn at the terminal looks for an answer from elsewhere.
const LOOK: Duration = Duration::from_millis(100);

/// Who is asked, and what was answered.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) approver: Arc<SharedApprover>,
    pub(super) who: Who,
    /// Of the command in the foreground, which has the same terminal; `None`: there is none.
    hold: Option<Hold>,
    memory: Mutex<Memory>,
    asking: Mutex<Pending>,
    changed: Condvar,
}

/// Whom a question may be put to from any thread.
#[derive(Debug)]
pub(crate) struct SharedApprover {
    /// Locked for as long as one question is there.
    asked: Mutex<Box<dyn Approver + Send>>,
    /// The same person, never locked for long: to learn whether there is somebody waits for no answer.
    known: Mutex<Box<dyn Approver + Send>>,
}

impl SharedApprover {
    pub(crate) fn new(approver: impl Approver + Clone + Send + 'static) -> Self {
        let known: Box<dyn Approver + Send> = Box::new(approver.clone());
        Self { asked: Mutex::new(Box::new(approver)), known: Mutex::new(known) }
    }
}

/// For whom it is asked.
#[derive(Debug)]
pub(super) struct Who {
    pub(super) workspace: WorkspaceId,
    pub(super) requester: Principal,
    pub(super) owner: Principal,
    pub(super) stated: Option<String>,
    /// Who made the call, where there is one: what runs in a sandbox is of all calls of its session.
    pub(super) by: Option<Box<MadeBy>>,
}

#[derive(Debug, Default)]
struct Pending {
    /// Flows that ask, or wait for the answer to what another asks.
    flows: usize,
    turns: HashSet<Fingerprint>,
    questions: HashMap<TransactionId, ApprovalRequest>,
    closing: bool,
}

/// What came of asking.
#[derive(Debug)]
pub(super) enum Asked {
    Permitted(Box<Permitted>),
    Refused {
        refusal: Refusal,
        /// Of the question, where one was asked: it needs an end.
        transaction: Option<TransactionId>,
    },
}

impl Asked {
    fn no(refusal: Refusal) -> Self {
        Self::Refused { refusal, transaction: None }
    }
}

impl Desk {
    pub(super) fn new(
        (approver, hold): (Arc<SharedApprover>, Option<Hold>),
        who: Who,
        memory: Memory,
    ) -> Self {
        let (memory, asking, changed) = (Mutex::new(memory), Mutex::default(), Condvar::new());
        Self { approver, who, hold, memory, asking, changed }
    }

    /// Waits until nobody else asks the same.
    fn turn(&self, key: &Fingerprint) -> Result<Turn<'_>, Refusal> {
        let mut asking = locked(&self.asking);
        if asking.flows >= MOST_ASKING {
            return Err(crowded());
        }
        asking.flows += 1;
        let taken = |pending: &mut Pending| !pending.closing && pending.turns.contains(key);
        let mut asking = self.changed.wait_while(asking, taken).unwrap_or_else(PoisonError::into_inner);
        if asking.closing {
            asking.flows -= 1;
            return Err(over("the session is over"));
        }
        asking.turns.insert(key.clone());
        Ok(Turn { desk: self, key: key.clone() })
    }
}

/// The right to ask about one thing.
#[derive(Debug)]
struct Turn<'a> {
    desk: &'a Desk,
    key: Fingerprint,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut asking = locked(&self.desk.asking);
        asking.turns.remove(&self.key);
        asking.flows -= 1;
        drop(asking);
        self.desk.changed.notify_all();
    }
}

impl SessionGate {
    pub(super) fn asks(&self, in_force: &InForce, question: Question) -> Asked {
        let key = key(&question);
        let _turn = match self.desk.turn(&key) {
            Ok(turn) => turn,
            Err(refusal) => return Asked::no(refusal),
        };
        if let Some(refusal) = self.remembered(&key, &question) {
            return Asked::no(refusal);
        }
        let binding = self.binding(&question, in_force);
        match self.granted(&binding) {
            Ok(Some(grant)) => return self.follow(question, Answer::Session, (None, Some(grant), None)),
            Ok(None) => {}
            Err(refusal) => return Asked::no(refusal),
        }
        let mut approver = Shared(&self.desk);
        if !self.inquiry(in_force, &mut approver).reaches_somebody() {
            return Asked::no(unreachable(&question));
        }
        let transaction = match TransactionId::random() {
            Ok(transaction) => transaction,
            Err(error) => return Asked::no(unwritable(&error.to_string(), None)),
        };
        self.put(in_force, question, (transaction, &binding))
    }

    /// What was said before in this session.
    fn remembered(&self, key: &Fingerprint, question: &Question) -> Option<Refusal> {
        let mut memory = locked(&self.desk.memory);
        if memory.is_over() {
            return Some(Refusal {
                rule: BREAKER.to_owned(),
                ..over("the like was denied again and again, so nobody is asked any more in this session")
            });
        }
        if memory.is_denied(key) {
            memory.deny_again(question.action().call());
            return Some(approval::denied_before());
        }
        None
    }

    fn granted(&self, binding: &Binding) -> Result<Option<GrantId>, Refusal> {
        let Some(grant) = locked(&self.desk.memory).granted(&binding.digest).cloned() else {
            return Ok(None);
        };
        let leased = lease(&self.ledger, &self.setup.state_dir, &[grant.as_str()]);
        let leased = leased.map_err(|error| unwritable(&chain(&error), None))?;
        Ok(leased.ok().map(|lease| lease.grant.clone()))
    }

    /// Writes the question down and waits for its answer.
    fn put(
        &self,
        in_force: &InForce,
        question: Question,
        (transaction, binding): (TransactionId, &Binding),
    ) -> Asked {
        let held = match approval::asking(&self.setup.state_dir, &transaction) {
            Ok(held) => held,
            Err(error) => return Asked::no(unwritable(&error.to_string(), None)),
        };
        let request = self.request(in_force, &question, (&transaction, binding));
        if let Err(refusal) = self.write(&Event::ApprovalRequested(Box::new(request.clone()))) {
            return Asked::no(refusal);
        }
        locked(&self.desk.asking).questions.insert(transaction.clone(), request.clone());
        let mut approver = Shared(&self.desk);
        let decided =
            approval::decision(self.inquiry(in_force, &mut approver), &request, question.judgement(), &[]);
        locked(&self.desk.asking).questions.remove(&transaction);
        self.desk.changed.notify_all();
        match decided {
            Ok(Some(decided)) => self.conclude(in_force, question, (&request, decided), held),
            // A connection that nobody holds open any more has no next one.
            Ok(None) => self.follow(question, Answer::Expired, (Some(transaction), None, None)),
            Err(error) => {
                Asked::Refused { refusal: unwritable(&chain(&error), None), transaction: Some(transaction) }
            }
        }
    }

    fn conclude(
        &self,
        in_force: &InForce,
        question: Question,
        (request, (decision, grant)): (&ApprovalRequest, (ApprovalDecision, Option<GrantMade>)),
        held: Held,
    ) -> Asked {
        let asked = Some(request.transaction.clone());
        let answer = match decision.answer {
            ApprovalAnswer::Denied => {
                if decision.by.is_person() {
                    let call = question.action().call();
                    locked(&self.desk.memory).deny(request.fingerprint.clone(), call);
                }
                return because(self.follow(question, Answer::Deny, (asked, None, None)), &decision);
            }
            ApprovalAnswer::Expired => Answer::Expired,
            ApprovalAnswer::Unreachable => Answer::Unreachable,
            ApprovalAnswer::Superseded => Answer::Superseded,
            // What was approved instead is not what would be done.
            _ if decision.edited.is_some() => Answer::Superseded,
            _ if self.binding(&question, in_force).digest != request.binding => Answer::Superseded,
            ApprovalAnswer::Once => Answer::Once,
            ApprovalAnswer::Session => Answer::Session,
            ApprovalAnswer::AlwaysHere => match grant.as_ref().map(|grant| &grant.covers) {
                Some(ringfence_ledger::Covers::Here { rules, .. }) => {
                    Answer::AlwaysHere { stored: rules.clone() }
                }
                _ => Answer::Once,
            },
        };
        let id = grant.map(|grant| grant.grant);
        if let (Answer::Session, Some(id)) = (&answer, &id) {
            locked(&self.desk.memory).grant(request.binding.clone(), id.clone());
        }
        self.follow(question, answer, (asked, id, Some(held)))
    }

    fn follow(
        &self,
        question: Question,
        answer: Answer,
        (asked, stored, held): (Option<TransactionId>, Option<GrantId>, Option<Held>),
    ) -> Asked {
        let transaction = match asked.clone().map_or_else(TransactionId::random, Ok) {
            Ok(transaction) => transaction,
            Err(error) => return Asked::no(unwritable(&error.to_string(), None)),
        };
        match question.answered(answer) {
            Ok(grant) => {
                let decision = Decision::Ask;
                Asked::Permitted(Box::new(Permitted { grant, transaction, decision, stored, held }))
            }
            Err(refusal) => Asked::Refused { refusal, transaction: asked },
        }
    }

    fn inquiry<'a>(&'a self, in_force: &'a InForce, approver: &'a mut Shared<'_>) -> Inquiry<'a> {
        Inquiry {
            ledger: &self.ledger,
            state_dir: &self.setup.state_dir,
            approver,
            settings: &in_force.settings,
            grant_expiry: approval::holds(&in_force.settings),
        }
    }

    fn request(
        &self,
        in_force: &InForce,
        question: &Question,
        (transaction, binding): (&TransactionId, &Binding),
    ) -> ApprovalRequest {
        let who = &self.desk.who;
        let asker = Asker {
            session: &self.session,
            workspace: &who.workspace,
            requester: who.requester.clone(),
            owner: &who.owner,
            stated: who.stated.as_deref(),
            settings: &in_force.settings,
            image: None,
        };
        let recorded = for_the_record(question.action().call(), &self.leaks);
        // A rule with a secret in it would be written down with it.
        let candidates = if recorded.findings.is_empty() { question.candidates() } else { Vec::new() };
        let redactor = Redactor::new(&recorded.secrets, Some(&self.leaks));
        let seen = Seen { call: &recorded.call, written: None, taken_out: &recorded.taken_out() };
        let request = asker.request((question, transaction), (seen, candidates), binding, &redactor);
        ApprovalRequest { by: who.by.clone(), ..request }
    }

    fn binding(&self, question: &Question, in_force: &InForce) -> Binding {
        let ground = Ground {
            policy: &in_force.digest,
            policy_files: &in_force.files,
            session: self.session.as_str(),
            requester: self.desk.who.requester.identity(),
            image: None,
        };
        Binding::of(question, &ground)
    }

    /// Nobody is asked any more, and questions that wait are closed.
    pub(super) fn close(&self) {
        let questions: Vec<ApprovalRequest> = {
            let mut asking = locked(&self.desk.asking);
            asking.closing = true;
            asking.questions.values().cloned().collect()
        };
        let inbox = Inbox::new(&self.ledger, &self.setup.state_dir);
        for question in &questions {
            // What cannot be closed now is closed by whoever finds it.
            let _left =
                inbox.close(question, ApprovalAnswer::Denied, "the command ended before there was an answer");
        }
        self.desk.changed.notify_all();
        let asking = locked(&self.desk.asking);
        let waiting = |pending: &mut Pending| !pending.questions.is_empty();
        let _late = self.desk.changed.wait_timeout_while(asking, FAREWELL, waiting);
    }
}

/// An approver that several threads ask in turn.
#[derive(Debug)]
struct Shared<'a>(&'a Desk);

impl Shared<'_> {
    /// Waits for the turn of a question at the terminal, where another may be. `Err`: it needs none any more.
    fn reach(&self, question: &Waiting<'_>) -> Result<MutexGuard<'_, Box<dyn Approver + Send>>, Heard> {
        loop {
            if question.decided().is_some() {
                return Err(Heard::Elsewhere);
            }
            let left = question.left();
            if left.is_zero() {
                return Err(Heard::Silence);
            }
            match self.0.approver.asked.try_lock() {
                Ok(approver) => return Ok(approver),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(left.min(LOOK)),
            }
        }
    }
}

impl Approver for Shared<'_> {
    fn is_there(&mut self) -> bool {
        locked(&self.0.approver.known).is_there()
    }

    fn ask(&mut self, question: &Waiting<'_>) -> Heard {
        let mut approver = match self.reach(question) {
            Ok(approver) => approver,
            Err(heard) => return heard,
        };
        let _still = self.0.hold.as_ref().map(Hold::take);
        approver.ask(question)
    }

    fn tell(&mut self, text: &str) {
        let _still = self.0.hold.as_ref().map(Hold::take);
        locked(&self.0.approver.known).tell(text);
    }
}

fn because(asked: Asked, decision: &ApprovalDecision) -> Asked {
    match (asked, &decision.reason) {
        (Asked::Refused { mut refusal, transaction }, Some(reason)) => {
            let said = format!(" ({}: {})", decision.by, Bytes::from(reason.as_str()).display());
            refusal.message.push_str(&said);
            Asked::Refused { refusal, transaction }
        }
        (asked, _) => asked,
    }
}

/// Nobody can be asked: the rule, and the flag that would change it.
fn unreachable(question: &Question) -> Refusal {
    let host = match question.action().call() {
        Call::Flow(FlowCall { host, .. }) => host.as_str(),
        _ => "the host",
    };
    question.judgement().decisive().map_or_else(|| over(host), ringfence_authz::Part::refusal)
}

fn crowded() -> Refusal {
    Refusal {
        rule: "approval.crowded".to_owned(),
        hint: Some("answer what waits (`ringfence approvals`), or allow the host beforehand".to_owned()),
        ..over(&format!("{MOST_ASKING} flows wait for an answer already"))
    }
}

fn over(why: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Session,
        rule: "approval.unreachable".to_owned(),
        message: why.to_owned(),
        hint: None,
    }
}
