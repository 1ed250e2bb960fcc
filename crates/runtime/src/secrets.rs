//! Secrets of the operator: stored encrypted, released to sessions by name, and redacted from everything that
//! is recorded.
//!
//! [`SecretStore`] is the file, [`SecretSet`] its content. [`release`] decides which secrets a session gets
//! and how they get inside. `leaks` keeps their values from leaving. `docs/secrets.md` describes the format
//! and the guarantees.

mod encryption;
mod entry;
mod placeholder;
pub(crate) mod private_dir;
mod release;
mod store;
mod value;

pub use encryption::SealError;
pub use entry::{NewSecret, SecretError, SecretInfo, SecretName, SecretNameError, SecretScope};
pub use private_dir::PrivateDirError;
pub use release::NamedBy;
pub(crate) use release::SessionSecrets;
pub use store::{SecretChangeError, SecretSet, SecretStore, SecretStoreError, StoreChange};
pub use value::{MAX_VALUE, SecretValue, SecretValueError, TrailingNewline};
