use ringfence_types::{Call, Layer, Patch, Refusal, RefusalCode, TransactionId};

use super::authenticated::Authenticated;
use super::settled::Refused;

/// Bytes that claim to be a call: nothing is known of who asks or whether they may.
#[derive(Debug)]
pub struct Received {
    call: Call,
    /// Where the transaction began before the call: with a proposal.
    transaction: Option<TransactionId>,
}

impl Received {
    pub fn new(call: Call) -> Self {
        Self { call, transaction: None }
    }

    /// What was proposed is to be applied.
    pub(crate) fn proposed(patch: Patch, transaction: TransactionId) -> Self {
        Self { call: Call::Apply(patch), transaction: Some(transaction) }
    }

    /// In-process callers are the owner of this process. Somebody whose effective user is not their real one would
    /// lend rights they were not given, so a set-user-id caller is nobody.
    pub(super) fn authenticate(self) -> Result<Authenticated, Refused> {
        let (real, effective) = (rustix::process::getuid(), rustix::process::geteuid());
        if real == effective {
            return Ok(Authenticated { call: self.call, transaction: self.transaction });
        }
        let refusal = Refusal {
            code: RefusalCode::Danger,
            layer: Layer::Floor,
            rule: "caller.set-user-id".to_owned(),
            message: format!("real user {} and effective user {} differ", real.as_raw(), effective.as_raw()),
            hint: Some("do not install ringfence set-user-id".to_owned()),
        };
        Err(Refused::early(self.call, refusal))
    }
}
