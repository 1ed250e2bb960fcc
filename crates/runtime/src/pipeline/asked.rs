use ringfence_authz::{Answer, Question};
use ringfence_ledger::{ApprovalAnswer, Event};
use ringfence_types::{Call, Decision, Layer, Refusal, RefusalCode, TransactionId};

use super::decided::{Decided, describe};
use super::settled::{Refused, for_the_record};
use crate::approval::Kept;
use crate::session::AgentSession;

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
        let decided = Event::ApprovalDecided {
            transaction: self.transaction.clone(),
            session: session.id.clone(),
            fingerprint: fingerprint.clone(),
            answer: for_the_ledger(&answer),
        };
        self.record(session, &decided)?;
        session.remembered.keep(fingerprint, &answer);
        self.follow(answer)
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
        let (call, _findings) = for_the_record(self.question.action().call());
        let judgement = self.question.judgement();
        let part = judgement.decisive();
        let redacted =
            |text: &str| String::from_utf8_lossy(&ringfence_scan::redact(text.as_bytes()).clean).into_owned();
        Event::ApprovalRequested {
            transaction: self.transaction.clone(),
            session: session.id.clone(),
            call,
            fingerprint: self.question.action().fingerprint().clone(),
            rule: part.map(|part| part.rule.clone().into_owned()).unwrap_or_default(),
            layer: part.map_or(Layer::Floor, |part| part.layer),
            reason: part.map(|part| redacted(&part.reason)).unwrap_or_default(),
            risk: judgement.risk(),
        }
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

fn for_the_ledger(answer: &Answer) -> ApprovalAnswer {
    match answer {
        Answer::Once => ApprovalAnswer::Once,
        Answer::Session => ApprovalAnswer::Session,
        Answer::AlwaysHere(_) => ApprovalAnswer::AlwaysHere,
        Answer::Deny => ApprovalAnswer::Denied,
        Answer::Unreachable => ApprovalAnswer::Unreachable,
    }
}
