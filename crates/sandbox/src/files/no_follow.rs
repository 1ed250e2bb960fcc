//! A file exactly where its name says: nothing on the way is a link, so that two names in one set of changes cannot mean
//! one file.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ringfence_types::PathDecision;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{EntryType, FileError, FileRefusal, FileTree, LocatedFile, OpenRoot, PathQuery, WriteTarget};

/// What is at a place where a file may be put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoFollowTarget {
    File(Vec<u8>),
    /// Nothing, and these directories above it are missing as well: absolute, outermost first.
    Vacant {
        missing: Vec<PathBuf>,
    },
}

impl FileTree<'_> {
    /// Looks at an absolute path as if it were about to be replaced, created or removed: refused wherever that would be.
    /// A file of more than `max` bytes is refused.
    pub fn place(&self, path: &Path, max: u64) -> Result<NoFollowTarget, FileError> {
        let ask = PathQuery::new("change", path);
        let (plot, relative) = self.locate(&ask, path)?;
        match plot.look(&relative, ResolveFlags::NO_SYMLINKS) {
            Ok(found) => {
                let found = self.at_home(&ask, found)?;
                let target = self.existing_target(&ask, found)?;
                content(&ask, &target, max).map(NoFollowTarget::File)
            }
            Err(Errno::NOENT) => {
                self.vacant(&ask, plot, &relative).map(|missing| NoFollowTarget::Vacant { missing })
            }
            Err(errno) => Err(obstacle(&ask, errno)),
        }
    }

    fn vacant(
        &self,
        ask: &PathQuery<'_>,
        plot: &OpenRoot,
        relative: &Path,
    ) -> Result<Vec<PathBuf>, FileError> {
        let mut missing = Vec::new();
        for above in relative.ancestors().skip(1) {
            match plot.look(above, ResolveFlags::NO_SYMLINKS) {
                Ok(found) => {
                    let directory = self.at_home(ask, found)?;
                    let rest = relative.strip_prefix(above).unwrap_or(relative);
                    self.refuse_vacant(ask, &directory, rest)?;
                    missing.reverse();
                    return Ok(missing);
                }
                Err(Errno::NOENT) => missing.push(plot.ground.path.join(above)),
                Err(errno) => return Err(obstacle(ask, errno)),
            }
        }
        Err(ask.refused(FileRefusal::Outside))
    }

    fn refuse_vacant(
        &self,
        ask: &PathQuery<'_>,
        directory: &LocatedFile<'_>,
        rest: &Path,
    ) -> Result<(), FileError> {
        if directory.kind() != EntryType::Directory {
            return Err(ask.refused(FileRefusal::NotDirectory));
        }
        let relative = directory.relative.join(rest);
        let closed = directory.plot.closes(&directory.relative) || self.rules.hides_all(&directory.relative);
        if closed || self.rules.judge(&relative) == PathDecision::Hidden {
            return Err(ask.refused(FileRefusal::Hidden));
        }
        self.refuse_change(ask, directory.plot, &relative)
    }
}

fn content(ask: &PathQuery<'_>, target: &WriteTarget<'_>, max: u64) -> Result<Vec<u8>, FileError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat(&target.parent, &target.name, flags, Mode::empty()).map_err(ask.failed())?;
    let mut content = Vec::new();
    File::from(file).take(max.saturating_add(1)).read_to_end(&mut content).map_err(ask.failed_io())?;
    if content.len() as u64 > max { Err(ask.refused(FileRefusal::TooLarge)) } else { Ok(content) }
}

fn obstacle(ask: &PathQuery<'_>, errno: Errno) -> FileError {
    match errno {
        Errno::LOOP => ask.refused(FileRefusal::Link),
        Errno::NOTDIR => ask.refused(FileRefusal::NotDirectory),
        Errno::XDEV => ask.refused(FileRefusal::Outside),
        Errno::NAMETOOLONG => ask.refused(FileRefusal::Malformed),
        other => ask.failed()(other),
    }
}
