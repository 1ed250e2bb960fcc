//! Carries out a plan: stages, exchanges, sets permissions, and takes back. Landing and undo are the same steps with the two sides
//! exchanged; every step can be repeated by another process.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, EntryKind};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::beneath::{HeldTree, chmod_held, name_of};
use crate::change::ChangeKind;
use crate::copy::{EntryPlace, copy, times};
use crate::error::LayerError;
use crate::landing::{ConflictReason, LandingDirection};
use crate::plan::{LandingPlan, Placement, PlannedEntry, RelaxedDirectory, SlotStaging};
use crate::stamp::Stamp;
use crate::swap::{Swap, SwapError};
use crate::{attributes, fault, record};

/// A root of the layer with its upper, both held open.
#[derive(Debug)]
pub(crate) struct LayerRoot {
    pub(crate) path: ByteString,
    pub(crate) upper: HeldTree,
    pub(crate) host: HeldTree,
    pub(crate) placement: Placement,
}

/// The directories of one landing.
#[derive(Debug)]
pub(crate) struct LandingDirectory {
    pub(crate) path: PathBuf,
    /// Slots, and after the landing the before-images.
    pub(crate) kept: HeldTree,
    /// The entries of the upper that were copied.
    pub(crate) copied: HeldTree,
    /// Versions of the host that were in the way.
    pub(crate) aside: HeldTree,
}

impl LandingDirectory {
    pub(crate) fn open(layer: &Path, landing: u32) -> Result<Self, LayerError> {
        let path = directory_of(layer, landing);
        Ok(Self {
            kept: HeldTree::private(&path.join("kept"))?,
            copied: HeldTree::private(&path.join("copied"))?,
            aside: HeldTree::private(&layer.join("aside"))?,
            path,
        })
    }
}

pub(crate) fn directory_of(layer: &Path, landing: u32) -> PathBuf {
    layer.join("landings").join(landing.to_string())
}

/// What staging found out.
#[derive(Debug, Serialize, Deserialize)]
struct StagedEntry {
    number: u32,
    staging: SlotStaging,
    incoming: Option<Stamp>,
}

pub(crate) struct Transfer<'a> {
    pub(crate) roots: &'a [LayerRoot],
    pub(crate) directory: &'a LandingDirectory,
    pub(crate) direction: LandingDirection,
    pub(crate) plan: LandingPlan,
    /// By number.
    pub(crate) conflicts: BTreeMap<u32, ConflictReason>,
}

/// The slot of an entry.
pub(crate) struct OpenSlot<'a> {
    beside: Option<OwnedFd>,
    kept: BorrowedFd<'a>,
    name: OsString,
}

impl OpenSlot<'_> {
    pub(crate) fn place(&self) -> EntryPlace<'_> {
        let directory = self.beside.as_ref().map_or(self.kept, |fd| fd.as_fd());
        EntryPlace { directory, name: &self.name }
    }
}

/// The directory that entries were exchanged in last: neighbours share it.
#[derive(Default)]
struct LastParent {
    held: Option<HeldParent>,
}

struct HeldParent {
    root: usize,
    path: PathBuf,
    fd: OwnedFd,
}

impl<'a> Transfer<'a> {
    pub(crate) fn root(&self, entry: &PlannedEntry) -> Result<&'a LayerRoot, LayerError> {
        let path = entry.change.root.as_path();
        self.roots.get(entry.root).ok_or_else(|| LayerError::UnknownRoot { path: path.to_owned() })
    }

    fn failed(&self, action: &'static str, entry: &PlannedEntry, errno: Errno) -> LayerError {
        LayerError::io(action, &entry.change.absolute(), errno)
    }

    /// Where the before-image is, and the slot where the entry has none beside its target.
    pub(crate) fn kept_name(entry: &PlannedEntry) -> OsString {
        OsString::from(entry.number().to_string())
    }

    pub(crate) fn slot(&self, entry: &PlannedEntry) -> Result<Option<OpenSlot<'a>>, LayerError> {
        let kept = self.directory.kept.fd();
        let Some(beside) = &entry.beside else {
            return Ok(Some(OpenSlot { beside: None, kept, name: Self::kept_name(entry) }));
        };
        match self.root(entry)?.host.place(beside.directory.as_path()) {
            Ok(fd) => Ok(Some(OpenSlot { beside: Some(fd), kept, name: OsString::from(&beside.name) })),
            // The host removed the directory with what was in it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
            Err(errno) => Err(self.failed("open the directory of", entry, errno)),
        }
    }

    /// Puts everything into its slot, durable.
    pub(crate) fn stage(&mut self, name: &str) -> Result<(), LayerError> {
        let mut entries = std::mem::take(&mut self.plan.entries);
        let staged = entries.iter_mut().try_for_each(|entry| {
            self.stage_entry(entry)?;
            fault::point();
            Ok(())
        });
        self.plan.entries = entries;
        staged?;
        let found: Vec<StagedEntry> = self
            .plan
            .entries
            .iter()
            .map(|entry| StagedEntry {
                number: entry.number(),
                staging: entry.staging,
                incoming: entry.incoming.clone(),
            })
            .collect();
        record::write(&self.directory.path.join(name), &found)?;
        self.sync()
    }

    /// Reads what another process staged.
    pub(crate) fn read_staged(&mut self, name: &str) -> Result<(), LayerError> {
        let found: Vec<StagedEntry> = record::read(&self.directory.path.join(name))?;
        let mut found: HashMap<u32, StagedEntry> =
            found.into_iter().map(|staged| (staged.number, staged)).collect();
        for entry in &mut self.plan.entries {
            if let Some(staged) = found.remove(&entry.number()) {
                entry.staging = staged.staging;
                entry.incoming = staged.incoming;
            }
        }
        Ok(())
    }

    fn stage_entry(&self, entry: &mut PlannedEntry) -> Result<(), LayerError> {
        if entry.is_mode_only() {
            return Ok(());
        }
        let failed = |errno| self.failed("prepare", entry, errno);
        let Some(slot) = self.slot(entry)? else { return Err(failed(Errno::NOENT)) };
        let staged = match self.direction {
            LandingDirection::Land => self.stage_landing(entry, slot.place()),
            LandingDirection::Undo => self.stage_undo(entry, slot.place()),
        };
        let (staging, incoming) = match staged {
            Ok(staged) => (staged.staging, staged.incoming),
            Err(errno) => return Err(failed(errno)),
        };
        entry.staging = staging;
        entry.incoming = incoming;
        Ok(())
    }

    fn stage_landing(&self, entry: &PlannedEntry, slot: EntryPlace<'_>) -> Result<SlotContent, Errno> {
        let Some(root) = self.roots.get(entry.root) else { return Err(Errno::INVAL) };
        if entry.beside.is_some() && entry.outgoing.is_some() {
            let parent = root.host.parent(entry.path())?;
            let name = Self::kept_name(entry);
            let kept = EntryPlace { directory: self.directory.kept.fd(), name: &name };
            let mode = entry.outgoing.as_ref().map_or(0, Stamp::permissions);
            copy(EntryPlace { directory: parent.as_fd(), name: name_of(entry.path())? }, kept, mode)?;
            fault::point();
        }
        if entry.staging == SlotStaging::Nothing {
            return Ok(SlotContent { staging: SlotStaging::Nothing, incoming: None });
        }
        let parent = root.upper.parent(entry.path())?;
        let upper = EntryPlace { directory: parent.as_fd(), name: name_of(entry.path())? };
        if entry.staging == SlotStaging::Link {
            match link(upper, slot, entry) {
                Ok(()) => {
                    return Ok(SlotContent { staging: SlotStaging::Link, incoming: entry.incoming.clone() });
                }
                // A file that may not be changed, or that has too many names.
                Err(Errno::ACCESS | Errno::PERM | Errno::MLINK) => {}
                Err(errno) => return Err(errno),
            }
        }
        let staging =
            if entry.staging == SlotStaging::Directory { SlotStaging::Directory } else { SlotStaging::Copy };
        // Also where two names of the upper are one file: each name lands as a file of its own.
        let mode = entry.change.after.as_ref().map_or(0, |after| after.mode);
        let incoming = copy(upper, slot, mode)?;
        Ok(SlotContent { staging, incoming: Some(incoming) })
    }

    fn stage_undo(&self, entry: &PlannedEntry, slot: EntryPlace<'_>) -> Result<SlotContent, Errno> {
        let staging = entry.staging;
        let Some(before) = &entry.change.before else {
            return Ok(SlotContent { staging, incoming: None });
        };
        let name = Self::kept_name(entry);
        let kept = EntryPlace { directory: self.directory.kept.fd(), name: &name };
        let incoming = match entry.beside {
            Some(_) => Some(copy(kept, slot, before.mode)?),
            None => Some(kept.stamp()?.ok_or(Errno::NOENT)?),
        };
        Ok(SlotContent { staging, incoming })
    }

    /// Removes what was staged. Nothing is exchanged.
    pub(crate) fn unstage(&self) -> Result<(), LayerError> {
        for entry in &self.plan.entries {
            if entry.is_mode_only() {
                continue;
            }
            let failed = |errno| self.failed("clean up beside", entry, errno);
            let in_layer = entry.beside.is_none();
            // In the slot of an undo in the layer is the before-image.
            if !(in_layer && self.direction == LandingDirection::Undo)
                && let Some(slot) = self.slot(entry)?
            {
                slot.place().remove().map_err(failed)?;
            }
            fault::point();
        }
        Ok(())
    }

    /// Removes what is in a slot. Beside its target it may be in a directory that has its last permissions already.
    pub(crate) fn remove_slot(&self, entry: &PlannedEntry, slot: EntryPlace<'_>) -> Result<(), Errno> {
        let removed = slot.remove();
        let Some(beside) = &entry.beside else { return removed };
        if removed != Err(Errno::ACCESS) {
            return removed;
        }
        let Some(root) = self.roots.get(entry.root) else { return removed };
        let held = root.host.place(beside.directory.as_path())?;
        let mode = rustix::fs::fstat(&held)?.st_mode & 0o7777;
        chmod_held(held.as_fd(), mode | 0o700)?;
        fault::point();
        let removed = slot.remove();
        chmod_held(held.as_fd(), mode)?;
        removed
    }

    /// Exchanges everything, or completes that. Conflicts are noted.
    pub(crate) fn swap(&mut self) -> Result<(), LayerError> {
        let mut last = LastParent::default();
        let entries = std::mem::take(&mut self.plan.entries);
        let swapped = entries.iter().filter(|entry| !entry.is_mode_only()).try_for_each(|entry| {
            match self.swap_entry(entry, &mut last, |swap| swap.resume()) {
                Ok(()) => Ok(()),
                Err(SwapError::Conflict(reason)) => {
                    self.conflicts.insert(entry.number(), reason);
                    Ok(())
                }
                Err(error) => Err(self.swap_failed(entry, error)),
            }
        });
        self.plan.entries = entries;
        swapped
    }

    /// Takes back what was exchanged. What the host changed since then stays.
    pub(crate) fn swap_back(&mut self) -> Result<(), LayerError> {
        let mut last = LastParent::default();
        let entries = std::mem::take(&mut self.plan.entries);
        let swapped = entries.iter().rev().filter(|entry| !entry.is_mode_only()).try_for_each(|entry| {
            let back = |swap: Swap<'_>| {
                if swap.is_done()? { swap.reversed().run() } else { Ok(()) }
            };
            match self.swap_entry(entry, &mut last, back) {
                Ok(()) => Ok(()),
                Err(SwapError::Conflict(reason)) => {
                    self.conflicts.insert(entry.number(), reason);
                    Ok(())
                }
                Err(error) => Err(self.swap_failed(entry, error)),
            }
        });
        self.plan.entries = entries;
        swapped
    }

    fn swap_failed(&self, entry: &PlannedEntry, error: SwapError) -> LayerError {
        match error {
            SwapError::Failed(errno) => self.failed("replace", entry, errno),
            _ => LayerError::NoExchange { path: entry.change.absolute() },
        }
    }

    fn swap_entry(
        &self,
        entry: &PlannedEntry,
        last: &mut LastParent,
        run: impl FnOnce(Swap<'_>) -> Result<(), SwapError>,
    ) -> Result<(), SwapError> {
        let Some(root) = self.roots.get(entry.root) else { return Err(SwapError::Failed(Errno::INVAL)) };
        let name = name_of(entry.path())?;
        let parent = last.open(root, entry);
        let slot = match self.slot(entry) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Err(SwapError::Conflict(ConflictReason::RemovedOnHost)),
            Err(LayerError::Io { source, .. }) => {
                return Err(SwapError::Failed(Errno::from_io_error(&source).unwrap_or(Errno::IO)));
            }
            Err(_) => return Err(SwapError::Failed(Errno::INVAL)),
        };
        run(Swap {
            host: parent.map(|directory| EntryPlace { directory, name }),
            slot: slot.place(),
            incoming: entry.incoming.as_ref(),
            outgoing: entry.outgoing.as_ref(),
        })
    }

    /// Gives the owner of directories what the landing needs.
    pub(crate) fn relax(&self) -> Result<(), LayerError> {
        for directory in &self.plan.relaxed {
            if let Some(held) = self.relaxed(directory)? {
                chmod_held(held.as_fd(), directory.mode | 0o700)
                    .map_err(|errno| self.relaxed_failed(directory, errno))?;
                fault::point();
            }
        }
        Ok(())
    }

    pub(crate) fn restore_relaxed(&self) -> Result<(), LayerError> {
        for directory in self.plan.relaxed.iter().rev() {
            if let Some(held) = self.relaxed(directory)? {
                let failed = |errno| self.relaxed_failed(directory, errno);
                let stat = rustix::fs::fstat(&held).map_err(failed)?;
                if stat.st_mode & 0o7777 == directory.mode | 0o700 {
                    chmod_held(held.as_fd(), directory.mode).map_err(failed)?;
                    fault::point();
                }
            }
        }
        Ok(())
    }

    /// `None`: it is gone, or another directory is there.
    fn relaxed(&self, directory: &RelaxedDirectory) -> Result<Option<OwnedFd>, LayerError> {
        let Some(root) = self.roots.get(directory.root) else { return Ok(None) };
        let failed = |errno| self.relaxed_failed(directory, errno);
        let held = match root.host.place(directory.path.as_path()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
            held => held.map_err(failed)?,
        };
        let stat = rustix::fs::fstat(&held).map_err(failed)?;
        Ok((stat.st_ino == directory.inode).then_some(held))
    }

    fn relaxed_failed(&self, directory: &RelaxedDirectory, errno: Errno) -> LayerError {
        let path = self.roots.get(directory.root).map_or(Path::new(""), |root| root.host.path());
        LayerError::io("change the permissions of", &path.join(directory.path.as_path()), errno)
    }

    /// Permissions and times of directories, the innermost first, when their entries are in them.
    pub(crate) fn settle(&mut self) -> Result<(), LayerError> {
        self.restore_relaxed()?;
        let mut directories: Vec<PlannedEntry> = self
            .plan
            .entries
            .iter()
            .filter(|entry| {
                entry.target(self.direction).is_some_and(|target| target.kind == EntryKind::Directory)
                    && !self.conflicts.contains_key(&entry.number())
            })
            .cloned()
            .collect();
        // What is below has a longer path.
        directories.sort_by_key(|entry| std::cmp::Reverse(entry.path().as_os_str().len()));
        for entry in &directories {
            if let Some(reason) = self.settle_directory(entry, self.direction)? {
                self.conflicts.insert(entry.number(), reason);
            }
            fault::point();
        }
        Ok(())
    }

    /// The same after a rollback: what was only given other permissions gets the old ones.
    pub(crate) fn settle_back(&self) -> Result<(), LayerError> {
        let back = self.direction.reversed();
        for entry in self.plan.entries.iter().filter(|entry| entry.is_mode_only()) {
            self.settle_directory(entry, back)?;
        }
        for entry in self.plan.entries.iter().rev() {
            let directory = entry.outgoing.as_ref().is_some_and(Stamp::is_directory);
            if directory && !entry.is_mode_only() {
                self.settle_directory(entry, back)?;
            }
        }
        self.restore_relaxed()
    }

    fn settle_directory(
        &self,
        entry: &PlannedEntry,
        direction: LandingDirection,
    ) -> Result<Option<ConflictReason>, LayerError> {
        let root = self.root(entry)?;
        let Some(target) = entry.target(direction) else { return Ok(None) };
        let failed = |errno| self.failed("change the permissions of", entry, errno);
        let held = match root.host.place(entry.path()) {
            Err(Errno::NOENT) => return Ok(Some(ConflictReason::RemovedOnHost)),
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Some(ConflictReason::ParentReplaced)),
            held => held.map_err(failed)?,
        };
        let found = Stamp::of(&rustix::fs::fstat(&held).map_err(failed)?);
        if entry.is_mode_only() {
            let origin = entry.origin(direction).map_or(0, |origin| origin.mode);
            if ![origin, target.mode, target.mode | 0o700].contains(&found.permissions()) {
                return Ok(Some(ConflictReason::ChangedOnHost));
            }
            chmod_held(held.as_fd(), target.mode).map_err(failed)?;
            return Ok(None);
        }
        let ours = [entry.incoming.as_ref(), entry.outgoing.as_ref()].into_iter().flatten();
        if !ours.into_iter().any(|ours| ours.is_same_inode(&found)) {
            return Ok(Some(ConflictReason::ChangedOnHost));
        }
        // Other permissions are of the host.
        if [0o700, target.mode, target.mode | 0o700].contains(&found.permissions()) {
            chmod_held(held.as_fd(), target.mode).map_err(failed)?;
        }
        let (place, name) = (root.host.parent(entry.path()).map_err(failed)?, name_of(entry.path()));
        let name = name.map_err(failed)?;
        match rustix::fs::utimensat(&place, name, &times(target.modified), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) | Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Makes everything durable that was done so far.
    pub(crate) fn sync(&self) -> Result<(), LayerError> {
        let layer = &self.directory.kept;
        rustix::fs::syncfs(layer.fd()).map_err(|errno| layer.failed("sync", Path::new(""), errno))?;
        for root in self.roots.iter().filter(|root| root.placement == Placement::Beside) {
            // KERNEL: a descriptor of O_PATH does not do.
            rustix::fs::syncfs(root.host.fd())
                .map_err(|errno| root.host.failed("sync", Path::new(""), errno))?;
        }
        fault::point();
        Ok(())
    }

    /// The entries that are exchanged.
    pub(crate) fn done(&self) -> impl Iterator<Item = &PlannedEntry> {
        self.plan.entries.iter().filter(|entry| !self.conflicts.contains_key(&entry.number()))
    }
}

struct SlotContent {
    staging: SlotStaging,
    incoming: Option<Stamp>,
}

impl LastParent {
    fn open(&mut self, root: &LayerRoot, entry: &PlannedEntry) -> Result<BorrowedFd<'_>, Errno> {
        let path = entry.path().parent().ok_or(Errno::INVAL)?;
        let known = self.held.as_ref().is_some_and(|held| held.root == entry.root && held.path == path);
        if !known {
            let fd = root.host.place(path)?;
            self.held = Some(HeldParent { root: entry.root, path: path.to_owned(), fd });
        }
        self.held.as_ref().map(|held| held.fd.as_fd()).ok_or(Errno::INVAL)
    }
}

/// Gives a file of the upper a second name in the slot, without what overlayfs wrote on it.
fn link(upper: EntryPlace<'_>, slot: EntryPlace<'_>, entry: &PlannedEntry) -> Result<(), Errno> {
    let is_file = entry.incoming.as_ref().is_some_and(|incoming| incoming.kind() == EntryKind::File);
    if is_file && entry.change.kind != ChangeKind::Deleted {
        attributes::strip(upper.open(OFlags::RDONLY)?.as_fd())?;
        fault::point();
    }
    rustix::fs::linkat(upper.directory, upper.name, slot.directory, slot.name, AtFlags::empty())
}

/// Whether entries can be moved between the layer and a root.
pub(crate) fn placement(layer: &HeldTree, host: &HeldTree) -> Result<Placement, LayerError> {
    let device = |tree: &HeldTree| {
        rustix::fs::fstat(tree.fd())
            .map(|stat| stat.st_dev)
            .map_err(|errno| tree.failed("look at", Path::new(""), errno))
    };
    if device(layer)? != device(host)? {
        return Ok(Placement::Beside);
    }
    // KERNEL: two mounts of one file system are two to rename(2), which says so before it looks for the name.
    let (from, to) = (".ringfence-no-such-entry", ".ringfence-no-such-target");
    match rustix::fs::renameat(layer.fd(), from, host.fd(), to) {
        Err(Errno::XDEV) => Ok(Placement::Beside),
        _ => Ok(Placement::InLayer),
    }
}

pub(crate) fn make_directories(layer: &Path, landing: u32) -> Result<PathBuf, LayerError> {
    let path = directory_of(layer, landing);
    for directory in
        [layer.join("landings"), layer.join("aside"), path.clone(), path.join("kept"), path.join("copied")]
    {
        match rustix::fs::mkdir(&directory, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(LayerError::io("make", &directory, errno)),
        }
    }
    Ok(path)
}
