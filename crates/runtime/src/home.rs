//! The synthetic homes of sessions: which home a session gets, and how it is made.
//!
//! A command can leave files in its home that the next one obeys: `.gitconfig`, `.profile`, a program on
//! `PATH`. So a home belongs to one workspace, one agent and one principal. A session with secrets never gets
//! the home of a session without them:
//! - If a value enters the session as a file or variable, its home is new and is removed with the session.
//! - If only the proxy has the values, its home is kept, one for each agent and set of secrets.
//!
//! All file operations go through [`ringfence_sandbox::beneath`], so files that a command left cannot
//! redirect them or make a later start fail.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ringfence_sandbox::beneath::{Beneath, Repairs, remove_tree};
use ringfence_types::{Principal, SessionId, WorkspaceId};
use sha2::{Digest as _, Sha256};

use crate::pipeline::chain;
use crate::session::{HostSetup, SessionSpec};

/// Below the state directory.
const HOMES: &str = "homes";
/// Below `HOMES`: homes that end with their session.
const FRESH: &str = "fresh";
/// In the directory of such a session.
const HOME: &str = "home";
const TRIES: usize = 16;
/// Bytes of the digest in a home's name; enough to make a collision infeasible.
const DIGEST: usize = 16;

/// What a home belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    workspace: WorkspaceId,
    agent: Option<String>,
    /// A client with a credential. It can claim to be any agent, so its homes are separate.
    guest: Option<String>,
    /// The secrets that the proxy uses for the session, sorted.
    secrets: Vec<String>,
}

impl Resident {
    pub(crate) fn of(workspace: WorkspaceId, asked: &SessionSpec) -> Self {
        let is_guest =
            asked.started_with.is_some() || !matches!(asked.started_by, Principal::Operator { .. });
        let guest = is_guest.then(|| asked.started_by.identity());
        Self { workspace, agent: asked.agent.clone(), guest, secrets: Vec::new() }
    }

    pub(crate) fn with_secrets(&self, mut names: Vec<String>) -> Self {
        names.sort();
        Self { secrets: names, ..self.clone() }
    }

    /// The plain workspace id for the owner without an agent, else a name with a digest, which distinguishes
    /// similar names.
    fn directory(&self) -> String {
        if self.agent.is_none() && self.guest.is_none() && self.secrets.is_empty() {
            return self.workspace.to_string();
        }
        let mut digest = Sha256::new();
        let optional = [&self.agent, &self.guest].map(|part| part.as_deref());
        for part in optional.into_iter().chain(self.secrets.iter().map(|name| Some(name.as_str()))) {
            let marked = part.map_or_else(|| "-".to_owned(), |part| format!("+{}:{part}", part.len()));
            digest.update(marked.as_bytes());
        }
        let end: String = digest.finalize().iter().take(DIGEST).map(|byte| format!("{byte:02x}")).collect();
        let readable = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
        let name: String =
            self.agent.iter().flat_map(|name| name.chars()).filter(readable).take(24).collect();
        format!("{}.{name}-{end}", self.workspace)
    }
}

/// A usable home, and the repairs that were needed.
#[derive(Debug)]
pub(crate) struct PreparedHome {
    pub(crate) path: PathBuf,
    pub(crate) repairs: Repairs,
}

/// The kept home of a resident.
pub(crate) fn kept(setup: &HostSetup, resident: &Resident) -> io::Result<PreparedHome> {
    let homes = setup.state_dir.join(HOMES);
    make_private(&homes)?;
    prepared(setup, &homes, OsStr::new(&resident.directory()))
}

/// The path of a resident's kept home, which may not exist yet.
pub(crate) fn path(setup: &HostSetup, resident: &Resident) -> PathBuf {
    setup.state_dir.join(HOMES).join(resident.directory())
}

/// Removes the home of a workspace that is no more.
pub(crate) fn discard(home: &Path) -> io::Result<()> {
    match (home.parent(), home.file_name()) {
        (Some(parent), Some(name)) => remove_tree(parent, name),
        _ => Ok(()),
    }
}

/// Removes the home on drop. The next session that needs a fresh home removes those of killed processes.
#[derive(Debug)]
pub(crate) struct Lease {
    parent: PathBuf,
    name: String,
    /// Locked while the home is in use.
    _lock: File,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.parent, OsStr::new(&self.name)) {
            tracing::warn!(error = %chain(&error), "cannot remove the home of a session with secrets yet");
        }
    }
}

/// A new home for one session only.
pub(crate) fn fresh(setup: &HostSetup) -> io::Result<(PreparedHome, Lease)> {
    let parent = setup.state_dir.join(HOMES).join(FRESH);
    make_private(&parent)?;
    sweep(&parent);
    // Not the session's id: a named session spans several processes, each with its own secrets.
    let name = SessionId::random().map_err(io::Error::other)?.to_string();
    let directory = parent.join(&name);
    let lock = claim(&directory)?;
    let lease = Lease { parent, name, _lock: lock };
    let prepared = prepared(setup, &directory, OsStr::new(HOME))?;
    Ok((prepared, lease))
}

/// Makes the directory of a session and locks it. A concurrent sweep may remove it before the lock, hence the
/// retries.
fn claim(directory: &Path) -> io::Result<File> {
    use std::os::unix::fs::MetadataExt as _;
    for _ in 0..TRIES {
        make_private(directory)?;
        let Ok(lock) = File::open(directory) else { continue };
        lock.lock_shared()?;
        let inodes = [fs::symlink_metadata(directory), lock.metadata()].map(|found| found.map(|of| of.ino()));
        if let [Ok(now), Ok(held)] = inodes
            && now == held
        {
            return Ok(lock);
        }
    }
    Err(io::Error::other("the directory is removed again and again"))
}

/// Removes homes whose process is gone.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let Ok(lock) = File::open(entry.path()) else { continue };
        match lock.try_lock() {
            Ok(()) => {
                if let Err(error) = remove_tree(parent, &entry.file_name()) {
                    tracing::warn!(error = %chain(&error), "cannot remove the home of a killed session");
                }
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

fn prepared(setup: &HostSetup, parent: &Path, name: &OsStr) -> io::Result<PreparedHome> {
    let mut repairs = Repairs::new();
    let home = Beneath::open(parent, name, &mut repairs)?;
    for (link, target) in setup.toolchains.iter().flat_map(|toolchain| &toolchain.links) {
        // Missing host packages are no reason to refuse the start.
        if let Err(error) = home.link(link, target, &mut repairs) {
            repairs.push(format!("no packages of the host at `~/{}`: {}", link.display(), chain(&error)));
        }
    }
    Ok(PreparedHome { path: parent.join(name), repairs })
}

fn make_private(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(agent: Option<&str>) -> Resident {
        Resident {
            workspace: WorkspaceId::of_canonical_path(Path::new("/w")),
            agent: agent.map(str::to_owned),
            guest: None,
            secrets: Vec::new(),
        }
    }

    #[test]
    fn each_resident_has_a_home_of_their_own() {
        let owner = resident(None);
        let guest = Resident { guest: Some("account:a@n".to_owned()), ..resident(Some("a")) };
        let all = [
            owner.clone(),
            resident(Some("a")),
            resident(Some("b")),
            resident(Some("../a")),
            resident(Some("a/")),
            resident(Some("")),
            guest.clone(),
            Resident { agent: None, ..guest },
            owner.with_secrets(vec!["K".to_owned()]),
            owner.with_secrets(vec!["K".to_owned(), "L".to_owned()]),
            owner.with_secrets(vec!["KL".to_owned()]),
            resident(Some("a")).with_secrets(vec!["K".to_owned()]),
        ];
        let mut names: Vec<String> = all.iter().map(Resident::directory).collect();
        assert!(names.iter().all(|name| !name.contains('/') && name.len() < 128), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
        let named = |names: [&str; 2]| owner.with_secrets(names.map(str::to_owned).to_vec()).directory();
        assert_eq!(named(["K", "L"]), named(["L", "K"]));
    }
}
