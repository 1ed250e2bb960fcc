//! Who somebody is, and what they may do: operators with passwords, tokens, paired devices, sessions.
//!
//! Start reading at [`Identities`]. A secret is seen once, by whoever it is for; what is kept is its digest. Rights only
//! narrow on their way from one credential to the next ([`ringfence_types::Rights`]).
//!
//! INVARIANT: no change without a record: the [`Witness`] writes inside the transaction that changes the store. What it
//! cannot write does not happen.
//!
//! INVARIANT: whoever asks is looked up each time. What was revoked a moment ago, by any process, is revoked.

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
mod witness;

pub use clock::{Clock, SystemClock};
pub use error::{Denied, IdentityError};
pub use identities::{
    Authority, Grantee, Identities, Known, Lifetime, Minted, Moment, NewOperator, NewPairing, NewToken,
    Offered, Source, WebSession,
};
pub use password::PasswordError;
pub use proof::{Challenge, DeviceKey, Purpose, Signature, code_of, signed_text};
pub use record::{CredentialId, Meta, OperatorMeta, Owner, PairingMeta};
pub use sqlite::Sqlite;
pub use store::{Rows, Store, StoreError, Table};
pub use token::{TokenText, of_browser};
pub use witness::{Unwitnessed, Witness};
