use ringfence_authz::{Action, Answer, Verdict, decide};
use ringfence_types::Call;

use super::decided::Decided;
use super::settled::Refused;
use crate::facts::Machine;
use crate::session::AgentSession;

/// A call of the owner of this process.
#[derive(Debug)]
pub(super) struct Authenticated {
    pub(super) call: Call,
}

impl Authenticated {
    pub(super) fn decide(self, session: &AgentSession<'_>) -> Result<Decided, Refused> {
        let action = Action::new(self.call, session.all_roots());
        let call = action.call().clone();
        let facts = Machine::new(&session.runtime.setup);
        match decide(&session.policy, action, &facts) {
            Verdict::Allow(grant) => Ok(Decided { grant: *grant }),
            Verdict::Ask(question) => match question.answered(Answer::Unreachable) {
                Ok(grant) => Ok(Decided { grant }),
                Err(refusal) => Err(Refused::early(call, refusal)),
            },
            Verdict::Deny(refusal) => Err(Refused::early(call, refusal)),
        }
    }
}
