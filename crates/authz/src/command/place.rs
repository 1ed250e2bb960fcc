//! Where a command runs, as far as it can be known from the text (`cd sub && cat x` reads `sub/x`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::facts::{Facts, PathKind};

/// Every directory that a command could run in: the likely one first. A relative path is judged from each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    candidates: Vec<PathBuf>,
}

/// Beyond this many a directory counts as unknown.
const MOST: usize = 4;
/// A directory with a longer name counts as unknown: to follow `cd x && cd x && …` takes the square of its length.
const LONGEST: usize = 1024;

impl Place {
    pub(super) fn at(dir: &Path) -> Self {
        Self { candidates: vec![dir.to_owned()] }
    }

    pub(super) fn unknown() -> Self {
        Self { candidates: Vec::new() }
    }

    /// Empty where it is unknown.
    pub(super) fn candidates(&self) -> &[PathBuf] {
        &self.candidates
    }

    pub(super) fn likely(&self) -> Option<&Path> {
        self.candidates.first().map(PathBuf::as_path)
    }

    /// After a `cd` that is known to have worked. A shell folds `..` by name, the kernel does not: where a link is on
    /// the way both readings stay possible.
    #[must_use]
    pub(super) fn entered(&self, dir: &[u8], facts: &dyn Facts) -> Self {
        let mut entered: Vec<PathBuf> = Vec::new();
        for base in &self.candidates {
            let path = join(base, dir);
            let named = fold(&path);
            let (real, walked) = (facts.real_path(&named), fold(&facts.real_path(&path)));
            for reading in [named, real, walked] {
                if !entered.contains(&reading) {
                    entered.push(reading);
                }
            }
        }
        Self { candidates: entered }.bounded()
    }

    /// Either here or there; this one is likelier.
    #[must_use]
    pub(super) fn or(mut self, other: Self) -> Self {
        if self.candidates.is_empty() || other.candidates.is_empty() {
            return Self::unknown();
        }
        for dir in other.candidates {
            if !self.candidates.contains(&dir) {
                self.candidates.push(dir);
            }
        }
        self.bounded()
    }

    fn bounded(self) -> Self {
        let long = self.candidates.iter().any(|dir| dir.as_os_str().len() > LONGEST);
        if long || self.candidates.len() > MOST { Self::unknown() } else { self }
    }

    /// Whether a `cd` to it cannot fail.
    pub(super) fn is_certain(&self, facts: &dyn Facts) -> bool {
        !self.candidates.is_empty()
            && self.candidates.iter().all(|dir| facts.kind(dir) == PathKind::Directory)
    }
}

pub(super) fn join(base: &Path, path: &[u8]) -> PathBuf {
    base.join(OsStr::from_bytes(path))
}

/// Folds `.` and `..` by name; `..` at the root stays there.
pub(super) fn fold(path: &Path) -> PathBuf {
    let mut folded = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                folded.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => folded.push(component),
        }
    }
    if folded.as_os_str().is_empty() { PathBuf::from("/") } else { folded }
}
