//! The record: what was decided, before it is done, and what came of it, in a chain nobody can quietly edit.
//!
//! One SQLite file, or a PostgreSQL database with a chain per node; one row per [`Event`]. Each row carries the SHA-256 of itself and of the row before it, so that a
//! change anywhere breaks every row after it; now and then a [`Checkpoint`] in the chain is signed. `docs/ledger.md` has the
//! format and how to check it with nothing but `sqlite3` and `sha256sum`.
//!
//! INVARIANT: a [`Receipt`] exists only after its record is on disk (fsynced). The pipeline asks for one before it
//! launches anything, so an effect without a record cannot be written in code.
//!
//! INVARIANT: what may happen once (a question, its answer, an intent, an end) happens once, whoever writes: the store
//! gives each claim away once, in the same step as the record.
//!
//! What the chain does not show: rows cut off its end, unless the reader knows an older [`Head`] or checkpoint; and an
//! owner of the file and the key who rewrites the whole chain.

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
mod life;
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

pub use anchor::{Anchor, AnchorError, Anchored};
pub use approval::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, Bound, BoundKind, Covers, GrantMade,
    ReasonRule, Vote,
};
pub use chain::{Break, Flaw, Head, HeadSyntax};
pub use checkpoint::{BadProof, Proof};
pub use describe::{of_call, summary};
pub use event::{
    AsideProof, BatteryEntry, Checkpoint, Class, Continued, Event, Finding, Kind, ProcessId, Reading,
    SessionEnd, Verdict,
};
pub use export::{Ocsf, cef};
pub use jiff::Timestamp;
pub use key::KeyError;
pub use ledger::{AppendError, Ledger, Receipt};
pub use life::{Life, OutOfOrder, Status};
pub use location::Location;
pub use postgres::address::{Address, AddressError};
pub use postgres::aside::SetAside;
pub use postgres::error::ConnectError;
pub use postgres::node::Node;
pub use postgres::password::PasswordError;
pub use postgres::verify::{DatabaseVerification, verify_database};
pub use prune::{PruneError, Pruning, prunable};
pub use reader::{Filter, LedgerReader, ReadError};
pub use record::{Listed, PrunedRecord, Record, incomplete};
pub use recover::{Left, Orphan, RecoverError, orphans};
pub use settings::{Server, Settings, SettingsError};
pub use sqlite::aside::{Acknowledged, acknowledge};
pub use sqlite::open::OpenError;
pub use verify::{Expected, Verification, VerifyError, verify, verify_rows, verify_with};
