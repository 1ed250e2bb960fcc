//! What waits, counted and dropped. What landed stays, with what an undo needs.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::beneath::{HeldTree, chmod_held, names, stat_at};
use crate::error::LayerError;
use crate::layer::{Layer, LayerState};
use crate::remove::remove_tree;
use crate::stamp::Stamp;
use crate::walk::{RecordedModes, UpperCandidate, Walk};

impl Layer {
    /// Whether something landed that was not taken back.
    pub fn has_landed(&self) -> bool {
        !self.record().landings.is_empty()
    }

    /// The directory with versions of the host's files that were in the way. They may be nowhere else. `None`: there are none.
    pub fn set_aside(&self) -> Result<Option<PathBuf>, LayerError> {
        let path = self.path().join("aside");
        match fs::read_dir(&path) {
            Ok(mut entries) => Ok(entries.next().is_some().then_some(path)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LayerError::io("read", &path, error)),
        }
    }

    /// How many entries differ from the host by their names and times. No content is read: it may be huge, and is about to go.
    pub fn count_waiting(&self) -> Result<usize, LayerError> {
        let mut count = 0;
        for (number, root) in self.open_roots()?.iter().enumerate() {
            let known = self.base(number)?;
            let walk = Walk { upper: &root.upper, host: &root.host, modes: &known.modes };
            count += walk.run()?.candidates.iter().filter(|candidate| is_waiting(candidate)).count();
        }
        Ok(count)
    }

    /// Removes what waits, and keeps what landed with its before-images. Can be repeated after a crash.
    pub fn drop_waiting(&mut self) -> Result<(), LayerError> {
        if self.state() == LayerState::Open {
            self.close_view()?;
        }
        let roots = self.open_roots()?;
        for (number, root) in roots.iter().enumerate() {
            let modes = emptied(&root.upper, &root.host)?;
            let mut known = self.base(number)?;
            known.modes = modes;
            known.write(&self.base_path(number))?;
        }
        self.refresh(&roots)
    }
}

fn is_waiting(candidate: &UpperCandidate) -> bool {
    match (&candidate.upper, &candidate.host) {
        (None, None) => false,
        (Some(upper), Some(host)) if upper.stamp.is_directory() && host.is_directory() => {
            upper.stamp.permissions() != host.permissions()
        }
        (Some(upper), Some(host)) => !looks_alike(&upper.stamp, host),
        _ => true,
    }
}

fn looks_alike(one: &Stamp, other: &Stamp) -> bool {
    one.mode == other.mode && one.bytes == other.bytes && one.modified == other.modified
}

/// Removes everything but directories that the host has too: what an undo takes back comes into them. They get the permissions of
/// the host's. Gives the permissions of those that their owner could not work in.
fn emptied(upper: &HeldTree, host: &HeldTree) -> Result<RecordedModes, LayerError> {
    let mut modes = HashMap::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        let failed = |errno| upper.failed("remove what is in", &path, errno);
        if let Some(mode) = matched(upper, host, &path).map_err(failed)? {
            modes.insert(path.clone(), mode);
        }
        let directory = upper.directory(&path).map_err(failed)?;
        for name in names(directory.as_fd()).map_err(failed)? {
            let below = path.join(&name);
            let found = stat_at(directory.as_fd(), &name).map_err(failed)?;
            let is_directory = found.is_some_and(|stat| Stamp::of(&stat).is_directory());
            if is_directory && is_directory_of(host, &below) {
                pending.push(below);
            } else {
                remove_tree(&upper.path().join(&path), &name)?;
            }
        }
    }
    Ok(modes)
}

fn is_directory_of(host: &HeldTree, path: &Path) -> bool {
    match host.stat(path) {
        Ok(found) => found.is_some_and(|stat| Stamp::of(&stat).is_directory()),
        // It landed in a directory that its owner cannot enter.
        Err(errno) => errno == Errno::ACCESS,
    }
}

/// Gives a directory of the upper the permissions that the host's has, and the owner what is needed to work in it.
fn matched(upper: &HeldTree, host: &HeldTree, path: &Path) -> Result<Option<u32>, Errno> {
    let found = match host.stat(path) {
        Err(Errno::ACCESS) => return Ok(None),
        found => found?,
    };
    let Some(mode) = found.map(|stat| Stamp::of(&stat).permissions()) else { return Ok(None) };
    let worked = if rustix::process::geteuid().is_root() { mode } else { mode | 0o700 };
    chmod_held(upper.place(path)?.as_fd(), worked)?;
    Ok((worked != mode).then_some(mode))
}
