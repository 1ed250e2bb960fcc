//! What the fence has to do inside a workspace, found by walking it once at the start of a session.
//!
//! A workspace is bound read-write, so everything in it that must not be read or changed needs a mount of its own.
//! [`survey`] names those mounts:
//!
//! - **masks**: files the rules hide, what a hidden name links to, hard links to any of these, and Unix sockets
//!   (`connect` works through a read-only bind). A mask sits on the file and moves with it, but only in
//!   this sandbox: the next one judges by name again, so the directories above it are pinned as well.
//! - **protected**: names that steer programs of the host, re-bound read-only; **protected links** where such a name
//!   is a symbolic link that leads out of the roots; **absent** where the name is still free and must stay so.
//! - **held** by a rule of a policy file: read-only like what is protected, and a link as such, followable but not
//!   replaceable. A directory may have exceptions: it is mounted read-only as a root of its own, and what is **open** in it
//!   writable on top.
//! - **rewritten**: git configurations that hold credentials, shown without them (and read-only).
//! - **pins**: every directory on the way to one of these and every git directory. Renaming a pinned
//!   directory is `EBUSY`, so nothing protected can be reached by moving what is above it.
//!
//! # Git
//!
//! Objects, refs, logs, the index, `HEAD`, `info/` and `worktrees/` stay writable, so that add, commit, branch,
//! worktree, rebase and gc work. What would make the *host's* git run code or read another configuration does not:
//!
//! - `hooks`, `config`, `config.worktree`, `commondir` of every git directory, every module below `modules/` and every
//!   `worktrees/*/modules/`; `gitdir`, `commondir`, `config.worktree` of every linked worktree. A missing `commondir` is
//!   held by one that says `.`, which git reads as "here".
//! - `modules` where there is none, and the directory of each module that `.gitmodules` names and that is not
//!   initialised: git would adopt a prepared one, with its hooks, at the next `submodule update`.
//! - what the configuration itself points at inside the workspace: `core.hooksPath` (and the directory above it for
//!   husky's `_`) and `include.path`.
//! - a `.git` *file* is protected; a git directory inside the workspace that it points at counts as one.
//!
//! - `branches`, `remotes` and `info/attributes` where they exist; the configuration of other version control systems.
//!
//! Left writable, with the reason: `objects/info/alternates` (makes more objects readable, but only by their full hash);
//! `rebase-merge/git-rebase-todo` (a rebase inside needs it); scripts of the workspace that the configuration names as commands
//! (filters, aliases: like a Makefile, they are content). What a command makes new, such as a repository with a configuration
//! of its own, is looked at when the command has ended ([`crate::held_changes`]).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, PathDecision, ProtectionExtent};

mod git;
mod git_config;
mod gitdir_pointer;
mod masks;
mod protected_paths;
mod public_file;
mod root_findings;
mod root_handle;
mod seek;
mod walk;

pub(crate) use masks::is_public;
pub(crate) use root_handle::{
    EntryType, LONGEST_RESOLVED, RootHandle, destination, handle_unlinked, innermost, links_on_the_way,
    normalized, open_directory, read_small, resolved,
};
pub(crate) use seek::{Candidate, CandidateKind, is_in_version_control, seek};
pub(crate) use walk::Patience;

use masks::MaskNames;
use root_findings::RootFindings;
use root_handle::PathProbe;

/// The policy as the survey needs it. Paths are relative to the root they are in.
pub trait SurveyRules: Sync {
    /// What a file at this path is.
    fn judge(&self, relative: &Path) -> PathDecision;
    /// Names that are protected at the top of a workspace, also while they do not exist.
    fn protected_at_root(&self) -> &[&str];
    /// Names that are protected wherever they exist.
    fn protected_anywhere(&self) -> &[&str];
    /// Directories that agents work in, by their real paths. What is protected at the top of a root and anywhere is held,
    /// also while absent, in each of them and in every directory between it and its root.
    fn worked_in(&self) -> &[PathBuf] {
        &[]
    }
    /// Files by absolute paths that the host runs or obeys next on behalf of Ringfence: protected wherever they lie.
    fn own_files(&self) -> &[PathBuf] {
        &[]
    }
    /// The home of the caller, which git of the host takes `~` for.
    fn home(&self) -> Option<&Path> {
        None
    }
    /// Where git of the host may have a configuration of the user or of the system.
    fn git_configs(&self) -> &[PathBuf] {
        &[]
    }
    /// Whether the rules alone protect this path; the survey adds what it finds.
    fn is_protected(&self, relative: &Path) -> bool;

    /// Whether nothing in this directory may be seen, whatever it will be called.
    fn hides_all(&self, _directory: &Path) -> bool {
        false
    }

    /// Whether what is at this path must not be changed, besides what is protected.
    fn holds(&self, _relative: &Path) -> bool {
        false
    }

    /// How much of what may come to be in this directory must not be changed.
    fn holds_in(&self, _directory: &Path) -> ProtectionExtent {
        ProtectionExtent::Nothing
    }

    /// Paths of every root that are held also while nothing is there.
    fn held_while_absent(&self) -> &[PathBuf] {
        &[]
    }

    /// Paths that may be changed although something around them is held.
    fn opened(&self) -> &[PathBuf] {
        &[]
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceSurvey {
    /// What was asked for, in that order, then the git directories it needs, where they lie elsewhere.
    pub roots: Vec<SurveyedRoot>,
    /// What a person should know about the result.
    pub notes: Vec<String>,
    /// What of each root could make a program of the host execute something, in the order of the roots.
    pub(crate) candidates: Vec<Vec<Candidate>>,
    /// Where the configuration of the user sends git of the host for hooks, from the checkout of every repository.
    pub(crate) hooks_of_user: Vec<PathBuf>,
}

/// One directory that will be writable. All paths are relative to it, sorted shallow first, each named once, and
/// never the root itself. No path is in two of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurveyedRoot {
    pub path: PathBuf,
    pub masks: Vec<PathBuf>,
    pub protected: Vec<PathBuf>,
    /// Symbolic links to mount over as such (`O_PATH | O_NOFOLLOW`).
    pub protected_links: Vec<PathBuf>,
    /// Symbolic links that stay what they are: they can be followed, but not replaced.
    pub held_links: Vec<PathBuf>,
    /// Directories that are read-only except for what is in `open`, which lies in them.
    pub read_only: Vec<PathBuf>,
    pub open: Vec<PathBuf>,
    /// The root as a whole is read-only except for what is in `open`.
    pub held: bool,
    pub absent: Vec<AbsentName>,
    pub pins: Vec<PathBuf>,
    /// Files to be shown read-only with this content instead of their own.
    pub rewritten: Vec<(PathBuf, Vec<u8>)>,
    pub view: RootView,
}

/// What commands work on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RootView {
    /// The root itself.
    #[default]
    Direct,
    /// A copy-on-write view of the root. Nothing that commands change is obeyed by the host before it lands, so that everything may
    /// be changed: what is hidden stays hidden, and nothing else is held.
    ///
    /// KERNEL: a directory of the lower layer cannot be renamed (EXDEV), so what is hidden in it needs no pins.
    Layered,
}

impl SurveyedRoot {
    /// Where placeholders are that must not be changed.
    pub(crate) fn held_places(&self) -> impl Iterator<Item = &PathBuf> {
        let held = self.absent.iter().filter(|absent| absent.placeholder != PlaceholderKind::Way);
        held.map(|absent| &absent.path)
    }
}

/// A protected name that does not exist, and what holds its place while the session lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentName {
    pub path: PathBuf,
    pub placeholder: PlaceholderKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceholderKind {
    /// Empty: git does not see it, and `rmdir` can never lose anything.
    Directory,
    /// A directory on the way to one: pinned, but not held.
    Way,
    File(&'static [u8]),
}

impl PlaceholderKind {
    pub(crate) const EMPTY: Self = Self::File(b"");
    /// Git reads a common directory of `.` as "this one".
    pub(crate) const HERE: Self = Self::File(b".\n");
    pub(crate) const TWO_UP: Self = Self::File(b"../..\n");
    pub(crate) const NO_SETTINGS: Self = Self::File(b"{}\n");
    /// Of all of these.
    pub(crate) const CONTENTS: [&'static [u8]; 4] = [b"", b".\n", b"../..\n", b"{}\n"];
}

#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    #[error("cannot {action} `{}`", shown(path))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "`{}` must be masked or protected, but its path is too long to mount on; move or remove it",
        shown(path)
    )]
    TooLong { path: PathBuf },
    #[error(
        "`{}` could not be looked through in {seconds} s; remove what makes it so large or so deep",
        shown(path)
    )]
    TooSlow { path: PathBuf, seconds: u64 },
    #[error(
        "`{}` holds names that take too much memory to look through; remove what makes it so large or so deep",
        shown(path)
    )]
    TooMuch { path: PathBuf },
    #[error(
        "`{}` holds more hidden and protected files than can be mounted ({mounts} mounts); remove what makes them so many",
        shown(path)
    )]
    TooMany { path: PathBuf, mounts: usize },
}

/// Whether the file at `path` holds certificates and public keys, or settings without a login, and nothing else.
pub fn is_public_file(path: &Path) -> bool {
    root_handle::read_small(rustix::fs::CWD, path, public_file::MAX)
        .is_some_and(|content| public_file::is_public(path, &content))
}

/// The roots that [`survey`] will return for `workspace`, without looking into them.
pub fn roots(workspace: &Path) -> Vec<PathBuf> {
    let mut roots = vec![workspace.to_owned()];
    if let gitdir_pointer::ExternalGitDir::Valid(path) = gitdir_pointer::outside_git_dir(workspace) {
        roots.push(path);
    }
    roots
}

/// Finds everything in `workspace` (a canonical path) that needs a mount of its own.
pub fn survey(workspace: &Path, rules: &dyn SurveyRules) -> Result<WorkspaceSurvey, SurveyError> {
    survey_all(&SurveyRoots { open: vec![workspace], ..SurveyRoots::default() }, rules)
}

/// Directories that are surveyed as one.
#[derive(Clone, Debug, Default)]
pub struct SurveyRoots<'p> {
    pub open: Vec<&'p Path>,
    /// Not to be seen, whatever of the others they lie in.
    pub closed: Vec<&'p Path>,
    pub view: RootView,
}

/// Surveys several roots as one: a link or a hard link from one into another is seen.
pub fn survey_all(places: &SurveyRoots<'_>, rules: &dyn SurveyRules) -> Result<WorkspaceSurvey, SurveyError> {
    let mut surveyor = Surveyor::new(rules);
    for workspace in &places.open {
        surveyor.add(workspace)?;
    }
    surveyor.declared = surveyor.grounds.len();
    for workspace in &places.open {
        match gitdir_pointer::outside_git_dir(workspace) {
            gitdir_pointer::ExternalGitDir::None => {}
            gitdir_pointer::ExternalGitDir::Valid(path) if places.closes(&path) => {
                let path = shown(&path);
                surveyor.notes.push(format!("the git directory `{path}` is in a root that is closed"));
            }
            gitdir_pointer::ExternalGitDir::Valid(path) => surveyor.add(&path)?,
            gitdir_pointer::ExternalGitDir::Invalid(reason) => surveyor.notes.push(reason),
        }
    }
    surveyor.sweep()?;
    surveyor.cover_names_at_root()?;
    surveyor.cover_names_on_the_way()?;
    surveyor.cover_own()?;
    git::cover_all(&mut surveyor)?;
    protected_paths::hold_all(&mut surveyor)?;
    masks::close_parts(&mut surveyor, &places.closed)?;
    masks::add_targets_and_aliases(&mut surveyor)?;
    surveyor.finish(places.view)
}

impl SurveyRoots<'_> {
    /// Whether the nearest place around `path` is a closed one.
    fn closes(&self, path: &Path) -> bool {
        let nearest = |places: &[&Path]| {
            let around = places.iter().filter(|place| path.starts_with(place));
            around.map(|place| place.as_os_str().len()).max()
        };
        nearest(&self.closed) > nearest(&self.open)
    }
}

/// The survey under way. Later stages speak of absolute paths, because a repository can lie in two roots.
struct Surveyor<'a> {
    rules: &'a dyn SurveyRules,
    /// What was asked for first, then the git directories it needs.
    grounds: Vec<RootHandle>,
    /// How many were asked for.
    declared: usize,
    /// One for each ground.
    found: Vec<RootFindings>,
    notes: Vec<String>,
    hooks_of_user: Vec<PathBuf>,
    /// For the whole survey: a command can leave few files that take hours, such as a configuration that includes a million others.
    patience: Patience,
}

impl<'a> Surveyor<'a> {
    fn new(rules: &'a dyn SurveyRules) -> Self {
        let (grounds, found) = (Vec::new(), Vec::new());
        let (notes, hooks_of_user) = (Vec::new(), Vec::new());
        Self { rules, grounds, declared: 0, found, notes, hooks_of_user, patience: Patience::new() }
    }

    fn add(&mut self, path: &Path) -> Result<(), SurveyError> {
        if self.grounds.iter().all(|ground| ground.path != path) {
            self.grounds.push(RootHandle::open(path)?);
            self.found.push(RootFindings::default());
        }
        Ok(())
    }

    fn sweep(&mut self) -> Result<(), SurveyError> {
        for (index, (ground, found)) in self.grounds.iter().zip(&mut self.found).enumerate() {
            let names = if index < self.declared { MaskNames::of(self.rules) } else { MaskNames::default() };
            masks::sweep(ground, &names, self.rules, self.patience, found)?;
        }
        Ok(())
    }

    fn cover_names_at_root(&mut self) -> Result<(), SurveyError> {
        for root in self.declared_paths() {
            // `.git` is not one thing to protect; what is in it is.
            for name in self.rules.protected_at_root().iter().filter(|name| **name != ".git") {
                self.cover(&root.join(name), PlaceholderKind::Directory)?;
            }
        }
        Ok(())
    }

    fn cover_names_on_the_way(&mut self) -> Result<(), SurveyError> {
        let anywhere = self.rules.protected_anywhere();
        let names: Vec<&str> =
            self.rules.protected_at_root().iter().copied().filter(|name| anywhere.contains(name)).collect();
        for directory in self.on_the_way() {
            for name in &names {
                self.cover(&directory.join(name), PlaceholderKind::Directory)?;
            }
        }
        Ok(())
    }

    /// What the host runs or obeys next on behalf of Ringfence, and every link on the way to it.
    fn cover_own(&mut self) -> Result<(), SurveyError> {
        for own in self.rules.own_files() {
            for link in links_on_the_way(own) {
                self.cover(&link, PlaceholderKind::Directory)?;
            }
            self.cover(&root_handle::destination(own), harmless(own))?;
        }
        Ok(())
    }

    /// The directories below a root in which an agent looks for its settings. In what is protected itself, and in a git
    /// directory, it has none.
    fn on_the_way(&self) -> Vec<PathBuf> {
        let declared = self.grounds.get(..self.declared).unwrap_or_default();
        let mut directories = Vec::new();
        for place in self.rules.worked_in().iter().filter(|place| place.is_dir()) {
            let Some((_, relative)) = root_handle::innermost(declared, place) else { continue };
            let own =
                |name: &OsStr| name != ".git" && !self.rules.protected_anywhere().iter().any(|p| name == *p);
            let mut directory = place.ancestors().nth(relative.components().count()).map(Path::to_owned);
            for name in relative.iter().take_while(|name| own(name)) {
                directory = directory.map(|above| above.join(name));
                directories.extend(directory.clone());
            }
        }
        directories.sort();
        directories.dedup();
        directories
    }

    fn declared_paths(&self) -> Vec<PathBuf> {
        self.grounds.iter().take(self.declared).map(|ground| ground.path.clone()).collect()
    }

    /// Protects what is at `path`, or holds its place if nothing is. Paths outside the roots need neither.
    fn cover(&mut self, path: &Path, placeholder: PlaceholderKind) -> Result<CoverResult, SurveyError> {
        let Some((index, relative)) = self.place(path) else { return Ok(CoverResult::Elsewhere) };
        let (Some(ground), Some(found)) = (self.grounds.get(index), self.found.get_mut(index)) else {
            return Ok(CoverResult::Elsewhere);
        };
        self.patience.check(&ground.path)?;
        Ok(match ground.probe(&relative)? {
            PathProbe::Link(link) => {
                let target = root_handle::destination(&ground.path.join(&link));
                found.link(link, root_handle::innermost(&self.grounds, &target).map(|_| target));
                CoverResult::Link
            }
            PathProbe::Missing(first) if first == relative => {
                found.absent(first, placeholder);
                CoverResult::Absent
            }
            PathProbe::Missing(first) => {
                found.absent(first, PlaceholderKind::Directory);
                CoverResult::Absent
            }
            PathProbe::Present(kind) => {
                found.protect(relative);
                CoverResult::Present(kind)
            }
        })
    }

    /// The root that holds `path`, and where in it; `None` for a root itself and for anything outside.
    fn place(&self, path: &Path) -> Option<(usize, PathBuf)> {
        root_handle::innermost(&self.grounds, path).filter(|(_, relative)| !relative.as_os_str().is_empty())
    }

    fn finish(self, view: RootView) -> Result<WorkspaceSurvey, SurveyError> {
        let mut roots = Vec::with_capacity(self.grounds.len());
        let mut candidates = Vec::with_capacity(self.grounds.len());
        let mut notes = self.notes;
        for (ground, mut found) in self.grounds.iter().zip(self.found) {
            candidates.push(std::mem::take(&mut found.candidates));
            if view == RootView::Layered {
                found.hide_only();
            }
            let shortened = found.shorten(&ground.path);
            notes.extend(note_of_closed(&ground.path, &shortened, ClosedBecause::Deep));
            let too_much = |_too_many| SurveyError::TooMuch { path: ground.path.clone() };
            let kept = never_closed(ground, self.rules.worked_in());
            let closed = found.thin_out(root_findings::MOST_MOUNTS, &kept).map_err(too_much)?;
            notes.extend(note_of_closed(&ground.path, &closed, ClosedBecause::Many));
            let mounts = found.mounts().map_err(too_much)?;
            if mounts > root_findings::MOUNT_CEILING {
                return Err(SurveyError::TooMany { path: ground.path.clone(), mounts });
            }
            roots.push(found.finish(&ground.path, view)?);
        }
        Ok(WorkspaceSurvey { roots, notes, candidates, hooks_of_user: self.hooks_of_user })
    }
}

/// Why directories are closed as a whole.
#[derive(Clone, Copy)]
enum ClosedBecause {
    Deep,
    Many,
}

/// One sentence, however many they are.
fn note_of_closed(root: &Path, closed: &BTreeSet<PathBuf>, because: ClosedBecause) -> Option<String> {
    const NAMED: usize = 3;
    let names: Vec<String> =
        closed.iter().take(NAMED).map(|path| format!("`{}`", shown(&root.join(path)))).collect();
    let (verb, held, them) =
        if closed.len() == 1 { ("is", "it holds", "it") } else { ("are", "they hold", "them") };
    let why = match because {
        ClosedBecause::Deep => format!("what has to be held in {them} is too deep to mount on"),
        ClosedBecause::Many => format!("{held} more hidden and protected files than can be mounted"),
    };
    let more = match closed.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more directories"),
    };
    let names = names.join(", ");
    (!names.is_empty()).then(|| format!("{names}{more} {verb} closed: {why}"))
}

/// Directories of `ground` that stay open however much is in them: those that agents work in, with all above them, and the
/// repositories there.
fn never_closed(ground: &RootHandle, worked_in: &[PathBuf]) -> BTreeSet<PathBuf> {
    let inside = worked_in.iter().filter_map(|place| place.strip_prefix(&ground.path).ok());
    let open = inside.flat_map(Path::ancestors).chain([Path::new("")]);
    open.flat_map(|directory| [directory.to_owned(), directory.join(".git")]).collect()
}

/// What an agent of the host can read in the place of settings that it does not have.
fn harmless(settings: &Path) -> PlaceholderKind {
    let is_json = settings.extension() == Some(OsStr::new("json"));
    if is_json { PlaceholderKind::NO_SETTINGS } else { PlaceholderKind::EMPTY }
}

/// What [`Surveyor::cover`] met.
enum CoverResult {
    Present(EntryType),
    Absent,
    Link,
    /// Outside every root, so out of reach from inside.
    Elsewhere,
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

#[cfg(test)]
mod tests;
