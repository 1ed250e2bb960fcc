//! What one file operation of this process has made: only the directories around it are looked at.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ringfence_types::HeldChange;

use super::{Places, act};
use crate::survey::{Candidate, CandidateKind, Ground, destination, innermost};

/// What was there around some paths before they were touched.
#[derive(Debug)]
pub struct Before {
    places: Places,
    paths: Vec<PathBuf>,
}

/// Looks at what is around `paths`, which are about to be touched. `outside`: where commands can write besides the roots.
pub fn before(roots: &[PathBuf], outside: &[PathBuf], paths: Vec<PathBuf>) -> Before {
    let grounds = roots.iter().filter_map(|root| Ground::open(root).ok()).collect();
    // Where it really is, and where a link at its end leads.
    let real = |path: &PathBuf| {
        let parent = path.parent().map(destination);
        let own = parent.zip(path.file_name()).map(|(parent, name)| parent.join(name));
        own.into_iter().chain([destination(path)]).collect::<Vec<_>>()
    };
    let paths: Vec<PathBuf> = paths.iter().flat_map(real).collect();
    let mut places = Places {
        grounds,
        outside: super::watch::real(outside),
        fixed: BTreeSet::new(),
        accepted: BTreeSet::new(),
    };
    places.accepted =
        places.scene().examine(&around(&places.grounds, &paths)).into_iter().map(|f| f.print).collect();
    Before { places, paths }
}

impl Before {
    /// Makes ineffective what is there now and was not before.
    pub fn after(self) -> Vec<HeldChange> {
        let mut findings = self.places.scene().examine(&around(&self.places.grounds, &self.paths));
        findings.retain(|finding| !self.places.accepted.contains(&finding.print));
        act::neutralise(&self.places.scene(), &findings, &self.places.accepted)
    }
}

fn around(grounds: &[Ground], paths: &[PathBuf]) -> Vec<Vec<Candidate>> {
    let mut candidates = vec![Vec::new(); grounds.len()];
    for path in paths {
        let Some((ground, relative)) = innermost(grounds, path) else { continue };
        if let Some(list) = candidates.get_mut(ground) {
            list.extend(relative.ancestors().flat_map(of_directory));
            list.push(Candidate { relative, kind: CandidateKind::Link });
        }
    }
    candidates
}

/// What a directory may be.
fn of_directory(relative: &Path) -> Vec<Candidate> {
    let here = |kind| Candidate { relative: relative.to_owned(), kind };
    let mut candidates = vec![here(CandidateKind::Head), here(CandidateKind::Subversion)];
    if let Some(name) = relative.file_name() {
        let kind =
            if name.eq_ignore_ascii_case(".git") { CandidateKind::Git } else { CandidateKind::OtherSystem };
        candidates.push(here(kind));
    }
    candidates
}
