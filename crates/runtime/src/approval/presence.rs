//! Who is there: processes that wait for an answer, and people who watch for questions.
//!
//! Each holds a lock on a file of its own, which the kernel takes back when the process ends, however it ends. A file
//! appears under its name only when it is locked, so that a free lock always means that its holder is gone.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_types::TransactionId;

const ASKING: &str = "approvals/asking";
const WATCHING: &str = "approvals/watching";

/// Something of this process that others can see as long as it lives.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    _lock: File,
}

impl Held {
    fn take(directory: &Path, name: &str) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let draft = directory.join(format!(".{name}.{}", std::process::id()));
        let lock = File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        lock.lock()?;
        let path = directory.join(name);
        fs::rename(&draft, &path)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // What is left has a free lock, and says nothing.
        let _gone = fs::remove_file(&self.path);
    }
}

/// Says that somebody of this process answers questions of others, as long as the result lives.
pub fn watching(state_dir: &Path) -> io::Result<Held> {
    Held::take(&state_dir.join(WATCHING), &std::process::id().to_string())
}

/// Says that this process waits for an answer, or is about to use it.
pub(crate) fn asking(state_dir: &Path, transaction: &TransactionId) -> io::Result<Held> {
    Held::take(&state_dir.join(ASKING), transaction.as_str())
}

/// Whether somebody watches.
pub(crate) fn is_watched(state_dir: &Path) -> bool {
    let (held, left) = survey(&state_dir.join(WATCHING));
    left.iter().for_each(|path| forget(path));
    !held.is_empty()
}

/// Questions whose asker is gone, by id.
pub(super) fn abandoned(state_dir: &Path) -> Vec<PathBuf> {
    survey(&state_dir.join(ASKING)).1
}

pub(super) fn forget(path: &Path) {
    let _gone = fs::remove_file(path);
}

/// The files whose lock is held, and those whose holder is gone.
fn survey(directory: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let (mut held, mut left) = (Vec::new(), Vec::new());
    for path in named.map(|entry| entry.path()) {
        match is_held(&path) {
            Some(true) => held.push(path),
            Some(false) => left.push(path),
            None => {}
        }
    }
    (held, left)
}

/// Looked at with a shared lock: two who look at once do not see each other. `None`: it went away between two looks.
/// Only a free lock says that a holder is gone; what cannot be looked at, as when descriptors run out, says nothing.
fn is_held(path: &Path) -> Option<bool> {
    match File::open(path) {
        Ok(file) => Some(file.try_lock_shared().is_err()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) => Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_is_there_as_long_as_they_hold_their_file() {
        let state = tempfile::tempdir().unwrap();
        assert!(!is_watched(state.path()));
        let held = watching(state.path()).unwrap();
        assert!(is_watched(state.path()) && is_watched(state.path()));
        drop(held);
        assert!(!is_watched(state.path()));
    }

    #[test]
    fn a_file_without_its_holder_is_an_abandoned_question() {
        let state = tempfile::tempdir().unwrap();
        let transaction = TransactionId::random().unwrap();
        let held = asking(state.path(), &transaction).unwrap();
        assert!(abandoned(state.path()).is_empty());
        // What a killed process leaves.
        let path = held.path.clone();
        drop(held);
        fs::write(&path, "").unwrap();
        assert_eq!(abandoned(state.path()), [path]);
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_abandoned() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join(ASKING);
        fs::create_dir_all(&directory).unwrap();
        // Opening the first fails with something else than `not found`, also for root.
        std::os::unix::fs::symlink("loop", directory.join("loop")).unwrap();
        std::os::unix::fs::symlink("nowhere", directory.join("gone")).unwrap();
        assert_eq!(survey(&directory), (vec![directory.join("loop")], vec![]));
        fs::write(directory.join("free"), "").unwrap();
        assert_eq!(abandoned(state.path()), [directory.join("free")], "control");
    }
}
