//! Edits the operator's policy file: the list of approved workspace files.
//!
//! The file is replaced atomically, after the new text parsed as a policy. Comments and order stay.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_policy::{PolicyFile, PolicyFileRole, PolicyWriteError, sha256, with_approved};

use crate::policy_files::{PolicyFileError, read_operator};

/// Why the file is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorFileError {
    #[error(transparent)]
    Read(#[from] PolicyFileError),
    #[error("the policy file cannot be changed")]
    Change(#[from] PolicyWriteError),
    #[error("the policy file would not be one any more: {0}")]
    Result(String),
    #[error("the file `{}` cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The operator's file after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorFileUpdate {
    pub file: PathBuf,
    /// `sha256:…` of its text.
    pub sha256: String,
}

/// A prepared change of a file of the operator. Holds the lock against other changes.
#[derive(Debug)]
#[must_use = "the file is unchanged until the change is made"]
pub struct OperatorFileChange {
    file: PathBuf,
    before: String,
    after: String,
    _lock: File,
}

impl OperatorFileChange {
    /// Replaces the whole text of `file`, which `lock` guards.
    pub(crate) fn replacing(file: PathBuf, after: String, lock: File) -> io::Result<Self> {
        let before = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        Ok(Self { file, before, after, _lock: lock })
    }

    /// The file before the change.
    pub fn before(&self) -> OperatorFileUpdate {
        OperatorFileUpdate { file: self.file.clone(), sha256: sha256(self.before.as_bytes()) }
    }

    /// The file after the change.
    pub fn after(&self) -> OperatorFileUpdate {
        OperatorFileUpdate { file: self.file.clone(), sha256: sha256(self.after.as_bytes()) }
    }

    pub fn make(self) -> Result<(), OperatorFileError> {
        replace(&self.file, self.after.as_bytes())
            .map_err(|source| OperatorFileError::Write { path: self.file.clone(), source })
    }
}

/// Adds the seal of a workspace file that is approved for `workspace`.
pub fn prepare_approval(
    file: &Path,
    workspace: &Path,
    seal: &str,
) -> Result<OperatorFileChange, OperatorFileError> {
    let wrong = |source| OperatorFileError::Write { path: file.to_owned(), source };
    let directory = file.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(wrong)?;
    // Serialises changes: the second waits and then edits the result of the first.
    let lock = File::open(directory).map_err(wrong)?;
    lock.lock().map_err(wrong)?;
    // Replaces the target of an operator's link, not the link.
    let (real, before) = match fs::symlink_metadata(file) {
        Ok(_) => read_operator(file, &[]).map(|read| (read.path, read.text))?,
        Err(_) => (file.to_owned(), String::new()),
    };
    let after = with_approved(&before, workspace, seal)?;
    let loader =
        |path: &Path| read_operator(path, &[]).map(|read| read.text.into_bytes()).map_err(io::Error::other);
    PolicyFile::load(PolicyFileRole::Operator, &real, after.as_bytes(), &loader)
        .map_err(|error| OperatorFileError::Result(error.to_string()))?;
    Ok(OperatorFileChange { file: real, before, after, _lock: lock })
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}.new", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&fresh)?;
    let written =
        file.write_all(content).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // A leftover is harmless; the old file is complete.
        let _gone = fs::remove_file(&fresh);
    }
    written?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
