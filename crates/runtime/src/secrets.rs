//! Secrets of the operator: kept encrypted, given to a session one by one, known to everything that is written down.
//!
//! [`SecretStore`] is the file, [`Secrets`] what was in it, [`release`] which of them a session may have and how they get
//! inside. How their values are kept from leaving is in `leaks`. `docs/secrets.md` has the format and the promises.

mod entry;
mod input;
pub(crate) mod place;
mod placeholder;
mod release;
mod sealed;
mod store;

pub use entry::{EntryError, Meta, NameError, NewSecret, Scope, SecretName};
pub use input::{Line, MAX_VALUE, Value, ValueError};
pub use place::PlaceError;
pub use release::NamedBy;
pub(crate) use release::SessionSecrets;
pub use sealed::SealError;
pub use store::{ChangeError, Changed, SecretStore, Secrets, StoreError};
