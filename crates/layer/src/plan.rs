//! What a landing will do, written down before it does it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, EntryKind};
use serde::{Deserialize, Serialize};

use crate::beneath::HeldTree;
use crate::change::{ChangeKind, EntryState, LandedSlot, LayerChange, RefusedEntry};
use crate::compare::ComparedChange;
use crate::error::LayerError;
use crate::landing::{ConflictReason, LandingConflict, LandingDirection};
use crate::stamp::Stamp;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LandingPlan {
    /// In the order of landing: deletions, the deepest first, then the rest, the outermost first.
    pub(crate) entries: Vec<PlannedEntry>,
    pub(crate) relaxed: Vec<RelaxedDirectory>,
    /// What was found before it began.
    pub(crate) conflicts: Vec<LandingConflict>,
    pub(crate) refused: Vec<RefusedEntry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PlannedEntry {
    /// The number of the root.
    pub(crate) root: usize,
    /// With its slot.
    pub(crate) change: LayerChange,
    pub(crate) staging: SlotStaging,
    /// `None`: the slot is in the layer.
    pub(crate) beside: Option<BesideSlot>,
    /// What is in the slot before the exchange. `None`: nothing, or it is known once it is staged.
    pub(crate) incoming: Option<Stamp>,
    /// What the host has before the exchange.
    pub(crate) outgoing: Option<Stamp>,
    /// For an undo: what the host has is what landed.
    pub(crate) as_landed: bool,
}

/// How an entry of the upper comes into its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SlotStaging {
    /// Nothing is staged.
    Nothing,
    /// A second name of the same file: no bytes move, and the upper keeps its own name until the landing is complete.
    ///
    /// INVARIANT: the file has no other name. ATTACK: a command links an ordinary name to a protected one; a later session that
    /// may write the ordinary one would write the file that a person approved.
    Link,
    Copy,
    /// A new directory: its entries land one by one.
    Directory,
}

/// A name in a directory of the root, for a root on another file system than the layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BesideSlot {
    pub(crate) directory: ByteString,
    pub(crate) name: String,
}

/// A directory of the host whose owner gets permissions to work in it for the time of the landing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RelaxedDirectory {
    pub(crate) root: usize,
    pub(crate) path: ByteString,
    pub(crate) inode: u64,
    pub(crate) mode: u32,
}

impl PlannedEntry {
    pub(crate) fn path(&self) -> &Path {
        self.change.path.as_path()
    }

    pub(crate) fn number(&self) -> u32 {
        self.change.landed.map_or(0, |slot| slot.entry)
    }

    /// The permissions of a directory alone: nothing is exchanged.
    pub(crate) fn is_mode_only(&self) -> bool {
        self.change.kind == ChangeKind::Metadata
            && self.change.before.as_ref().is_some_and(|before| before.kind == EntryKind::Directory)
    }

    /// What the host will have.
    pub(crate) fn target(&self, direction: LandingDirection) -> Option<&EntryState> {
        match direction {
            LandingDirection::Land => self.change.after.as_ref(),
            LandingDirection::Undo => self.change.before.as_ref(),
        }
    }

    /// What the host had.
    pub(crate) fn origin(&self, direction: LandingDirection) -> Option<&EntryState> {
        match direction {
            LandingDirection::Land => self.change.before.as_ref(),
            LandingDirection::Undo => self.change.after.as_ref(),
        }
    }

    pub(crate) fn conflict(&self, reason: ConflictReason) -> LandingConflict {
        LandingConflict { root: self.change.root.clone(), path: self.change.path.clone(), reason }
    }
}

/// Where the slots of a root are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    InLayer,
    Beside,
}

/// Puts what was compared into the order of landing.
pub(crate) fn planned(
    changes: Vec<ComparedChange>,
    roots: &[ByteString],
    placements: &[Placement],
    landing: u32,
) -> Vec<PlannedEntry> {
    let (mut removals, rest): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|compared| compared.change.kind == ChangeKind::Deleted);
    removals.reverse();
    let ordered = removals.into_iter().chain(rest).enumerate();
    ordered
        .map(|(number, compared)| {
            let root = roots.iter().position(|root| *root == compared.change.root).unwrap_or_default();
            let placement = placements.get(root).copied().unwrap_or(Placement::Beside);
            let entry = u32::try_from(number).unwrap_or(u32::MAX);
            planned_entry(compared, root, placement, LandedSlot { landing, entry })
        })
        .collect()
}

fn planned_entry(
    compared: ComparedChange,
    root: usize,
    placement: Placement,
    slot: LandedSlot,
) -> PlannedEntry {
    let ComparedChange { mut change, upper, host } = compared;
    change.landed = Some(slot);
    let mut entry = PlannedEntry {
        root,
        change,
        staging: SlotStaging::Nothing,
        beside: None,
        incoming: None,
        outgoing: host,
        as_landed: true,
    };
    if let Some(upper) = upper
        && !entry.is_mode_only()
    {
        entry.staging = match upper.stamp.kind() {
            EntryKind::Directory => SlotStaging::Directory,
            _ if placement == Placement::Beside || upper.relaxed || upper.shared => SlotStaging::Copy,
            _ => SlotStaging::Link,
        };
        entry.incoming = (entry.staging == SlotStaging::Link).then_some(upper.stamp);
    }
    entry
}

/// Chooses the slots of roots on other file systems: in the deepest directory that is there before and after.
pub(crate) fn place_beside(
    entries: &mut [PlannedEntry],
    hosts: &[&HeldTree],
    placements: &[Placement],
    layer: &str,
) -> Result<(), LayerError> {
    let leaving: BTreeMap<(usize, PathBuf), ()> = entries
        .iter()
        .filter(|entry| entry.outgoing.as_ref().is_some_and(Stamp::is_directory) && !entry.is_mode_only())
        .map(|entry| ((entry.root, entry.path().to_owned()), ()))
        .collect();
    for entry in entries {
        let Some(host) = hosts.get(entry.root) else { continue };
        if placements.get(entry.root) != Some(&Placement::Beside) || entry.is_mode_only() {
            continue;
        }
        let mut directory = entry.path().parent().unwrap_or(Path::new("")).to_owned();
        while !directory.as_os_str().is_empty() {
            let found = host.stat(&directory).map_err(|errno| host.failed("look at", &directory, errno))?;
            let is_directory = found.is_some_and(|stat| Stamp::of(&stat).is_directory());
            if is_directory && !leaving.contains_key(&(entry.root, directory.clone())) {
                break;
            }
            directory.pop();
        }
        let landing = entry.change.landed.map_or(0, |slot| slot.landing);
        let name = format!(".ringfence-{layer}-{landing}-{}.tmp", entry.number());
        entry.beside = Some(BesideSlot { directory: ByteString::from(directory), name });
    }
    Ok(())
}

/// The directories that their owner cannot work in: root can work in all.
pub(crate) fn relaxed(
    entries: &[PlannedEntry],
    hosts: &[&HeldTree],
) -> Result<Vec<RelaxedDirectory>, LayerError> {
    let caller = rustix::process::geteuid();
    if caller.is_root() {
        return Ok(Vec::new());
    }
    let mut looked: BTreeMap<(usize, PathBuf), Option<RelaxedDirectory>> = BTreeMap::new();
    for entry in entries {
        let Some(host) = hosts.get(entry.root) else { continue };
        let mut places = Vec::new();
        if !entry.is_mode_only() {
            places.extend(entry.path().parent().map(Path::to_owned));
        }
        if entry.outgoing.as_ref().is_some_and(Stamp::is_directory) {
            places.push(entry.path().to_owned());
        }
        for path in places {
            let key = (entry.root, path);
            if looked.contains_key(&key) {
                continue;
            }
            let stat = host.stat(&key.1).map_err(|errno| host.failed("look at", &key.1, errno))?;
            let stamp = stat.map(|stat| Stamp::of(&stat));
            let narrow = stamp.filter(|stamp| {
                stamp.is_directory() && stamp.owner == caller.as_raw() && stamp.permissions() & 0o700 != 0o700
            });
            let directory = narrow.map(|stamp| RelaxedDirectory {
                root: key.0,
                path: ByteString::from(key.1.as_path()),
                inode: stamp.inode,
                mode: stamp.permissions(),
            });
            looked.insert(key, directory);
        }
    }
    Ok(looked.into_values().flatten().collect())
}
