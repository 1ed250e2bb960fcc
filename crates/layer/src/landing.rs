//! Landing: from the layer into the roots.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use ringfence_types::ByteString;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::beneath::{HeldTree, is_whiteout, name_of};
use crate::change::{ChangeSide, LayerChange, RefusedEntry};
use crate::compare::{ComparedChange, Comparison};
use crate::copy::{EntryPlace, copy};
use crate::error::LayerError;
use crate::journal::{LandingPhase, PhaseJournal};
use crate::layer::Layer;
use crate::opaque::whiteout;
use crate::plan::{LandingPlan, Placement, PlannedEntry, SlotStaging, place_beside, planned, relaxed};
use crate::record::{self, BaseEntry};
use crate::remove::remove_tree;
use crate::stamp::Stamp;
use crate::transfer::{LandingDirectory, LayerRoot, Transfer, directory_of, make_directories};
use crate::{base, fault};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LandingDirection {
    Land,
    Undo,
}

impl LandingDirection {
    pub(crate) fn reversed(self) -> Self {
        match self {
            Self::Land => Self::Undo,
            Self::Undo => Self::Land,
        }
    }

    fn files(self) -> LandingFiles {
        match self {
            Self::Land => LandingFiles { plan: "plan.json", staged: "staged.json", outcome: "outcome.json" },
            Self::Undo => {
                LandingFiles { plan: "undo.json", staged: "undo-staged.json", outcome: "undo-outcome.json" }
            }
        }
    }
}

/// What lands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LandingSelection {
    All,
    /// Exactly these, as they were looked at: what is another by now is a conflict.
    Only(Vec<LayerChange>),
}

/// Why an entry was left as it is on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictReason {
    /// The host changed the entry since the view was opened.
    ChangedOnHost,
    /// The host removed the entry, or the directory it is in, since the view was opened.
    RemovedOnHost,
    /// The host made something there since the view was opened.
    CreatedOnHost,
    /// A part of the path became a link or something else that is no directory.
    ParentReplaced,
    /// The directory has entries that the layer does not know.
    NotEmpty,
    /// On the host something is mounted there.
    MountPoint,
    /// The layer has something else there than what was selected.
    NotAsSelected,
    /// What the layer keeps from before the landing is not what it was: the host wrote it under another name of the file.
    KeptChanged,
}

/// Both versions are kept: the host's where it is, the layer's in the layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingConflict {
    pub root: ByteString,
    pub path: ByteString,
    pub reason: ConflictReason,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingReport {
    /// Each has its slot.
    pub landed: Vec<LayerChange>,
    pub conflicts: Vec<LandingConflict>,
    pub refused: Vec<RefusedEntry>,
}

/// What undo does with an entry that changed after it landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterChanges {
    /// Nothing is undone.
    Refuse,
    /// It is undone too, and what is there now is kept in the layer.
    SetAside,
}

/// The version of an entry from after the landing, kept in the layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAsideEntry {
    pub root: ByteString,
    pub path: ByteString,
    /// Where it is now.
    pub kept: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoReport {
    /// As they landed: `before` is what is back.
    pub undone: Vec<LayerChange>,
    pub set_aside: Vec<SetAsideEntry>,
    /// What changed while it was undone; it stays.
    pub conflicts: Vec<LandingConflict>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    Undone(UndoReport),
    /// Nothing was undone, because these changed after they landed.
    Refused(Vec<LandingConflict>),
}

/// The names of the files that say what a landing does and did.
#[derive(Clone, Copy)]
struct LandingFiles {
    plan: &'static str,
    staged: &'static str,
    outcome: &'static str,
}

#[derive(Serialize, Deserialize)]
struct NotedConflict {
    number: u32,
    reason: ConflictReason,
}

/// What times do not tell apart: KERNEL: two changes within one tick have one time.
const RECENT_SECONDS: i64 = 2;

/// Two landings of one state directory take turns.
pub(crate) struct LandingTurn {
    _lock: rustix::fd::OwnedFd,
}

impl LandingTurn {
    pub(crate) fn take(store: &Path) -> Result<Self, LayerError> {
        let path = store.join(".landing.lock");
        let failed = |errno: Errno| LayerError::io("lock", &path, errno);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        loop {
            match rustix::fs::flock(&lock, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                locked => return locked.map(|()| Self { _lock: lock }).map_err(failed),
            }
        }
    }
}

/// What was selected, and what cannot land of it.
#[derive(Default)]
struct SelectedChanges {
    changes: Vec<ComparedChange>,
    conflicts: Vec<LandingConflict>,
    refused: Vec<RefusedEntry>,
}

impl Layer {
    /// Lands what is selected. After an error nothing of it has landed, or the landing is complete and only its clean-up failed:
    /// [`crate::LayerStore::recover`] tells which.
    pub fn land(&mut self, selection: &LandingSelection) -> Result<LandingReport, LayerError> {
        self.must_be_closed()?;
        let _turn = LandingTurn::take(self.store())?;
        let roots = self.open_roots()?;
        let SelectedChanges { changes, conflicts, refused } = self.select(&roots, selection)?;
        if changes.is_empty() {
            self.refresh(&roots)?;
            return Ok(LandingReport { landed: Vec::new(), conflicts, refused });
        }
        let landing = self.record().next_landing;
        remove_tree(&self.path().join("landings"), landing.to_string().as_ref())?;
        make_directories(self.path(), landing)?;
        let names: Vec<ByteString> = roots.iter().map(|root| root.path.clone()).collect();
        let placements: Vec<Placement> = roots.iter().map(|root| root.placement).collect();
        let hosts: Vec<&HeldTree> = roots.iter().map(|root| &root.host).collect();
        let mut entries = planned(changes, &names, &placements, landing);
        place_beside(&mut entries, &hosts, &placements, self.id())?;
        entries.iter_mut().for_each(|entry| mark_recent(entry, LandingDirection::Land));
        let relaxed = relaxed(&entries, &hosts)?;
        let plan = LandingPlan { entries, relaxed, conflicts, refused };
        let transfer = self.begin(&roots, landing, LandingDirection::Land, plan)?;
        self.carry_out(transfer)
    }

    fn select(
        &self,
        roots: &[LayerRoot],
        selection: &LandingSelection,
    ) -> Result<SelectedChanges, LayerError> {
        let mut selected = SelectedChanges::default();
        let mut wanted = wanted(selection);
        for (number, root) in roots.iter().enumerate() {
            let Comparison { changes, refused } = self.compare(number, root)?;
            selected.refused.extend(refused);
            let known = self.base(number)?;
            for compared in changes {
                let ComparedChange { change, host, .. } = &compared;
                let conflict =
                    |reason| LandingConflict { root: change.root.clone(), path: change.path.clone(), reason };
                let unlike = match &mut wanted {
                    None => None,
                    Some(wanted) => match wanted.remove(&SelectionKey::of(change)) {
                        None => continue,
                        Some(seen) if seen.after != change.after => Some(ConflictReason::NotAsSelected),
                        Some(seen) if seen.before != change.before => Some(ConflictReason::ChangedOnHost),
                        Some(_) => None,
                    },
                };
                let base = known.entries.get(change.path.as_path());
                match unlike.or_else(|| base::conflict(base, host.as_ref())) {
                    Some(reason) => selected.conflicts.push(conflict(reason)),
                    None => selected.changes.push(compared),
                }
            }
        }
        for change in wanted.into_iter().flat_map(HashMap::into_values) {
            let reason = ConflictReason::NotAsSelected;
            let conflict = LandingConflict { root: change.root.clone(), path: change.path.clone(), reason };
            selected.conflicts.push(conflict);
        }
        Ok(selected)
    }

    /// Writes the plan down. From here on a dead process is noticed.
    pub(crate) fn begin<'a>(
        &self,
        roots: &'a [LayerRoot],
        landing: u32,
        direction: LandingDirection,
        plan: LandingPlan,
    ) -> Result<LandingTransfer<'a>, LayerError> {
        let path = directory_of(self.path(), landing);
        record::write(&path.join(direction.files().plan), &plan)?;
        let journal = PhaseJournal::begin(self.store(), self.id(), landing, direction)?;
        let directory = LandingDirectory::open(self.path(), landing)?;
        Ok(LandingTransfer { roots, directory, journal, plan })
    }

    pub(crate) fn carry_out(&mut self, landing: LandingTransfer<'_>) -> Result<LandingReport, LayerError> {
        let LandingTransfer { roots, directory, mut journal, plan } = landing;
        let direction = journal.direction;
        let store = self.store().to_owned();
        let mut transfer =
            Transfer { roots, directory: &directory, direction, plan, conflicts: BTreeMap::new() };
        let staged = transfer.relax().and_then(|()| transfer.stage(direction.files().staged));
        if let Err(error) = staged {
            // What cannot be cleaned up now is left to the next start, with the journal.
            if transfer.unstage().and_then(|()| transfer.restore_relaxed()).is_ok() {
                self.give_up(journal)?;
            }
            return Err(error);
        }
        let swapped = journal
            .enter(&store, LandingPhase::Swapping)
            .and_then(|()| self.swap_all(&mut transfer, &mut journal));
        match swapped {
            Ok(()) => self.finish(&transfer, journal),
            Err(error) => {
                self.take_back(transfer, journal);
                Err(error)
            }
        }
    }

    fn swap_all(&self, transfer: &mut Transfer<'_>, journal: &mut PhaseJournal) -> Result<(), LayerError> {
        transfer.swap()?;
        transfer.settle()?;
        let conflicts = transfer.conflicts.iter();
        let noted: Vec<NotedConflict> =
            conflicts.map(|(number, reason)| NotedConflict { number: *number, reason: *reason }).collect();
        record::write(&transfer.directory.path.join(journal.direction.files().outcome), &noted)?;
        transfer.sync()?;
        match journal.enter(self.store(), LandingPhase::Done) {
            Ok(()) => Ok(()),
            // Written, and perhaps not durable: there is no way back.
            Err(error) => match PhaseJournal::read(self.store(), self.id()) {
                Ok(Some(found)) if found.phase == LandingPhase::Done => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// After an error. What cannot be taken back now is ended by the next start, with the journal.
    fn take_back(&mut self, mut transfer: Transfer<'_>, mut journal: PhaseJournal) {
        // If this cannot be written, a start after a crash completes the landing instead: that is a whole state, too.
        let _unwritten = journal.enter(self.store(), LandingPhase::RollingBack);
        let id = self.id().to_owned();
        let ended = self.roll_back(&mut transfer).and_then(|()| self.give_up(journal));
        if let Err(error) = ended {
            tracing::error!(layer = id, %error, "a landing that failed is not taken back yet");
        }
    }

    /// Gives every entry its place in the layer, and writes down what landed.
    fn finish(
        &mut self,
        transfer: &Transfer<'_>,
        journal: PhaseJournal,
    ) -> Result<LandingReport, LayerError> {
        let landing = journal.landing;
        for entry in transfer.plan.entries.iter().filter(|entry| !entry.is_mode_only()) {
            let done = !transfer.conflicts.contains_key(&entry.number());
            match (done, journal.direction) {
                (false, LandingDirection::Land) => clear_slot(transfer, entry, landing)?,
                (false, LandingDirection::Undo) => {
                    clear_slot(transfer, entry, landing)?;
                    keep_before_image(transfer, entry, landing)?;
                }
                (true, LandingDirection::Land) => finish_landed(transfer, entry)?,
                (true, LandingDirection::Undo) => finish_undone(transfer, entry, landing)?,
            }
            fault::point();
        }
        self.note_bases(transfer)?;
        let bytes =
            transfer.done().filter_map(|entry| entry.change.before.as_ref()).map(|state| state.bytes).sum();
        match journal.direction {
            LandingDirection::Land => self.note_landing(landing, bytes),
            LandingDirection::Undo => self.note_undo(landing, bytes),
        }
        self.refresh(transfer.roots)?;
        let store = self.store().to_owned();
        let direction = journal.direction;
        journal.end(&store)?;
        if direction == LandingDirection::Undo {
            remove_tree(&self.path().join("landings"), landing.to_string().as_ref())?;
        }
        let landed = transfer.done().map(|entry| entry.change.clone()).collect();
        let plan = &transfer.plan;
        let late = plan.entries.iter().filter_map(|entry| {
            transfer.conflicts.get(&entry.number()).map(|reason| entry.conflict(*reason))
        });
        let conflicts = plan.conflicts.iter().cloned().chain(late).collect();
        Ok(LandingReport { landed, conflicts, refused: plan.refused.clone() })
    }

    /// What the host has now is what later changes of the layer are compared with.
    fn note_bases(&mut self, transfer: &Transfer<'_>) -> Result<(), LayerError> {
        for (number, root) in transfer.roots.iter().enumerate() {
            let mut known = self.base(number)?;
            let mut changed = false;
            for entry in transfer.done().filter(|entry| entry.root == number) {
                let found = match root.host.stat(entry.path()) {
                    // It is in a directory that its owner cannot enter, or that the host is just moving out of the root: without a
                    // base, what comes later is a conflict.
                    Err(Errno::ACCESS | Errno::XDEV) => {
                        known.entries.remove(entry.path());
                        changed = true;
                        continue;
                    }
                    found => found.map_err(|errno| root.host.failed("look at", entry.path(), errno))?,
                };
                let base = found.map_or(BaseEntry::Absent, |stat| BaseEntry::Present(Stamp::of(&stat)));
                known.entries.insert(entry.path().to_owned(), base);
                changed = true;
            }
            if changed {
                known.write(&self.base_path(number))?;
            }
        }
        Ok(())
    }

    /// Takes back what was exchanged.
    fn roll_back(&self, transfer: &mut Transfer<'_>) -> Result<(), LayerError> {
        transfer.conflicts.clear();
        transfer.swap_back()?;
        transfer.settle_back()?;
        let landing = transfer.plan.entries.first().and_then(|entry| entry.change.landed);
        let landing = landing.map_or(0, |slot| slot.landing);
        for entry in transfer.plan.entries.iter().filter(|entry| !entry.is_mode_only()) {
            let undo_in_layer = transfer.direction == LandingDirection::Undo && entry.beside.is_none();
            // In its slot is the before-image again.
            if !undo_in_layer {
                clear_slot(transfer, entry, landing)?;
            }
        }
        transfer.sync()
    }

    /// Nothing of it is in the roots any more.
    fn give_up(&mut self, journal: PhaseJournal) -> Result<(), LayerError> {
        let (landing, direction) = (journal.landing, journal.direction);
        let store = self.store().to_owned();
        journal.end(&store)?;
        if direction == LandingDirection::Land {
            remove_tree(&self.path().join("landings"), landing.to_string().as_ref())?;
        }
        Ok(())
    }

    /// Ends what a dead process began.
    pub(crate) fn recover(&mut self, mut journal: PhaseJournal) -> Result<RecoveredLanding, LayerError> {
        let _turn = LandingTurn::take(self.store())?;
        let roots = self.open_roots()?;
        let (landing, direction) = (journal.landing, journal.direction);
        let files = direction.files();
        let path = make_directories(self.path(), landing)?;
        let directory = LandingDirectory::open(self.path(), landing)?;
        let plan: LandingPlan = record::read(&path.join(files.plan))?;
        let mut transfer =
            Transfer { roots: &roots, directory: &directory, direction, plan, conflicts: BTreeMap::new() };
        if journal.phase != LandingPhase::Staging {
            transfer.read_staged(files.staged)?;
        }
        let report = match journal.phase {
            LandingPhase::Staging => {
                transfer.unstage()?;
                transfer.restore_relaxed()?;
                self.give_up(journal)?;
                None
            }
            LandingPhase::RollingBack => {
                self.roll_back(&mut transfer)?;
                self.give_up(journal)?;
                None
            }
            LandingPhase::Swapping => {
                let swapped = transfer.relax().and_then(|()| self.swap_all(&mut transfer, &mut journal));
                match swapped {
                    Ok(()) => Some(self.finish(&transfer, journal)?),
                    Err(error) => {
                        tracing::warn!(layer = self.id(), %error, "a landing is taken back");
                        journal.enter(self.store(), LandingPhase::RollingBack)?;
                        self.roll_back(&mut transfer)?;
                        self.give_up(journal)?;
                        None
                    }
                }
            }
            LandingPhase::Done => {
                transfer.conflicts = outcome(&path.join(files.outcome))?;
                // A directory may have been opened for what is cleaned up in it.
                transfer.settle()?;
                Some(self.finish(&transfer, journal)?)
            }
        };
        Ok(RecoveredLanding { direction, report })
    }

    /// A landing that is complete, with the entries that landed.
    pub(crate) fn closed_landing(&self, landing: u32) -> Result<LandingPlan, LayerError> {
        let path = directory_of(self.path(), landing);
        let files = LandingDirection::Land.files();
        let plan: LandingPlan = record::read(&path.join(files.plan))?;
        let conflicts = outcome(&path.join(files.outcome))?;
        let directory = LandingDirectory::open(self.path(), landing)?;
        let mut transfer = Transfer {
            roots: &[],
            directory: &directory,
            direction: LandingDirection::Land,
            plan,
            conflicts: BTreeMap::new(),
        };
        transfer.read_staged(files.staged)?;
        let mut plan = transfer.plan;
        plan.entries.retain(|entry| !conflicts.contains_key(&entry.number()));
        Ok(plan)
    }

    /// Where the content of one side of a landed change is.
    pub(crate) fn landed_place(&self, change: &LayerChange, side: ChangeSide) -> Option<LandedPlace> {
        let slot = change.landed?;
        let directory = directory_of(self.path(), slot.landing);
        let name = slot.entry.to_string();
        Some(match side {
            ChangeSide::Before => LandedPlace { directory: directory.join("kept"), name },
            ChangeSide::After => LandedPlace { directory: directory.join("copied"), name },
        })
    }
}

pub(crate) struct LandedPlace {
    pub(crate) directory: PathBuf,
    pub(crate) name: String,
}

/// A landing with its journal written.
pub(crate) struct LandingTransfer<'a> {
    roots: &'a [LayerRoot],
    directory: LandingDirectory,
    journal: PhaseJournal,
    plan: LandingPlan,
}

pub(crate) struct RecoveredLanding {
    pub(crate) direction: LandingDirection,
    /// `None`: it was taken back.
    pub(crate) report: Option<LandingReport>,
}

#[derive(PartialEq, Eq, Hash)]
struct SelectionKey {
    root: ByteString,
    path: ByteString,
}

impl SelectionKey {
    fn of(change: &LayerChange) -> Self {
        Self { root: change.root.clone(), path: change.path.clone() }
    }
}

fn wanted(selection: &LandingSelection) -> Option<HashMap<SelectionKey, &LayerChange>> {
    match selection {
        LandingSelection::All => None,
        LandingSelection::Only(changes) => {
            Some(changes.iter().map(|change| (SelectionKey::of(change), change)).collect())
        }
    }
}

fn outcome(path: &Path) -> Result<BTreeMap<u32, ConflictReason>, LayerError> {
    let noted: Vec<NotedConflict> = record::read(path)?;
    Ok(noted.into_iter().map(|noted| (noted.number, noted.reason)).collect())
}

/// Lets the digest be looked at too where times may be the same for two versions.
pub(crate) fn mark_recent(entry: &mut PlannedEntry, direction: LandingDirection) {
    let digest = entry.origin(direction).and_then(|origin| origin.digest.clone());
    let as_landed = entry.as_landed;
    if let Some(outgoing) = &mut entry.outgoing
        && as_landed
        && outgoing.modified.seconds >= base::now().seconds - RECENT_SECONDS
    {
        outgoing.digest = digest;
    }
}

/// What is in the slot of an entry that was not exchanged: what was staged goes, what came from the host is kept.
fn clear_slot(transfer: &Transfer<'_>, entry: &PlannedEntry, landing: u32) -> Result<(), LayerError> {
    let failed = |errno| LayerError::io("clean up beside", &entry.change.absolute(), errno);
    let Some(slot) = transfer.slot(entry)? else { return Ok(()) };
    let Some(found) = slot.place().stamp().map_err(failed)? else { return Ok(()) };
    let staged = entry.incoming.as_ref().is_some_and(|incoming| incoming.is_same_inode(&found));
    let before_image = entry.beside.is_none() && transfer.direction == LandingDirection::Undo;
    if staged && !before_image {
        return transfer.remove_slot(entry, slot.place()).map_err(failed);
    }
    set_aside(transfer, entry, slot.place(), landing)
}

/// An undo that the host was in the way of leaves the before-image in the layer.
fn keep_before_image(transfer: &Transfer<'_>, entry: &PlannedEntry, landing: u32) -> Result<(), LayerError> {
    let (kept, aside) = (&transfer.directory.kept, &transfer.directory.aside);
    let mut name = aside_name(entry, landing);
    name.push("-before");
    match rustix::fs::renameat(kept.fd(), Transfer::kept_name(entry), aside.fd(), &name) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(LayerError::io("keep what was at", &entry.change.absolute(), errno)),
    }
}

/// Moves what came from the host out of the way, into the layer.
fn set_aside(
    transfer: &Transfer<'_>,
    entry: &PlannedEntry,
    slot: EntryPlace<'_>,
    landing: u32,
) -> Result<(), LayerError> {
    let failed = |errno| LayerError::io("keep what was at", &entry.change.absolute(), errno);
    let name = aside_name(entry, landing);
    let aside = EntryPlace { directory: transfer.directory.aside.fd(), name: &name };
    let Some(found) = slot.stamp().map_err(failed)? else { return Ok(()) };
    if entry.beside.is_none() {
        let moved = rustix::fs::renameat(slot.directory, slot.name, aside.directory, aside.name);
        return moved.map_err(failed);
    }
    // A beginning of it, from before a crash.
    aside.remove().map_err(failed)?;
    copy(slot, aside, found.permissions()).map_err(failed)?;
    fault::point();
    transfer.remove_slot(entry, slot).map_err(failed)
}

pub(crate) fn aside_name(entry: &PlannedEntry, landing: u32) -> OsString {
    OsString::from(format!("{landing}-{}", entry.number()))
}

/// The host has the entry; its name in the upper goes.
fn finish_landed(transfer: &Transfer<'_>, entry: &PlannedEntry) -> Result<(), LayerError> {
    let failed = |errno| LayerError::io("clean up after", &entry.change.absolute(), errno);
    if entry.beside.is_some()
        && entry.outgoing.is_some()
        && let Some(slot) = transfer.slot(entry)?
    {
        // Its copy is kept.
        transfer.remove_slot(entry, slot.place()).map_err(failed)?;
        fault::point();
    }
    let root = transfer.root(entry)?;
    if entry.change.after.is_none() {
        return remove_whiteout(root, entry.path()).map_err(failed);
    }
    if !matches!(entry.staging, SlotStaging::Link | SlotStaging::Copy) {
        return Ok(());
    }
    let parent = root.upper.parent(entry.path()).map_err(failed)?;
    let upper = EntryPlace { directory: parent.as_fd(), name: name_of(entry.path()).map_err(failed)? };
    if entry.staging == SlotStaging::Link {
        let found = upper.stamp().map_err(failed)?;
        let same = found.zip(entry.incoming.as_ref()).is_some_and(|(found, ours)| found.is_same_inode(ours));
        return if same { upper.remove().map_err(failed) } else { Ok(()) };
    }
    let name = Transfer::kept_name(entry);
    let copied = transfer.directory.copied.fd();
    match rustix::fs::renameat(upper.directory, upper.name, copied, &name) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed(errno)),
    }
}

/// The host has nothing there: what it makes there later is its own. An entry of a deleted directory has no whiteout.
fn remove_whiteout(root: &LayerRoot, path: &Path) -> Result<(), Errno> {
    let there = root.upper.stat(path)?.is_some_and(|stat| is_whiteout(&stat));
    if !there {
        return Ok(());
    }
    match rustix::fs::unlinkat(root.upper.parent(path)?, name_of(path)?, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The host has its before-image back; what landed goes back into the upper, where it waits again.
fn finish_undone(transfer: &Transfer<'_>, entry: &PlannedEntry, landing: u32) -> Result<(), LayerError> {
    let failed = |errno| LayerError::io("clean up after", &entry.change.absolute(), errno);
    let root = transfer.root(entry)?;
    let slot = transfer.slot(entry)?;
    let back = |from: EntryPlace<'_>| {
        let parent = root.upper.parent(entry.path())?;
        let name = name_of(entry.path())?;
        match rustix::fs::renameat_with(from.directory, from.name, &parent, name, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::NOENT | Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
    };
    if let (Some(slot), Some(_)) = (&slot, &entry.outgoing) {
        let slot = slot.place();
        match (entry.as_landed, entry.staging) {
            (false, _) => set_aside(transfer, entry, slot, landing)?,
            (true, SlotStaging::Link) if entry.beside.is_none() => back(slot).map_err(failed)?,
            (true, _) => transfer.remove_slot(entry, slot).map_err(failed)?,
        }
        fault::point();
    }
    if entry.change.after.is_none() {
        match whiteout(&root.upper, entry.path()) {
            // Of a directory that is deleted as a whole.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    if entry.staging == SlotStaging::Copy {
        let name = Transfer::kept_name(entry);
        back(EntryPlace { directory: transfer.directory.copied.fd(), name: &name }).map_err(failed)?;
    }
    Ok(())
}
