//! Proposals: patches that a session submits without applying them. An operator applies or discards them.
//!
//! ```text
//!  propose: parse the diff → evaluate paths → read bases → scan → vault → ledger     (workspace is not written)
//!  apply:   vault → compare bases → pipeline (evaluate, approve, intent) → journal → swap → ledger
//! ```
//!
//! INVARIANT: the ledger has the digests and the vault has the bytes of a proposal, and only these bytes are written.
//! There is no merge and no fuzzy search, so the reviewed bytes are the resulting bytes.

mod content_vault;
mod diff;
pub(crate) mod introduced_secrets;
mod journal;
mod propose;
mod store;

pub use content_vault::ContentVaultError;
pub(crate) use content_vault::{ContentVault, FileSide, SecretContent};
pub(crate) use diff::{hunks, quoted_name};
pub use journal::{JournalError, JournalRecovery, RecoveryError, RecoveryOutcome};
pub(crate) use journal::{JournalPhase, LandingJournal, recover};
pub use propose::{NewProposal, ProposalDraft, ProposalInput, ProposeError};
pub use store::{ApplyOutcome, ContentAvailability, Proposal, ProposalError, ProposalLookupError};
