//! Changes that somebody wants and nobody has made yet: proposed by a session that writes nothing, looked at and applied by an
//! operator.
//!
//! ```text
//!  propose: read the diff → judge every path → read the bases → scan → vault → ledger     the workspace is not written
//!  apply:   vault → bases still the same → pipeline (judge, ask, intent) → journal → swap → ledger
//! ```
//!
//! INVARIANT: the ledger says what was proposed (digests), the vault has the bytes, and nothing else is ever written: there
//! is no merging and no searching, so the bytes that were looked at are the bytes that result.

mod diff;
mod journal;
mod propose;
mod register;
mod secrets;
mod vault;

pub(crate) use journal::{Journal, Phase, recover};
pub use journal::{JournalError, Recovered, Recovery, RecoveryError};
pub use propose::{Draft, Input, ProposeError, Proposed};
pub use register::{Applied, Contents, FindError, Proposal, RegisterError};
pub use vault::VaultError;
pub(crate) use vault::{Content, Side, Vault};
