//! The first pass over a root, and the second one for hard links.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::{PathDecision, ProtectionExtent};
use rustix::fs::{AtFlags, FileType, Stat};

use super::root_findings::RootFindings;
use super::root_handle::{RootHandle, destination, innermost, links_on_the_way, read_small};
use super::seek::{self, Candidate, CandidateKind};
use super::walk::{Patience, WalkEntry, WalkShield, WalkVisitor, walk};
use super::{SurveyError, SurveyRules, Surveyor, public_file};

/// Names that matter during the walk.
#[derive(Debug, Default)]
pub(super) struct MaskNames<'a> {
    at_root: HashSet<&'a [u8]>,
    anywhere: HashSet<&'a [u8]>,
    /// Whether rules about changes hold here: not in a git directory outside the declared roots.
    declared: bool,
}

impl<'a> MaskNames<'a> {
    pub(super) fn of(rules: &'a dyn SurveyRules) -> Self {
        let bytes = |names: &'a [&'a str]| {
            names.iter().map(|name| name.as_bytes()).filter(|n| *n != b".git").collect()
        };
        let (at_root, anywhere) = (bytes(rules.protected_at_root()), bytes(rules.protected_anywhere()));
        Self { at_root, anywhere, declared: true }
    }
}

/// Walks `ground` and notes what the rules hide, sockets, protected names and git directories.
pub(super) fn sweep(
    ground: &RootHandle,
    names: &MaskNames<'_>,
    rules: &dyn SurveyRules,
    patience: Patience,
    found: &mut RootFindings,
) -> Result<(), SurveyError> {
    for sweep in walk(ground, patience, || MaskWalk { ground, names, rules, found: RootFindings::default() })?
    {
        found.absorb(sweep.found);
    }
    Ok(())
}

/// As many names are held in a git directory.
const NAMES_OF_GIT: usize = 8;

struct MaskWalk<'a> {
    ground: &'a RootHandle,
    names: &'a MaskNames<'a>,
    rules: &'a dyn SurveyRules,
    found: RootFindings,
}

impl WalkVisitor for MaskWalk<'_> {
    fn entry(&mut self, entry: &WalkEntry<'_>) -> Result<WalkShield, SurveyError> {
        self.found.candidates.extend(seek::candidates(entry));
        match entry.kind {
            FileType::Directory => {}
            FileType::Symlink => self.link(entry),
            FileType::Socket => self.found.mask(entry.path()),
            _ => self.file(entry),
        }
        let ruled = if self.names.declared { self.ruled(entry) } else { WalkShield::AsAbove };
        Ok(if entry.shielded || self.name(entry) == WalkShield::AsAbove { ruled } else { WalkShield::Up })
    }

    /// A directory that cannot be listed. Its owner could open it from inside, and a command may know names in it that the
    /// survey cannot see.
    fn unreadable(&mut self, _ground: &RootHandle, relative: &Path) -> Result<(), SurveyError> {
        self.closed_to_owner(relative);
        if !relative.as_os_str().is_empty() {
            self.found.close(relative.to_owned());
        }
        Ok(())
    }

    fn closed_to_owner(&mut self, relative: &Path) {
        self.found.candidates.push(Candidate { relative: relative.to_owned(), kind: CandidateKind::Closed });
    }
}

impl MaskWalk<'_> {
    fn file(&mut self, entry: &WalkEntry<'_>) {
        let hidden = match self.ground.judge(self.rules, entry.relative) {
            PathDecision::Open => false,
            PathDecision::Hidden => true,
            PathDecision::HiddenUnlessPublic => !is_public(self.ground, entry.relative),
        };
        if hidden {
            self.found.mask(entry.path());
            self.note_inode(entry);
        }
    }

    /// What rules besides the protected names say about changing it.
    fn ruled(&mut self, entry: &WalkEntry<'_>) -> WalkShield {
        let path = || entry.path();
        if entry.kind == FileType::Directory {
            if self.rules.hides_all(entry.relative) {
                self.found.close(path());
                return WalkShield::Up;
            }
            return self.ruled_directory(entry);
        }
        if !entry.shielded && self.rules.holds(entry.relative) {
            if entry.kind == FileType::Symlink {
                self.found.hold_link(path())
            } else {
                self.found.hold(path())
            }
        }
        WalkShield::AsAbove
    }

    fn ruled_directory(&mut self, entry: &WalkEntry<'_>) -> WalkShield {
        let extent =
            if entry.shielded { ProtectionExtent::Nothing } else { self.rules.holds_in(entry.relative) };
        if extent != ProtectionExtent::Nothing {
            self.found.hold(entry.path());
        }
        match extent {
            ProtectionExtent::Nothing => WalkShield::AsAbove,
            ProtectionExtent::Everything => WalkShield::Up,
            ProtectionExtent::EverythingBut => {
                self.found.excepted.push(entry.path());
                WalkShield::AsAbove
            }
        }
    }

    fn note_inode(&mut self, entry: &WalkEntry<'_>) {
        let Ok(stat) = rustix::fs::statat(entry.directory, entry.name, AtFlags::SYMLINK_NOFOLLOW) else {
            return;
        };
        if stat.st_nlink > 1 {
            self.found.listing_lies |= stat.st_ino != entry.inode;
            self.found.shared.insert(identity(&stat));
        }
    }

    /// What a hidden name links to is what it would have given away.
    fn link(&mut self, entry: &WalkEntry<'_>) {
        let verdict = match self.ground.judge(self.rules, entry.relative) {
            PathDecision::Open if self.names.declared && self.rules.hides_all(entry.relative) => {
                PathDecision::Hidden
            }
            PathDecision::Open => return,
            verdict => verdict,
        };
        let target = destination(&self.ground.path.join(entry.relative));
        let shown = verdict == PathDecision::HiddenUnlessPublic
            && read_small(rustix::fs::CWD, &target, public_file::MAX)
                .is_some_and(|content| public_file::is_public(entry.relative, &content));
        if !shown {
            let links = links_on_the_way(&self.ground.path.join(entry.relative));
            let bytes = |path: &PathBuf| path.as_os_str().len();
            entry.keeps(2 * bytes(&target) + links.iter().map(bytes).sum::<usize>());
            if self.names.declared && self.rules.hides_all(entry.relative) {
                self.found.closed_targets.push(target.clone());
            }
            self.found.hidden_targets.push(target);
            // Without one of the links the next survey would not find the target, and would not hide it.
            self.found.hidden_links.extend(links);
        }
    }

    fn name(&mut self, entry: &WalkEntry<'_>) -> WalkShield {
        let name = entry.name.to_bytes();
        if name == b".git" {
            entry.keeps(NAMES_OF_GIT * entry.relative.as_os_str().len());
            self.found.gits.push(entry.path());
            return WalkShield::AsAbove;
        }
        // Links with such a name are looked at once it is known what else is protected.
        if self.names.anywhere.contains(name) {
            self.found.named.push(entry.path());
            return WalkShield::Up;
        }
        let at_root = entry.relative.as_os_str().as_bytes().len() == name.len();
        if at_root && self.names.at_root.contains(name) { WalkShield::Up } else { WalkShield::AsAbove }
    }
}

/// Whether the file at `relative` is one that everybody may read by what is in it.
pub(crate) fn is_public(ground: &RootHandle, relative: &Path) -> bool {
    read_small(ground.fd.as_fd(), relative, public_file::MAX)
        .is_some_and(|content| public_file::is_public(relative, &content))
}

/// Masks each directory or file that is closed as a whole, in every root that it would be reached through.
pub(super) fn close_parts(surveyor: &mut Surveyor<'_>, closed: &[&Path]) -> Result<(), SurveyError> {
    for part in closed {
        for (ground, found) in surveyor.grounds.iter().zip(&mut surveyor.found) {
            let Ok(relative) = part.strip_prefix(&ground.path) else { continue };
            let Some(stat) = ground.stat(relative)?.filter(|_| !relative.as_os_str().is_empty()) else {
                continue;
            };
            found.listing_lies = true;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                found.shared.extend(linked_files(part, surveyor.patience)?);
                found.close(relative.to_owned());
            } else {
                found.shared.extend((stat.st_nlink > 1).then(|| identity(&stat)));
                found.mask(relative.to_owned());
            }
        }
    }
    Ok(())
}

/// Masks what hidden names link to, then every other name of a masked file, and protects every other name of a
/// protected one.
pub(super) fn add_targets_and_aliases(surveyor: &mut Surveyor<'_>) -> Result<(), SurveyError> {
    add_targets(surveyor)?;
    let masked: BTreeSet<InodeKey> = surveyor.found.iter().flat_map(|found| found.shared.clone()).collect();
    let mut shared = masked.clone();
    shared.extend(protected_with_other_names(surveyor)?);
    if shared.is_empty() {
        return Ok(());
    }
    let listing_lies = surveyor.found.iter().any(|found| found.listing_lies);
    let inodes: HashSet<u64> = shared.iter().map(|(_, inode)| *inode).collect();
    let patience = surveyor.patience;
    for (ground, found) in surveyor.grounds.iter().zip(&mut surveyor.found) {
        let aliases = || HardLinkFinder { shared: &shared, inodes: &inodes, listing_lies, names: Vec::new() };
        for (name, identity) in walk(ground, patience, aliases)?.into_iter().flat_map(|aliases| aliases.names)
        {
            if masked.contains(&identity) { found.mask(name) } else { found.protect(name) }
        }
    }
    Ok(())
}

/// A read-only bind guards a name, not the file: the same file under another name would be writable.
fn protected_with_other_names(surveyor: &mut Surveyor<'_>) -> Result<BTreeSet<InodeKey>, SurveyError> {
    let mut shared = BTreeSet::new();
    let patience = surveyor.patience;
    for (ground, found) in surveyor.grounds.iter().zip(&mut surveyor.found) {
        for path in found.protected().cloned().collect::<Vec<_>>() {
            let Some(stat) = ground.stat(&path)? else { continue };
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                shared.extend((stat.st_nlink > 1).then(|| identity(&stat)));
            } else {
                shared.extend(linked_files(&ground.path.join(&path), patience)?);
            }
        }
    }
    // Listed inodes were not compared here, so the second pass asks each file.
    if let (false, Some(found)) = (shared.is_empty(), surveyor.found.first_mut()) {
        found.listing_lies = true;
    }
    Ok(shared)
}

/// Files in a directory that have another name somewhere.
fn linked_files(directory: &Path, patience: Patience) -> Result<Vec<InodeKey>, SurveyError> {
    let Ok(inside) = RootHandle::open(directory) else { return Ok(Vec::new()) };
    Ok(walk(&inside, patience, LinkedFiles::default)?.into_iter().flat_map(|files| files.found).collect())
}

#[derive(Default)]
struct LinkedFiles {
    found: Vec<InodeKey>,
}

impl WalkVisitor for LinkedFiles {
    fn entry(&mut self, entry: &WalkEntry<'_>) -> Result<WalkShield, SurveyError> {
        if entry.kind != FileType::Directory
            && let Ok(stat) = rustix::fs::statat(entry.directory, entry.name, AtFlags::SYMLINK_NOFOLLOW)
            && stat.st_nlink > 1
        {
            self.found.push(identity(&stat));
        }
        Ok(WalkShield::AsAbove)
    }

    fn unreadable(&mut self, _ground: &RootHandle, _relative: &Path) -> Result<(), SurveyError> {
        Ok(())
    }
}

/// Device and inode.
type InodeKey = (u64, u64);

fn add_targets(surveyor: &mut Surveyor<'_>) -> Result<(), SurveyError> {
    let links: Vec<PathBuf> =
        surveyor.found.iter_mut().flat_map(|found| std::mem::take(&mut found.hidden_links)).collect();
    for link in links {
        if let Some((index, relative)) = innermost(&surveyor.grounds, &link)
            && let Some(found) = surveyor.found.get_mut(index)
        {
            found.link(relative, None);
        }
    }
    let targets: Vec<PathBuf> =
        surveyor.found.iter_mut().flat_map(|found| std::mem::take(&mut found.hidden_targets)).collect();
    let closed: BTreeSet<PathBuf> =
        surveyor.found.iter_mut().flat_map(|found| std::mem::take(&mut found.closed_targets)).collect();
    for target in targets {
        let Some((index, relative)) = innermost(&surveyor.grounds, &target) else { continue };
        let (Some(ground), Some(found)) = (surveyor.grounds.get(index), surveyor.found.get_mut(index)) else {
            continue;
        };
        let Some(stat) = ground.stat(&relative)? else { continue };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if closed.contains(&target) && !relative.as_os_str().is_empty() {
                found.shared.extend(linked_files(&target, surveyor.patience)?);
                found.listing_lies = true;
                found.close(relative);
            }
        } else {
            if stat.st_nlink > 1 {
                found.listing_lies = true;
                found.shared.insert(identity(&stat));
            }
            found.mask(relative);
        }
    }
    Ok(())
}

/// Finds the other names of files by inode number.
struct HardLinkFinder<'a> {
    shared: &'a BTreeSet<InodeKey>,
    inodes: &'a HashSet<u64>,
    listing_lies: bool,
    names: Vec<(PathBuf, InodeKey)>,
}

impl WalkVisitor for HardLinkFinder<'_> {
    fn entry(&mut self, entry: &WalkEntry<'_>) -> Result<WalkShield, SurveyError> {
        let candidate =
            entry.kind != FileType::Directory && (self.listing_lies || self.inodes.contains(&entry.inode));
        if candidate
            && let Ok(stat) = rustix::fs::statat(entry.directory, entry.name, AtFlags::SYMLINK_NOFOLLOW)
            && self.shared.contains(&identity(&stat))
        {
            self.names.push((entry.path(), identity(&stat)));
        }
        Ok(WalkShield::AsAbove)
    }

    fn unreadable(&mut self, _ground: &RootHandle, _relative: &Path) -> Result<(), SurveyError> {
        Ok(())
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
