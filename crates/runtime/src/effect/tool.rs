//! The tool effect: Ringfence evaluates and records tool calls that another program executes.

use ringfence_sandbox::CommandIo;
use ringfence_types::{Call, PolicyLayer, Refusal, RefusalCode, RuleId};

use super::{Effect, Perform};
use crate::pipeline::{Admitted, Settled};
use crate::session::AgentSession;

#[derive(Debug)]
pub struct ToolEffect;

impl Effect for ToolEffect {
    fn can_become(call: &Call) -> bool {
        matches!(call, Call::Tool(_))
    }
}

impl Perform for ToolEffect {
    fn perform(admitted: Admitted<Self>, session: &mut AgentSession<'_>, _io: CommandIo<'_>) -> Settled {
        admitted.settling().refused(session, not_ours())
    }
}

/// Only the gate of the session's proxy evaluates flows; no caller submits one.
pub(crate) fn not_from_here() -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        layer: PolicyLayer::Floor,
        rule: RuleId::FlowOwn.into(),
        message: "a flow begins inside the fence, not with a call".to_owned(),
        hint: None,
    }
}

/// Ringfence evaluates this call, but another program executes it.
fn not_ours() -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        layer: PolicyLayer::Floor,
        rule: RuleId::ToolsForeign.into(),
        message: "a tool of another program is called by the agent, not here".to_owned(),
        hint: None,
    }
}
