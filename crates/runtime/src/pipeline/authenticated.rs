use ringfence_authz::{Action, Verdict, decide};
use ringfence_types::{Call, Decision, Layer, Refusal, RefusalCode, TransactionId};

use super::asked::Asked;
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
    pub(super) fn decide(self, session: &mut AgentSession<'_>) -> Result<Decided, Refused> {
        let transaction = match TransactionId::random() {
            Ok(transaction) => transaction,
            Err(error) => return Err(Refused::early(self.call, no_id(&error.to_string()))),
        };
        let action = Action::new(self.call, session.all_roots());
        let call = action.call().clone();
        let facts = Machine::new(&session.runtime.setup);
        match decide(&session.policy, action, &facts) {
            Verdict::Allow(grant) => Ok(Decided { grant: *grant, transaction, decision: Decision::Allow }),
            Verdict::Ask(question) => Asked { question: *question, transaction }.answer(session),
            Verdict::Deny(refusal) => Err(Refused::early(call, refusal)),
        }
    }
}

fn no_id(why: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Ledger,
        layer: Layer::Floor,
        rule: "ledger.written-before-done".to_owned(),
        message: format!("an id for the transaction could not be made, so nothing was done: {why}"),
        hint: None,
    }
}
