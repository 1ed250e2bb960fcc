//! Presence locks: show which processes wait for an answer and which operators watch for approvals.
//!
//! Each process locks a file of its own, and the kernel releases the lock whenever the process ends. A file
//! gets its name only once it is locked, so a free lock always means that its holder is gone.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_types::TransactionId;

const ASKING: &str = "approvals/asking";
const WATCHING: &str = "approvals/watching";

/// A lock that other processes can see while this process lives.
#[derive(Debug)]
pub struct PresenceLock {
    path: PathBuf,
    _lock: File,
}

impl PresenceLock {
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

impl Drop for PresenceLock {
    fn drop(&mut self) {
        // A leftover file has a free lock, so it claims nothing.
        let _gone = fs::remove_file(&self.path);
    }
}

/// Announces an operator who watches for approvals, while the result lives.
pub fn watching(state_dir: &Path) -> io::Result<PresenceLock> {
    PresenceLock::take(&state_dir.join(WATCHING), &std::process::id().to_string())
}

/// Announces that this process waits for an answer or is about to use one.
pub(crate) fn asking(state_dir: &Path, transaction: &TransactionId) -> io::Result<PresenceLock> {
    PresenceLock::take(&state_dir.join(ASKING), transaction.as_str())
}

/// Whether an operator watches.
pub(crate) fn is_watched(state_dir: &Path) -> bool {
    let (held, left) = survey(&state_dir.join(WATCHING));
    left.iter().for_each(|path| forget(path));
    !held.is_empty()
}

/// Files of approvals whose requesting process is gone.
pub(super) fn abandoned(state_dir: &Path) -> Vec<PathBuf> {
    survey(&state_dir.join(ASKING)).1
}

pub(super) fn forget(path: &Path) {
    let _gone = fs::remove_file(path);
}

/// Files whose lock is held, and files whose holder is gone.
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

/// Probes with a shared lock, so that two probes do not conflict. `None`: the file is gone. Only a free lock
/// proves that the holder is gone; other errors, such as a lack of descriptors, prove nothing.
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
        // The file that a killed process leaves.
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
        // Opening `loop` fails with another error than `not found`, also for root.
        std::os::unix::fs::symlink("loop", directory.join("loop")).unwrap();
        std::os::unix::fs::symlink("nowhere", directory.join("gone")).unwrap();
        assert_eq!(survey(&directory), (vec![directory.join("loop")], vec![]));
        fs::write(directory.join("free"), "").unwrap();
        assert_eq!(abandoned(state.path()), [directory.join("free")], "control");
    }
}
