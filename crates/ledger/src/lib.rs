//! The record: what was decided, before it is done, and what came of it, in a chain nobody can quietly edit.
//!
//! One SQLite file, one table, one row per [`Event`]. Each row carries the SHA-256 of itself and of the row before
//! it, so that a change anywhere breaks every row after it. `docs/ledger.md` has the format and how to check it with
//! nothing but `sqlite3` and `sha256sum`.
//!
//! INVARIANT: a [`Receipt`] exists only after its record is on disk (fsynced). The pipeline asks for one before it
//! launches anything, so an effect without a record cannot be written in code.
//!
//! What the chain does not show: rows cut off its end, unless the reader knows an older [`Head`]; and an owner of the
//! file who rewrites the whole chain.

mod approval;
mod chain;
mod event;
mod ledger;
mod life;
mod place;
mod reader;
mod record;
mod store;
mod verify;

pub use approval::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, Bound, BoundKind, Covers, GrantMade,
    ReasonRule, Vote,
};
pub use chain::{Break, Flaw, Head, HeadSyntax};
pub use event::{BatteryEntry, Checkpoint, Class, Continued, Event, Finding, Kind, Reading, Verdict};
pub use jiff::Timestamp;
pub use ledger::{AppendError, Ledger, Receipt};
pub use life::{Life, OutOfOrder, Status};
pub use reader::{LedgerReader, ReadError};
pub use record::{Record, incomplete};
pub use store::OpenError;
pub use verify::{Verification, VerifyError, verify};
