//! Layers: a command works on a copy-on-write view of its writable roots, and an operator lets its changes land.
//!
//! ```text
//!  try:     exec effect in a view → its changes wait in the layer
//!  commit:  changes → scan → pipeline (evaluate, approve, intent) → landing → ledger
//!  undo:    the same way back
//! ```
//!
//! INVARIANT: no caller gets a layer that it could land by itself. [`OpenLayer`] shows what is in one, and the landing takes an
//! admitted call. The layer is locked from the look at its changes until they have landed, and lands them only as they were
//! looked at.

mod changes;
mod diff;
mod land;
mod lookup;
mod recovery;
mod session_layer;

pub use changes::refused_reason;
pub use changes::{JudgedChange, JudgedChanges};
pub(crate) use diff::patch_of_landing;
pub use diff::{ChangeDiff, DiffForm};
pub use land::{LandError, LandingOutcome, LandingRequest};
pub(crate) use land::{changed_since, report_of_landing, report_of_undo};
pub(crate) use lookup::layer_hint;
pub use lookup::{DiscardExtent, DiscardOutcome, LayerLookupError, LayerQuery, OpenLayer, WantedLayer};
pub(crate) use recovery::recover;
pub use recovery::{EndedLanding, LandingRecoveryError};
pub(crate) use session_layer::{CommandWrites, SessionLayer};

pub use ringfence_layer::{
    ChangeKind, EntryState, LayerChange, LayerError, LayerState, LayerSummary, RefusedEntry,
};

use std::path::{Path, PathBuf};

/// Where the layers of a state directory are.
pub(crate) fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join("layers")
}
