use ringfence_ledger::{AppendError, ApprovalDecision, Event, Finding};
use ringfence_types::{Bytes, Call, Exec, Fingerprint, Outcome, Posture, Refusal, TransactionId};

use super::decided::describe;
use super::file::Touched;
use crate::approval::{Held, Redactor, STOPPED, STOPPED_LOOP, outcome_of};
use crate::secrets::{self, Meta};
use crate::session::{AgentSession, Runtime};

/// What became of a call, and that it is written down.
#[derive(Debug)]
pub struct Settled {
    pub transaction: Option<TransactionId>,
    pub ended: Ended,
    /// What was enforced while it ran, as the sandbox reported it.
    pub posture: Option<Posture>,
    /// What whoever asked should know besides: that it goes round in circles.
    pub note: Option<String>,
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

    /// With what was said about the no.
    pub(super) fn because(mut self, decision: &ApprovalDecision) -> Self {
        if let Some(reason) = &decision.reason {
            self.refusal.message.push_str(&format!(
                " ({}: {})",
                decision.by,
                Bytes::from(reason.as_str()).display()
            ));
        }
        self
    }

    pub(super) fn settle(self, session: &mut AgentSession<'_>) -> Settled {
        let event = refused(session, self.transaction.clone(), (&self.call, &self.refusal));
        let fingerprint = Fingerprint::of(&self.call, &session.all_roots());
        let ended = Ended::Refused(self.refusal);
        conclude(session, (vec![event], self.transaction), (fingerprint, ended, None))
    }
}

/// A no as it may be written down: its words can hold what the call holds.
pub(super) fn refused(
    session: &AgentSession<'_>,
    transaction: Option<TransactionId>,
    (call, refusal): (&Call, &Refusal),
) -> Event {
    let recorded = for_the_record(call, session);
    let redactor = Redactor::new(&recorded.secrets, Some(&session.secrets.all));
    let refusal = Refusal {
        message: redactor.clean(&refusal.message),
        hint: refusal.hint.as_deref().map(|hint| redactor.clean(hint)),
        ..refusal.clone()
    };
    Event::Refused { transaction, session: Some(session.id.clone()), call: Some(recorded.call), refusal }
}

/// Writes the end of a call down, in one step with what follows from it.
fn conclude(
    session: &mut AgentSession<'_>,
    (mut events, transaction): (Vec<Event>, Option<TransactionId>),
    (fingerprint, ended, posture): (Fingerprint, Ended, Option<Posture>),
) -> Settled {
    let stopped = matches!(&ended, Ended::Refused(refusal) if refusal.rule == STOPPED_LOOP);
    // What was not done is no further round.
    let repeats = if stopped { None } else { session.memory.loops.note(&fingerprint, outcome_of(&ended)) };
    if let Some(repeats) = repeats {
        events.push(Event::LoopFound {
            session: session.id.clone(),
            fingerprint,
            repeats: u32::try_from(repeats).unwrap_or(u32::MAX),
            stopped: false,
        });
    }
    events.extend(session.ending());
    let unrecorded = session.append(events).err().map(|error: AppendError| describe(&error));
    Settled { transaction, ended, posture, note: repeats.map(going_round), unrecorded }
}

fn going_round(repeats: usize) -> String {
    format!("the same came {repeats} times in a row with the same outcome; at {STOPPED} it is stopped")
}

/// A transaction whose intent is written and whose end is not yet.
#[derive(Debug)]
pub(super) struct Settling {
    pub(super) transaction: TransactionId,
    pub(super) fingerprint: Fingerprint,
    /// Says that this process works on it, where the session alone does not say which process that is.
    pub(super) held: Option<Held>,
}

impl Settling {
    pub(super) fn executed(self, session: &mut AgentSession<'_>, answer: Result<Outcome, String>) -> Settled {
        let posture = session.sandbox.as_ref().map(|sandbox| sandbox.posture().clone());
        match answer {
            Ok(outcome) => self.close(session, Ended::Executed(outcome), posture),
            Err(what) => self.close(session, Ended::Failed { what, hint: None }, posture),
        }
    }

    pub(super) fn touched(self, session: &mut AgentSession<'_>, done: Result<Touched, Ended>) -> Settled {
        let ended = match done {
            Ok(touched) => Ended::Touched(touched),
            Err(ended) => ended,
        };
        self.close(session, ended, None)
    }

    pub(super) fn refused(self, session: &mut AgentSession<'_>, refusal: Refusal) -> Settled {
        self.close(session, Ended::Refused(refusal), None)
    }

    pub(super) fn failed(
        self,
        session: &mut AgentSession<'_>,
        what: String,
        hint: Option<String>,
    ) -> Settled {
        self.close(session, Ended::Failed { what, hint }, None)
    }

    fn close(self, session: &mut AgentSession<'_>, ended: Ended, posture: Option<Posture>) -> Settled {
        let mut events = Vec::new();
        let ids = || (self.transaction.clone(), session.id.clone());
        if let Some(posture) = posture.clone() {
            let (transaction, session) = ids();
            events.push(Event::Launched { transaction, session, posture });
        }
        if let Ended::Executed(Outcome { limit_hit: Some(limit), .. }) = &ended {
            let (transaction, session) = ids();
            events.push(Event::LimitHit { transaction, session, limit: *limit });
        }
        events.push(self.event(session, &ended));
        let settled = conclude(session, (events, Some(self.transaction)), (self.fingerprint, ended, posture));
        drop(self.held);
        settled
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

/// A call as it may be written down.
#[derive(Debug)]
pub(super) struct Recorded {
    /// Without secrets.
    pub(super) call: Call,
    pub(super) findings: Vec<Finding>,
    /// What was taken out. It stays in memory.
    pub(super) secrets: Vec<Vec<u8>>,
}

pub(super) fn for_the_record(call: &Call, session: &AgentSession<'_>) -> Recorded {
    let (call, known) = session.secrets.all.call(call);
    let mut taken = Taken { runtime: session.runtime, findings: Vec::new(), secrets: Vec::new() };
    taken.findings.extend(known.into_iter().map(|(place, meta): (String, &Meta)| Finding {
        rule: secrets::rule(meta),
        place,
        fingerprint: meta.fingerprint.clone(),
    }));
    let Call::Exec(exec) = &call else {
        return Recorded { call, findings: taken.findings, secrets: taken.secrets };
    };
    let arguments: Vec<&[u8]> = exec.argv.iter().map(Bytes::as_slice).collect();
    let (argv, found) = ringfence_scan::redact_argv(&arguments);
    for (at, finding) in found {
        taken.out(format!("argv[{at}]"), &finding, arguments.get(at).copied().unwrap_or_default());
    }
    let mut env = Vec::with_capacity(exec.env.len());
    for (name, value) in &exec.env {
        let redacted = ringfence_scan::redact(value.as_slice());
        for finding in &redacted.findings {
            taken.out(format!("env {}", name.display()), finding, value.as_slice());
        }
        env.push((name.clone(), Bytes::from(redacted.clean)));
    }
    let argv = argv.into_iter().map(Bytes::from).collect();
    let call = Call::Exec(Exec { argv, cwd: exec.cwd.clone(), env, net: exec.net });
    Recorded { call, findings: taken.findings, secrets: taken.secrets }
}

struct Taken<'a> {
    runtime: &'a Runtime,
    findings: Vec<Finding>,
    secrets: Vec<Vec<u8>>,
}

impl Taken<'_> {
    fn out(&mut self, place: String, finding: &ringfence_scan::Finding, text: &[u8]) {
        let secret = text.get(finding.start..finding.end).unwrap_or_default();
        let fingerprint = self.runtime.fingerprint(secret);
        self.findings.push(Finding { rule: finding.rule.to_string(), place, fingerprint });
        self.secrets.push(secret.to_vec());
    }
}
