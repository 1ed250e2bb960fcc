//! All layers of a state directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::LayerError;
use crate::landing::{LandingDirection, LandingReport};
use crate::layer::{Layer, LayerState};

#[derive(Clone, Debug)]
pub struct LayerStore {
    path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSummary {
    pub id: String,
    pub state: LayerState,
    pub roots: Vec<PathBuf>,
    pub created: SystemTime,
    /// What it takes on disk, counted when its view was closed and when it landed.
    pub bytes: u64,
    /// Another process, or this one, works with it.
    pub in_use: bool,
}

/// What became of a landing or an undo whose process died.
#[derive(Debug)]
pub struct LandingRecovery {
    pub layer: String,
    pub direction: LandingDirection,
    pub outcome: LandingRecoveryOutcome,
    /// What landed, or for [`LandingDirection::Undo`] what was undone. Empty when it was taken back.
    pub report: LandingReport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandingRecoveryOutcome {
    Completed,
    /// The roots are as before it began.
    RolledBack,
}

/// `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneLimits {
    /// How long layers are kept whose changes landed or were undone.
    pub landed_age: Option<Duration>,
    /// How long layers are kept whose changes wait.
    pub pending_age: Option<Duration>,
    /// How much all layers together may take. The oldest landed layers go first; pending ones stay.
    pub bytes: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    pub removed: Vec<String>,
    pub bytes: u64,
}

impl LayerStore {
    /// Makes the directory where it is missing. Refuses one that another user owns or can enter.
    pub fn open(path: &Path) -> Result<Self, LayerError> {
        Ok(Self { path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a layer. Its name has letters, digits, `_` and `-` alone.
    pub fn create(&self, id: &str) -> Result<Layer, LayerError> {
        Err(LayerError::Unknown { id: id.to_owned() })
    }

    pub fn open_layer(&self, id: &str) -> Result<Layer, LayerError> {
        Err(LayerError::Unknown { id: id.to_owned() })
    }

    /// The newest first.
    pub fn list(&self) -> Result<Vec<LayerSummary>, LayerError> {
        Ok(Vec::new())
    }

    /// Completes or takes back every landing whose process is gone. Cheap where there is none.
    pub fn recover(&self) -> Vec<Result<LandingRecovery, LayerError>> {
        Vec::new()
    }

    /// Removes layers beyond the limits. Layers in use stay.
    pub fn prune(&self, _limits: &PruneLimits) -> Result<PruneReport, LayerError> {
        Ok(PruneReport::default())
    }
}
