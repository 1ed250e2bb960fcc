//! What was there before: kept in the state directory, so that it can be put back byte for byte.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Change, InitError, shown};

/// The files that were changed, and what they were.
#[derive(Debug)]
pub(super) struct Installed {
    directory: PathBuf,
    kept: Kept,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    files: Vec<KeptFile>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeptFile {
    path: Bytes,
    /// Name of the copy; `None`: there was no file.
    before: Option<String>,
    /// SHA-256 of what was written.
    after: String,
    /// Directories that were made for it, the innermost first.
    made: Vec<Bytes>,
}

/// What a file is to become again.
#[derive(Debug)]
pub(super) enum Restored {
    AsItWas(Option<Vec<u8>>),
    /// It is not what was written.
    Edited,
    /// It was never written.
    Unknown,
}

fn digest(bytes: &[u8]) -> String {
    ringfence_types::hex(Sha256::digest(bytes))
}

impl Installed {
    pub(super) fn load(state_dir: &Path) -> Result<Self, InitError> {
        let directory = state_dir.join("init");
        let path = directory.join("files.json");
        let kept = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| InitError::Settings(shown(&path), error.to_string()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(error) => return Err(InitError::Read(shown(&path), error)),
        };
        Ok(Self { directory, kept })
    }

    fn of(&self, path: &Path) -> Option<&KeptFile> {
        self.kept.files.iter().find(|file| file.path.as_path() == path)
    }

    pub(super) fn restored(&self, path: &Path, now: &[u8]) -> Result<Restored, InitError> {
        let Some(file) = self.of(path) else { return Ok(Restored::Unknown) };
        if digest(now) != file.after {
            return Ok(Restored::Edited);
        }
        self.before(path).map(Restored::AsItWas)
    }

    /// What was there before us.
    pub(super) fn before(&self, path: &Path) -> Result<Option<Vec<u8>>, InitError> {
        let name = self.of(path).and_then(|file| file.before.as_ref());
        let copy = name.map(|name| self.directory.join(name));
        copy.map(|path| fs::read(&path).map_err(|error| InitError::Read(shown(&path), error))).transpose()
    }

    /// Before a file is written: what it was. Something of ours that is replaced was not there before us.
    pub(super) fn note(&mut self, change: &Change, made: &[PathBuf]) -> Result<(), InitError> {
        let Some(after) = &change.after else { return Ok(()) };
        let earlier = self.of(&change.path).map(|file| file.made.clone()).unwrap_or_default();
        let made = made.iter().map(|path| Bytes::from(path.as_path()));
        let file = KeptFile {
            path: Bytes::from(change.path.as_path()),
            before: change.foreign.as_deref().map(|bytes| self.copy(bytes)).transpose()?,
            after: digest(after),
            made: made
                .clone()
                .chain(earlier.into_iter().filter(|path| !made.clone().any(|one| one == *path)))
                .collect(),
        };
        self.kept.files.retain(|known| known.path != file.path);
        self.kept.files.push(file);
        self.save()
    }

    /// After a file is as it was before us: nothing is kept of it, and no directory that was made for it.
    pub(super) fn settle(&mut self, path: &Path) -> Result<(), InitError> {
        let Some(file) = self.of(path).cloned() else { return Ok(()) };
        for directory in &file.made {
            // What somebody else has put something into stays.
            let _full = fs::remove_dir(directory.as_path());
        }
        self.kept.files.retain(|known| known.path != file.path);
        if let Some(name) =
            file.before.filter(|name| !self.kept.files.iter().any(|f| f.before.as_ref() == Some(name)))
        {
            let _gone = fs::remove_file(self.directory.join(name));
        }
        if !self.kept.files.is_empty() {
            return self.save();
        }
        fs::remove_dir_all(&self.directory)
            .map_err(|error| InitError::Write(shown(&self.directory), error))?;
        // Whoever has a ledger or secrets has something in it.
        let _full = self.directory.parent().map(fs::remove_dir);
        Ok(())
    }

    fn copy(&self, bytes: &[u8]) -> Result<String, InitError> {
        let name = format!("{}.before", digest(bytes));
        self.write(&name, bytes).map(|()| name)
    }

    fn save(&self) -> Result<(), InitError> {
        let bytes = serde_json::to_vec_pretty(&self.kept);
        let bytes =
            bytes.map_err(|error| InitError::Write(shown(&self.directory), io::Error::other(error)))?;
        self.write("files.json", &bytes)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), InitError> {
        let path = self.directory.join(name);
        let written = || -> io::Result<()> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(&path).map(drop).map_err(|error| error.error)
        };
        written().map_err(|error| InitError::Write(shown(&path), error))
    }
}
