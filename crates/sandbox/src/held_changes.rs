//! Changes that are held: what came from inside and would make a program of the *host* execute or obey it.
//!
//! Mounts keep what exists at the start as it is. What a command makes new, no mount can know: a repository with a
//! configuration that names a program, a directory that looks like a bare repository, a `.git` file that leads elsewhere.
//! So the writable roots are looked through at the end of every command, before its result is returned; every few seconds
//! while one runs; and at the end of the session. What is found and was not there at the start is made ineffective in its place:
//! settings are taken out of configurations, hooks and pointers get a name that nothing executes. Nothing is removed.
//!
//! A journal in the registry says what was there at the start. A supervisor that is killed leaves it behind, and
//! the next start of any session looks through those roots first ([`repair`]).
//!
//! INVARIANT: everything is opened below a root by descriptors, never through a link, and a configuration is trusted only if each
//! of its settings is known to execute nothing.

mod act;
mod at;
mod examine;
mod finding;
mod git_paths;
mod journal;
mod other_systems;
mod resume_options;
mod settings;
mod untracked_cache;
mod watch;

pub use at::{After, Before, before};
pub use git_paths::{GitIndexEntry, ObjectFormat, visit_index};
pub(crate) use journal::repair;
pub(crate) use other_systems::files_of;
pub use watch::WatchError;
pub(crate) use watch::{CoveredPaths, Watch};

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_types::{ByteString, HeldChange, RuleId};

use crate::survey::{Candidate, Patience, RootHandle, SurveyError, seek};
use examine::{ExaminationMode, Scene};
use finding::{AcceptedPrints, Finding, FindingKind};

/// Looks are repeated while they uncover more: a directory that could not be listed, and what is in it.
const ROUNDS: usize = 64;

/// What one look may take, all rounds together. A look that takes longer is unfinished.
const LOOK_AT_MOST: Duration = Duration::from_secs(120);
/// The most findings that the reason of an unfinished look names.
const MOST_NAMED: usize = 3;

/// What is looked through, and what of it is the host's own.
#[derive(Debug, Default)]
struct Places {
    grounds: Vec<RootHandle>,
    outside: Vec<PathBuf>,
    /// Every root that commands can read.
    visible: Vec<PathBuf>,
    fixed: BTreeSet<PathBuf>,
    /// Where the user's own configuration sends git for hooks, from the checkout of every repository.
    hooks_of_user: Vec<PathBuf>,
    accepted: AcceptedPrints,
    at_most: Duration,
}

type Candidates = Vec<Vec<Candidate>>;

impl Places {
    fn scene(&self, mode: ExaminationMode, patience: Patience) -> Scene<'_> {
        let Self { grounds, outside, visible, fixed, hooks_of_user, accepted, .. } = self;
        Scene { grounds, outside, visible, fixed, hooks_of_user, accepted, mode, patience }
    }

    /// Without an end: a setting that is not looked at any more would be taken for a harmful one.
    fn scene_to_act(&self) -> Scene<'_> {
        self.scene(ExaminationMode::Later, Patience::of(Duration::MAX))
    }

    fn candidates(&self, patience: Patience) -> Result<Candidates, SurveyError> {
        self.grounds.iter().map(|ground| seek(ground, patience)).collect()
    }

    /// What is there now and was not at the start.
    fn findings(&self) -> Result<Vec<Finding>, SurveyError> {
        let patience = Patience::of(self.at_most);
        self.fresh(&self.candidates(patience)?, patience)
    }

    /// What of these candidates was not there at the start.
    fn fresh(&self, candidates: &Candidates, patience: Patience) -> Result<Vec<Finding>, SurveyError> {
        let mut findings = self.scene(ExaminationMode::Later, patience).examine(candidates)?;
        findings.retain(|finding| !self.accepted.contains(&finding.print));
        // One reason is enough for a link that is wrong by its name too. Its place comes last among those of an entry.
        findings.dedup_by(|link, first| link.kind.is_of_place() && link.place() == first.place());
        Ok(findings)
    }

    /// Makes everything that is new ineffective, and says what. Directories that were only opened come last: a record and a
    /// sentence name a part of many.
    fn clear(&self) -> ClearResult {
        let mut cleared = self.clear_in_rounds();
        cleared.changes.sort_by_key(|change| change.rule == FindingKind::Closed.rule());
        cleared
    }

    fn clear_in_rounds(&self) -> ClearResult {
        let patience = Patience::of(self.at_most);
        let mut changes = Vec::new();
        let mut before = Vec::new();
        for _ in 0..ROUNDS {
            let looked = self.candidates(patience).and_then(|found| self.fresh(&found, patience));
            let findings = match looked {
                Ok(findings) => findings,
                Err(error) => return self.unfinished(changes, ringfence_types::chain(&error)),
            };
            if findings.is_empty() {
                return ClearResult { changes, end: ClearedEnd::Clean };
            }
            if findings == before {
                return self.unfinished(changes, self.still_there(&findings));
            }
            changes.extend(act::neutralise(&self.scene_to_act(), &findings));
            before = findings;
        }
        self.unfinished(changes, "each look uncovers more".to_owned())
    }

    fn still_there(&self, findings: &[Finding]) -> String {
        let named = findings.iter().take(MOST_NAMED).map(|finding| {
            let path = ByteString::from(finding.path(&self.grounds)).display();
            format!("`{path}`: {}", finding.kind.what())
        });
        format!("it is still there or was made again: {}", named.collect::<Vec<_>>().join(" | "))
    }

    fn unfinished(&self, mut changes: Vec<HeldChange>, why: String) -> ClearResult {
        let path =
            self.grounds.first().map(|ground| ByteString::from(ground.path.as_path())).unwrap_or_default();
        let what = format!("it could not be looked through to the end: {why}");
        // First: a record and a sentence name a part of many.
        changes.insert(0, HeldChange { path, rule: RuleId::HeldUnfinished.into(), what, kept: None });
        ClearResult { changes, end: ClearedEnd::Unfinished { why } }
    }
}

struct ClearResult {
    changes: Vec<HeldChange>,
    end: ClearedEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ClearedEnd {
    Clean,
    Unfinished { why: String },
}

/// The roots were not looked through to the end: they may have something that programs of the host would execute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what was left for programs of the host to execute could not be looked through to the end: {why}")]
pub struct ExaminationError {
    why: String,
}

impl ExaminationError {
    /// What its reader does about it.
    pub const HINT: &'static str =
        "run no version control of the host there before you have looked at it; the next start looks again";
}

impl ClearedEnd {
    fn into_result(self) -> Result<(), ExaminationError> {
        match self {
            Self::Clean => Ok(()),
            Self::Unfinished { why } => Err(ExaminationError { why }),
        }
    }
}

#[cfg(test)]
mod tests;
