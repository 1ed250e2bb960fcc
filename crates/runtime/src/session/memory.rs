//! Session memory: grants, denials and recent calls, shared by all effects. A resumed session rebuilds it
//! from the ledger.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_ledger::{ApprovalAnswer, Event, GrantSubject, Record};
use ringfence_types::{ActionFingerprint, Call, GrantId, Root, RuleId, TransactionId};

use crate::approvals::{CircuitBreaker, LoopGuard, is_operator, recorded_outcome};
use crate::pipeline::Actor;

/// What several sessions of one agent remember together: a background command and the session that started it. Otherwise an
/// agent would be asked about again in each of them, however often a person said no.
#[derive(Clone, Debug, Default)]
pub struct JointMemory(Arc<Mutex<SessionMemory>>);

impl JointMemory {
    pub(super) fn new(memory: SessionMemory) -> Self {
        Self(Arc::new(Mutex::new(memory)))
    }
}

/// The memory of one session, shared by the calls of every transport and the flows of its proxy, on any
/// thread.
///
/// It is separate from the session, because the session owns the proxy and the proxy needs the memory.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    memory: JointMemory,
    /// The session was terminated because of what it did; every call is refused.
    over: AtomicBool,
    /// An operator or the owner ended the session; every call is refused.
    closed: AtomicBool,
    asking: Mutex<AskQueue>,
    changed: Condvar,
}

impl SharedMemory {
    pub(super) fn new(memory: JointMemory) -> Self {
        Self { memory, ..Self::default() }
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, SessionMemory> {
        held(&self.memory.0)
    }

    pub(super) fn joint(&self) -> JointMemory {
        self.memory.clone()
    }

    pub(super) fn set_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// INVARIANT: set before the fence is removed, and checked while the fence is locked, so that no sandbox
    /// starts afterwards.
    pub(super) fn set_closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits until no other flow has an identical approval pending, so that both share one answer.
    pub(crate) fn wait_turn(
        self: &Arc<Self>,
        key: &ActionFingerprint,
        closing: &AtomicBool,
    ) -> Result<AskPermit, NoTurn> {
        let mut asking = held(&self.asking);
        if asking.flows >= MOST_ASKING {
            return Err(NoTurn::Crowded);
        }
        asking.flows += 1;
        let taken = |queue: &mut AskQueue| !closing.load(Ordering::SeqCst) && queue.turns.contains(key);
        let mut asking = self.changed.wait_while(asking, taken).unwrap_or_else(PoisonError::into_inner);
        if closing.load(Ordering::SeqCst) {
            asking.flows -= 1;
            return Err(NoTurn::Closing);
        }
        asking.turns.insert(key.clone());
        Ok(AskPermit { shared: Arc::clone(self), key: key.clone() })
    }

    /// Wakes flows that wait for a turn or for the end of an approval.
    pub(crate) fn wake(&self) {
        drop(held(&self.asking));
        self.changed.notify_all();
    }

    /// Waits until `done`, at most `patience`. Checks after each wake-up.
    pub(crate) fn wait_until(&self, patience: Duration, done: impl Fn() -> bool) {
        let asking = held(&self.asking);
        let _late = self.changed.wait_timeout_while(asking, patience, |_| !done());
    }
}

/// Limit of flows that wait for an approval. It is far below the proxy's limit of pending flows, so that
/// allowed flows always find a slot.
pub(crate) const MOST_ASKING: usize = 64;

#[derive(Debug, Default)]
struct AskQueue {
    /// Flows that ask or wait for the answer to an identical approval.
    flows: usize,
    turns: HashSet<ActionFingerprint>,
}

/// The permit to request one approval.
#[derive(Debug)]
pub(crate) struct AskPermit {
    shared: Arc<SharedMemory>,
    key: ActionFingerprint,
}

impl Drop for AskPermit {
    fn drop(&mut self) {
        let mut asking = held(&self.shared.asking);
        asking.turns.remove(&self.key);
        asking.flows -= 1;
        drop(asking);
        self.shared.changed.notify_all();
    }
}

/// Why a flow may not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// Too many flows wait already.
    Crowded,
    /// The network is closing.
    Closing,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SessionMemory {
    denied: HashSet<ActionFingerprint>,
    granted: HashMap<String, GrantId>,
    breaker: CircuitBreaker,
    pub(crate) loops: LoopGuard,
}

impl SessionMemory {
    /// Rebuilds the memory from the records of a session. `roots` are those of the resumed session.
    pub(crate) fn of_records(records: &[Record], roots: &[Root]) -> Self {
        let mut replay = Replay { memory: Self::default(), calls: HashMap::new(), roots };
        records.iter().for_each(|record| replay.follow(&record.event));
        replay.memory
    }

    /// A denial is kept: a repeated request gets the same answer without a person (S001-25, C-19).
    pub(crate) fn is_denied(&self, fingerprint: &ActionFingerprint) -> bool {
        self.denied.contains(fingerprint)
    }

    /// Records a denial by a person.
    pub(crate) fn deny(&mut self, fingerprint: ActionFingerprint, call: &Call) {
        self.denied.insert(fingerprint);
        self.breaker.count(call);
    }

    /// Counts a repeated request after a denial. Programs retry failed connections without the agent, so only
    /// the agent's own calls count for the circuit breaker.
    pub(crate) fn deny_again(&mut self, call: &Call) {
        if Actor::of(call) == Actor::Agent {
            self.breaker.count(call);
        }
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
    memory: SessionMemory,
    calls: HashMap<TransactionId, (ActionFingerprint, Call)>,
    roots: &'a [Root],
}

impl Replay<'_> {
    fn follow(&mut self, event: &Event) {
        match event {
            Event::ApprovalRequested(request) => {
                self.know(&request.transaction, &request.fingerprint, &request.call);
            }
            Event::CallIntended { transaction, fingerprint, call, .. } => {
                self.know(transaction, fingerprint, call)
            }
            Event::ApprovalDecided(decision)
                if decision.answer == ApprovalAnswer::Deny && is_operator(&decision.actor) =>
            {
                if let Some((fingerprint, call)) = self.calls.get(&decision.transaction) {
                    self.memory.deny(fingerprint.clone(), call);
                }
            }
            Event::GrantCreated(made) => {
                if let GrantSubject::Session { binding } = &made.covers {
                    self.memory.grant(binding.clone(), made.grant.clone());
                }
            }
            Event::CallRefused { refusal, call: Some(call), .. } if refusal.rule == DENIED_BEFORE => {
                self.memory.deny_again(call);
                self.note(event);
            }
            _ => self.note(event),
        }
    }

    fn know(&mut self, transaction: &TransactionId, fingerprint: &ActionFingerprint, call: &Call) {
        self.calls.insert(transaction.clone(), (fingerprint.clone(), call.clone()));
    }

    fn note(&mut self, event: &Event) {
        let Some(outcome) = recorded_outcome(event) else { return };
        if matches!(event, Event::CallRefused { refusal, .. } if refusal.rule == STOPPED_LOOP) {
            return;
        }
        let known = event.transaction().and_then(|id| self.calls.get(id));
        let fingerprint = match (known, event) {
            // A flow is part of the call that makes it.
            (Some((_, Call::Flow(_))), _) | (None, Event::CallRefused { call: Some(Call::Flow(_)), .. }) => {
                None
            }
            (Some((fingerprint, _)), _) => Some(fingerprint.clone()),
            // A call that was refused at once exists only as a record, which equals the call unless secrets were
            // redacted.
            (None, Event::CallRefused { call: Some(call), .. }) => {
                Some(ActionFingerprint::of(call, self.roots))
            }
            (None, _) => None,
        };
        if let Some(fingerprint) = fingerprint {
            let _flagged = self.memory.loops.note(&fingerprint, outcome);
        }
    }
}

/// Rule of a refusal because of an earlier denial.
pub(crate) const DENIED_BEFORE: RuleId = RuleId::ApprovalAlreadyDenied;
/// Rule of a refusal because of a loop.
pub(crate) const STOPPED_LOOP: RuleId = RuleId::LoopRepeated;
/// Rule of a refusal by the circuit breaker.
pub(crate) const BREAKER: RuleId = RuleId::ApprovalCircuitBreaker;
