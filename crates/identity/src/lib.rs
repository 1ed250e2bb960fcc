//! Identity: operators with passwords, tokens, paired devices and session tokens.
//!
//! Start reading at [`Identities`]. A secret is shown once, to its holder; the store keeps its digest. Rights only
//! narrow from one credential to the next ([`ringfence_types::Rights`]).
//!
//! What it is not: it knows neither the methods of the daemon, which checks rights against them, nor the ledger behind an
//! [`AuditSink`].
//!
//! INVARIANT: no change without a record. The [`AuditSink`] records inside the transaction that changes the store; if
//! it fails, the change is rolled back.
//!
//! INVARIANT: every authentication reads the store, so a revocation by any process counts at once.

mod audit_sink;
mod clock;
mod error;
mod identities;
mod password;
mod proof;
mod record;
mod sqlite;
mod store;
#[cfg(test)]
mod tests;
mod throttle;
mod token;

pub use audit_sink::{AuditSink, AuditWriteError};
pub use clock::{Clock, SystemClock};
pub use error::{AuthError, IdentityError};
pub use identities::{
    Authority, Identities, KnownIdentity, LoginSource, MintedCredential, NewOperator, NewPairing, NewToken,
    PairingOffer, SessionTokenSpec, StoreMoment, TokenLifetime, WebSession,
};
pub use password::PasswordError;
pub use proof::{Challenge, DeviceKey, DeviceSignature, ProofPurpose, code_of, signed_text};
pub use record::{CredentialId, CredentialOwner, CredentialSummary, OperatorSummary, PairingSummary};
pub use sqlite::SqliteIdentityStore;
pub use store::{IdentityStore, IdentityStoreError, RecordRows, RecordTable};
pub use token::{TokenText, of_browser};
