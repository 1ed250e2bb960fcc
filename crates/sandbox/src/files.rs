//! File operations done by us, not by a process inside, with the same answer a process inside would get.
//!
//! Every path is resolved by the kernel below a root descriptor (`openat2` with `RESOLVE_BENEATH`), never by text, and
//! what is judged is the place the path really leads to. Relative paths start at the first root; absolute ones are
//! accepted inside any root. A link that leaves its root is followed only if it arrives in a root, and then the place
//! it arrives at is opened without following anything.
//!
//! What is hidden or protected comes from the same [`survey`](crate::survey::survey) the fence is built from, so a hard
//! link to a hidden file, the target of a hidden link and a module's `config` are refused here as they are inside; a
//! configuration that is shown without its credentials inside is read without them here. On top of that the rules
//! judge names, so that a hidden name that appears later is refused too.

mod change_set;
mod entry;
mod no_follow;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_types::{Access, AllOrOnly, ByteString, EntryKind, PathDecision, Root, Subtree};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::survey::{
    self, EntryType, RootHandle, RootView, SurveyError, SurveyRoots, SurveyRules, SurveyedRoot,
};

pub use change_set::{ChangeProgress, ChangeSet, ChangeSetError, FileEdit};
pub use entry::FileStat;
pub use no_follow::NoFollowTarget;

/// The roots of a workspace, open for file operations.
pub struct FileTree<'r> {
    rules: &'r dyn SurveyRules,
    plots: Vec<OpenRoot>,
    /// Roots without access, which may lie inside others.
    closed: Vec<PathBuf>,
    /// The part of the roots that the caller may use.
    left: AllOrOnly<Subtree>,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("`{}` refused: {refusal}", shown(path))]
    Refused { path: PathBuf, refusal: FileRefusal },
    #[error("cannot {action} `{}`", shown(path))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

/// Why the answer was no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileRefusal {
    #[error("it leads outside the workspace")]
    Outside,
    #[error("it leads out of the part of the workspace that this token has")]
    NotLeft,
    #[error("it is hidden from this workspace")]
    Hidden,
    #[error("it is protected against changes")]
    Protected,
    #[error("its root is read-only")]
    ReadOnly,
    #[error("it has another name elsewhere (hard link)")]
    HardLinked,
    #[error("it is a symbolic link to something that does not exist")]
    DanglingLink,
    #[error("it is a symbolic link, or one is on the way to it")]
    Link,
    #[error("it is not a regular file")]
    NotRegular,
    #[error("it is not a directory")]
    NotDirectory,
    #[error("it is larger than asked for")]
    TooLarge,
    #[error("it has more than {MOST_LISTED} entries")]
    TooMany,
    #[error("it exists already")]
    Exists,
    #[error("it is not a path that can name a file")]
    Malformed,
}

/// What is to be done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOperation {
    Read,
    List,
    Write,
    Look,
    Remove,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedEntry {
    pub name: OsString,
    pub kind: EntryKind,
    pub bytes: u64,
    /// Since 1970.
    pub modified_ms: i64,
}

/// The most entries of a directory that are listed.
const MOST_LISTED: usize = 20_000;
/// How much a file may grow between being measured and being read.
const GROWTH: u64 = 1024 * 1024;

impl<'r> FileTree<'r> {
    /// Surveys and opens `roots`.
    pub fn open(roots: &[Root], rules: &'r dyn SurveyRules) -> Result<Self, SurveyError> {
        let open: Vec<&Root> = roots.iter().filter(|root| root.access != Access::None).collect();
        let closed = roots.iter().filter(|root| root.access == Access::None);
        let places = SurveyRoots {
            open: open.iter().map(|root| root.path.as_path()).collect(),
            closed: closed.map(|root| root.path.as_path()).collect(),
            view: RootView::Direct,
        };
        let mut access = BTreeMap::new();
        for root in &open {
            for path in survey::roots(root.path.as_path()) {
                access.entry(path).or_insert(root.access);
            }
        }
        // Asked for by itself counts more than needed by another.
        access.extend(open.iter().map(|root| (root.path.as_path().to_owned(), root.access)));
        let mut plots = Vec::new();
        for surveyed in survey::survey_all(&places, rules)?.roots {
            let access = access.get(&surveyed.path).copied().unwrap_or(Access::Read);
            plots.push(OpenRoot::open(surveyed, access)?);
        }
        let closed = places.closed.iter().map(|closed| (*closed).to_owned()).collect();
        Ok(Self { rules, plots, closed, left: AllOrOnly::Any })
    }

    /// The whole machine, for a profile that opens it: nothing in it is hidden or protected by its name. `closed` stays shut,
    /// by every way that leads there, and a root has the access that it was given.
    pub fn machine(roots: &[Root], closed: &[PathBuf]) -> Result<Self, SurveyError> {
        let whole = Root { path: ByteString::from("/"), access: Access::Write };
        let open = roots.iter().filter(|root| root.access != Access::None);
        let mut plots = Vec::new();
        for root in open.chain([&whole]) {
            let surveyed = SurveyedRoot { path: root.path.as_path().to_owned(), ..SurveyedRoot::default() };
            plots.push(OpenRoot::open(surveyed, root.access)?);
        }
        let shut = roots.iter().filter(|root| root.access == Access::None).map(|root| root.path.as_path());
        let mut closed: Vec<PathBuf> =
            closed.iter().map(PathBuf::as_path).chain(shut).map(Path::to_owned).collect();
        closed.extend(closed.clone().iter().filter_map(|path| std::fs::canonicalize(path).ok()));
        Ok(Self { rules: &NoRules, plots, closed, left: AllOrOnly::Any })
    }

    /// Narrows the tree to the part that the caller may use, by where paths lead after links.
    pub fn leaving(self, left: AllOrOnly<Subtree>) -> Self {
        Self { left, ..self }
    }

    /// The content of a regular file of at most `max` bytes.
    pub fn read(&self, path: &Path, max: u64) -> Result<Vec<u8>, FileError> {
        self.read_with_room(path, max, |_bytes| Ok(()))
    }

    /// The same; `room` is told how much it will be before anything is read, and may wait or say no.
    pub fn read_with_room(
        &self,
        path: &Path,
        max: u64,
        room: impl FnOnce(u64) -> io::Result<()>,
    ) -> Result<Vec<u8>, FileError> {
        let ask = PathQuery::new("read", path);
        let found = self.readable(&ask)?;
        if let Some(content) = found.plot.rewritten(&found.relative) {
            if content.len() as u64 > max {
                return Err(ask.refused(FileRefusal::TooLarge));
            }
            return Ok(content.to_vec());
        }
        let bytes = found.stat.st_size.cast_unsigned();
        if bytes > max {
            return Err(ask.refused(FileRefusal::TooLarge));
        }
        room(bytes).map_err(ask.failed_io())?;
        let max = max.min(bytes.saturating_add(GROWTH));
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = found.reopen(flags).map_err(ask.failed())?;
        let mut content = Vec::new();
        File::from(file).take(max.saturating_add(1)).read_to_end(&mut content).map_err(ask.failed_io())?;
        // The file may have grown since it was measured.
        if content.len() as u64 > max {
            return Err(ask.refused(FileRefusal::TooLarge));
        }
        Ok(content)
    }

    /// Replaces or creates a regular file in one step: it has either the old content or the new one.
    pub fn write(&self, path: &Path, content: &[u8]) -> Result<(), FileError> {
        let ask = PathQuery::new("write", path);
        let target = self.writable(&ask)?;
        target.replace(content).map_err(ask.failed_io())
    }

    /// The entries of a directory, sorted by name. Hidden files have names like any other.
    pub fn list(&self, path: &Path) -> Result<Vec<ListedEntry>, FileError> {
        let ask = PathQuery::new("list", path);
        let found = self.listable(&ask)?;
        let directory =
            found.reopen(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC).map_err(ask.failed())?;
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::new(directory).map_err(ask.failed())? {
            let entry = entry.map_err(ask.failed())?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                if entries.len() == MOST_LISTED {
                    return Err(ask.refused(FileRefusal::TooMany));
                }
                entries.push(listed(&found.handle, name, entry.file_type()));
            }
        }
        entries.sort();
        Ok(entries)
    }

    /// Makes a symbolic link. Where it leads must be inside the roots, whether it exists or not (S000-15).
    pub fn symlink(&self, path: &Path, target: &Path) -> Result<(), FileError> {
        let ask = PathQuery::new("link", path);
        let place = self.new_target(&ask)?;
        self.refuse_change(&ask, place.plot, &place.relative)?;
        self.refuse_escape(&ask, &place, target)?;
        match rustix::fs::symlinkat(target, &place.parent, &place.name) {
            Err(Errno::EXIST) => Err(ask.refused(FileRefusal::Exists)),
            other => other.map_err(ask.failed()),
        }
    }

    /// Whether the operation would be refused, without doing it.
    pub fn check(&self, path: &Path, operation: FileOperation) -> Result<(), FileError> {
        match operation {
            FileOperation::Read => self.readable(&PathQuery::new("read", path)).map(drop),
            FileOperation::List => self.listable(&PathQuery::new("list", path)).map(drop),
            FileOperation::Look => self.visible(&PathQuery::new("look at", path)).map(drop),
            FileOperation::Remove => self.removable(&PathQuery::new("remove", path)).map(drop),
            FileOperation::Write => {
                let ask = PathQuery::new("write", path);
                match self.writable(&ask) {
                    Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                        self.refuse_new(&ask)
                    }
                    other => other.map(drop),
                }
            }
        }
    }

    /// For a path whose directories do not exist yet: the nearest directory that does decides.
    fn refuse_new(&self, ask: &PathQuery<'_>) -> Result<(), FileError> {
        for above in ask.path.ancestors().skip(1) {
            match self.follow(&PathQuery { path: above, ..*ask }) {
                Ok(found) if found.plot.closes(&found.relative) => {
                    return Err(ask.refused(FileRefusal::Hidden));
                }
                Ok(found) => {
                    let rest = ask.path.strip_prefix(above).unwrap_or(ask.path);
                    let relative = found.relative.join(rest);
                    self.refuse_beyond(ask, found.plot, &relative)?;
                    return self.refuse_change(ask, found.plot, &relative);
                }
                Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn readable<'t>(&'t self, ask: &PathQuery<'_>) -> Result<LocatedFile<'t>, FileError> {
        let found = self.resolve(ask)?;
        if found.kind() != EntryType::File {
            return Err(ask.refused(FileRefusal::NotRegular));
        }
        self.refuse_hidden(ask, &found)?;
        Ok(found)
    }

    fn listable<'t>(&'t self, ask: &PathQuery<'_>) -> Result<LocatedFile<'t>, FileError> {
        let found = self.resolve(ask)?;
        if found.kind() != EntryType::Directory {
            return Err(ask.refused(FileRefusal::NotDirectory));
        }
        if self.rules.hides_all(&found.relative) || found.plot.closes(&found.relative) {
            return Err(ask.refused(FileRefusal::Hidden));
        }
        Ok(found)
    }

    fn writable<'t>(&'t self, ask: &PathQuery<'_>) -> Result<WriteTarget<'t>, FileError> {
        let target = match self.resolve(ask) {
            Ok(found) => self.existing_target(ask, found)?,
            Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.new_target(ask)?
            }
            Err(error) => return Err(error),
        };
        self.refuse_change(ask, target.plot, &target.relative)?;
        Ok(target)
    }

    /// Where `path` leads, through links: a place in the part of a root that the caller may use. Any other is refused.
    fn resolve<'t>(&'t self, ask: &PathQuery<'_>) -> Result<LocatedFile<'t>, FileError> {
        let found = self.follow(ask)?;
        self.refuse_beyond(ask, found.plot, &found.relative)?;
        Ok(found)
    }

    /// Where `path` leads, through links: a place in a root, which may be above the part that the caller may use.
    fn follow<'t>(&'t self, ask: &PathQuery<'_>) -> Result<LocatedFile<'t>, FileError> {
        let (plot, relative) = self.locate(ask, ask.path)?;
        self.refuse_masked_links(ask, &plot.ground.path.join(&relative))?;
        match plot.look(&relative, ResolveFlags::empty()) {
            Ok(found) => self.at_home(ask, found),
            // Not below this root; an absolute link or one into another root may still arrive in one.
            Err(Errno::XDEV) => self.arrive(ask, &plot.ground.path.join(relative)),
            Err(errno) => Err(ask.failed()(errno)),
        }
    }

    /// A link with a hidden name leads nowhere inside, also not to what is beyond it.
    fn refuse_masked_links(&self, ask: &PathQuery<'_>, path: &Path) -> Result<(), FileError> {
        let masked = |link: &PathBuf| self.plots.iter().any(|plot| plot.masked_links.contains(link));
        let any = self.plots.iter().any(|plot| !plot.masked_links.is_empty());
        if any && survey::links_on_the_way(path).iter().any(masked) {
            return Err(ask.refused(FileRefusal::Hidden));
        }
        Ok(())
    }

    fn arrive<'t>(&'t self, ask: &PathQuery<'_>, path: &Path) -> Result<LocatedFile<'t>, FileError> {
        let real = match std::fs::canonicalize(path) {
            Ok(real) => real,
            // Whether something outside exists is not for the caller to know.
            Err(_) => return Err(ask.refused(FileRefusal::Outside)),
        };
        let (plot, relative) = self.locate(ask, &real)?;
        let found = plot.look(&relative, ResolveFlags::NO_SYMLINKS).map_err(ask.failed())?;
        self.at_home(ask, found)
    }

    /// Roots can lie in one another; what was found belongs to the innermost.
    fn at_home<'t>(
        &'t self,
        ask: &PathQuery<'_>,
        found: Option<LocatedFile<'t>>,
    ) -> Result<LocatedFile<'t>, FileError> {
        let found = found.ok_or_else(|| ask.refused(FileRefusal::Outside))?;
        let (plot, relative) = self.locate(ask, &found.plot.ground.path.join(&found.relative))?;
        Ok(LocatedFile { plot, relative, ..found })
    }

    /// The root a path starts in. `..` is left for the kernel.
    fn locate(&self, ask: &PathQuery<'_>, path: &Path) -> Result<(&OpenRoot, PathBuf), FileError> {
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(ask.refused(FileRefusal::Malformed));
        }
        if path.is_relative() {
            let first = self.plots.first().ok_or_else(|| ask.refused(FileRefusal::Outside))?;
            return Ok((first, path.to_owned()));
        }
        let holding = self.plots.iter().filter(|plot| path.starts_with(&plot.ground.path));
        let plot = holding.max_by_key(|plot| plot.ground.path.as_os_str().len());
        let plot = plot.ok_or_else(|| ask.refused(FileRefusal::Outside))?;
        let shut = self
            .closed
            .iter()
            .any(|closed| path.starts_with(closed) && closed.starts_with(&plot.ground.path));
        if shut {
            return Err(ask.refused(FileRefusal::Outside));
        }
        let relative = path.strip_prefix(&plot.ground.path).map(Path::to_owned).unwrap_or_default();
        Ok((plot, relative))
    }

    fn existing_target<'t>(
        &self,
        ask: &PathQuery<'_>,
        found: LocatedFile<'t>,
    ) -> Result<WriteTarget<'t>, FileError> {
        if found.kind() != EntryType::File {
            return Err(ask.refused(FileRefusal::NotRegular));
        }
        self.refuse_hidden(ask, &found)?;
        self.refuse_change(ask, found.plot, &found.relative)?;
        if found.stat.st_nlink != 1 {
            return Err(ask.refused(FileRefusal::HardLinked));
        }
        let (parent, name) = found.plot.parent(&found.relative).map_err(ask.failed())?;
        // A rename needs no right to write the file itself; a process inside would.
        rustix::fs::accessat(&parent, &name, rustix::fs::Access::WRITE_OK, AtFlags::EACCESS)
            .map_err(ask.failed())?;
        Ok(WriteTarget {
            plot: found.plot,
            relative: found.relative,
            parent,
            name,
            replaced: Some(found.stat),
        })
    }

    /// The place of a file that does not exist, in a directory that does.
    fn new_target<'t>(&'t self, ask: &PathQuery<'_>) -> Result<WriteTarget<'t>, FileError> {
        let ParentDir { directory, parent, name } = self.above(ask)?;
        match rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| EntryType::of(file_type(&stat)))
        {
            Ok(EntryType::Link) => return Err(ask.refused(FileRefusal::DanglingLink)),
            Ok(_) => return Err(ask.refused(FileRefusal::Exists)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(ask.failed()(errno)),
        }
        let relative = directory.relative.join(&name);
        if self.rules.judge(&relative) == PathDecision::Hidden || directory.plot.closes(&relative) {
            return Err(ask.refused(FileRefusal::Hidden));
        }
        Ok(WriteTarget { plot: directory.plot, relative, parent, name, replaced: None })
    }

    /// The directory that a path is in, through links, and the name it has there.
    fn above<'t>(&'t self, ask: &PathQuery<'_>) -> Result<ParentDir<'t>, FileError> {
        let bytes = ask.path.as_os_str().as_bytes();
        let name = ask.path.file_name().filter(|_| !bytes.ends_with(b"/") && !bytes.ends_with(b"/."));
        let name = name.ok_or_else(|| ask.refused(FileRefusal::Malformed))?.to_owned();
        let above = ask.path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = self.follow(&PathQuery { path: above, ..*ask })?;
        self.refuse_beyond(ask, directory.plot, &directory.relative.join(&name))?;
        if directory.kind() != EntryType::Directory {
            return Err(ask.refused(FileRefusal::NotDirectory));
        }
        let parent =
            directory.reopen(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC).map_err(ask.failed())?;
        Ok(ParentDir { directory, parent, name })
    }

    fn refuse_beyond(&self, ask: &PathQuery<'_>, plot: &OpenRoot, relative: &Path) -> Result<(), FileError> {
        if self.left.is_any() {
            return Ok(());
        }
        let place = Subtree::new(&plot.ground.path.join(relative));
        if place.is_ok_and(|place| self.left.has(&place)) {
            return Ok(());
        }
        Err(ask.refused(FileRefusal::NotLeft))
    }

    fn refuse_hidden(&self, ask: &PathQuery<'_>, found: &LocatedFile<'_>) -> Result<(), FileError> {
        self.refuse_hidden_at(ask, found.plot, &found.relative, &found.stat)
    }

    fn refuse_hidden_at(
        &self,
        ask: &PathQuery<'_>,
        plot: &OpenRoot,
        relative: &Path,
        stat: &Stat,
    ) -> Result<(), FileError> {
        let by_name = match plot.ground.judge(self.rules, relative) {
            PathDecision::Open => false,
            PathDecision::Hidden => true,
            PathDecision::HiddenUnlessPublic => !survey::is_public(&plot.ground, relative),
        };
        let by_survey = plot.closes(relative)
            || self.plots.iter().any(|plot| plot.hidden.contains(&(stat.st_dev, stat.st_ino)));
        if by_name || by_survey { Err(ask.refused(FileRefusal::Hidden)) } else { Ok(()) }
    }

    fn refuse_change(&self, ask: &PathQuery<'_>, plot: &OpenRoot, relative: &Path) -> Result<(), FileError> {
        if plot.access != Access::Write {
            return Err(ask.refused(FileRefusal::ReadOnly));
        }
        if self.rules.is_protected(relative) || plot.protects(relative) {
            Err(ask.refused(FileRefusal::Protected))
        } else {
            Ok(())
        }
    }

    fn refuse_escape(
        &self,
        ask: &PathQuery<'_>,
        place: &WriteTarget<'_>,
        target: &Path,
    ) -> Result<(), FileError> {
        if target.as_os_str().is_empty() {
            return Err(ask.refused(FileRefusal::Malformed));
        }
        let above = place.relative.parent().unwrap_or(Path::new(""));
        let full = place.plot.ground.path.join(above).join(target);
        let end = survey::destination(&full);
        let inside = self.plots.iter().any(|plot| end.starts_with(&plot.ground.path));
        if inside { Ok(()) } else { Err(ask.refused(FileRefusal::Outside)) }
    }
}

/// Where the whole machine is open.
struct NoRules;

impl SurveyRules for NoRules {
    fn judge(&self, _relative: &Path) -> PathDecision {
        PathDecision::Open
    }

    fn protected_at_root(&self) -> &[&str] {
        &[]
    }

    fn protected_anywhere(&self) -> &[&str] {
        &[]
    }

    fn is_protected(&self, _relative: &Path) -> bool {
        false
    }
}

impl std::fmt::Debug for FileTree<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("plots", &self.plots).finish_non_exhaustive()
    }
}

/// One root with what the survey found in it.
#[derive(Debug)]
struct OpenRoot {
    ground: RootHandle,
    access: Access,
    protected: BTreeSet<PathBuf>,
    /// What may be changed although something around it is protected.
    open: BTreeSet<PathBuf>,
    rewritten: Vec<(PathBuf, Vec<u8>)>,
    /// Device and inode of every masked file: its names do not matter.
    hidden: BTreeSet<(u64, u64)>,
    /// Directories that are masked as a whole.
    closed: BTreeSet<PathBuf>,
    /// Absolute.
    masked_links: BTreeSet<PathBuf>,
}

/// How often a walk is repeated. Bounded: a process that renames without a pause must not hold a call for ever.
const WALKS: usize = 1000;

/// KERNEL: below a root the step `..` answers EAGAIN when anything on the machine was renamed or mounted during the walk,
/// however far from the root.
fn handle_beneath(root: &OwnedFd, path: &Path, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let walk = || rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    let mut walks = std::iter::repeat_with(walk).take(WALKS);
    walks.find(|walked| !matches!(walked, Err(Errno::AGAIN))).unwrap_or(Err(Errno::AGAIN))
}

impl OpenRoot {
    fn open(surveyed: SurveyedRoot, access: Access) -> Result<Self, SurveyError> {
        let ground = RootHandle::open(&surveyed.path)?;
        let mut hidden = BTreeSet::new();
        let mut closed = BTreeSet::new();
        for mask in &surveyed.masks {
            let Some(stat) = ground.stat(mask)? else { continue };
            hidden.insert((stat.st_dev, stat.st_ino));
            closed.extend((EntryType::of(file_type(&stat)) == EntryType::Directory).then(|| mask.clone()));
        }
        let protected = protected(&surveyed);
        let masked_links = surveyed.protected_links.iter().map(|link| surveyed.path.join(link)).collect();
        let open = surveyed.open.into_iter().collect();
        let rewritten = surveyed.rewritten;
        Ok(Self { ground, access, protected, open, rewritten, hidden, closed, masked_links })
    }

    /// Opens what `relative` leads to as a mere handle. `Ok(None)` if it is gone from the root by now.
    fn look(&self, relative: &Path, more: ResolveFlags) -> Result<Option<LocatedFile<'_>>, Errno> {
        let path = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | more;
        let handle = handle_beneath(&self.ground.fd, path, resolve)?;
        let stat = rustix::fs::fstat(&handle)?;
        let Some(relative) = self.name_of(&handle)? else { return Ok(None) };
        Ok(Some(LocatedFile { plot: self, relative, handle, stat }))
    }

    /// The name the kernel knows the handle by, from the root.
    fn name_of(&self, handle: &OwnedFd) -> Result<Option<PathBuf>, Errno> {
        let path = rustix::fs::readlink(link_to(handle), Vec::new())?;
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        Ok(path.strip_prefix(&self.ground.path).ok().map(Path::to_owned))
    }

    fn parent(&self, relative: &Path) -> Result<(OwnedFd, OsString), Errno> {
        let name = relative.file_name().ok_or(Errno::INVAL)?.to_owned();
        let above = relative.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok((rustix::fs::openat2(&self.ground.fd, above, flags, Mode::empty(), resolve)?, name))
    }

    /// The nearest of what is protected and what is open decides.
    fn protects(&self, relative: &Path) -> bool {
        let marked = |path: &&Path| self.open.contains(*path) || self.protected.contains(*path);
        relative.ancestors().find(marked).is_some_and(|path| !self.open.contains(path))
    }

    fn closes(&self, relative: &Path) -> bool {
        relative.ancestors().any(|ancestor| self.closed.contains(ancestor))
    }

    fn rewritten(&self, relative: &Path) -> Option<&[u8]> {
        self.rewritten.iter().find(|(path, _)| path == relative).map(|(_, content)| content.as_slice())
    }
}

/// Everything that must not be changed, the root itself (by an empty path) included.
fn protected(surveyed: &SurveyedRoot) -> BTreeSet<PathBuf> {
    let rewritten = surveyed.rewritten.iter().map(|(path, _)| path);
    let links = surveyed.protected_links.iter().chain(&surveyed.held_links);
    let named = surveyed.protected.iter().chain(&surveyed.read_only).chain(surveyed.held_places());
    let root = surveyed.held.then(PathBuf::new);
    named.chain(links).chain(rewritten).cloned().chain(root).collect()
}

/// A directory with the name of something in it, which need not exist.
struct ParentDir<'t> {
    directory: LocatedFile<'t>,
    parent: OwnedFd,
    name: OsString,
}

/// Something that exists in a root.
struct LocatedFile<'t> {
    plot: &'t OpenRoot,
    /// Its real name, without links.
    relative: PathBuf,
    /// `O_PATH`: nothing has been opened yet, so a device or a FIFO has not noticed.
    handle: OwnedFd,
    stat: Stat,
}

impl LocatedFile<'_> {
    fn kind(&self) -> EntryType {
        EntryType::of(file_type(&self.stat))
    }

    /// The very thing that was judged, opened.
    fn reopen(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::open(link_to(&self.handle), flags, Mode::empty())
    }
}

/// Where a file is about to be put.
struct WriteTarget<'t> {
    plot: &'t OpenRoot,
    relative: PathBuf,
    parent: OwnedFd,
    name: OsString,
    /// The file that is there now.
    replaced: Option<Stat>,
}

impl WriteTarget<'_> {
    /// A new file beside the old one, then renamed over it: no link can be written through.
    fn replace(&self, content: &[u8]) -> io::Result<()> {
        let (temporary, mut file) = self.temporary()?;
        let done = self.finish(&mut file, content, &temporary);
        if done.is_err() {
            rustix::fs::unlinkat(&self.parent, &temporary, AtFlags::empty())?;
        }
        done
    }

    fn finish(&self, file: &mut File, content: &[u8], temporary: &OsStr) -> io::Result<()> {
        file.write_all(content)?;
        if let Some(old) = &self.replaced {
            let (owner, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            // Only root can keep another owner; anyone else becomes the owner of what they write.
            match rustix::fs::fchown(&*file, Some(owner), Some(group)) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(errno) => return Err(errno.into()),
            }
            rustix::fs::fchmod(&*file, Mode::from_raw_mode(old.st_mode & 0o777))?;
        }
        Ok(rustix::fs::renameat(&self.parent, temporary, &self.parent, &self.name)?)
    }

    fn temporary(&self) -> io::Result<(OsString, File)> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create =
            if self.replaced.is_some() { Mode::RUSR | Mode::WUSR } else { Mode::from_raw_mode(0o666) };
        loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!(".ringfence-{}-{number}.tmp", std::process::id()));
            match rustix::fs::openat(&self.parent, &name, flags, create) {
                Ok(fd) => return Ok((name, File::from(fd))),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// One question, for its answers.
#[derive(Clone, Copy)]
struct PathQuery<'p> {
    action: &'static str,
    path: &'p Path,
}

impl<'p> PathQuery<'p> {
    fn new(action: &'static str, path: &'p Path) -> Self {
        Self { action, path }
    }

    fn refused(&self, refusal: FileRefusal) -> FileError {
        FileError::Refused { path: self.path.to_owned(), refusal }
    }

    fn failed(&self) -> impl Fn(Errno) -> FileError {
        let failed = self.failed_io();
        move |errno| failed(io::Error::from(errno))
    }

    fn failed_io(&self) -> impl Fn(io::Error) -> FileError {
        let (action, path) = (self.action, self.path.to_owned());
        move |source| FileError::Io { action, path: path.clone(), source }
    }
}

fn link_to(handle: &OwnedFd) -> String {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd())
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// What goes away while it is looked at is listed as the directory had it.
fn listed(directory: &OwnedFd, name: &OsStr, known: FileType) -> ListedEntry {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let modified = |stat: &Stat| {
        stat.st_mtime.saturating_mul(1000).saturating_add_unsigned(stat.st_mtime_nsec / 1_000_000)
    };
    ListedEntry {
        name: name.to_owned(),
        kind: told(EntryType::of(stat.as_ref().map_or(known, file_type))),
        bytes: stat.as_ref().map_or(0, |stat| stat.st_size.cast_unsigned()),
        modified_ms: stat.as_ref().map_or(0, modified),
    }
}

fn told(kind: EntryType) -> EntryKind {
    match kind {
        EntryType::Directory => EntryKind::Directory,
        EntryType::File => EntryKind::File,
        EntryType::Link => EntryKind::Link,
        EntryType::Other => EntryKind::Other,
    }
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

#[cfg(test)]
mod tests;
