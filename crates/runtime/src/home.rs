//! The homes of what runs inside: which one a session has, and how it is made.
//!
//! A command can leave anything in its home, and the next one obeys it: `.gitconfig`, `.profile`, a program on `PATH`. So a home
//! belongs to one workspace, one agent and one person, and a session that was given secrets never has the home of one that was
//! not:
//!
//! - where a value enters the session (a file, a variable), its home is new and is thrown away with the session;
//! - where only the proxy knows the values, its home is kept, apart from others: one for each agent and set of secrets.
//!
//! All work here goes through [`ringfence_sandbox::beneath`]: what a command has left behind neither leads elsewhere nor makes a
//! later start fail.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ringfence_sandbox::beneath::{Beneath, Repairs, remove_tree};
use ringfence_types::{Principal, SessionId, WorkspaceId};
use sha2::{Digest as _, Sha256};

use crate::pipeline::chain;
use crate::session::{Asked, Setup};

/// Below the state directory.
const HOMES: &str = "homes";
/// Below that: homes that end with their session.
const FRESH: &str = "fresh";
/// In the directory of such a session.
const HOME: &str = "home";
const TRIES: usize = 16;

/// Who a home belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    workspace: WorkspaceId,
    agent: Option<String>,
    /// Somebody with a credential. They can say that they are any agent, so theirs are apart.
    guest: Option<String>,
    /// What the proxy uses for the session, sorted.
    secrets: Vec<String>,
}

impl Resident {
    pub(crate) fn of(workspace: WorkspaceId, asked: &Asked) -> Self {
        let is_guest =
            asked.started_with.is_some() || !matches!(asked.started_by, Principal::Operator { .. });
        let guest = is_guest.then(|| asked.started_by.identity());
        Self { workspace, agent: asked.agent.clone(), guest, secrets: Vec::new() }
    }

    pub(crate) fn with_secrets(&self, mut names: Vec<String>) -> Self {
        names.sort();
        Self { secrets: names, ..self.clone() }
    }

    /// The owner without an agent has the plain one. Of the rest a digest tells two apart whose names look alike.
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
        let end: String = digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let readable = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
        let name: String =
            self.agent.iter().flat_map(|name| name.chars()).filter(readable).take(24).collect();
        format!("{}.{name}-{end}", self.workspace)
    }
}

/// A home that can be used, and what had to be put right for that.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) path: PathBuf,
    pub(crate) repairs: Repairs,
}

/// The home that a resident keeps.
pub(crate) fn kept(setup: &Setup, resident: &Resident) -> io::Result<Prepared> {
    let homes = setup.state_dir.join(HOMES);
    make_private(&homes)?;
    prepared(setup, &homes, OsStr::new(&resident.directory()))
}

/// Where the kept home of a resident is, whether or not there is one yet.
pub(crate) fn path(setup: &Setup, resident: &Resident) -> PathBuf {
    setup.state_dir.join(HOMES).join(resident.directory())
}

/// Thrown away when it is dropped. What a killed process leaves is removed by the next session that needs one.
#[derive(Debug)]
pub(crate) struct Lease {
    parent: PathBuf,
    name: String,
    /// Locked for as long as the home is used.
    _lock: File,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.parent, OsStr::new(&self.name)) {
            tracing::warn!(why = %chain(&error), "the home of a session that had secrets is not gone yet");
        }
    }
}

/// A home that nobody had before and nobody has afterwards.
pub(crate) fn fresh(setup: &Setup) -> io::Result<(Prepared, Lease)> {
    let parent = setup.state_dir.join(HOMES).join(FRESH);
    make_private(&parent)?;
    sweep(&parent);
    // Not the session's own: one with a name lives in several processes, each with secrets of its own.
    let name = SessionId::random().map_err(io::Error::other)?.to_string();
    let directory = parent.join(&name);
    let lock = claim(&directory)?;
    let lease = Lease { parent, name, _lock: lock };
    let prepared = prepared(setup, &directory, OsStr::new(HOME))?;
    Ok((prepared, lease))
}

/// Makes the directory of a session and locks it. A sweep of another process can be faster than the lock.
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
                    tracing::warn!(why = %chain(&error), "a home that a killed session left cannot be removed");
                }
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

fn prepared(setup: &Setup, parent: &Path, name: &OsStr) -> io::Result<Prepared> {
    let mut repairs = Repairs::new();
    let home = Beneath::open(parent, name, &mut repairs)?;
    for (link, target) in setup.toolchains.iter().flat_map(|toolchain| &toolchain.links) {
        // Packages that have to be fetched again are no reason not to start.
        if let Err(error) = home.link(link, target, &mut repairs) {
            repairs.push(format!("no packages of the host at `~/{}`: {}", link.display(), chain(&error)));
        }
    }
    Ok(Prepared { path: parent.join(name), repairs })
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
        assert!(names.iter().all(|name| !name.contains('/') && name.len() < 64), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
        let named = |names: [&str; 2]| owner.with_secrets(names.map(str::to_owned).to_vec()).directory();
        assert_eq!(named(["K", "L"]), named(["L", "K"]));
    }
}
