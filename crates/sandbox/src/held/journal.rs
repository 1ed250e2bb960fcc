//! What was in the roots of a session at its start, kept until its last look: whoever finds it without its owner looks.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_types::{Bytes, HeldChange};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::finding::Accepted;
use super::{ClearedEnd, Places};
use crate::survey::Ground;

const EXTENSION: &str = "watch";

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    roots: Vec<Bytes>,
    outside: Vec<Bytes>,
    fixed: Vec<Bytes>,
    accepted: Accepted,
}

impl Record {
    pub(super) fn of(places: &Places) -> Self {
        let bytes = |path: &PathBuf| Bytes::from(path.as_path());
        Self {
            roots: places.grounds.iter().map(|ground| bytes(&ground.path)).collect(),
            outside: places.outside.iter().map(bytes).collect(),
            fixed: places.fixed.iter().map(bytes).collect(),
            accepted: places.accepted.clone(),
        }
    }

    /// Roots that are gone need no look.
    fn places(self) -> Places {
        let path = |bytes: &Bytes| bytes.as_path().to_owned();
        Places {
            grounds: self.roots.iter().filter_map(|root| Ground::open(root.as_path()).ok()).collect(),
            outside: self.outside.iter().map(path).collect(),
            fixed: self.fixed.iter().map(path).collect::<BTreeSet<_>>(),
            accepted: self.accepted,
        }
    }
}

/// A record on disk, locked while its owner lives.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    pub(super) fn begin(registry: &Path, record: &Record) -> io::Result<Self> {
        std::fs::create_dir_all(registry)?;
        let named = tempfile::Builder::new().prefix("").suffix(".new").tempfile_in(registry)?;
        let (mut file, fresh) = named.keep().map_err(|error| error.error)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        serde_json::to_writer(&mut file, record)?;
        file.flush()?;
        // Under its own name only once it is locked and whole.
        let path = fresh.with_extension(EXTENSION);
        std::fs::rename(&fresh, &path)?;
        Ok(Self { file, path })
    }

    /// Everything was looked at.
    pub(super) fn end(self) {
        // One that cannot be removed costs the next start a look.
        let _removed = std::fs::remove_file(&self.path);
    }

    /// Leaves it to the next start.
    pub(super) fn leave(self) {
        drop(self.file);
    }

    /// One that nobody holds; `None` where its owner lives or it is gone.
    fn take_over(path: PathBuf) -> Option<Self> {
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let file = File::options().read(true).write(true).custom_flags(flags).open(&path).ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let same = std::fs::symlink_metadata(&path).ok()?.ino() == file.metadata().ok()?.ino();
        same.then_some(Self { file, path })
    }

    fn read(&mut self) -> Option<Record> {
        let mut content = Vec::new();
        self.file.read_to_end(&mut content).ok()?;
        serde_json::from_slice(&content).ok()
    }
}

/// Looks through the roots of every session whose supervisor was killed, as that session would have done at its end.
pub(crate) fn repair(registry: &Path) -> Vec<HeldChange> {
    let Ok(entries) = std::fs::read_dir(registry) else { return Vec::new() };
    let journals = entries.flatten().map(|entry| entry.path());
    let journals = journals.filter(|path| path.extension().is_some_and(|known| known == EXTENSION));
    let mut changes = Vec::new();
    for mut journal in journals.filter_map(Journal::take_over) {
        // One that cannot be read says nothing about what was there.
        let Some(record) = journal.read() else {
            journal.end();
            continue;
        };
        let cleared = record.places().clear();
        changes.extend(cleared.changes);
        if cleared.end == ClearedEnd::Clean {
            journal.end();
        }
    }
    changes
}
