use ringfence_authz::Authorization;
use ringfence_ledger::{AppendError, Event};
pub(crate) use ringfence_types::chain;
use ringfence_types::{
    Decision, GrantId, PolicyLayer, Refusal, RefusalCode, RuleId, RuleName, TransactionId,
};

use super::admitted::Admitted;
use super::context::CallContext;
use super::settled::{RefusedCall, for_the_record};
use crate::approvals::binding::ApprovedObjects;
use crate::approvals::{GrantLease, PresenceLock, asking, lease};
use crate::effect::Effect;

/// A call that policy or a person allows. It has had no effect.
#[derive(Debug)]
pub(crate) struct Decided<E> {
    pub(crate) effect: E,
    pub(super) grant: Authorization,
    pub(crate) transaction: TransactionId,
    /// The decision of policy before the approval.
    pub(crate) decision: Decision,
    /// The grant that allows the call.
    pub(crate) stored: Option<GrantId>,
    /// Marks that this process is about to use an answer.
    pub(super) held: Option<PresenceLock>,
    /// The bound objects of the approval.
    pub(super) approved: ApprovedObjects,
}

impl<E: Effect> Decided<E> {
    pub(super) fn by_policy(effect: E, grant: Authorization, transaction: TransactionId) -> Self {
        let (decision, stored, held) = (Decision::Allow, None, None);
        Self { effect, grant, transaction, decision, stored, held, approved: ApprovedObjects::default() }
    }

    /// The rule that allows the call.
    pub(crate) fn rule(&self) -> &RuleName {
        self.grant.rule()
    }

    /// Writes the intent. Without this record there is no effect.
    pub(crate) fn admit(mut self, session: &mut impl CallContext) -> Result<Admitted<E>, RefusedCall> {
        let lease = self.lease(session)?;
        self.hold(session)?;
        let event = self.intent(session, lease.as_ref());
        let written = session.append(vec![event]);
        drop(lease);
        let held = self.held.take().filter(|_| session.is_named());
        match written.map(|receipts| receipts.into_iter().last()) {
            Ok(Some(receipt)) if receipt.intent() == Some(&self.transaction) => Ok(Admitted {
                effect: self.effect,
                grant: self.grant,
                receipt,
                transaction: self.transaction,
                held,
                approved: self.approved,
            }),
            Ok(_) => Err(self.unwritable("the receipt is for another transaction".to_owned(), None)),
            Err(error) => {
                let hint = error.hint().map(str::to_owned);
                Err(self.unwritable(describe(&error), hint))
            }
        }
    }

    /// Checks a grant again right before its use is recorded: it may have expired.
    fn lease(&self, session: &impl CallContext) -> Result<Option<GrantLease>, RefusedCall> {
        let stored = self.stored.iter().map(GrantId::as_str);
        let ids: Vec<&str> = stored.chain(self.grant.stored().iter().map(String::as_str)).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        match lease(session.ledger(), &session.setup().state_dir, &ids) {
            Ok(Ok(lease)) => Ok(Some(lease)),
            Ok(Err(refusal)) => Err(self.refused(refusal)),
            Err(error) => Err(self.refused(unwritable(&chain(&error), None))),
        }
    }

    /// Marks the transaction as this process's: a named session spans several processes.
    fn hold(&mut self, session: &impl CallContext) -> Result<(), RefusedCall> {
        if self.held.is_some() || !session.is_named() {
            return Ok(());
        }
        let held = asking(&session.setup().state_dir, &self.transaction);
        self.held = Some(held.map_err(|error| self.refused(unwritable(&error.to_string(), None)))?);
        Ok(())
    }

    fn refused(&self, refusal: Refusal) -> RefusedCall {
        let transaction = (self.decision == Decision::Ask).then(|| self.transaction.clone());
        RefusedCall { call: self.grant.action().call().clone(), refusal, transaction }
    }

    fn intent(&self, session: &impl CallContext, lease: Option<&GrantLease>) -> Event {
        let action = self.grant.action();
        let recorded = for_the_record(&self.effect.recorded(action.call()), session.leaks());
        Event::CallIntended {
            transaction: self.transaction.clone(),
            session: session.session_id().clone(),
            call: recorded.call.bounded(),
            fingerprint: action.fingerprint().clone(),
            decision: self.decision,
            layer: self.grant.layer(),
            rule: self.grant.rule().clone(),
            grant: lease.map(|lease| lease.grant.clone()),
            profile: session.policy().profile,
            policy_digest: session.policy_digest().to_owned(),
            roots: self.grant.permissions().roots.clone(),
            limits: self.grant.permissions().limits.clone(),
            findings: recorded.findings,
            call_origin: session.made_by().cloned().map(Box::new),
        }
    }

    fn unwritable(self, why: String, hint: Option<String>) -> RefusedCall {
        self.refused(unwritable(&why, hint))
    }
}

fn unwritable(why: &str, hint: Option<String>) -> Refusal {
    Refusal {
        code: RefusalCode::Ledger,
        layer: PolicyLayer::Floor,
        rule: RuleId::LedgerWrittenBeforeDone.into(),
        message: format!("the intent could not be written to the ledger, so nothing was done: {why}"),
        hint,
    }
}

pub(super) fn describe(error: &AppendError) -> String {
    chain(error)
}
