//! Where a command runs, as far as it can be known from the text (`cd sub && cat x` reads `sub/x`).

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use crate::host_facts::{HostFacts, PathKind};

/// Every directory that a command could run in: the likely one first. A relative path is judged from each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorkingDirs {
    candidates: Rc<[PathBuf]>,
}

/// Beyond this many a directory counts as unknown.
const MOST: usize = 4;
/// No `cd` leads to a longer path; to follow one would take the square of the time.
const LONGEST: usize = 4096;

impl WorkingDirs {
    pub(super) fn at(dir: &Path) -> Self {
        Self { candidates: Rc::new([dir.to_owned()]) }
    }

    pub(super) fn unknown() -> Self {
        Self { candidates: Rc::new([]) }
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
    pub(super) fn entered(&self, dir: &[u8], facts: &dyn HostFacts) -> Self {
        let mut entered: Vec<PathBuf> = Vec::new();
        for base in self.candidates() {
            let path = join(base, dir);
            let named = fold(&path).into_owned();
            let (real, walked) = (facts.real_path(&named), fold(&facts.real_path(&path)).into_owned());
            for reading in [named, real, walked] {
                if !entered.contains(&reading) {
                    entered.push(reading);
                }
            }
        }
        Self::bounded(entered)
    }

    /// Either here or there; this one is likelier.
    #[must_use]
    pub(super) fn or(self, other: Self) -> Self {
        if self.candidates.is_empty() || other.candidates.is_empty() {
            return Self::unknown();
        }
        let new = other.candidates.iter().filter(|dir| !self.candidates.contains(dir));
        if new.clone().next().is_none() {
            return self;
        }
        Self::bounded(self.candidates.iter().chain(new).cloned().collect())
    }

    fn bounded(candidates: Vec<PathBuf>) -> Self {
        let long = candidates.iter().any(|dir| dir.as_os_str().len() > LONGEST);
        if long || candidates.len() > MOST {
            return Self::unknown();
        }
        Self { candidates: candidates.into() }
    }

    /// Whether a `cd` to it cannot fail.
    pub(super) fn is_certain(&self, facts: &dyn HostFacts) -> bool {
        !self.candidates.is_empty()
            && self.candidates.iter().all(|dir| facts.kind(dir) == PathKind::Directory)
    }
}

pub(super) fn join(base: &Path, path: &[u8]) -> PathBuf {
    base.join(OsStr::from_bytes(path))
}

/// Whether a folded path is a directory or lies in it. As [`Path::starts_with`], which takes both apart first.
pub(super) fn is_below(path: &Path, dir: &[u8]) -> bool {
    let rest = path.as_os_str().as_bytes().strip_prefix(dir);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || dir == b"/")
}

/// Folds `.` and `..` by name; `..` at the root stays there.
pub(super) fn fold(path: &Path) -> Cow<'_, Path> {
    let plain = |component: &[u8]| !matches!(component, b"" | b"." | b"..");
    let text = path.as_os_str().as_bytes();
    if text.strip_prefix(b"/").is_some_and(|rest| rest.split(|byte| *byte == b'/').all(plain)) {
        return Cow::Borrowed(path);
    }
    let mut folded = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => {
                folded.pop();
            }
            Component::Normal(name) => folded.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Cow::Owned(folded)
}
