//! The ledger: an append-only hash chain that records each decision before its effect, and its outcome.
//!
//! The store is one SQLite file, or a PostgreSQL database with a chain per node; one row per [`Event`]. Each row carries the
//! SHA-256 of itself and of the previous row, so a change breaks every later row. At intervals a [`Checkpoint`] in the chain is
//! signed. `docs/ledger.md` has the format and how to check it with `sqlite3` and `sha256sum` alone.
//!
//! What it is not: it does not know when an event is due. Its callers, the runtime above all, decide what they record.
//!
//! INVARIANT: a [`Receipt`] exists only after its record is on disk (fsynced). The pipeline needs one before it launches anything,
//! so code cannot express an effect without a record.
//!
//! INVARIANT: an event that may happen once (approval request, answer, intent, end) happens once for all writers: the store grants
//! each claim once, in the same step as the record.
//!
//! The chain alone does not detect two things: truncation at its end, unless the reader knows an older [`ChainHead`] or checkpoint;
//! and a full rewrite by an attacker who has both file and key.

mod anchor;
mod approval;
mod chain;
mod checkpoint;
mod claim;
mod describe;
mod event;
mod export;
mod key;
mod ledger;
mod lifecycle;
mod location;
mod merkle;
mod postgres;
mod prune;
mod reader;
mod record;
mod recover;
mod seal;
mod settings;
mod sqlite;
pub mod store;
mod verify;
mod writer;

pub use anchor::{AnchorError, AnchorLine, CheckpointAnchor};
pub use approval::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, BoundObject, BoundObjectKind,
    GrantRecord, GrantSubject, ReasonRequirement, Vote,
};
pub use chain::{ChainBreak, ChainFlaw, ChainHead, ChainHeadSyntax};
pub use checkpoint::{InclusionProof, ProofError};
pub use describe::{of_call, summary};
pub use event::{
    AsideProof, AttemptRecord, AttemptVerdictWord, Checkpoint, Event, Kind, LedgerReadKind, PreviousChain,
    ProcessId, RecordedFinding, RetentionClass, SessionEndReason,
};
pub use export::{OcsfExporter, cef};
pub use jiff::Timestamp;
pub use key::LedgerKeyError;
pub use ledger::{AppendError, Ledger, Receipt};
pub use lifecycle::{Lifecycle, LifecycleError, TransactionStatus};
pub use location::LedgerLocation;
pub use postgres::address::{PostgresAddress, PostgresAddressError};
pub use postgres::aside::SetAside;
pub use postgres::error::ConnectError;
pub use postgres::node::LedgerNode;
pub use postgres::pgpass::PgpassError;
pub use postgres::verify::{DatabaseVerification, verify_database};
pub use prune::{PruneError, PruneRequest, prunable};
pub use reader::{LedgerReadError, LedgerReader, RecordFilter};
pub use record::{PrunedRecord, Record, RecordOrPruned, incomplete};
pub use recover::{OrphanStage, OrphanedTransaction, RecoverError, orphans};
pub use settings::{LedgerServer, LedgerSettings, LedgerSettingsError};
pub use sqlite::archive::{ArchivedChain, restart};
pub use sqlite::open::LedgerOpenError;
pub use verify::{ExpectedHead, Verification, VerifyError, verify, verify_key, verify_rows, verify_with};
