//! Who writes down what happens here. This crate knows no ledger.

use std::error::Error;
use std::fmt::Debug;

use ringfence_types::{IdentityChange, Principal, Refusal};

/// The record could not be written, so nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("it cannot be written down, so it is not done")]
pub struct Unwitnessed(#[source] pub Box<dyn Error + Send + Sync>);

/// Writes down, durably, before it returns.
pub trait Witness: Send + Sync + Debug {
    /// All of `changes` in one step, or none.
    fn changed(&self, by: &Principal, changes: &[IdentityChange]) -> Result<(), Unwitnessed>;

    /// Somebody showed who they are, or failed to.
    fn authenticated(
        &self,
        who: &Principal,
        purpose: &str,
        refusal: Option<&Refusal>,
    ) -> Result<(), Unwitnessed>;
}
