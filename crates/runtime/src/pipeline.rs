//! The pipeline: the only path of a call. Each state is a struct in its own file; a transition consumes it.
//!
//! ```text
//!  Received → Authenticated ────────────────────→ Decided ──────→ Admitted → Running → Settled
//!             local owner  └→ AwaitingApproval ─┘ authz           ledger     sandbox   ledger
//!                             approver            Authorization   Receipt    egress
//! ```
//!
//! The states are generic over the [effect](crate::effect): every effect takes the same path through the same code.
//! [`run`] takes a call all the way. The proxy takes a flow through the same states one by one: it is decided
//! before its name is resolved, admitted before an address is dialled, and settled when it ends.
//!
//! INVARIANT: only [`Admitted`] can launch, write or dial. It takes an `Authorization`, which `authz` alone makes,
//! and a `Receipt`, which the ledger alone makes after the record is durable. The type can be named:
//!
//! ```
//! use ringfence_runtime::effect::{ExecEffect, FlowEffect};
//! use ringfence_runtime::pipeline::Admitted;
//! fn named(_exec: Option<Admitted<ExecEffect>>, _flow: Option<Admitted<FlowEffect>>) {}
//! ```
//!
//! but not made, so there is no other way to a sandbox in this crate:
//!
//! ```compile_fail,E0451
//! use ringfence_runtime::effect::ExecEffect;
//! use ringfence_runtime::pipeline::Admitted;
//! fn sneak() -> Admitted<ExecEffect> { Admitted { ..unimplemented!() } }
//! ```
//!
//! nor to a connection:
//!
//! ```compile_fail,E0451
//! use ringfence_runtime::effect::FlowEffect;
//! use ringfence_runtime::pipeline::Admitted;
//! fn sneak() -> Admitted<FlowEffect> { Admitted { ..unimplemented!() } }
//! ```
//!
//! An admitted command is no admitted flow:
//!
//! ```compile_fail,E0308
//! use ringfence_runtime::effect::{ExecEffect, FlowEffect};
//! use ringfence_runtime::pipeline::Admitted;
//! fn sneak(command: Admitted<ExecEffect>) -> Admitted<FlowEffect> { command }
//! ```
//!
//! A session does not hand out its sandbox, where a command could run unrecorded:
//!
//! ```compile_fail,E0616
//! use ringfence_runtime::AgentSession;
//! fn sneak(session: &mut AgentSession<'_>) { session.common.end_fence(); }
//! ```

mod admitted;
mod authenticated;
mod awaiting_approval;
mod context;
mod decided;
mod input;
mod received;
mod settled;

use ringfence_sandbox::CommandIo;
use ringfence_types::{Call, PolicyLayer, Refusal, RefusalCode, RuleId, TransactionId};

use crate::effect::{
    Effect, ExecEffect, FetchEffect, FileEffect, PatchEffect, Perform, ToolEffect, no_layer, not_from_here,
};
use crate::observer::PipelineStage;
use crate::session::AgentSession;

pub use admitted::Admitted;
pub(crate) use admitted::Running;
pub(crate) use authenticated::closed;
use authenticated::{Authenticated, CallEvaluation, ended, policy_unstable};
use awaiting_approval::DecisionRound;
pub(crate) use awaiting_approval::{AskContext, next_call_key};
pub(crate) use context::{Actor, CallContext};
pub(crate) use decided::{Decided, chain};
pub(crate) use input::Intake;
pub use received::Received;
pub use settled::{CallEnd, Settled};
pub(crate) use settled::{RefusedCall, TakenOut, for_the_record};

pub use crate::effect::{EffectOutput, TOO_MANY};
pub(crate) use crate::effect::{conflict, edits, refusal_of, spec};

/// How often a call is asked about again because its bound objects changed.
const TURNS: usize = 3;

/// Runs one call through the whole pipeline. On return the ledger has its end, or the result says that it has
/// not.
pub(crate) fn run<E: Perform>(
    call: Received<E>,
    session: &mut AgentSession<'_>,
    io: CommandIo<'_>,
) -> Settled {
    session.reached(PipelineStage::Authenticate);
    let mut intake = Intake::new(io.stdin);
    let decided = decide(call, session, AskContext { interrupts: io.interrupts, intake: &mut intake });
    let decided = match decided {
        Ok(decided) => decided,
        Err(refused) => return refused.settle(session),
    };
    session.reached(PipelineStage::Admit);
    let admitted = match decided.admit(session) {
        Ok(admitted) => admitted,
        Err(refused) => return refused.settle(session),
    };
    session.reached(PipelineStage::Run);
    E::perform(admitted, session, CommandIo { stdin: intake.source(), ..io })
}

/// The states that every effect passes before it is admitted.
pub(crate) fn decide<E: Effect>(
    call: Received<E>,
    context: &mut impl CallContext,
    mut asking: AskContext<'_, '_>,
) -> Result<Decided<E>, RefusedCall> {
    let call = call.authenticate()?.renew_policy(context)?.scan_for_secrets(context, asking.intake)?;
    let Authenticated { mut effect, call, transaction } = call;
    let mut call = asking.intake.stated(call);
    if let Some(refusal) = ended(&call, context) {
        return Err(RefusedCall::settle_before_start(call, refusal));
    }
    // A transaction has one approval: one that began before the call cannot be asked about again.
    let turns = if transaction.is_some() { 1 } else { TURNS };
    let mut begun = transaction;
    for _turn in 0..turns {
        let evaluation = CallEvaluation { effect, call: &call, transaction: begun.take() };
        match evaluation.evaluate_once(context, &mut asking)? {
            DecisionRound::Decided(decided) => return Ok(*decided),
            DecisionRound::Again(again) => effect = again,
        }
        // Input read for the prompt stays known in the next round.
        call = asking.intake.stated(call);
    }
    Err(RefusedCall::settle_before_start(call, policy_unstable(turns)))
}

/// Runs `$go` with the received call, typed by the kind of its effect. Flows begin inside the fence, and a
/// landing with its layer, so a submitted one is refused.
macro_rules! with_effect {
    ($call:expr, $received:ident => $go:expr, $refused:ident => $otherwise:expr) => {
        match $call {
            call @ Call::Exec(_) => {
                let $received = Received::new(ExecEffect, call);
                $go
            }
            call @ Call::File(_) => {
                let $received = Received::new(FileEffect, call);
                $go
            }
            call @ Call::Apply(_) => {
                let $received = Received::new(PatchEffect, call);
                $go
            }
            call @ Call::Fetch(_) => {
                let $received = Received::new(FetchEffect, call);
                $go
            }
            call @ Call::Tool(_) => {
                let $received = Received::new(ToolEffect, call);
                $go
            }
            call @ Call::Flow(_) => {
                let $refused = RefusedCall::settle_before_start(call, not_from_here());
                $otherwise
            }
            call @ Call::Land(_) => {
                let $refused = RefusedCall::settle_before_start(call, no_layer());
                $otherwise
            }
        }
    };
}

/// [`run`] for a call of any kind. The fence of its own ceiling ends with it.
pub(crate) fn call(call: Call, session: &mut AgentSession<'_>, io: CommandIo<'_>) -> Settled {
    let span = tracing::info_span!("call", id = %session.id).entered();
    let settled =
        with_effect!(call, received => run(received, session, io), refused => refused.settle(session));
    session.end_own_fence();
    drop(span);
    settled.log();
    settled
}

/// Evaluates, approves and records a call, and leaves its execution to `to`. Only for effects in the agent's
/// own process, which Ringfence cannot execute.
pub(crate) fn delegate(
    call: Call,
    session: &mut AgentSession<'_>,
    io: &CommandIo<'_>,
    to: &str,
) -> Result<TransactionId, Settled> {
    let mut intake = Intake::new(io.stdin);
    let asking = AskContext { interrupts: io.interrupts, intake: &mut intake };
    with_effect!(
        call,
        received => {
            let decided = decide(received, session, asking);
            delegated(decided, session, to)
        },
        refused => Err(refused.settle(session))
    )
}

/// Like [`delegate`], for a tool that no rule covers, where the agent asks its user by itself.
pub(crate) fn defer(
    call: Call,
    session: &mut AgentSession<'_>,
    io: &CommandIo<'_>,
    to: &str,
) -> Result<TransactionId, Settled> {
    let intake = Intake::new(io.stdin);
    let referred = Received::new(ToolEffect, call)
        .authenticate()
        .and_then(|authenticated| authenticated.renew_policy(session))
        .and_then(|authenticated| authenticated.scan_for_secrets(session, &intake))
        .and_then(|authenticated| authenticated.refer(session));
    delegated(referred, session, to)
}

fn delegated<E: Effect>(
    decided: Result<Decided<E>, RefusedCall>,
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
        layer: PolicyLayer::Floor,
        rule: RuleId::LedgerWrittenBeforeDone.into(),
        message: format!("it could not be written to the ledger, so it may not be done: {why}"),
        hint: None,
    };
    Settled {
        transaction: None,
        ended: CallEnd::Refused(refusal),
        posture: None,
        network: None,
        notice: None,
        leaks: Vec::new(),
        held: Vec::new(),
        record_error: Some(why.to_owned()),
    }
}
