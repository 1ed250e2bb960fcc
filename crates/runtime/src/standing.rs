//! Changing the operator's policy file: which workspace files are approved.
//!
//! The file is replaced whole, in one step, after the new text was read back as a policy. Comments and order stay.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_authz::policy::{PolicyFile, Role, WriteError, sha256, with_approved};

use crate::policy_files::{PolicyFileError, read_operator};

/// Why the file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error(transparent)]
    Read(#[from] PolicyFileError),
    #[error("the policy file cannot be changed")]
    Change(#[from] WriteError),
    #[error("the policy file would not be one any more: {0}")]
    Result(String),
    #[error("the policy file `{}` cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The operator's file after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub file: PathBuf,
    /// `sha256:…` of its text.
    pub sha256: String,
}

/// A change of the operator's file that is not made yet. Nobody else changes the file while this is held.
#[derive(Debug)]
pub struct Change {
    file: PathBuf,
    before: String,
    after: String,
    _lock: File,
}

impl Change {
    /// The file as it is.
    pub fn before(&self) -> Stored {
        Stored { file: self.file.clone(), sha256: sha256(self.before.as_bytes()) }
    }

    /// The file as it will be.
    pub fn after(&self) -> Stored {
        Stored { file: self.file.clone(), sha256: sha256(self.after.as_bytes()) }
    }

    pub fn make(self) -> Result<(), StoreError> {
        replace(&self.file, self.after.as_bytes())
            .map_err(|source| StoreError::Write { path: self.file.clone(), source })
    }
}

/// Adds the seal of a workspace file that is approved for `workspace`.
pub fn prepare_approval(file: &Path, workspace: &Path, seal: &str) -> Result<Change, StoreError> {
    let wrong = |source| StoreError::Write { path: file.to_owned(), source };
    let directory = file.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(wrong)?;
    // Two answers at once: the second waits and then changes what the first has written.
    let lock = File::open(directory).map_err(wrong)?;
    lock.lock().map_err(wrong)?;
    // Through a link of the operator's own: what it leads to is replaced, not the link.
    let (real, before) = match fs::symlink_metadata(file) {
        Ok(_) => read_operator(file, &[]).map(|read| (read.path, read.text))?,
        Err(_) => (file.to_owned(), String::new()),
    };
    let after = with_approved(&before, workspace, seal)?;
    let loader =
        |path: &Path| read_operator(path, &[]).map(|read| read.text.into_bytes()).map_err(io::Error::other);
    PolicyFile::load(Role::Operator, &real, after.as_bytes(), &loader)
        .map_err(|error| StoreError::Result(error.to_string()))?;
    Ok(Change { file: real, before, after, _lock: lock })
}

pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}.new", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&fresh)?;
    let written =
        file.write_all(content).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // What is left of an attempt says nothing; the old file is whole.
        let _gone = fs::remove_file(&fresh);
    }
    written?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
