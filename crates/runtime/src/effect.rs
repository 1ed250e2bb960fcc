//! Effects: what calls do to the world. Each kind of effect is a type and goes through [`crate::pipeline`].
//!
//! A function that launches, writes or dials takes an [`Admitted`] or a `Running` of its own effect, which
//! only the pipeline makes.

mod exec;
mod fetch;
mod file;
mod flow;
mod held_changes;
mod land;
mod patch;
mod tool;

use std::borrow::Cow;
use std::fmt;

use ringfence_authz::ApprovalNeeded;
use ringfence_layer::LayerError;
use ringfence_sandbox::CommandIo;
use ringfence_types::Call;
use zeroize::Zeroizing;

use crate::pipeline::{Admitted, Settled};
use crate::session::AgentSession;

pub use exec::ExecEffect;
pub(crate) use exec::spec;
pub use fetch::FetchEffect;
pub(crate) use file::refusal_of;
pub use file::{EffectOutput, FileEffect, TOO_MANY};
pub use flow::{FlowCount, FlowEffect, FlowPermit, FlowSummary, RefusedHostCount};
pub(crate) use flow::{FlowRequester, Flows, SessionGate, SharedApprover};
pub use land::LandEffect;
pub(crate) use land::no_layer;
pub use patch::PatchEffect;
pub(crate) use patch::{conflict, edits};
pub use tool::ToolEffect;
pub(crate) use tool::not_from_here;

/// A kind of effect, as the pipeline sees it.
pub(crate) trait Effect: fmt::Debug + Sized {
    /// Whether `call` may replace the requested one. An operator may approve an edited call of the same kind.
    fn can_become(call: &Call) -> bool;

    /// The call to ask about, if it differs from the evaluated one.
    fn asked_instead(&self, _question: &ApprovalNeeded) -> Option<Call> {
        None
    }

    /// The changes that the call brings along, as a unified diff, if it knows them itself.
    fn diff(&self, _question: &ApprovalNeeded) -> Option<Result<Zeroizing<Vec<u8>>, LayerError>> {
        None
    }

    /// The call in the intent record, if more is known than was evaluated.
    fn recorded<'c>(&'c self, judged: &'c Call) -> Cow<'c, Call> {
        Cow::Borrowed(judged)
    }
}

/// An effect that runs to its end while its caller waits.
pub(crate) trait Perform: Effect {
    fn perform(admitted: Admitted<Self>, session: &mut AgentSession<'_>, io: CommandIo<'_>) -> Settled;
}
