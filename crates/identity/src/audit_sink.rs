//! The audit sink: where identity changes and logins are recorded. This crate does not depend on the ledger.

use std::error::Error;
use std::fmt::Debug;

use ringfence_types::{IdentityChange, Principal, Refusal};

/// The record could not be written, so the operation was not performed.
#[derive(Debug, thiserror::Error)]
#[error("it cannot be written down, so it is not done")]
pub struct AuditWriteError(#[source] pub Box<dyn Error + Send + Sync>);

/// Records durably before it returns.
pub trait AuditSink: Send + Sync + Debug {
    /// Records all `changes` in one step, or none.
    fn changed(&self, by: &Principal, changes: &[IdentityChange]) -> Result<(), AuditWriteError>;

    /// The same for what only takes something away. It is done whether it can be written down or not: the record follows.
    fn taken_away(&self, by: &Principal, changes: &[IdentityChange]);

    /// Records a successful or failed authentication.
    fn authenticated(
        &self,
        who: &Principal,
        purpose: &str,
        refusal: Option<&Refusal>,
    ) -> Result<(), AuditWriteError>;
}
