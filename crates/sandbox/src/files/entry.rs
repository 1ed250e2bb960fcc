//! Entries of directories: looked at, moved, removed.
//!
//! What is moved or removed is the entry itself, never what a link leads to; only the directory is reached through links.
//! Moved are regular files alone: a directory would take along what is hidden, protected or asked about by its path.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::{
    EntryKind, EntryType, FileError, FileRefusal, FileTree, LocatedFile, OpenRoot, ParentDir, PathQuery,
    file_type, told,
};

/// What is known of something without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStat {
    pub kind: EntryKind,
    pub bytes: u64,
    /// The permissions.
    pub mode: u32,
    /// Seconds since 1970.
    pub modified: i64,
}

impl FileTree<'_> {
    /// What a path leads to, through links.
    pub fn stat(&self, path: &Path) -> Result<FileStat, FileError> {
        let found = self.visible(&PathQuery::new("look at", path))?;
        // What is shown without credentials is as long as what is shown.
        let shown = found.plot.rewritten(&found.relative).map(|content| content.len() as u64);
        Ok(FileStat {
            kind: told(found.kind()),
            bytes: shown.unwrap_or_else(|| found.stat.st_size.cast_unsigned()),
            mode: found.stat.st_mode & 0o7777,
            modified: found.stat.st_mtime,
        })
    }

    /// Removes a file, a link or an empty directory.
    pub fn remove(&self, path: &Path) -> Result<(), FileError> {
        let ask = PathQuery::new("remove", path);
        let entry = self.removable(&ask)?;
        let flags = if entry.kind() == EntryType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&entry.parent, &entry.name, flags).map_err(ask.failed())
    }

    /// Moves a regular file to where there is none, or over one that may be replaced.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        let ask = PathQuery::new("move", from);
        let source = self.removable(&ask)?;
        match source.kind() {
            EntryType::File => {}
            EntryType::Link => return Err(ask.refused(FileRefusal::Link)),
            EntryType::Directory | EntryType::Other => return Err(ask.refused(FileRefusal::NotRegular)),
        }
        let there = PathQuery::new("move to", to);
        self.refuse_link(&there)?;
        let place = self.writable(&there)?;
        let flags = match place.replaced {
            Some(_) => RenameFlags::empty(),
            None => RenameFlags::NOREPLACE,
        };
        match rustix::fs::renameat_with(&source.parent, &source.name, &place.parent, &place.name, flags) {
            Err(Errno::EXIST) => Err(there.refused(FileRefusal::Exists)),
            other => other.map_err(there.failed()),
        }
    }

    pub(super) fn visible<'t>(&'t self, ask: &PathQuery<'_>) -> Result<LocatedFile<'t>, FileError> {
        let found = self.resolve(ask)?;
        if found.kind() != EntryType::Directory {
            self.refuse_hidden(ask, &found)?;
        } else if self.rules.hides_all(&found.relative) || found.plot.closes(&found.relative) {
            return Err(ask.refused(FileRefusal::Hidden));
        }
        Ok(found)
    }

    pub(super) fn removable<'t>(&'t self, ask: &PathQuery<'_>) -> Result<DirEntry<'t>, FileError> {
        let entry = self.entry(ask)?;
        self.refuse_change(ask, entry.plot, &entry.relative)?;
        if entry.kind() == EntryType::Directory {
            self.refuse_directory(ask, &entry)?;
        } else {
            self.refuse_hidden_at(ask, entry.plot, &entry.relative, &entry.stat)?;
        }
        if entry.plot.masked_links.contains(&entry.plot.ground.path.join(&entry.relative)) {
            return Err(ask.refused(FileRefusal::Hidden));
        }
        Ok(entry)
    }

    fn refuse_directory(&self, ask: &PathQuery<'_>, entry: &DirEntry<'_>) -> Result<(), FileError> {
        if self.rules.hides_all(&entry.relative) || entry.plot.closes(&entry.relative) {
            return Err(ask.refused(FileRefusal::Hidden));
        }
        // Also what is held below it and does not exist yet.
        if entry.plot.protected.iter().any(|held| held.starts_with(&entry.relative)) {
            return Err(ask.refused(FileRefusal::Protected));
        }
        Ok(())
    }

    fn entry<'t>(&'t self, ask: &PathQuery<'_>) -> Result<DirEntry<'t>, FileError> {
        let ParentDir { directory, parent, name } = self.above(ask)?;
        let stat = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(ask.failed())?;
        let full = directory.plot.ground.path.join(&directory.relative).join(&name);
        let (plot, relative) = self.locate(ask, &full)?;
        if relative.as_os_str().is_empty() {
            // A root of its own.
            return Err(ask.refused(FileRefusal::Protected));
        }
        Ok(DirEntry { plot, relative, parent, name, stat })
    }

    /// Refuses a link at the end of the path: a write would replace it by a file and cut off what it leads to.
    fn refuse_link(&self, ask: &PathQuery<'_>) -> Result<(), FileError> {
        match self.entry(ask) {
            Ok(entry) if entry.kind() == EntryType::Link => Err(ask.refused(FileRefusal::Link)),
            Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map(drop),
        }
    }
}

/// A name in a directory, with what is there.
pub(super) struct DirEntry<'t> {
    plot: &'t OpenRoot,
    relative: PathBuf,
    parent: OwnedFd,
    name: OsString,
    stat: Stat,
}

impl DirEntry<'_> {
    fn kind(&self) -> EntryType {
        EntryType::of(file_type(&self.stat))
    }
}
