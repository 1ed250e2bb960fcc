use ringfence_types::{Call, Patch, PolicyLayer, Refusal, RefusalCode, RuleId, TransactionId};

use super::authenticated::Authenticated;
use super::settled::RefusedCall;
use crate::effect::PatchEffect;

/// A call as submitted; neither its origin nor its rights are checked.
#[derive(Debug)]
pub struct Received<E> {
    effect: E,
    call: Call,
    /// Set if the transaction began before the call, with a proposal.
    transaction: Option<TransactionId>,
}

impl Received<PatchEffect> {
    /// A call that applies a proposal.
    pub(crate) fn proposed(patch: Patch, transaction: TransactionId) -> Self {
        Self { effect: PatchEffect, call: Call::Apply(patch), transaction: Some(transaction) }
    }
}

impl<E> Received<E> {
    pub(crate) fn new(effect: E, call: Call) -> Self {
        Self { effect, call, transaction: None }
    }

    /// An in-process caller is the owner of this process. A set-user-id process is refused, because it would
    /// lend its caller rights that were not granted.
    pub(super) fn authenticate(self) -> Result<Authenticated<E>, RefusedCall> {
        let (real, effective) = (rustix::process::getuid(), rustix::process::geteuid());
        if real == effective {
            let Self { effect, call, transaction } = self;
            return Ok(Authenticated { effect, call, transaction });
        }
        let refusal = Refusal {
            code: RefusalCode::Danger,
            layer: PolicyLayer::Floor,
            rule: RuleId::CallerSetUserId.into(),
            message: format!("real user {} and effective user {} differ", real.as_raw(), effective.as_raw()),
            hint: Some("do not install ringfence set-user-id".to_owned()),
        };
        Err(RefusedCall::settle_before_start(self.call, refusal))
    }
}
