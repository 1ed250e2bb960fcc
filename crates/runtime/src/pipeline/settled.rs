use ringfence_ledger::{AppendError, Event, Finding};
use ringfence_types::{Bytes, Call, Exec, Outcome, Posture, Refusal, TransactionId};

use super::decided::{chain, describe};
use super::file::Touched;
use crate::secrets::{self, Meta, Secrets};
use crate::session::AgentSession;

/// What became of a call, and that it is written down.
#[derive(Debug)]
pub struct Settled {
    pub transaction: Option<TransactionId>,
    pub ended: Ended,
    /// What was enforced while it ran, as the sandbox reported it.
    pub posture: Option<Posture>,
    /// The ledger could not be written after the fact. The intent is there, so the record shows it as incomplete.
    pub unrecorded: Option<String>,
}

#[derive(Debug)]
pub enum Ended {
    /// A command ran to its end.
    Executed(Outcome),
    /// A file operation was done.
    Touched(Touched),
    /// The answer was no.
    Refused(Refusal),
    /// We broke. Nothing is running.
    Failed { what: String, hint: Option<String> },
}

/// A call that was refused before anything happened.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) call: Call,
    pub(super) refusal: Refusal,
    /// Where a transaction was begun before the answer was no.
    pub(super) transaction: Option<TransactionId>,
}

impl Refused {
    pub(super) fn early(call: Call, refusal: Refusal) -> Self {
        Self { call, refusal, transaction: None }
    }

    pub(super) fn settle(self, session: &AgentSession<'_>) -> Settled {
        let (call, _) = for_the_record(&self.call, &session.secrets.all);
        let event = Event::Refused {
            transaction: self.transaction.clone(),
            session: Some(session.id.clone()),
            call: Some(call),
            refusal: session.secrets.all.refusal(&self.refusal),
        };
        let written = session.runtime.ledger.append(&event);
        Settled {
            transaction: self.transaction,
            ended: Ended::Refused(self.refusal),
            posture: None,
            unrecorded: written.err().map(|error| describe(&error)),
        }
    }
}

/// A transaction whose intent is written and whose end is not yet.
#[derive(Debug)]
pub(super) struct Settling {
    pub(super) transaction: TransactionId,
}

impl Settling {
    pub(super) fn executed(self, session: &AgentSession<'_>, answer: Result<Outcome, String>) -> Settled {
        let posture = session.sandbox.as_ref().map(|sandbox| sandbox.posture().clone());
        match answer {
            Ok(outcome) => self.close(session, Ended::Executed(outcome), posture),
            Err(what) => self.close(session, Ended::Failed { what, hint: None }, posture),
        }
    }

    pub(super) fn touched(self, session: &AgentSession<'_>, done: Result<Touched, Ended>) -> Settled {
        let ended = match done {
            Ok(touched) => Ended::Touched(touched),
            Err(ended) => ended,
        };
        self.close(session, ended, None)
    }

    pub(super) fn refused(self, session: &AgentSession<'_>, refusal: Refusal) -> Settled {
        self.close(session, Ended::Refused(refusal), None)
    }

    pub(super) fn failed(self, session: &AgentSession<'_>, what: String, hint: Option<String>) -> Settled {
        self.close(session, Ended::Failed { what, hint }, None)
    }

    fn close(self, session: &AgentSession<'_>, ended: Ended, posture: Option<Posture>) -> Settled {
        let mut events = Vec::new();
        if let Some(posture) = posture.clone() {
            let (transaction, session) = (self.transaction.clone(), session.id.clone());
            events.push(Event::Launched { transaction, session, posture });
        }
        events.push(self.event(session, &ended));
        let written = session.runtime.ledger.append_all(&events);
        let unrecorded = written.err().map(|error: AppendError| chain(&error));
        Settled { transaction: Some(self.transaction), ended, posture, unrecorded }
    }

    fn event(&self, session: &AgentSession<'_>, ended: &Ended) -> Event {
        let transaction = self.transaction.clone();
        let (outcome, failure) = match ended {
            Ended::Refused(refusal) => {
                return Event::Refused {
                    transaction: Some(transaction),
                    session: Some(session.id.clone()),
                    call: None,
                    refusal: session.secrets.all.refusal(refusal),
                };
            }
            Ended::Executed(outcome) => (Some(outcome.clone()), None),
            Ended::Touched(_) => (None, None),
            Ended::Failed { what, .. } => (None, Some(session.secrets.all.text(what))),
        };
        Event::Settled { transaction, session: session.id.clone(), outcome, failure }
    }
}

/// The call as it may be written down: without secrets, and which rules found some.
pub(super) fn for_the_record(call: &Call, secrets: &Secrets) -> (Call, Vec<Finding>) {
    let (call, known) = secrets.call(call);
    let exact = |(place, meta): (String, &Meta)| Finding {
        rule: secrets::rule(meta),
        place,
        fingerprint: meta.fingerprint.clone(),
    };
    let mut findings: Vec<Finding> = known.into_iter().map(exact).collect();
    let Call::Exec(exec) = &call else { return (call, findings) };
    let arguments: Vec<&[u8]> = exec.argv.iter().map(Bytes::as_slice).collect();
    let (argv, found) = ringfence_scan::redact_argv(&arguments);
    let finding =
        |place: String, rule: &str| Finding { rule: rule.to_owned(), place, fingerprint: String::new() };
    findings.extend(found.iter().map(|(at, found)| finding(format!("argv[{at}]"), &found.rule)));
    let mut env = Vec::with_capacity(exec.env.len());
    for (name, value) in &exec.env {
        let redacted = ringfence_scan::redact(value.as_slice());
        let place = format!("env {}", name.display());
        findings.extend(redacted.findings.iter().map(|found| finding(place.clone(), &found.rule)));
        env.push((name.clone(), Bytes::from(redacted.clean)));
    }
    let argv = argv.into_iter().map(Bytes::from).collect();
    (Call::Exec(Exec { argv, cwd: exec.cwd.clone(), env, net: exec.net }), findings)
}
