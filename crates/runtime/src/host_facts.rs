//! Facts about the machine for policy evaluation, looked up as a command inside the fence would see them.

mod git_index;
mod inside;
mod repository;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ringfence_authz::{FileAccess, HostEntry, HostFacts, PathIntent, PathKind, Policy, SessionFacts, env};
use ringfence_sandbox::files::{FileError, FileOperation, FileTree};
use ringfence_sandbox::survey::SurveyError;
use ringfence_sandbox::{is_system, survey};
use ringfence_types::{Backend, EntryKind, PolicyLayer, Refusal, RefusalCode, RuleId};
use rustix::fs::{Access, AtFlags, CWD};

use crate::pipeline::{self, chain};
use crate::sandbox_rules::{HostFiles, SandboxRules};
use crate::session::HostSetup;

pub(crate) use inside::Inside;

/// The real machine.
#[derive(Debug)]
pub(crate) struct LiveHost {
    /// The program search path inside the fence.
    path: Vec<PathBuf>,
    /// Toolchains that are visible besides the system.
    toolchains: Vec<PathBuf>,
    programs: ProgramSource,
    inside: Inside,
    host: HostFiles,
    session: SessionFacts,
}

/// Where the programs of a command come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramSource {
    Machine,
    Image,
}

impl LiveHost {
    pub(crate) fn new(setup: &HostSetup) -> Self {
        let programs = setup.toolchains.iter().flat_map(|toolchain| toolchain.programs.iter().cloned());
        let fixed = env::FIXED.iter().find(|(name, _)| *name == "PATH").map_or("", |(_, value)| value);
        let roots = setup.toolchains.iter().flat_map(|toolchain| &toolchain.roots);
        let canonical = |root: &PathBuf| fs::canonicalize(root).unwrap_or_else(|_| root.clone());
        Self {
            path: programs.chain(fixed.split(':').map(PathBuf::from)).collect(),
            toolchains: roots.map(canonical).collect(),
            programs: ProgramSource::Machine,
            inside: Inside::default(),
            host: HostFiles::of(setup),
            session: SessionFacts::default(),
        }
    }

    /// As a session with this agent, image and these secrets finds it.
    pub(crate) fn in_session(self, session: SessionFacts) -> Self {
        Self { session, ..self }
    }

    /// The machine as commands see it under a policy.
    pub(crate) fn of(setup: &HostSetup, policy: &Policy, inside: Inside) -> Self {
        let programs = match policy.backend {
            Some(Backend::Container) => ProgramSource::Image,
            _ => ProgramSource::Machine,
        };
        Self { programs, inside, ..Self::new(setup) }
    }

    /// Adds the operator's programs for the agent, first in the search path.
    pub(crate) fn with_tools(mut self, tools: Option<&Path>) -> Self {
        if let Some(tools) = tools {
            self.path.insert(0, tools.to_owned());
            self.toolchains.push(tools.to_owned());
        }
        self
    }

    /// Resolves a program. Files that a command put into its home or `/tmp`, and files in unknown places, are
    /// never known programs.
    fn named_program(&self, path: &Path) -> Option<PathBuf> {
        let real = self.inside.seen(path).filter(|real| !self.inside.is_private(real))?;
        match self.programs {
            ProgramSource::Image => Some(real),
            ProgramSource::Machine => executable(&real),
        }
    }

    /// A link from the system to an invisible place leads nowhere inside, and the search continues.
    fn is_visible(&self, program: &Path) -> bool {
        is_system(program) || self.toolchains.iter().any(|root| program.starts_with(root))
    }
}

impl HostFacts for LiveHost {
    fn session(&self) -> SessionFacts {
        self.session.clone()
    }

    fn program(&self, name: &[u8], cwd: &Path) -> Option<PathBuf> {
        let file = Path::new(OsStr::from_bytes(name));
        if name.is_empty() {
            return None;
        }
        if name.contains(&b'/') {
            return self.named_program(&cwd.join(file));
        }
        if self.programs == ProgramSource::Image {
            return Some(Path::new(IN_IMAGE).join(file));
        }
        let candidates = self.path.iter().filter_map(|directory| executable(&directory.join(file)));
        candidates.into_iter().find(|program| self.is_visible(program))
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        self.inside.real(path)
    }

    fn kind(&self, path: &Path) -> PathKind {
        let Ok(path) = &self.inside.host(path) else { return PathKind::Other };
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => PathKind::File,
            // A `cd` to a directory that cannot be entered leaves the shell where it is.
            Ok(metadata) if metadata.is_dir() && is_open(path, &metadata) => PathKind::Directory,
            Ok(_) => PathKind::Other,
            Err(_) => PathKind::Missing,
        }
    }

    fn entries(&self, dir: &Path, most: usize) -> Option<Vec<HostEntry>> {
        let listed = self.inside.host(dir).and_then(fs::read_dir);
        let Ok(listed) = listed else { return Some(Vec::new()) };
        let entries: Vec<HostEntry> =
            listed.filter_map(Result::ok).take(most + 1).map(|entry| entry_of(&entry)).collect();
        (entries.len() <= most).then_some(entries)
    }

    fn start_file(&self) -> Option<PathBuf> {
        self.inside.start_file()
    }

    fn python_start(&self) -> Option<PathBuf> {
        self.inside.python_start()
    }

    fn git_programs(&self, dir: &Path) -> Vec<String> {
        repository::programs(dir, &self.inside)
    }

    fn git_tracked(&self, dir: &Path) -> Option<Vec<PathBuf>> {
        repository::tracked(dir, &self.inside).ok()
    }

    fn is_public(&self, path: &Path) -> bool {
        let real = self.inside.host(path).and_then(fs::canonicalize);
        real.is_ok_and(|real| survey::is_public_file(&real))
    }

    fn obstacle(&self, touch: &FileAccess<'_>) -> Option<Refusal> {
        self.obstacles(&[*touch]).pop().map(|(_, refusal)| refusal)
    }

    /// All accesses have the same roots, so one tree serves all.
    fn obstacles<'t>(&self, touches: &[FileAccess<'t>]) -> Vec<(&'t Path, Refusal)> {
        let Some(first) = touches.first() else { return Vec::new() };
        let rules = SandboxRules::new(first.rules).host(self.host.clone());
        let tree = match FileTree::open(first.roots, &rules) {
            Ok(tree) => tree,
            Err(error) => return vec![(first.path, no_survey(&error))],
        };
        touches.iter().filter_map(|touch| Some((touch.path, refused(&tree, touch)?))).collect()
    }
}

/// Stands for the directories of `PATH` in an image. An image is pinned, read-only and chosen by the
/// operator, so Ringfence does not look inside it. Paths below a root belong to this machine.
pub(crate) const IN_IMAGE: &str = "/usr/bin";

fn refused(tree: &FileTree<'_>, touch: &FileAccess<'_>) -> Option<Refusal> {
    let operation = match touch.intent {
        PathIntent::Read => FileOperation::Read,
        PathIntent::List => FileOperation::List,
        PathIntent::Write => FileOperation::Write,
        PathIntent::Look => FileOperation::Look,
        PathIntent::Remove => FileOperation::Remove,
    };
    match tree.check(touch.path, operation) {
        Err(FileError::Refused { refusal, .. }) => Some(pipeline::refusal_of(refusal)),
        // A missing or unreadable file fails when the command tries it.
        Ok(()) | Err(FileError::Io { .. }) => None,
    }
}

fn no_survey(error: &SurveyError) -> Refusal {
    Refusal {
        code: RefusalCode::Path,
        layer: PolicyLayer::Floor,
        rule: RuleId::PathSurvey.into(),
        message: format!("the workspace cannot be looked through: {}", chain(error)),
        hint: Some("remove what is in the way".to_owned()),
    }
}

/// Whether a directory can be entered by a root without privileges, as inside the fence.
fn is_open(path: &Path, metadata: &fs::Metadata) -> bool {
    const OWNER: u32 = 0o100;
    const OTHERS: u32 = 0o011;
    let own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & OWNER != 0;
    let open = own || metadata.mode() & OTHERS == OTHERS;
    open && rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// What cannot be told apart counts as a link, which is looked at more closely.
fn entry_of(entry: &fs::DirEntry) -> HostEntry {
    let kind = match entry.file_type() {
        Ok(kind) if kind.is_dir() => EntryKind::Directory,
        Ok(kind) if kind.is_file() => EntryKind::File,
        Ok(kind) if !kind.is_symlink() => EntryKind::Other,
        Ok(_) | Err(_) => EntryKind::Link,
    };
    HostEntry { name: entry.file_name(), kind }
}

fn executable(path: &Path) -> Option<PathBuf> {
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).ok()?;
    let real = fs::canonicalize(path).ok()?;
    fs::metadata(&real).is_ok_and(|metadata| metadata.is_file()).then_some(real)
}

#[cfg(test)]
mod tests;
