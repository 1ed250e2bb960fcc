//! What the machine says, for the judge: looked up when asked, as a command inside the fence would find it.

mod index;
mod inside;
mod repository;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use ringfence_authz::{Facts, Intent, PathKind, Policy, Touch, env};
use ringfence_sandbox::files::{FileError, FileOperation, Tree};
use ringfence_sandbox::survey::SurveyError;
use ringfence_sandbox::{is_system, survey};
use ringfence_types::{Backend, Layer, Refusal, RefusalCode};
use rustix::fs::{Access, AtFlags, CWD};

use crate::pipeline::{self, chain};
use crate::rules::WorkspaceRules;
use crate::session::Setup;

pub(crate) use inside::Inside;

/// The real machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Where the fence looks for programs.
    path: Vec<PathBuf>,
    /// What of it is visible besides the system.
    toolchains: Vec<PathBuf>,
    programs: Programs,
    inside: Inside,
    /// What the host runs or obeys next on behalf of Ringfence.
    own: Vec<PathBuf>,
}

/// Whose programs a command finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Programs {
    Machine,
    Image,
}

impl Machine {
    pub(crate) fn new(setup: &Setup) -> Self {
        let programs = setup.toolchains.iter().flat_map(|toolchain| toolchain.programs.iter().cloned());
        let fixed = env::FIXED.iter().find(|(name, _)| *name == "PATH").map_or("", |(_, value)| value);
        let roots = setup.toolchains.iter().flat_map(|toolchain| &toolchain.roots);
        let canonical = |root: &PathBuf| fs::canonicalize(root).unwrap_or_else(|_| root.clone());
        Self {
            path: programs.chain(fixed.split(':').map(PathBuf::from)).collect(),
            toolchains: roots.map(canonical).collect(),
            programs: Programs::Machine,
            inside: Inside::default(),
            own: setup.own.clone(),
        }
    }

    /// As commands find it under a policy.
    pub(crate) fn of(setup: &Setup, policy: &Policy, inside: Inside) -> Self {
        let programs = match policy.backend {
            Some(Backend::Container) => Programs::Image,
            _ => Programs::Machine,
        };
        Self { programs, inside, ..Self::new(setup) }
    }

    /// With the programs that are kept for the agent, before all others.
    pub(crate) fn with_tools(mut self, tools: Option<&Path>) -> Self {
        if let Some(tools) = tools {
            self.path.insert(0, tools.to_owned());
            self.toolchains.push(tools.to_owned());
        }
        self
    }

    /// A link from the system to somewhere else leads nowhere inside, and the search goes on.
    fn is_visible(&self, program: &Path) -> bool {
        is_system(program) || self.toolchains.iter().any(|root| program.starts_with(root))
    }
}

impl Facts for Machine {
    fn program(&self, name: &[u8], cwd: &Path) -> Option<PathBuf> {
        let file = Path::new(OsStr::from_bytes(name));
        if name.is_empty() {
            return None;
        }
        if self.programs == Programs::Image {
            let slashed = name.contains(&b'/');
            return Some(if slashed { followed(&cwd.join(file)) } else { Path::new(IN_IMAGE).join(file) });
        }
        if name.contains(&b'/') {
            let path = cwd.join(file);
            // What a command has put into its home or /tmp is none of the programs that are known.
            let is_private = self.inside.is_private(&self.inside.real(&path));
            return if is_private { None } else { executable(&path) };
        }
        let candidates = self.path.iter().filter_map(|directory| executable(&directory.join(file)));
        candidates.into_iter().find(|program| self.is_visible(program))
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        // Of these the fence has its own: what a link in them leads to on the host says nothing, nor what is above it.
        if path.starts_with("/proc") || path.starts_with("/dev") {
            return path.components().take_while(|part| *part != Component::ParentDir).collect();
        }
        let path = self.inside.real(path);
        if self.inside.is_private(&path) {
            return path;
        }
        fs::canonicalize(&path).unwrap_or_else(|_| followed(&path))
    }

    fn kind(&self, path: &Path) -> PathKind {
        let Ok(path) = &self.inside.host(path) else { return PathKind::Other };
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => PathKind::File,
            // A `cd` to one that cannot be entered leaves the shell where it is.
            Ok(metadata) if metadata.is_dir() && is_open(path, &metadata) => PathKind::Directory,
            Ok(_) => PathKind::Other,
            Err(_) => PathKind::Missing,
        }
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

    fn obstacle(&self, touch: &Touch<'_>) -> Option<Refusal> {
        self.obstacles(&[*touch]).pop().map(|(_, refusal)| refusal)
    }

    /// All of them are in the same roots: one look is enough.
    fn obstacles<'t>(&self, touches: &[Touch<'t>]) -> Vec<(&'t Path, Refusal)> {
        let Some(first) = touches.first() else { return Vec::new() };
        let rules = WorkspaceRules::new(first.rules).own(&self.own);
        let tree = match Tree::open(first.roots, &rules) {
            Ok(tree) => tree,
            Err(error) => return vec![(first.path, no_survey(&error))],
        };
        touches.iter().filter_map(|touch| Some((touch.path, refused(&tree, touch)?))).collect()
    }
}

/// Stands for the directories of `PATH` in an image. An image is pinned, read-only, and the operator's: a name in it means what
/// the operator put there, and nobody looks into it. What is below a root is this machine's.
pub(crate) const IN_IMAGE: &str = "/usr/bin";

fn refused(tree: &Tree<'_>, touch: &Touch<'_>) -> Option<Refusal> {
    let operation = match touch.intent {
        Intent::Read => FileOperation::Read,
        Intent::List => FileOperation::List,
        Intent::Write => FileOperation::Write,
        Intent::Look => FileOperation::Look,
        Intent::Remove => FileOperation::Remove,
    };
    match tree.check(touch.path, operation) {
        Err(FileError::Refused { refusal, .. }) => Some(pipeline::refusal_of(refusal)),
        // What is not there or cannot be read says so itself when it is tried.
        Ok(()) | Err(FileError::Io { .. }) => None,
    }
}

fn no_survey(error: &SurveyError) -> Refusal {
    Refusal {
        code: RefusalCode::Path,
        layer: Layer::Floor,
        rule: "path.survey".to_owned(),
        message: format!("the workspace cannot be looked through: {}", chain(error)),
        hint: Some("remove what is in the way".to_owned()),
    }
}

/// Whether a directory can be entered also by a root without its privileges, as inside the fence.
fn is_open(path: &Path, metadata: &fs::Metadata) -> bool {
    const OWNER: u32 = 0o100;
    const OTHERS: u32 = 0o011;
    let own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & OWNER != 0;
    let open = own || metadata.mode() & OTHERS == OTHERS;
    open && rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

fn executable(path: &Path) -> Option<PathBuf> {
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).ok()?;
    let real = fs::canonicalize(path).ok()?;
    fs::metadata(&real).is_ok_and(|metadata| metadata.is_file()).then_some(real)
}

/// Follows every link of a path whose end does not exist, component by component: `..` is what is above the place that
/// was reached, not the component before it. From the first thing that is missing on, only the text is left.
fn followed(path: &Path) -> PathBuf {
    const LINKS: usize = 40;
    let mut reached = PathBuf::from("/");
    let mut ahead = reversed(path);
    let mut links = 0;
    while let Some(name) = ahead.pop() {
        if name == ".." {
            reached.pop();
            continue;
        }
        reached.push(name);
        match fs::read_link(&reached) {
            Ok(target) if links < LINKS => {
                links += 1;
                reached.pop();
                if target.is_absolute() {
                    reached = PathBuf::from("/");
                }
                ahead.extend(reversed(&target));
            }
            // Not a link.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            _ => return ahead.into_iter().rev().fold(reached, folded),
        }
    }
    reached
}

fn folded(mut path: PathBuf, name: OsString) -> PathBuf {
    if name == ".." {
        path.pop();
    } else {
        path.push(name);
    }
    path
}

/// The names of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests;
