//! What one file operation of this process has made.
//!
//! The whole of the roots is looked through, as after a command: what a directory is to git depends on files elsewhere that lead
//! to it (`commondir`, an included configuration, a link), so the paths that are touched do not say where to look.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ringfence_types::HeldChange;

use super::examine::ExaminationMode;
use super::{ExaminationError, LOOK_AT_MOST, Places};
use crate::survey::{Patience, RootHandle, SurveyError};

/// What was there before something was touched.
#[derive(Debug)]
pub struct Before {
    places: Places,
}

/// What came of it.
#[derive(Debug)]
pub struct After {
    pub changes: Vec<HeldChange>,
    pub looked: Result<(), ExaminationError>,
}

/// Looks at what is in `roots`, in which something is about to be touched. `outside`: where commands can write besides the roots.
pub fn before(roots: &[PathBuf], outside: &[PathBuf]) -> Result<Before, SurveyError> {
    let mut places = Places {
        grounds: roots.iter().map(|root| RootHandle::open(root)).collect::<Result<_, _>>()?,
        outside: super::watch::real(outside),
        visible: Vec::new(),
        fixed: BTreeSet::new(),
        // A file tool makes no repository, and those that are there have their hooks protected.
        hooks_of_user: Vec::new(),
        accepted: BTreeSet::new(),
        at_most: LOOK_AT_MOST,
    };
    let candidates = places.candidates(Patience::new())?;
    let findings = places.scene(ExaminationMode::First, Patience::new()).examine(&candidates)?;
    places.accepted = findings.into_iter().map(|finding| finding.print).collect();
    Ok(Before { places })
}

impl Before {
    /// What becomes of these paths, and of what is below them, is meant.
    pub fn approve(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        self.places.fixed.extend(paths);
    }

    /// Makes ineffective what is there now and was not before.
    pub fn after(self) -> After {
        let cleared = self.places.clear();
        After { changes: cleared.changes, looked: cleared.end.into_result() }
    }
}
