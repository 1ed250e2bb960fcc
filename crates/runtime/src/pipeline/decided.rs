use ringfence_authz::Grant;
use ringfence_ledger::{AppendError, Bound, Event};
pub(crate) use ringfence_types::chain;
use ringfence_types::{Decision, GrantId, Layer, Refusal, RefusalCode, TransactionId};

use super::admitted::Admitted;
use super::settled::{Refused, for_the_record};
use crate::approval::{Held, Lease, asking, lease};
use crate::session::AgentSession;

/// A call that policy or a person allows. Nothing has been done.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) grant: Grant,
    pub(super) transaction: TransactionId,
    /// What policy said before anybody was asked.
    pub(super) decision: Decision,
    /// The stored answer of a person that allows it.
    pub(super) stored: Option<GrantId>,
    /// Says that this process is about to use an answer.
    pub(super) held: Option<Held>,
    /// What a person said yes to, of what can change.
    pub(super) bound: Vec<Bound>,
}

impl Decided {
    pub(super) fn by_policy(grant: Grant, transaction: TransactionId) -> Self {
        Self { grant, transaction, decision: Decision::Allow, stored: None, held: None, bound: Vec::new() }
    }

    /// Writes the intent. No record, no effect.
    pub(super) fn admit(mut self, session: &mut AgentSession<'_>) -> Result<Admitted, Refused> {
        let lease = self.lease(session)?;
        self.hold(session)?;
        let event = self.intent(session, lease.as_ref());
        let written = session.append(vec![event]);
        drop(lease);
        let held = self.held.take().filter(|_| session.is_named());
        match written.map(|receipts| receipts.into_iter().last()) {
            Ok(Some(receipt)) if receipt.intent() == Some(&self.transaction) => {
                Ok(Admitted::new((self.grant, receipt), self.transaction, held, self.bound))
            }
            Ok(_) => Err(self.unwritable("the receipt is for another transaction".to_owned(), None)),
            Err(error) => {
                let hint = error.hint().map(str::to_owned);
                Err(self.unwritable(describe(&error), hint))
            }
        }
    }

    /// A stored answer is looked at again right before its use is written down: it may be over by now.
    fn lease(&self, session: &AgentSession<'_>) -> Result<Option<Lease>, Refused> {
        let stored = self.stored.iter().map(GrantId::as_str);
        let ids: Vec<&str> = stored.chain(self.grant.stored().iter().map(String::as_str)).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let runtime = session.runtime;
        match lease(&runtime.ledger, &runtime.setup.state_dir, &ids) {
            Ok(Ok(lease)) => Ok(Some(lease)),
            Ok(Err(refusal)) => Err(self.refused(refusal)),
            Err(error) => Err(self.refused(unwritable(&chain(&error), None))),
        }
    }

    /// A session with a name lives in one process after the other, so that each says for itself what it works on.
    fn hold(&mut self, session: &AgentSession<'_>) -> Result<(), Refused> {
        if self.held.is_some() || !session.is_named() {
            return Ok(());
        }
        let held = asking(&session.runtime.setup.state_dir, &self.transaction);
        self.held = Some(held.map_err(|error| self.refused(unwritable(&error.to_string(), None)))?);
        Ok(())
    }

    fn refused(&self, refusal: Refusal) -> Refused {
        let transaction = (self.decision == Decision::Ask).then(|| self.transaction.clone());
        Refused { call: self.grant.action().call().clone(), refusal, transaction }
    }

    fn intent(&self, session: &AgentSession<'_>, lease: Option<&Lease>) -> Event {
        let action = self.grant.action();
        let recorded = for_the_record(action.call(), &session.leaks);
        Event::Intent {
            transaction: self.transaction.clone(),
            session: session.id.clone(),
            call: recorded.call.bounded(),
            fingerprint: action.fingerprint().clone(),
            decision: self.decision,
            layer: self.grant.layer(),
            rule: self.grant.rule().to_owned(),
            grant: lease.map(|lease| lease.grant.clone()),
            profile: session.policy.profile,
            policy: session.policy_digest.clone(),
            roots: self.grant.permissions().roots.clone(),
            limits: self.grant.permissions().limits.clone(),
            findings: recorded.findings,
            by: session.made_by.clone(),
        }
    }

    fn unwritable(self, why: String, hint: Option<String>) -> Refused {
        self.refused(unwritable(&why, hint))
    }
}

fn unwritable(why: &str, hint: Option<String>) -> Refusal {
    Refusal {
        code: RefusalCode::Ledger,
        layer: Layer::Floor,
        rule: "ledger.written-before-done".to_owned(),
        message: format!("the intent could not be written to the ledger, so nothing was done: {why}"),
        hint,
    }
}

/// An error with everything it was caused by.
pub(super) fn describe(error: &AppendError) -> String {
    chain(error)
}
