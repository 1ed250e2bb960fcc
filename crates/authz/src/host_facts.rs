//! What the machine says about the names in an action.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ringfence_types::{EntryKind, Refusal, Root, SecretReach, SecretUse};

use crate::path_rules::PathRules;
use crate::paths::PathIntent;

/// Answers about the machine as a command *inside the fence* would find it. The caller looks; this crate only asks.
/// An answer is a fact of the moment: where it matters that it stays true, the kernel holds it.
pub trait HostFacts {
    /// The file that would be executed for `name` from `cwd`: by `PATH` of the fence where `name` has no slash.
    /// Canonical. `None`: there is no such program.
    fn program(&self, name: &[u8], cwd: &Path) -> Option<PathBuf>;

    /// Where an absolute path leads when every link is followed; the part that does not exist is kept as it is.
    fn real_path(&self, path: &Path) -> PathBuf;

    /// What is at an absolute path, links followed.
    fn kind(&self, path: &Path) -> PathKind;

    /// What a directory holds, links followed on the way to it. Empty where there is no such directory, or where what it holds
    /// is not known. `None`: it holds more than `most` entries.
    fn entries(&self, _dir: &Path, _most: usize) -> Option<Vec<HostEntry>> {
        Some(Vec::new())
    }

    /// A file of the home inside the fence that some shell runs when it starts or ends, where there is one.
    fn start_file(&self) -> Option<PathBuf> {
        None
    }

    /// A directory of the home inside the fence from which python runs files when it starts, where there is one.
    fn python_start(&self) -> Option<PathBuf> {
        None
    }

    /// Settings of the repository that git would find from `dir` which make git run a program, such as
    /// `diff.z.command`: from its `config`, `config.worktree` and what they include. Empty where there is no repository.
    fn git_programs(&self, dir: &Path) -> Vec<String>;

    /// Absolute paths of everything that is tracked by the repository that git would find from `dir`. `None`: it cannot be told.
    fn git_tracked(&self, _dir: &Path) -> Option<Vec<PathBuf>> {
        Some(Vec::new())
    }

    /// What the session of the action has besides its policy and roots.
    fn session(&self) -> SessionFacts {
        SessionFacts::default()
    }

    /// Whether the file at an absolute path holds certificates and public keys and nothing else.
    fn is_public(&self, _path: &Path) -> bool {
        false
    }

    /// Why the fence refuses this although no rule about its name does: another name of the same file is hidden, a hidden
    /// name links to it, git's configuration makes it matter … `None`: it does not.
    fn obstacle(&self, _touch: &FileAccess<'_>) -> Option<Refusal> {
        None
    }

    /// The same for several in the same roots: those that are refused.
    fn obstacles<'t>(&self, touches: &[FileAccess<'t>]) -> Vec<(&'t Path, Refusal)> {
        touches.iter().filter_map(|touch| Some((touch.path, self.obstacle(touch)?))).collect()
    }
}

/// What a session has besides its policy and roots. A stored answer is not for a session that has something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFacts {
    /// The name that the agent was started with.
    pub agent: Option<String>,
    /// The image whose programs run, where those of this machine do not.
    pub image: Option<String>,
    pub secrets: Vec<SecretUse>,
}

impl SessionFacts {
    /// Whether a command can read the value of a secret.
    pub fn has_secret_inside(&self) -> bool {
        self.secrets.iter().any(|secret| secret.reach == SecretReach::Inside)
    }
}

/// A file operation that is about to be allowed.
#[derive(Clone, Copy, Debug)]
pub struct FileAccess<'a> {
    pub roots: &'a [Root],
    pub rules: &'a PathRules,
    /// Absolute.
    pub path: &'a Path,
    pub intent: PathIntent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    File,
    Directory,
    Other,
    Missing,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    pub name: OsString,
    pub kind: EntryKind,
}

/// A machine as a table, for tests: programs by name, links by path, everything else a file.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct FakeHost {
    pub(crate) programs: Vec<(&'static str, &'static str)>,
    pub(crate) links: Vec<(&'static str, &'static str)>,
    pub(crate) directories: Vec<&'static str>,
    pub(crate) git_programs: Vec<String>,
    pub(crate) tracked: Vec<&'static str>,
    pub(crate) public: Vec<&'static str>,
    pub(crate) obstacles: Vec<&'static str>,
    pub(crate) missing: Vec<&'static str>,
    pub(crate) start_file: Option<&'static str>,
    pub(crate) python_start: Option<&'static str>,
}

#[cfg(test)]
impl HostFacts for FakeHost {
    fn program(&self, name: &[u8], cwd: &Path) -> Option<PathBuf> {
        let found = self.programs.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, path)| path);
        match std::str::from_utf8(name) {
            Ok(path) if path.contains('/') => Some(self.real_path(&cwd.join(path))),
            _ => found.map(PathBuf::from),
        }
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        let link = self.links.iter().find(|(from, _)| path.starts_with(from));
        let followed = link.and_then(|(from, to)| Some(Path::new(to).join(path.strip_prefix(from).ok()?)));
        followed.unwrap_or_else(|| path.to_owned())
    }

    fn kind(&self, path: &Path) -> PathKind {
        if self.missing.iter().any(|known| Path::new(known) == path) {
            return PathKind::Missing;
        }
        let directory = self.directories.iter().any(|known| Path::new(known) == path);
        if directory { PathKind::Directory } else { PathKind::File }
    }

    fn start_file(&self) -> Option<PathBuf> {
        self.start_file.map(PathBuf::from)
    }

    fn python_start(&self) -> Option<PathBuf> {
        self.python_start.map(PathBuf::from)
    }

    fn git_programs(&self, _dir: &Path) -> Vec<String> {
        self.git_programs.clone()
    }

    fn git_tracked(&self, _dir: &Path) -> Option<Vec<PathBuf>> {
        Some(self.tracked.iter().map(PathBuf::from).collect())
    }

    fn is_public(&self, path: &Path) -> bool {
        self.public.iter().any(|known| Path::new(known) == path)
    }

    fn obstacle(&self, touch: &FileAccess<'_>) -> Option<Refusal> {
        let known = self.obstacles.iter().any(|known| Path::new(known) == touch.path);
        known.then(|| {
            crate::refusal_ext::refuse(
                ringfence_types::RefusalCode::Path,
                ringfence_types::RuleId::PathHidden,
                "in the way",
            )
        })
    }
}
