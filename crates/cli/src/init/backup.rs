//! Backup of agent settings in the state directory, for restoring them byte for byte.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::ByteString;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{FileChange, InitError, shown};

/// The changed files with their old content.
#[derive(Debug)]
pub(super) struct SettingsBackup {
    directory: PathBuf,
    kept: BackupManifest,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct BackupManifest {
    files: Vec<BackupFile>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct BackupFile {
    path: ByteString,
    /// Name of the copy; `None`: there was no file.
    before: Option<String>,
    /// SHA-256 of what was written.
    after: String,
    /// Directories made for it, innermost first.
    made: Vec<ByteString>,
}

/// What to restore a file to.
#[derive(Debug)]
pub(super) enum RestoreAction {
    AsItWas(Option<Vec<u8>>),
    /// The file differs from what was written.
    Edited,
    /// The file was never written.
    Unknown,
}

fn digest(bytes: &[u8]) -> String {
    ringfence_types::hex(Sha256::digest(bytes))
}

impl SettingsBackup {
    pub(super) fn load(state_dir: &Path) -> Result<Self, InitError> {
        let directory = state_dir.join("init");
        let path = directory.join("files.json");
        let kept = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| InitError::Settings(shown(&path), error.to_string()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BackupManifest::default(),
            Err(error) => return Err(InitError::Read(shown(&path), error)),
        };
        Ok(Self { directory, kept })
    }

    fn of(&self, path: &Path) -> Option<&BackupFile> {
        self.kept.files.iter().find(|file| file.path.as_path() == path)
    }

    pub(super) fn restored(&self, path: &Path, now: &[u8]) -> Result<RestoreAction, InitError> {
        let Some(file) = self.of(path) else { return Ok(RestoreAction::Unknown) };
        if digest(now) != file.after {
            return Ok(RestoreAction::Edited);
        }
        self.before(path).map(RestoreAction::AsItWas)
    }

    /// The content before Ringfence's change.
    pub(super) fn before(&self, path: &Path) -> Result<Option<Vec<u8>>, InitError> {
        let name = self.of(path).and_then(|file| file.before.as_ref());
        let copy = name.map(|name| self.directory.join(name));
        copy.map(|path| fs::read(&path).map_err(|error| InitError::Read(shown(&path), error))).transpose()
    }

    /// Saves the old content before a write. A replaced entry of Ringfence is not part of it.
    pub(super) fn note(&mut self, change: &FileChange, made: &[PathBuf]) -> Result<(), InitError> {
        let Some(after) = &change.after else { return Ok(()) };
        let earlier = self.of(&change.path).map(|file| file.made.clone()).unwrap_or_default();
        let made = made.iter().map(|path| ByteString::from(path.as_path()));
        let file = BackupFile {
            path: ByteString::from(change.path.as_path()),
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

    /// Forgets a restored file and removes the directories made for it.
    pub(super) fn settle(&mut self, path: &Path) -> Result<(), InitError> {
        let Some(file) = self.of(path).cloned() else { return Ok(()) };
        for directory in &file.made {
            // A directory with other files stays.
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
        // Not empty if there is a ledger or a secret store.
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
