use ringfence_authz::{Answer, Candidate, Question};
use ringfence_ledger::{ApprovalAnswer, ApprovalDecision, ApprovalRequest, Event, ReasonRule, Timestamp};
use ringfence_types::{Call, Card, Decision, Layer, Principal, Quorum, Refusal, RefusalCode, TransactionId};

use super::decided::{Decided, chain, describe};
use super::settled::{Refused, for_the_record};
use crate::approval::Kept;
use crate::session::{AgentSession, changed};
use crate::standing::store_rules;

/// A call that a person has to decide. Nothing has happened.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) question: Question,
    pub(super) transaction: TransactionId,
}

impl Asked {
    pub(super) fn answer(self, session: &mut AgentSession<'_>) -> Result<Decided, Refused> {
        let fingerprint = self.question.action().fingerprint().clone();
        match session.remembered.of(&fingerprint) {
            Some(Kept::Permitted) => return self.follow(Answer::Session),
            Some(Kept::Denied) => return Err(self.denied_before()),
            None => {}
        }
        self.record(session, &self.requested(session))?;
        let answer = session.approver.ask(&self.question);
        let decided = Event::ApprovalDecided(Box::new(ApprovalDecision {
            transaction: self.transaction.clone(),
            session: session.id.clone(),
            fingerprint: fingerprint.clone(),
            answer: for_the_ledger(&answer),
            by: Principal::System,
            reason: None,
            edited: None,
        }));
        self.record(session, &decided)?;
        session.remembered.keep(fingerprint, &answer);
        let candidate = match &answer {
            Answer::AlwaysHere(candidate) => Some(candidate.clone()),
            _ => None,
        };
        let decided = self.follow(answer)?;
        // After the judge has accepted the answer: only what was offered is stored.
        match candidate {
            Some(candidate) => store(session, &candidate, decided),
            None => Ok(decided),
        }
    }

    fn follow(self, answer: Answer) -> Result<Decided, Refused> {
        let call = self.question.action().call().clone();
        match self.question.answered(answer) {
            Ok(grant) => Ok(Decided { grant, transaction: self.transaction, decision: Decision::Ask }),
            Err(refusal) => Err(Refused { call, refusal, transaction: Some(self.transaction) }),
        }
    }

    /// No record, no question: an answer that is not written down permits nothing.
    fn record(&self, session: &AgentSession<'_>, event: &Event) -> Result<(), Refused> {
        let written = session.runtime.ledger.append(event);
        written.map(|_receipt| ()).map_err(|error| {
            let refusal = Refusal {
                code: RefusalCode::Ledger,
                layer: Layer::Floor,
                rule: "ledger.written-before-done".to_owned(),
                message: format!("the question could not be written to the ledger: {}", describe(&error)),
                hint: error.hint().map(str::to_owned),
            };
            Refused { call: self.call(), refusal, transaction: Some(self.transaction.clone()) }
        })
    }

    fn requested(&self, session: &AgentSession<'_>) -> Event {
        let (call, _findings) = for_the_record(self.question.action().call(), &session.secrets.all);
        let judgement = self.question.judgement();
        let part = judgement.decisive();
        let redacted = |text: &str| {
            let text = session.secrets.all.text(text);
            String::from_utf8_lossy(&ringfence_scan::redact(text.as_bytes()).clean).into_owned()
        };
        let fingerprint = self.question.action().fingerprint().clone();
        Event::ApprovalRequested(Box::new(ApprovalRequest {
            transaction: self.transaction.clone(),
            session: session.id.clone(),
            workspace: session.workspace.id.clone(),
            call,
            binding: fingerprint.as_str().to_owned(),
            bound: Vec::new(),
            fingerprint,
            rule: part.map(|part| part.rule.clone().into_owned()).unwrap_or_default(),
            layer: part.map_or(Layer::Floor, |part| part.layer),
            reason: part.map(|part| redacted(&part.reason)).unwrap_or_default(),
            risk: judgement.risk(),
            requester: Principal::Agent { session: session.id.clone(), name: None },
            expires: Timestamp::now(),
            quorum: Quorum::default(),
            reason_rule: ReasonRule::default(),
            offers: Vec::new(),
            card: Card { sentence: String::new(), blocks: Vec::new(), fields: Vec::new() },
        }))
    }

    fn denied_before(self) -> Refused {
        let refusal = Refusal {
            code: RefusalCode::Approval,
            layer: Layer::Session,
            rule: "approval.denied-before".to_owned(),
            message: "the same action was denied before in this session".to_owned(),
            hint: Some("do something else: asking again does not change the answer".to_owned()),
        };
        Refused { call: self.call(), refusal, transaction: Some(self.transaction) }
    }

    fn call(&self) -> Call {
        self.question.action().call().clone()
    }
}

/// "Always" that is not kept would be asked about again; so it is no answer until it is stored and written down.
fn store(session: &AgentSession<'_>, candidate: &Candidate, decided: Decided) -> Result<Decided, Refused> {
    let stored = match &session.operator_file {
        Some(file) => store_rules(file, &session.workspace.path, candidate).map_err(|error| chain(&error)),
        None => Err("this session has no policy file of an operator".to_owned()),
    };
    let written = stored.and_then(|stored| {
        let event = changed(Some(session.id.clone()), &stored, &candidate.permits);
        session.runtime.ledger.append(&event).map(drop).map_err(|error| chain(&error))
    });
    match written {
        Ok(()) => Ok(decided),
        Err(why) => Err(Refused {
            call: decided.grant.action().call().clone(),
            refusal: not_stored(&why),
            transaction: Some(decided.transaction),
        }),
    }
}

fn not_stored(why: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Operator,
        rule: "approval.not-stored".to_owned(),
        message: format!("the rule could not be stored, so nothing was done: {why}"),
        hint: Some("answer `once`, or correct the operator's policy file".to_owned()),
    }
}

fn for_the_ledger(answer: &Answer) -> ApprovalAnswer {
    match answer {
        Answer::Once => ApprovalAnswer::Once,
        Answer::Session => ApprovalAnswer::Session,
        Answer::AlwaysHere(_) => ApprovalAnswer::AlwaysHere,
        Answer::Deny => ApprovalAnswer::Denied,
        Answer::Unreachable => ApprovalAnswer::Unreachable,
    }
}
