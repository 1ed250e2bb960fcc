//! What a session remembers: answers that hold, denials, and what was called last. In memory, and for a session that goes
//! on in another process from the ledger.

use std::collections::{HashMap, HashSet};

use ringfence_ledger::{ApprovalAnswer, Covers, Event, Record};
use ringfence_types::{Call, Fingerprint, GrantId, Root, TransactionId};

use super::breaker::Breaker;
use super::{Loops, is_operator, recorded_outcome};

#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    denied: HashSet<Fingerprint>,
    granted: HashMap<String, GrantId>,
    breaker: Breaker,
    pub(crate) loops: Loops,
}

impl Memory {
    /// What the records of one session say. `roots` are those of the session as it goes on.
    pub(crate) fn of_records(records: &[Record], roots: &[Root]) -> Self {
        let mut replay = Replay { memory: Self::default(), calls: HashMap::new(), roots };
        records.iter().for_each(|record| replay.follow(&record.event));
        replay.memory
    }

    /// A no is kept: an agent that asks again gets the same answer without a person being bothered (S001-25, C-19).
    pub(crate) fn is_denied(&self, fingerprint: &Fingerprint) -> bool {
        self.denied.contains(fingerprint)
    }

    /// A person said no.
    pub(crate) fn deny(&mut self, fingerprint: Fingerprint, call: &Call) {
        self.denied.insert(fingerprint);
        self.breaker.count(call);
    }

    /// It was denied before, and is again.
    pub(crate) fn deny_again(&mut self, call: &Call) {
        self.breaker.count(call);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.breaker.is_open()
    }

    pub(crate) fn granted(&self, binding: &str) -> Option<&GrantId> {
        self.granted.get(binding)
    }

    pub(crate) fn grant(&mut self, binding: String, grant: GrantId) {
        self.granted.insert(binding, grant);
    }
}

struct Replay<'a> {
    memory: Memory,
    calls: HashMap<TransactionId, (Fingerprint, Call)>,
    roots: &'a [Root],
}

impl Replay<'_> {
    fn follow(&mut self, event: &Event) {
        match event {
            Event::ApprovalRequested(request) => {
                self.know(&request.transaction, &request.fingerprint, &request.call);
            }
            Event::Intent { transaction, fingerprint, call, .. } => self.know(transaction, fingerprint, call),
            Event::ApprovalDecided(decision)
                if decision.answer == ApprovalAnswer::Denied && is_operator(&decision.by) =>
            {
                if let Some((fingerprint, call)) = self.calls.get(&decision.transaction) {
                    self.memory.deny(fingerprint.clone(), call);
                }
            }
            Event::GrantMade(made) => {
                if let Covers::Session { binding } = &made.covers {
                    self.memory.grant(binding.clone(), made.grant.clone());
                }
            }
            Event::Refused { refusal, call: Some(call), .. } if refusal.rule == DENIED_BEFORE => {
                self.memory.deny_again(call);
                self.note(event);
            }
            _ => self.note(event),
        }
    }

    fn know(&mut self, transaction: &TransactionId, fingerprint: &Fingerprint, call: &Call) {
        self.calls.insert(transaction.clone(), (fingerprint.clone(), call.clone()));
    }

    fn note(&mut self, event: &Event) {
        let Some(outcome) = recorded_outcome(event) else { return };
        if matches!(event, Event::Refused { refusal, .. } if refusal.rule == STOPPED_LOOP) {
            return;
        }
        let known =
            event.transaction().and_then(|id| self.calls.get(id)).map(|(fingerprint, _)| fingerprint.clone());
        let fingerprint = known.or_else(|| match event {
            // Of a call that was refused at once only the record is left; without secrets in it that is the call.
            Event::Refused { call: Some(call), .. } => Some(Fingerprint::of(call, self.roots)),
            _ => None,
        });
        if let Some(fingerprint) = fingerprint {
            let _flagged = self.memory.loops.note(&fingerprint, outcome);
        }
    }
}

/// The rule of a refusal because of an earlier no.
pub(crate) const DENIED_BEFORE: &str = "approval.denied-before";
/// The rule of a refusal because of a loop.
pub(crate) const STOPPED_LOOP: &str = "loop.repeated";
/// The rule of a refusal because of too many denials.
pub(crate) const BREAKER: &str = "approval.circuit-breaker";
