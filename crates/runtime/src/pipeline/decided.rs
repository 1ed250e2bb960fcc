use ringfence_authz::Grant;
use ringfence_ledger::{AppendError, Event};
use ringfence_types::{Call, Decision, Layer, Refusal, RefusalCode, TransactionId};

use super::admitted::Admitted;
use super::settled::{Refused, for_the_record};
use crate::session::AgentSession;

/// A call that policy allows. Nothing has been written and nothing has happened.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) grant: Grant,
    pub(super) transaction: TransactionId,
    /// What policy said before anybody was asked.
    pub(super) decision: Decision,
}

impl Decided {
    /// Writes the intent. No record, no effect.
    pub(super) fn admit(self, session: &AgentSession<'_>) -> Result<Admitted, Refused> {
        let event = self.intent(session);
        match session.runtime.ledger.append(&event) {
            Ok(receipt) if receipt.intent() == Some(&self.transaction) => {
                Ok(Admitted::new(self.grant, receipt, self.transaction))
            }
            Ok(_) => Err(self.unwritable("the receipt is for another transaction".to_owned(), None)),
            Err(error) => {
                let hint = error.hint().map(str::to_owned);
                Err(self.unwritable(describe(&error), hint))
            }
        }
    }

    fn intent(&self, session: &AgentSession<'_>) -> Event {
        let action = self.grant.action();
        let (call, findings) = for_the_record(action.call(), &session.secrets.all);
        Event::Intent {
            transaction: self.transaction.clone(),
            session: session.id.clone(),
            call,
            fingerprint: action.fingerprint().clone(),
            decision: self.decision,
            layer: self.grant.layer(),
            rule: self.grant.rule().to_owned(),
            grant: None,
            profile: session.policy.profile,
            policy: String::new(),
            roots: self.grant.permissions().roots.clone(),
            limits: self.grant.permissions().limits.clone(),
            findings,
        }
    }

    fn unwritable(self, why: String, hint: Option<String>) -> Refused {
        let call: Call = self.grant.action().call().clone();
        let refusal = Refusal {
            code: RefusalCode::Ledger,
            layer: Layer::Floor,
            rule: "ledger.written-before-done".to_owned(),
            message: format!("the intent could not be written to the ledger, so nothing was done: {why}"),
            hint,
        };
        Refused::early(call, refusal)
    }
}

/// An error with everything it was caused by.
pub(super) fn describe(error: &AppendError) -> String {
    chain(error)
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
