//! Looking at things relative to a root, never through a symbolic link.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use ringfence_types::PathDecision;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::{SurveyError, SurveyRules};

/// A root, held open.
#[derive(Debug)]
pub(crate) struct RootHandle {
    pub(crate) path: PathBuf,
    pub(crate) fd: OwnedFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryType {
    Directory,
    File,
    Link,
    Other,
}

/// What is at a path, looked up component by component.
pub(super) enum PathProbe {
    /// The first component that does not exist.
    Missing(PathBuf),
    /// The first component that is a symbolic link.
    Link(PathBuf),
    Present(EntryType),
}

impl RootHandle {
    /// Opens a root only where no part of its path is a link. Roots are real paths when a session begins, and a command of
    /// another session can make a directory above one a link since: then the path leads to another directory.
    pub(crate) fn open(path: &Path) -> Result<Self, SurveyError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened =
            handle_unlinked(path).and_then(|top| rustix::fs::openat(&top, ".", flags, Mode::empty()));
        Ok(Self { path: path.to_owned(), fd: opened.map_err(failed("open", path))? })
    }

    /// What `rules` say about a file of this root. A root that is itself called `.ssh` or `.kube` counts as part of the
    /// name: what is in it is what such a directory holds.
    pub(crate) fn judge(&self, rules: &dyn SurveyRules, relative: &Path) -> PathDecision {
        let verdict = rules.judge(relative);
        match self.path.file_name().filter(|name| name.as_bytes().starts_with(b".")) {
            Some(name) if verdict == PathDecision::Open => rules.judge(&Path::new(name).join(relative)),
            _ => verdict,
        }
    }

    pub(super) fn probe(&self, relative: &Path) -> Result<PathProbe, SurveyError> {
        let mut reached = PathBuf::new();
        let mut kind = EntryType::Directory;
        for component in relative.components() {
            if kind != EntryType::Directory {
                return Ok(PathProbe::Present(kind));
            }
            reached.push(component);
            match self.kind(&reached)? {
                None => return Ok(PathProbe::Missing(reached)),
                Some(EntryType::Link) => return Ok(PathProbe::Link(reached)),
                Some(found) => kind = found,
            }
        }
        Ok(PathProbe::Present(kind))
    }

    pub(super) fn kind(&self, relative: &Path) -> Result<Option<EntryType>, SurveyError> {
        Ok(self.stat(relative)?.map(|stat| EntryType::of(FileType::from_raw_mode(stat.st_mode))))
    }

    pub(crate) fn stat(&self, relative: &Path) -> Result<Option<Stat>, SurveyError> {
        let stat = match rustix::fs::statat(&self.fd, relative, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NAMETOOLONG) => self.stat_in_pieces(relative),
            stat => stat,
        };
        match stat {
            Ok(stat) => Ok(Some(stat)),
            // Below an unreadable directory nothing can be reached from inside either.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
            // No file has such a name: it is longer than names are, or has a zero byte in it.
            Err(Errno::NAMETOOLONG | Errno::INVAL) => Ok(None),
            Err(errno) => Err(failed("look at", &self.path.join(relative))(errno)),
        }
    }
}

/// What is at a path, as a mere handle, where no part of the path is a link. The last one may be a link, and is not followed.
///
/// WHY NOT `openat2`: a fence inside a fence does not have it.
pub(crate) fn handle_unlinked(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let start = if path.is_absolute() { "/" } else { "." };
    let mut at = rustix::fs::open(start, flags, Mode::empty())?;
    for component in path.components().filter(|component| !matches!(component, Component::RootDir)) {
        // A handle of a link is no directory, so that the next step ends with ENOTDIR.
        at = rustix::fs::openat(&at, component.as_os_str(), flags, Mode::empty())?;
    }
    Ok(at)
}

impl RootHandle {
    fn stat_in_pieces(&self, relative: &Path) -> Result<Stat, Errno> {
        let name = relative.file_name().ok_or(Errno::NOENT)?;
        let above = relative.parent().unwrap_or(Path::new(""));
        let directory = open_directory(self.fd.as_fd(), above.as_os_str().as_bytes())?;
        rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
    }
}

impl EntryType {
    pub(crate) fn of(file_type: FileType) -> Self {
        match file_type {
            FileType::Directory => Self::Directory,
            FileType::RegularFile => Self::File,
            FileType::Symlink => Self::Link,
            _ => Self::Other,
        }
    }
}

/// What of a path is opened at once.
pub(super) const PIECE: usize = 3072;

/// Opens a directory below `root`. Paths longer than the kernel takes at once are opened in pieces, so that depth
/// hides nothing.
pub(crate) fn open_directory(root: BorrowedFd<'_>, relative: &[u8]) -> Result<OwnedFd, Errno> {
    let mut rest = relative;
    let mut held: Option<OwnedFd> = None;
    while rest.len() > PIECE {
        let cut = rest.iter().take(PIECE).rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let (piece, tail) = rest.split_at(cut);
        held = Some(open_piece(held.as_ref().map_or(root, AsFd::as_fd), piece)?);
        rest = tail.get(1..).unwrap_or_default();
    }
    open_piece(held.as_ref().map_or(root, AsFd::as_fd), rest)
}

fn open_piece(directory: BorrowedFd<'_>, relative: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if relative.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(relative) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(
        directory,
        path,
        flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )
}

/// The whole content of a regular file, or `None` if it is not one, cannot be read or is larger than `max`.
pub(crate) fn read_small(directory: BorrowedFd<'_>, path: &Path, max: u64) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let stat = rustix::fs::statat(directory, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    // Looked at before it is opened: opening a device can already do something.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let file = File::from(rustix::fs::openat(directory, path, flags, Mode::empty()).ok()?);
    let mut content = Vec::new();
    file.take(max + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= max).then_some(content)
}

/// The root deepest in the tree that holds `path`, and where in it.
pub(crate) fn innermost(grounds: &[RootHandle], path: &Path) -> Option<(usize, PathBuf)> {
    let holding = grounds.iter().enumerate().filter(|(_, ground)| path.starts_with(&ground.path));
    let (index, ground) = holding.max_by_key(|(_, ground)| ground.path.as_os_str().len())?;
    path.strip_prefix(&ground.path).ok().map(|relative| (index, relative.to_owned()))
}

/// Where a symbolic link leads, also when what it leads to does not exist (yet).
pub(crate) fn destination(link: &Path) -> PathBuf {
    const LINKS: usize = 40;
    let mut path = link.to_owned();
    for _ in 0..LINKS {
        let (existing, rest) = deepest_existing(&path);
        if rest.as_os_str().is_empty() {
            return existing;
        }
        let Ok(target) = std::fs::read_link(existing.join(first(&rest))) else { return existing.join(rest) };
        let beyond: PathBuf = rest.components().skip(1).collect();
        path = normalized(&existing.join(target)).join(beyond);
    }
    path
}

/// The longest path that [`resolved`] follows.
pub(crate) const LONGEST_RESOLVED: usize = 64 * 1024;

/// Where `path` is when every link in it is followed, as the kernel does it. `None` where that is not known: `..` behind a name
/// that is missing, a zero byte, more links than the kernel follows, and a path that no program uses, whose length would take
/// minutes. What is missing may become a link to any place.
pub(crate) fn resolved(path: &Path) -> Option<PathBuf> {
    const LINKS: usize = 40;
    if path.as_os_str().len() > LONGEST_RESOLVED {
        return None;
    }
    let mut links = 0;
    let mut missing = false;
    let mut reached = PathBuf::from("/");
    let mut ahead: Vec<OsString> = components_reversed(path);
    while let Some(component) = ahead.pop() {
        if component == ".." {
            if missing {
                return None;
            }
            reached.pop();
            continue;
        }
        let next = reached.join(&component);
        match rustix::fs::readlink(&next, Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > LINKS {
                    return None;
                }
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                if target.is_absolute() {
                    reached = PathBuf::from("/");
                }
                ahead.extend(components_reversed(target));
            }
            // Something is there that is no link.
            Err(Errno::INVAL) if !next.as_os_str().as_bytes().contains(&0) => reached = next,
            Err(Errno::INVAL) => return None,
            Err(_) => {
                missing = true;
                reached = next;
            }
        }
    }
    Some(reached)
}

/// Every symbolic link that following `link` passes, itself included: each decides where it leads.
pub(crate) fn links_on_the_way(link: &Path) -> Vec<PathBuf> {
    const LINKS: usize = 40;
    let mut passed = Vec::new();
    let mut reached = PathBuf::from("/");
    let mut ahead: Vec<OsString> = components_reversed(link);
    while let Some(component) = ahead.pop() {
        if component == ".." {
            reached.pop();
            continue;
        }
        let next = reached.join(&component);
        match std::fs::read_link(&next) {
            Ok(target) if passed.len() < LINKS => {
                if target.is_absolute() {
                    reached = PathBuf::from("/");
                }
                ahead.extend(components_reversed(&target));
                passed.push(next);
            }
            _ => reached = next,
        }
    }
    passed
}

fn components_reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    });
    names.collect::<Vec<_>>().into_iter().rev().collect()
}

/// The canonical path of the longest prefix that exists, and the rest.
fn deepest_existing(path: &Path) -> (PathBuf, PathBuf) {
    for ancestor in path.ancestors() {
        if let Ok(canonical) = std::fs::canonicalize(ancestor) {
            return (canonical, path.strip_prefix(ancestor).map(Path::to_owned).unwrap_or_default());
        }
    }
    (PathBuf::from("/"), path.strip_prefix("/").map(Path::to_owned).unwrap_or_default())
}

fn first(path: &Path) -> &OsStr {
    path.components().next().map(Component::as_os_str).unwrap_or_default()
}

/// What the text of a link means, by text alone.
pub(super) fn beside(link: &Path, text: &Path) -> PathBuf {
    normalized(&link.parent().unwrap_or(link).join(text))
}

/// `path` without `.` and `..`, by text alone.
pub(crate) fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(Errno) -> SurveyError {
    let path = path.to_owned();
    move |errno| SurveyError::Io { action, path, source: io::Error::from(errno) }
}
