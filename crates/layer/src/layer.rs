//! One layer.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::change::{ChangeSide, EntryContent, LayerChange, LayerChanges};
use crate::error::LayerError;
use crate::landing::{LandingReport, LandingSelection, LaterChanges, UndoOutcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerState {
    /// Its view may be mounted.
    Open,
    /// Its changes wait.
    Pending,
    /// Nothing waits, and something landed.
    Landed,
    /// What landed was taken back, and waits again.
    Undone,
}

/// What a view of one root is mounted from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerMount {
    pub root: PathBuf,
    pub upper: PathBuf,
    /// Fresh for each mount: KERNEL: a volatile overlay leaves a mark in it that refuses the next mount.
    pub work: PathBuf,
}

/// One layer, locked for this process.
#[derive(Debug)]
pub struct Layer {
    id: String,
}

impl Layer {
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn state(&self) -> LayerState {
        LayerState::Open
    }

    /// The canonical paths of the roots.
    pub fn roots(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Prepares a mount over a root, which must be a canonical path. A root that the layer has gets another work directory.
    pub fn add_root(&mut self, root: &Path) -> Result<LayerMount, LayerError> {
        Err(LayerError::UnknownRoot { path: root.to_owned() })
    }

    /// Writes down what the host has where the layer has changes. No view may be mounted any more.
    pub fn close_view(&mut self) -> Result<(), LayerError> {
        Ok(())
    }

    /// What waits.
    pub fn changes(&self) -> Result<LayerChanges, LayerError> {
        Ok(LayerChanges::default())
    }

    /// What landed and was not undone.
    pub fn landed(&self) -> Result<Vec<LayerChange>, LayerError> {
        Ok(Vec::new())
    }

    /// The first `limit` bytes of one side. `None`: the side has no content.
    pub fn content(
        &self,
        _change: &LayerChange,
        _side: ChangeSide,
        _limit: u64,
    ) -> Result<Option<EntryContent>, LayerError> {
        Ok(None)
    }

    /// Lands what is selected. After an error nothing of it has landed.
    pub fn land(&mut self, _selection: &LandingSelection) -> Result<LandingReport, LayerError> {
        Ok(LandingReport::default())
    }

    /// Takes back everything that landed.
    pub fn undo(&mut self, _later: LaterChanges) -> Result<UndoOutcome, LayerError> {
        Ok(UndoOutcome::Refused(Vec::new()))
    }

    /// Removes the layer with all that is in it, before-images too.
    pub fn discard(self) -> Result<(), LayerError> {
        Ok(())
    }
}
