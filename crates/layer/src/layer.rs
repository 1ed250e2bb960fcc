//! One layer.
//!
//! ```text
//!  <store>/<id>/layer.json              state, roots, landings
//!               roots/<n>/upper         what the call wrote, as overlayfs keeps it
//!               roots/<n>/work.<k>      of overlayfs, one for each mount
//!               roots/<n>/base.json     what the root had there
//!               landings/<n>/           plan, slots, before-images
//!               aside/                  versions of the host that were in the way
//! ```

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, EntryKind};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::beneath::{HeldTree, chmod_held, name_of};
use crate::change::{ChangeSide, EntryContent, LayerChange, LayerChanges};
use crate::compare::{Comparer, Comparison};
use crate::copy::times;
use crate::digest::DigestCache;
use crate::error::LayerError;
use crate::opaque::make_explicit;
use crate::plan::Placement;
use crate::record::{LayerRecord, LayerRootRecord, RootBase, RootIdentity};
use crate::remove::remove_tree;
use crate::stamp::Stamp;
use crate::transfer::{LayerRoot, placement};
use crate::walk::{Walk, needed, unreadable};
use crate::{attributes, base, journal, record};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerState {
    /// Its view may be mounted.
    Open,
    /// Its changes wait.
    Pending,
    /// Nothing waits, and something landed.
    Landed,
    /// What landed was taken back, and waits again.
    Undone,
}

/// What a view of one root is mounted from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerMount {
    pub root: PathBuf,
    pub upper: PathBuf,
    /// Fresh for each mount: KERNEL: a volatile overlay leaves a mark in it that refuses the next mount.
    pub work: PathBuf,
}

/// One layer, locked for this process.
#[derive(Debug)]
pub struct Layer {
    store: PathBuf,
    path: PathBuf,
    /// KERNEL: the lock ends with the last descriptor, however the process ends.
    _lock: OwnedFd,
    record: LayerRecord,
    digests: DigestCache,
}

impl Layer {
    pub(crate) fn locked(store: &Path, path: PathBuf, lock: OwnedFd, record: LayerRecord) -> Self {
        Self { store: store.to_owned(), path, _lock: lock, record, digests: DigestCache::default() }
    }

    pub fn id(&self) -> &str {
        &self.record.id
    }

    pub fn state(&self) -> LayerState {
        self.record.state
    }

    /// The canonical paths of the roots.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.record.roots.iter().map(|root| root.path.as_path().to_owned()).collect()
    }

    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn record(&self) -> &LayerRecord {
        &self.record
    }

    pub(crate) fn digests(&self) -> &DigestCache {
        &self.digests
    }

    /// Prepares a mount over a root, which must be a canonical path. A root that the layer has gets another work directory.
    pub fn add_root(&mut self, root: &Path) -> Result<LayerMount, LayerError> {
        let opened = base::now();
        let host = HeldTree::root(root)?;
        let known = self.record.roots.iter().position(|known| known.path.as_path() == root);
        let number = known.unwrap_or(self.record.roots.len());
        let (upper, directory) = (self.upper_path(number), self.root_path(number));
        if known.is_none() {
            make(&self.path.join("roots"))?;
            make(&directory)?;
            make(&upper)?;
            dress(&upper, &host)?;
            let path = ByteString::from(root);
            let identity = Some(RootIdentity::of(&host)?);
            self.record.roots.push(LayerRootRecord { path, opened, mounts: 0, identity });
        } else {
            self.record.roots.get(number).map_or(Ok(()), |known| must_be_same(known, &host))?;
            self.restore_modes(number)?;
        }
        let mount = self.record.roots.get_mut(number).map_or(0, |root| {
            root.mounts += 1;
            root.mounts
        });
        let work = directory.join(format!("work.{mount}"));
        make(&work)?;
        self.record.state = LayerState::Open;
        self.save()?;
        Ok(LayerMount { root: root.to_owned(), upper, work })
    }

    /// Writes down what the host has where the layer has changes. No view may be mounted any more.
    pub fn close_view(&mut self) -> Result<(), LayerError> {
        let mut bytes = 0;
        for (number, root) in self.open_roots()?.iter().enumerate() {
            self.make_readable(number, &root.upper)?;
            make_explicit(&root.upper, &root.host)?;
            let mut known = self.base(number)?;
            let opened = self.record.roots.get(number).map_or_else(base::now, |root| root.opened);
            let walk = Walk { upper: &root.upper, host: &root.host, modes: &known.modes };
            for candidate in walk.run()?.candidates {
                let stamp = candidate.upper.as_ref().map(|upper| &upper.stamp);
                bytes += stamp.filter(|stamp| stamp.kind() == EntryKind::File).map_or(0, |stamp| stamp.bytes);
                let entry = || base::of(&candidate, opened, &root.upper, &root.host);
                known.entries.entry(candidate.path.clone()).or_insert_with(entry);
            }
            known.write(&self.base_path(number))?;
            self.remove_works(number)?;
        }
        self.record.state = LayerState::Pending;
        self.record.bytes = self.record.bytes.max(bytes);
        self.save()
    }

    /// What waits.
    pub fn changes(&self) -> Result<LayerChanges, LayerError> {
        let mut found = LayerChanges::default();
        for (number, root) in self.open_roots()?.iter().enumerate() {
            let Comparison { changes, refused } = self.compare(number, root)?;
            found.changes.extend(changes.into_iter().map(|compared| compared.change));
            found.refused.extend(refused);
        }
        Ok(found)
    }

    /// What landed and was not undone, the last landing first.
    pub fn landed(&self) -> Result<Vec<LayerChange>, LayerError> {
        let mut found = Vec::new();
        for landing in self.record.landings.iter().rev() {
            found.extend(self.closed_landing(*landing)?.entries.into_iter().map(|entry| entry.change));
        }
        Ok(found)
    }

    /// The first `limit` bytes of one side. `None`: the side has no content, or it is not there any more.
    pub fn content(
        &self,
        change: &LayerChange,
        side: ChangeSide,
        limit: u64,
    ) -> Result<Option<EntryContent>, LayerError> {
        let path = change.path.as_path();
        let state = match side {
            ChangeSide::Before => &change.before,
            ChangeSide::After => &change.after,
        };
        if !state.as_ref().is_some_and(|state| matches!(state.kind, EntryKind::File | EntryKind::Link)) {
            return Ok(None);
        }
        let number = self
            .record
            .roots
            .iter()
            .position(|root| root.path == change.root)
            .ok_or_else(|| LayerError::UnknownRoot { path: change.root.as_path().to_owned() })?;
        if let Some(place) = self.landed_place(change, side) {
            let kept = HeldTree::private(&place.directory)?;
            if let Some(content) = read_content(&kept, Path::new(&place.name), limit)? {
                return Ok(Some(content));
            }
        }
        let host = side == ChangeSide::Before || change.landed.is_some();
        let tree = match host {
            true => HeldTree::root(change.root.as_path())?,
            false => HeldTree::private(&self.upper_path(number))?,
        };
        read_content(&tree, path, limit)
    }

    /// Removes the layer with all that is in it, before-images too.
    pub fn discard(self) -> Result<(), LayerError> {
        // Under another name first: what is removed half is no layer any more.
        let name = format!(".removed-{}", self.record.id);
        remove_tree(&self.store, name.as_ref())?;
        let gone = self.store.join(&name);
        fs::rename(&self.path, &gone).map_err(|error| LayerError::io("remove", &self.path, error))?;
        journal::forget(&self.store, &self.record.id)?;
        remove_tree(&self.store, name.as_ref())
    }

    pub(crate) fn must_be_closed(&self) -> Result<(), LayerError> {
        match self.record.state {
            LayerState::Open => Err(LayerError::ViewOpen { id: self.record.id.clone() }),
            _ => Ok(()),
        }
    }

    pub(crate) fn open_roots(&self) -> Result<Vec<LayerRoot>, LayerError> {
        let layer = HeldTree::private(&self.path)?;
        let open = |(number, root): (usize, &LayerRootRecord)| {
            let host = HeldTree::root(root.path.as_path())?;
            must_be_same(root, &host)?;
            let upper = HeldTree::private(&self.upper_path(number))?;
            let placement = placement(&layer, &host)?;
            Ok(LayerRoot { path: root.path.clone(), upper, host, placement })
        };
        self.record.roots.iter().enumerate().map(open).collect()
    }

    /// The roots on another file system than the layer. What lands there is staged beside its target.
    pub fn roots_elsewhere(&self) -> Result<Vec<PathBuf>, LayerError> {
        let roots = self.open_roots()?.into_iter().filter(|root| root.placement == Placement::Beside);
        Ok(roots.map(|root| root.path.as_path().to_owned()).collect())
    }

    /// A root whose path is another directory now.
    pub fn replaced_root(&self) -> Option<PathBuf> {
        let is_other = |root: &&LayerRootRecord| {
            let same = HeldTree::root(root.path.as_path()).and_then(|host| must_be_same(root, &host));
            matches!(same, Err(LayerError::RootReplaced { .. }))
        };
        self.record.roots.iter().find(is_other).map(|root| root.path.as_path().to_owned())
    }

    pub(crate) fn compare(&self, number: usize, root: &LayerRoot) -> Result<Comparison, LayerError> {
        let known = self.base(number)?;
        let contents = Walk { upper: &root.upper, host: &root.host, modes: &known.modes }.run()?;
        let comparer =
            Comparer { root: &root.path, upper: &root.upper, host: &root.host, digests: &self.digests };
        comparer.compare(contents)
    }

    pub(crate) fn base(&self, number: usize) -> Result<RootBase, LayerError> {
        RootBase::read(&self.base_path(number))
    }

    pub(crate) fn note_landing(&mut self, landing: u32, bytes: u64) {
        if !self.record.landings.contains(&landing) {
            self.record.landings.push(landing);
            self.record.bytes = self.record.bytes.saturating_add(bytes);
            self.record.landed = Some(base::now());
        }
        self.record.next_landing = self.record.next_landing.max(landing.saturating_add(1));
    }

    pub(crate) fn note_undo(&mut self, landing: u32, bytes: u64) {
        if self.record.landings.contains(&landing) {
            self.record.landings.retain(|number| *number != landing);
            self.record.bytes = self.record.bytes.saturating_sub(bytes);
        }
        if self.record.landings.is_empty() {
            self.record.state = LayerState::Undone;
        }
    }

    /// Looks at what still waits, and writes the record.
    pub(crate) fn refresh(&mut self, roots: &[LayerRoot]) -> Result<(), LayerError> {
        let mut waiting = false;
        for (number, root) in roots.iter().enumerate() {
            waiting |= !self.compare(number, root)?.changes.is_empty();
        }
        self.record.state = match (waiting, self.record.state) {
            (false, _) if !self.record.landings.is_empty() => LayerState::Landed,
            (_, LayerState::Undone) if self.record.landings.is_empty() => LayerState::Undone,
            _ => LayerState::Pending,
        };
        self.save()
    }

    pub(crate) fn save(&self) -> Result<(), LayerError> {
        record::write(&self.path.join("layer.json"), &self.record)
    }

    fn root_path(&self, number: usize) -> PathBuf {
        self.path.join("roots").join(number.to_string())
    }

    pub(crate) fn base_path(&self, number: usize) -> PathBuf {
        self.root_path(number).join("base.json")
    }

    fn upper_path(&self, number: usize) -> PathBuf {
        self.root_path(number).join("upper")
    }

    /// Gives the owner the right to read what a command locked, and writes down how it was first.
    fn make_readable(&self, number: usize, upper: &HeldTree) -> Result<(), LayerError> {
        if rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let mut known = self.base(number)?;
        loop {
            let locked = unreadable(upper)?;
            if locked.is_empty() {
                return Ok(());
            }
            let stamps = locked.iter().map(|path| held(upper, path));
            let found: Vec<HeldEntry> = stamps.collect::<Result<_, LayerError>>()?;
            for (path, held) in locked.iter().zip(&found) {
                known.modes.entry(path.clone()).or_insert_with(|| held.stamp.permissions());
            }
            known.write(&self.base_path(number))?;
            for (path, held) in locked.iter().zip(&found) {
                let mode = held.stamp.permissions() | needed(&held.stamp);
                chmod_held(held.fd.as_fd(), mode)
                    .map_err(|errno| upper.failed("change the permissions of", path, errno))?;
            }
        }
    }

    /// Before the next view: the commands in it see the permissions that the last one gave.
    fn restore_modes(&self, number: usize) -> Result<(), LayerError> {
        let mut known = self.base(number)?;
        if known.modes.is_empty() {
            return Ok(());
        }
        let upper = HeldTree::private(&self.upper_path(number))?;
        let mut modes: Vec<_> = known.modes.drain().collect();
        modes.sort_by(|(one, _), (other, _)| other.cmp(one));
        for (path, mode) in modes {
            match held(&upper, &path) {
                Ok(held) => chmod_held(held.fd.as_fd(), mode)
                    .map_err(|errno| upper.failed("change the permissions of", &path, errno))?,
                Err(LayerError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        known.write(&self.base_path(number))
    }

    fn remove_works(&self, number: usize) -> Result<(), LayerError> {
        let mounts = self.record.roots.get(number).map_or(0, |root| root.mounts);
        (1..=mounts)
            .try_for_each(|mount| remove_tree(&self.root_path(number), format!("work.{mount}").as_ref()))
    }
}

/// What waits was made on one directory. ATTACK: another one at its path would get what a person looked at for the first.
fn must_be_same(root: &LayerRootRecord, host: &HeldTree) -> Result<(), LayerError> {
    match root.identity {
        Some(identity) if identity != RootIdentity::of(host)? => {
            Err(LayerError::RootReplaced { path: root.path.as_path().to_owned() })
        }
        _ => Ok(()),
    }
}

struct HeldEntry {
    fd: OwnedFd,
    stamp: Stamp,
}

fn held(tree: &HeldTree, path: &Path) -> Result<HeldEntry, LayerError> {
    let open = || {
        let parent = tree.parent(path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(parent, name_of(path)?, flags, Mode::empty())?;
        let stamp = Stamp::of(&rustix::fs::fstat(&fd)?);
        Ok(HeldEntry { fd, stamp })
    };
    open().map_err(|errno: Errno| tree.failed("look at", path, errno))
}

fn make(directory: &Path) -> Result<(), LayerError> {
    match rustix::fs::mkdir(directory, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(LayerError::io("make", directory, errno)),
    }
}

/// KERNEL: the top of a view has the owner, permissions, times and attributes of the upper, not of the root.
fn dress(upper: &Path, host: &HeldTree) -> Result<(), LayerError> {
    let failed = |errno| LayerError::io("prepare", upper, errno);
    let stamp = Stamp::of(&rustix::fs::fstat(host.fd()).map_err(failed)?);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(upper, flags, Mode::empty()).map_err(failed)?;
    let (owner, group) = (Uid::from_raw(stamp.owner), Gid::from_raw(stamp.group));
    match rustix::fs::fchown(&fd, Some(owner), Some(group)) {
        Ok(()) => {}
        // Of another user, and writable for this one: entries in it are what counts.
        Err(Errno::PERM) => match rustix::fs::fchown(&fd, None, Some(group)) {
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(failed(errno)),
        },
        Err(errno) => return Err(failed(errno)),
    }
    attributes::set(fd.as_fd(), &attributes::visible(host.fd()).map_err(failed)?).map_err(failed)?;
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(stamp.permissions())).map_err(failed)?;
    rustix::fs::utimensat(CWD, upper, &times(stamp.modified), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
}

fn read_content(tree: &HeldTree, path: &Path, limit: u64) -> Result<Option<EntryContent>, LayerError> {
    let failed = |errno| tree.failed("read", path, errno);
    let Some(stat) = tree.stat(path).map_err(failed)? else { return Ok(None) };
    let stamp = Stamp::of(&stat);
    if stamp.kind() == EntryKind::Link {
        let parent = tree.parent(path).map_err(failed)?;
        let name = name_of(path).map_err(failed)?;
        let target = rustix::fs::readlinkat(parent, name, Vec::new()).map_err(failed)?;
        let mut bytes = target.into_bytes();
        let total = bytes.len() as u64;
        bytes.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        return Ok(Some(EntryContent { bytes, total }));
    }
    if stamp.kind() != EntryKind::File {
        return Ok(None);
    }
    let file = match tree.file(path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
        file => File::from(file.map_err(failed)?),
    };
    let mut bytes = Vec::new();
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| LayerError::io("read", &tree.path().join(path), error))?;
    Ok(Some(EntryContent { bytes, total: stamp.bytes }))
}
