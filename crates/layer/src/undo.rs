//! Undo: what landed goes back into the layer, and what was there before comes back.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use ringfence_types::{ByteString, EntryKind};
use rustix::io::Errno;

use crate::beneath::{HeldTree, chmod_held, names};
use crate::error::LayerError;
use crate::landing::{
    ConflictReason, LandingConflict, LandingDirection, LandingTurn, LaterChanges, SetAsideEntry, UndoOutcome,
    UndoReport, aside_name, mark_recent,
};
use crate::layer::Layer;
use crate::plan::{LandingPlan, Placement, PlannedEntry, place_beside, relaxed};
use crate::stamp::Stamp;
use crate::transfer::{LandingDirectory, LayerRoot, Transfer};

/// The host's side of a landed entry.
#[derive(Debug, PartialEq, Eq)]
enum HostSide {
    AsLanded,
    AsBefore,
    Later(ConflictReason),
}

impl Layer {
    /// Takes back everything that landed and was not undone, the last landing first.
    pub fn undo(&mut self, later: LaterChanges) -> Result<UndoOutcome, LayerError> {
        self.must_be_closed()?;
        let _turn = LandingTurn::take(self.store())?;
        let roots = self.open_roots()?;
        let numbers: Vec<u32> = self.record().landings.iter().rev().copied().collect();
        let mut plans = Vec::new();
        for number in &numbers {
            plans.push(self.closed_landing(*number)?);
        }
        let opened = enter_locked(&roots, &plans)?;
        let outcome = self.undo_landings(&roots, numbers.into_iter().zip(plans).collect(), later);
        // What is still there was not undone.
        for directory in opened {
            let locked = rustix::fs::fstat(&directory.fd).is_ok_and(|stat| stat.st_nlink > 0)
                && chmod_held(directory.fd.as_fd(), directory.mode).is_err();
            if locked {
                tracing::warn!(layer = self.id(), "a directory keeps permissions that undo needed");
            }
        }
        outcome
    }

    fn undo_landings(
        &mut self,
        roots: &[LayerRoot],
        landings: Vec<(u32, LandingPlan)>,
        later: LaterChanges,
    ) -> Result<UndoOutcome, LayerError> {
        let found = self.later_changes(roots, &landings)?;
        if later == LaterChanges::Refuse && !found.is_empty() {
            return Ok(UndoOutcome::Refused(found));
        }
        let mut report = UndoReport::default();
        for (number, plan) in landings {
            self.undo_landing(roots, number, plan, &mut report)?;
        }
        Ok(UndoOutcome::Undone(report))
    }

    /// What the host changed after it landed. Where an entry landed twice, the last one counts.
    fn later_changes(
        &self,
        roots: &[LayerRoot],
        landings: &[(u32, LandingPlan)],
    ) -> Result<Vec<LandingConflict>, LayerError> {
        let entries = || landings.iter().flat_map(|(_, plan)| &plan.entries);
        let mut found = self.changed_before_images(landings)?;
        let mut looked = HashSet::new();
        let landed: BTreeSet<LandedPath> = entries().map(LandedPath::of).collect();
        for entry in entries() {
            let Some(root) = roots.get(entry.root) else { continue };
            if !looked.insert(LandedPath::of(entry)) {
                continue;
            }
            if let HostSide::Later(reason) = self.host_side(&root.host, entry)? {
                found.push(entry.conflict(reason));
            } else if entry.change.after.as_ref().is_some_and(|after| after.kind == EntryKind::Directory)
                && entry.change.before.as_ref().is_none_or(|before| before.kind != EntryKind::Directory)
            {
                found.extend(unknown_entries(&root.host, entry, &landed)?);
            }
        }
        Ok(found)
    }

    /// The before-images that are not what was recorded. An exchange moves the file of the host into the layer, where another name
    /// of it on the host still writes it.
    fn changed_before_images(
        &self,
        landings: &[(u32, LandingPlan)],
    ) -> Result<Vec<LandingConflict>, LayerError> {
        let mut found = Vec::new();
        for (number, plan) in landings {
            let kept = LandingDirectory::open(self.path(), *number)?.kept;
            for entry in plan.entries.iter().filter(|entry| !entry.is_mode_only()) {
                if !self.is_as_recorded(&kept, entry)? {
                    found.push(entry.conflict(ConflictReason::KeptChanged));
                }
            }
        }
        Ok(found)
    }

    fn is_as_recorded(&self, kept: &HeldTree, entry: &PlannedEntry) -> Result<bool, LayerError> {
        let Some(before) = &entry.change.before else { return Ok(true) };
        let name = PathBuf::from(Transfer::kept_name(entry));
        let failed = |errno| kept.failed("look at", &name, errno);
        let Some(stat) = kept.stat(&name).map_err(failed)? else { return Ok(true) };
        let stamp = Stamp::of(&stat);
        if stamp.kind() != EntryKind::File || before.kind != EntryKind::File {
            return Ok(stamp.kind() == before.kind);
        }
        let digest = self.digests().of(kept, &name, &stamp).map_err(failed)?;
        // What cannot be read was not readable before, or has other permissions.
        let same_content = digest == before.digest || digest.is_none();
        Ok(same_content && stamp.permissions() == before.mode)
    }

    fn host_side(&self, host: &HeldTree, entry: &PlannedEntry) -> Result<HostSide, LayerError> {
        let present = present(host, entry)?;
        if entry.is_mode_only() {
            let mode = |state: &Option<crate::EntryState>| state.as_ref().map(|state| state.mode);
            let found = present.filter(Stamp::is_directory).map(|found| found.permissions());
            return Ok(match found {
                found if found == mode(&entry.change.after) => HostSide::AsLanded,
                found if found == mode(&entry.change.before) => HostSide::AsBefore,
                Some(_) => HostSide::Later(ConflictReason::ChangedOnHost),
                None => HostSide::Later(ConflictReason::RemovedOnHost),
            });
        }
        let Some(found) = present else {
            return Ok(match (&entry.change.after, &entry.change.before) {
                (None, _) => HostSide::AsLanded,
                (Some(_), None) => HostSide::AsBefore,
                (Some(_), Some(_)) => HostSide::Later(ConflictReason::RemovedOnHost),
            });
        };
        let Some(after) = &entry.change.after else {
            return Ok(HostSide::Later(ConflictReason::CreatedOnHost));
        };
        let same = entry.incoming.as_ref().is_some_and(|landed| landed.is_same_version(&found));
        if same && !self.is_recent(&found) || found.is_directory() && after.kind == EntryKind::Directory {
            return Ok(HostSide::AsLanded);
        }
        let digest = self
            .digests()
            .of(host, entry.path(), &found)
            .map_err(|errno| host.failed("read", entry.path(), errno))?;
        // What cannot be read is told by its times.
        let same_content = digest == after.digest || (same && digest.is_none());
        let equal = found.kind() == after.kind
            && same_content
            && (found.permissions() == after.mode || after.kind == EntryKind::Link);
        Ok(if equal { HostSide::AsLanded } else { HostSide::Later(ConflictReason::ChangedOnHost) })
    }

    fn is_recent(&self, found: &Stamp) -> bool {
        found.modified.seconds >= crate::base::now().seconds - 2
    }

    fn undo_landing(
        &mut self,
        roots: &[LayerRoot],
        landing: u32,
        plan: LandingPlan,
        report: &mut UndoReport,
    ) -> Result<(), LayerError> {
        let mut entries = Vec::new();
        for mut entry in plan.entries.into_iter().rev() {
            let Some(root) = roots.get(entry.root) else { continue };
            let side = self.host_side(&root.host, &entry)?;
            let present = present(&root.host, &entry)?;
            if side == HostSide::AsBefore {
                report.undone.push(entry.change);
                continue;
            }
            entry.as_landed = side == HostSide::AsLanded;
            if entry.is_mode_only() {
                // Whatever the permissions are by now, the old ones come back.
                if let (Some(after), Some(found)) = (&mut entry.change.after, &present) {
                    after.mode = found.permissions();
                }
            }
            entry.outgoing = present;
            entry.incoming = None;
            mark_recent(&mut entry, LandingDirection::Undo);
            entries.push(entry);
        }
        let placements: Vec<Placement> = roots.iter().map(|root| root.placement).collect();
        let hosts: Vec<&HeldTree> = roots.iter().map(|root| &root.host).collect();
        place_beside(&mut entries, &hosts, &placements, self.id())?;
        let relaxed = relaxed(&entries, &hosts)?;
        let aside: Vec<PlannedEntry> = entries.iter().filter(|entry| is_set_aside(entry)).cloned().collect();
        let plan = LandingPlan { entries, relaxed, ..LandingPlan::default() };
        let transfer = self.begin(roots, landing, LandingDirection::Undo, plan)?;
        let done = self.carry_out(transfer)?;
        for entry in aside {
            if !done.conflicts.iter().any(|conflict| conflict.path == entry.change.path) {
                let kept = self.path().join("aside").join(aside_name(&entry, landing));
                let (root, path) = (entry.change.root, entry.change.path);
                report.set_aside.push(SetAsideEntry { root, path, kept });
            }
        }
        report.undone.extend(done.landed);
        report.conflicts.extend(done.conflicts);
        Ok(())
    }
}

/// A directory that landed without permissions for its owner, held open, with its permissions.
struct LockedDirectory {
    fd: OwnedFd,
    mode: u32,
}

/// Gives the owner the right to look into directories that landed without it.
fn enter_locked(roots: &[LayerRoot], plans: &[LandingPlan]) -> Result<Vec<LockedDirectory>, LayerError> {
    let mut opened = Vec::new();
    let caller = rustix::process::geteuid();
    let entries = plans.iter().rev().flat_map(|plan| &plan.entries);
    let locked = |entry: &&PlannedEntry| {
        let after = entry.change.after.as_ref();
        after.is_some_and(|after| after.kind == EntryKind::Directory && after.mode & 0o700 != 0o700)
    };
    // The outermost first, as they landed.
    for entry in entries.filter(locked).filter(|entry| !caller.is_root() && !entry.is_mode_only()) {
        let Some(root) = roots.get(entry.root) else { continue };
        let failed = |errno| root.host.failed("open", entry.path(), errno);
        let fd = match root.host.place(entry.path()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => continue,
            fd => fd.map_err(failed)?,
        };
        let stamp = Stamp::of(&rustix::fs::fstat(&fd).map_err(failed)?);
        if stamp.owner == caller.as_raw() && stamp.permissions() & 0o700 != 0o700 {
            let mode = stamp.permissions();
            chmod_held(fd.as_fd(), mode | 0o700).map_err(failed)?;
            opened.insert(0, LockedDirectory { fd, mode });
        }
    }
    Ok(opened)
}

fn is_set_aside(entry: &PlannedEntry) -> bool {
    !entry.as_landed && entry.outgoing.is_some() && !entry.is_mode_only()
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct LandedPath {
    root: usize,
    path: PathBuf,
}

impl LandedPath {
    fn of(entry: &PlannedEntry) -> Self {
        Self { root: entry.root, path: entry.path().to_owned() }
    }
}

fn present(host: &HeldTree, entry: &PlannedEntry) -> Result<Option<Stamp>, LayerError> {
    let found = host.stat(entry.path()).map_err(|errno| host.failed("look at", entry.path(), errno))?;
    Ok(found.map(|stat| Stamp::of(&stat)))
}

/// The entries of a directory that landed which did not land themselves.
fn unknown_entries(
    host: &HeldTree,
    entry: &PlannedEntry,
    landed: &BTreeSet<LandedPath>,
) -> Result<Vec<LandingConflict>, LayerError> {
    let failed = |errno| host.failed("read", entry.path(), errno);
    let directory = match host.directory(entry.path()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(Vec::new()),
        directory => directory.map_err(failed)?,
    };
    let mut unknown = Vec::new();
    for name in names(directory.as_fd()).map_err(failed)? {
        let path = entry.path().join(name);
        if !landed.contains(&LandedPath { root: entry.root, path: path.clone() }) {
            unknown.push(LandingConflict {
                root: entry.change.root.clone(),
                path: ByteString::from(path),
                reason: ConflictReason::CreatedOnHost,
            });
        }
    }
    Ok(unknown)
}
