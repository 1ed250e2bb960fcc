//! How far a landing came: enough for the next process to complete it or to take it back.
//!
//! ```text
//!  Staging → Swapping → Done → (removed)     after a crash: back ← Staging, RollingBack │ Swapping, Done → forward
//!     └──────────┴→ RollingBack → (removed)
//! ```
//!
//! The journal has the phase alone. What is to be done is in the plan, in the directory of the landing; what is done is told by
//! what is in the slots.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::LayerError;
use crate::landing::LandingDirection;
use crate::{fault, record};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LandingPhase {
    /// The roots have at most staged entries of ours, under names of ours.
    Staging,
    /// Everything is staged and durable, and some entries may be exchanged.
    Swapping,
    /// Some entries may still be exchanged, and will not be.
    RollingBack,
    /// Everything is exchanged and durable.
    Done,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PhaseJournal {
    version: u32,
    pub(crate) layer: String,
    pub(crate) landing: u32,
    pub(crate) direction: LandingDirection,
    pub(crate) phase: LandingPhase,
}

impl PhaseJournal {
    pub(crate) fn begin(
        store: &Path,
        layer: &str,
        landing: u32,
        direction: LandingDirection,
    ) -> Result<Self, LayerError> {
        let journal = Self {
            version: record::VERSION,
            layer: layer.to_owned(),
            landing,
            direction,
            phase: LandingPhase::Staging,
        };
        record::write(&place(store, layer), &journal)?;
        fault::point();
        Ok(journal)
    }

    pub(crate) fn enter(&mut self, store: &Path, phase: LandingPhase) -> Result<(), LayerError> {
        let next = Self { phase, ..self.clone() };
        record::write(&place(store, &self.layer), &next)?;
        *self = next;
        fault::point();
        Ok(())
    }

    pub(crate) fn end(self, store: &Path) -> Result<(), LayerError> {
        let path = place(store, &self.layer);
        fs::remove_file(&path).map_err(|error| LayerError::io("remove", &path, error))?;
        fault::point();
        Ok(())
    }

    pub(crate) fn read(store: &Path, layer: &str) -> Result<Option<Self>, LayerError> {
        let path = place(store, layer);
        let journal: Self = match record::read(&path) {
            Err(LayerError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            journal => journal?,
        };
        if journal.version != record::VERSION || journal.layer != layer {
            let source = io::Error::other("it is of another version or layer");
            return Err(LayerError::Unreadable { path, source });
        }
        Ok(Some(journal))
    }
}

/// For a layer that is gone.
pub(crate) fn forget(store: &Path, layer: &str) -> Result<(), LayerError> {
    let path = place(store, layer);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LayerError::io("remove", &path, error)),
        _ => Ok(()),
    }
}

pub(crate) fn directory(store: &Path) -> PathBuf {
    store.join(".journals")
}

pub(crate) fn place(store: &Path, layer: &str) -> PathBuf {
    directory(store).join(format!("{layer}.json"))
}
