//! One call, from what was asked to the ledger. Each state is a struct in its own file; a transition consumes it.
//!
//! ```text
//!  Received → Authenticated ─────────→ Decided → Admitted → Running → Settled
//!             local owner  └→ Asked ─┘ authz     ledger     sandbox   ledger
//!                             approver Grant     Receipt    posture
//! ```
//!
//! INVARIANT: only [`Admitted`](admitted::Admitted) can launch, and only a `Grant` (which `authz` alone makes) and a
//! `Receipt` (which the ledger alone makes, after the record is on disk) build one. There is no other way to a
//! sandbox in this crate:
//!
//! ```compile_fail
//! use ringfence_runtime::pipeline::Admitted;
//! fn sneak() -> Admitted { Admitted { ..unimplemented!() } }
//! ```
//!
//! Nor does a session hand out its sandbox, in which anything could be run unrecorded:
//!
//! ```compile_fail
//! use ringfence_runtime::AgentSession;
//! fn sneak(session: &mut AgentSession<'_>) { session.sandbox.take(); }
//! ```

mod admitted;
mod apply;
mod asked;
mod authenticated;
mod decided;
mod file;
mod held;
mod input;
mod received;
mod running;
mod settled;

use ringfence_sandbox::Io;
use ringfence_types::{Layer, Refusal, RefusalCode, TransactionId};

use crate::observe::Stage;
use crate::session::AgentSession;

use asked::Asking;
use decided::Decided;
use input::Intake;
use settled::Refused;

pub use admitted::Admitted;
pub(crate) use admitted::spec;
pub(crate) use apply::{conflict, edits};
pub(crate) use decided::chain;
pub(crate) use file::refusal_of;
pub use file::{TOO_MANY, Touched};
pub use received::Received;
pub use settled::{Ended, Settled};
pub(crate) use settled::{TakenOut, for_the_record};

/// Takes one call all the way. Whatever happens is in the ledger when this returns, or the result says that it is not.
pub(crate) fn run(call: Received, session: &mut AgentSession<'_>, io: Io<'_>) -> Settled {
    session.reach(Stage::Authenticate);
    let mut intake = Intake::new(io.stdin);
    let decided = decided(call, session, (&io, &mut intake));
    let decided = match decided {
        Ok(decided) => decided,
        Err(refused) => return refused.settle(session),
    };
    session.reach(Stage::Admit);
    let admitted = match decided.admit(session) {
        Ok(admitted) => admitted,
        Err(refused) => return refused.settle(session),
    };
    session.reach(Stage::Run);
    match admitted.launch(session) {
        Ok(running) => running.finish(session, Io { stdin: intake.source(), ..io }),
        Err(settled) => settled,
    }
}

fn decided(
    call: Received,
    session: &mut AgentSession<'_>,
    (io, intake): (&Io<'_>, &mut Intake<'_>),
) -> Result<Decided, Refused> {
    call.authenticate()
        .and_then(|authenticated| authenticated.renew_policy(session))
        .and_then(|authenticated| authenticated.hold_secrets(session, io))
        .and_then(|authenticated| authenticated.decide(session, Asking { interrupts: io.interrupts, intake }))
}

/// Takes one call as far as it goes without doing it: judged, asked about, written down, and left to `to`. Only for what an
/// agent does in its own process, where nothing of ours can do it instead.
pub(crate) fn leave(
    call: Received,
    session: &mut AgentSession<'_>,
    io: &Io<'_>,
    to: &str,
) -> Result<TransactionId, Settled> {
    let mut intake = Intake::new(io.stdin);
    let decided = decided(call, session, (io, &mut intake));
    left(decided, session, to)
}

/// The same for a tool that no rule speaks of, where the agent asks the person at it by itself.
pub(crate) fn refer(
    call: Received,
    session: &mut AgentSession<'_>,
    io: &Io<'_>,
    to: &str,
) -> Result<TransactionId, Settled> {
    let referred = call
        .authenticate()
        .and_then(|authenticated| authenticated.renew_policy(session))
        .and_then(|authenticated| authenticated.hold_secrets(session, io))
        .and_then(|authenticated| authenticated.refer(session));
    left(referred, session, to)
}

fn left(
    decided: Result<Decided, Refused>,
    session: &mut AgentSession<'_>,
    to: &str,
) -> Result<TransactionId, Settled> {
    match decided.and_then(|decided| decided.admit(session)) {
        Ok(admitted) => admitted.leave(session, to).map_err(|error| unrecorded(&chain(&error))),
        Err(refused) => Err(refused.settle(session)),
    }
}

fn unrecorded(why: &str) -> Settled {
    let refusal = Refusal {
        code: RefusalCode::Ledger,
        layer: Layer::Floor,
        rule: "ledger.written-before-done".to_owned(),
        message: format!("it could not be written to the ledger, so it may not be done: {why}"),
        hint: None,
    };
    Settled {
        transaction: None,
        ended: Ended::Refused(refusal),
        posture: None,
        network: None,
        note: None,
        leaks: Vec::new(),
        held: Vec::new(),
        unrecorded: Some(why.to_owned()),
    }
}
