//! Layers: what a call wrote into a copy-on-write view of its writable roots, and how it comes into the roots.
//!
//! ```text
//!  create → add_root → (view mounted, call runs) → close_view → changes → land ⇄ undo
//!                                                                 └→ discard
//! ```
//!
//! A [`LayerStore`] has one directory for each layer. A [`Layer`] has, for each root, the upper directory of an overlay. Landing
//! exchanges entries of the root with entries of the upper, one by one, under a journal: after a crash [`LayerStore::recover`]
//! completes it or takes it back. What was there before stays in the layer, so a landing can be undone.
//!
//! INVARIANT: this crate decides nothing. It lands what the caller selects, and never replaces what it did not look at.

mod attributes;
mod base;
mod beneath;
mod change;
mod compare;
mod copy;
mod digest;
mod error;
mod fault;
mod journal;
mod landing;
mod layer;
mod opaque;
mod pending_changes;
mod plan;
mod record;
mod remove;
mod stamp;
mod store;
mod swap;
mod transfer;
mod undo;
mod walk;

pub use change::{
    ChangeKind, ChangeSide, EntryContent, EntryState, EntryTime, LandedSlot, LayerChange, LayerChanges,
    RefusedEntry, UnlandableReason,
};
pub use error::LayerError;
pub use landing::{
    ConflictReason, LandingConflict, LandingDirection, LandingReport, LandingSelection, LaterChanges,
    SetAsideEntry, UndoOutcome, UndoReport,
};
pub use layer::{Layer, LayerMount, LayerState};
pub use store::{
    LandingRecovery, LandingRecoveryOutcome, LayerStore, LayerSummary, PruneLimits, PruneReport,
};

#[cfg(test)]
mod tests;
