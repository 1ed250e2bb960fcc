//! Landing: from the layer into the roots.

use std::path::PathBuf;

use ringfence_types::ByteString;
use serde::{Deserialize, Serialize};

use crate::change::{LayerChange, RefusedEntry};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LandingDirection {
    Land,
    Undo,
}

/// What lands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LandingSelection {
    All,
    /// Exactly these, as they were looked at: what is another by now is a conflict.
    Only(Vec<LayerChange>),
}

/// Why an entry was left as it is on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictReason {
    /// The host changed the entry since the view was opened.
    ChangedOnHost,
    /// The host removed the entry, or the directory it is in, since the view was opened.
    RemovedOnHost,
    /// The host made something there since the view was opened.
    CreatedOnHost,
    /// A part of the path became a link or something else that is no directory.
    ParentReplaced,
    /// The directory has entries that the layer does not know.
    NotEmpty,
    /// The layer has something else there than what was selected.
    NotAsSelected,
}

/// Both versions are kept: the host's where it is, the layer's in the layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingConflict {
    pub root: ByteString,
    pub path: ByteString,
    pub reason: ConflictReason,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingReport {
    /// Each has its slot.
    pub landed: Vec<LayerChange>,
    pub conflicts: Vec<LandingConflict>,
    pub refused: Vec<RefusedEntry>,
}

/// What undo does with an entry that changed after it landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterChanges {
    /// Nothing is undone.
    Refuse,
    /// It is undone too, and what is there now is kept in the layer.
    SetAside,
}

/// The version of an entry from after the landing, kept in the layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAsideEntry {
    pub root: ByteString,
    pub path: ByteString,
    /// Where it is now.
    pub kept: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoReport {
    /// As they landed: `before` is what is back.
    pub undone: Vec<LayerChange>,
    pub set_aside: Vec<SetAsideEntry>,
    /// What changed while it was undone; it stays.
    pub conflicts: Vec<LandingConflict>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    Undone(UndoReport),
    /// Nothing was undone, because these changed after they landed.
    Refused(Vec<LandingConflict>),
}
