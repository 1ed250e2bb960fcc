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
mod journal;
mod other_systems;
mod settings;
mod watch;

pub use at::{Before, before};
pub(crate) use journal::repair;
pub(crate) use other_systems::files_of;
pub use watch::WatchError;
pub(crate) use watch::{Covered, Watch};

use std::collections::BTreeSet;
use std::path::PathBuf;

use ringfence_types::{Bytes, HeldChange};

use crate::survey::{Candidate, Ground, SurveyError, seek};
use examine::Scene;
use finding::{Accepted, Finding};

/// Looks are repeated while they uncover more: a directory that could not be listed, and what is in it.
const ROUNDS: usize = 64;

/// What is looked through, and what of it is the host's own.
#[derive(Debug)]
struct Places {
    grounds: Vec<Ground>,
    outside: Vec<PathBuf>,
    fixed: BTreeSet<PathBuf>,
    accepted: Accepted,
}

impl Places {
    fn scene(&self) -> Scene<'_> {
        Scene { grounds: &self.grounds, outside: &self.outside, fixed: &self.fixed }
    }

    fn candidates(&self) -> Result<Vec<Vec<Candidate>>, SurveyError> {
        self.grounds.iter().map(seek).collect()
    }

    /// What is there now and was not at the start.
    fn findings(&self) -> Result<Vec<Finding>, SurveyError> {
        let mut findings = self.scene().examine(&self.candidates()?);
        findings.retain(|finding| !self.accepted.contains(&finding.print));
        Ok(findings)
    }

    /// Makes everything that is new ineffective, and says what.
    fn clear(&self) -> Cleared {
        let mut changes = Vec::new();
        let mut before = Vec::new();
        for _ in 0..ROUNDS {
            let findings = match self.findings() {
                Ok(findings) => findings,
                Err(error) => {
                    changes.push(self.unfinished(&ringfence_types::chain(&error)));
                    return Cleared { changes, end: ClearedEnd::Unfinished };
                }
            };
            if findings.is_empty() {
                return Cleared { changes, end: ClearedEnd::Clean };
            }
            if findings == before {
                return Cleared { changes, end: ClearedEnd::Unfinished };
            }
            changes.extend(act::neutralise(&self.scene(), &findings, &self.accepted));
            before = findings;
        }
        changes.push(self.unfinished("there is more than can be looked at"));
        Cleared { changes, end: ClearedEnd::Unfinished }
    }

    fn unfinished(&self, why: &str) -> HeldChange {
        let path = self.grounds.first().map(|ground| Bytes::from(ground.path.as_path())).unwrap_or_default();
        let what = format!("it could not be looked through to the end: {why}");
        HeldChange { path, rule: "held.unfinished".to_owned(), what, kept: None }
    }
}

struct Cleared {
    changes: Vec<HeldChange>,
    end: ClearedEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClearedEnd {
    Clean,
    Unfinished,
}

#[cfg(test)]
mod tests;
