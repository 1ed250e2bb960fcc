//! What rules of policy files hold against changes, besides what the walk has met: links, names that are free, and what
//! stays open in a held directory.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::{PathDecision, ProtectionExtent};
use rustix::fs::FileType;

use super::root_handle::{PathProbe, RootHandle, beside, destination, links_on_the_way};
use super::walk::{WalkEntry, WalkShield, WalkVisitor, walk};
use super::{PlaceholderKind, SurveyError, SurveyRules, Surveyor, shown};

/// How many links are followed before a path is given up.
const LINKS: usize = 40;

pub(super) fn hold_all(surveyor: &mut Surveyor<'_>) -> Result<(), SurveyError> {
    hold_roots(surveyor);
    hold_protected_links(surveyor);
    hold_targets(surveyor)?;
    for root in surveyor.declared_paths() {
        for path in surveyor.rules.held_while_absent() {
            hold_free(surveyor, &root.join(path))?;
        }
    }
    find_openings(surveyor)
}

fn hold_roots(surveyor: &mut Surveyor<'_>) {
    let extent = surveyor.rules.holds_in(Path::new(""));
    for found in surveyor.found.iter_mut().take(surveyor.declared) {
        found.root_held = extent != ProtectionExtent::Nothing;
        if extent == ProtectionExtent::EverythingBut {
            found.excepted.push(PathBuf::new());
        }
    }
}

/// A protected name that is a link into a root. Where it leads straight to something that is protected itself, covering the link
/// is enough. Elsewhere it is held with what it leads to, because that is what the host obeys; a link to what is around it would
/// hold everything, and is covered instead.
fn hold_protected_links(surveyor: &mut Surveyor<'_>) {
    for (ground, found) in surveyor.grounds.iter().zip(&mut surveyor.found) {
        for (link, target) in found.take_inner_links() {
            let path = ground.path.join(&link);
            let direct = std::fs::read_link(&path).map(|text| beside(&path, &text));
            let is_protected =
                target.strip_prefix(&ground.path).is_ok_and(|relative| found.is_protected(relative));
            if is_protected && direct.is_ok_and(|direct| direct == target) {
                found.cover_link(link);
                continue;
            }
            let (shown_path, shown_target) = (shown(&path), shown(&target));
            if path.starts_with(&target) {
                surveyor
                    .notes
                    .push(format!("`{shown_path}` leads to what is around it, and is covered inside"));
                found.cover_link(link);
            } else {
                surveyor.notes.push(format!(
                    "`{shown_path}` is protected and leads to `{shown_target}`, which is read-only, too"
                ));
                found.hold_link(link);
            }
        }
    }
}

/// A held link must lead where it leads, and what is there must stay as it is: to write through it is to write it.
fn hold_targets(surveyor: &mut Surveyor<'_>) -> Result<(), SurveyError> {
    let mut links = Vec::new();
    for (ground, found) in surveyor.grounds.iter().zip(&surveyor.found) {
        links.extend(found.held_links().map(|link| ground.path.join(link)));
    }
    for link in links {
        hold_way(surveyor, &link);
        let target = destination(&link);
        // What is around the link has other things in it, which are judged by their own names.
        if !link.starts_with(&target) {
            hold_target(surveyor, &target, LINKS)?;
        }
    }
    Ok(())
}

/// A link that leads by way of another one leads wherever that one leads.
fn hold_way(surveyor: &mut Surveyor<'_>, link: &Path) {
    for passed in links_on_the_way(link) {
        let Some((ground, relative)) = surveyor.place(&passed) else { continue };
        if let Some(found) = surveyor.found.get_mut(ground) {
            found.hold_link(relative);
        }
    }
}

/// Holds the place of a path where nothing is. What is there has been met by the walk.
fn hold_free(surveyor: &mut Surveyor<'_>, path: &Path) -> Result<(), SurveyError> {
    match place(surveyor, path)? {
        Some(ProtectedPath { probe: PathProbe::Present(_), .. }) | None => Ok(()),
        Some(place) => hold(surveyor, place, LINKS),
    }
}

fn hold_target(surveyor: &mut Surveyor<'_>, path: &Path, links: usize) -> Result<(), SurveyError> {
    match place(surveyor, path)? {
        Some(place) => hold(surveyor, place, links),
        None => Ok(()),
    }
}

struct ProtectedPath {
    ground: usize,
    relative: PathBuf,
    probe: PathProbe,
}

/// `None` for a root itself and outside every root, where nothing can be changed.
fn place(surveyor: &Surveyor<'_>, path: &Path) -> Result<Option<ProtectedPath>, SurveyError> {
    let Some((index, relative)) = surveyor.place(path) else { return Ok(None) };
    let Some(ground) = surveyor.grounds.get(index) else { return Ok(None) };
    let probe = ground.probe(&relative)?;
    Ok(Some(ProtectedPath { ground: index, relative, probe }))
}

fn hold(surveyor: &mut Surveyor<'_>, place: ProtectedPath, links: usize) -> Result<(), SurveyError> {
    let ProtectedPath { ground, relative, probe } = place;
    let (Some(root), Some(found)) = (surveyor.grounds.get(ground), surveyor.found.get_mut(ground)) else {
        return Ok(());
    };
    match probe {
        PathProbe::Present(_) => found.hold(relative),
        PathProbe::Missing(first) => {
            let above = relative.ancestors().skip(1).filter(|above| above.starts_with(&first));
            above.for_each(|above| found.absent(above.to_owned(), PlaceholderKind::Way));
            found.absent(relative, PlaceholderKind::Directory);
        }
        PathProbe::Link(link) => {
            let rest = relative.strip_prefix(&link).map(Path::to_owned).unwrap_or_default();
            let link_path = root.path.join(&link);
            let target = destination(&link_path);
            found.hold_link(link);
            if links > 0 && !link_path.starts_with(&target) {
                let target = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
                return hold_target(surveyor, &target, links - 1);
            }
        }
    }
    Ok(())
}

/// What may be changed in the directories that are held with exceptions.
fn find_openings(surveyor: &mut Surveyor<'_>) -> Result<(), SurveyError> {
    let (rules, patience) = (surveyor.rules, surveyor.patience);
    for (ground, found) in surveyor.grounds.iter().zip(&mut surveyor.found).take(surveyor.declared) {
        for opened in rules.opened() {
            found.open(opened.clone());
        }
        for directory in std::mem::take(&mut found.excepted) {
            let Ok(inside) = RootHandle::open(&ground.path.join(&directory)) else { continue };
            let openings = || OpenExceptions { rules, directory: &directory, open: Vec::new() };
            for visitor in walk(&inside, patience, openings)? {
                visitor.open.into_iter().for_each(|path| found.open(path));
            }
        }
    }
    Ok(())
}

struct OpenExceptions<'a> {
    rules: &'a dyn SurveyRules,
    directory: &'a Path,
    open: Vec<PathBuf>,
}

impl WalkVisitor for OpenExceptions<'_> {
    fn entry(&mut self, entry: &WalkEntry<'_>) -> Result<WalkShield, SurveyError> {
        let path = self.directory.join(entry.relative);
        let open = match entry.kind {
            // What is protected by its name was met by the walk, and nothing opens it.
            FileType::Directory => self.is_free(&path),
            FileType::RegularFile => !self.rules.is_protected(&path) && self.shows(&path),
            // A link cannot be opened, only what it leads to.
            _ => false,
        };
        if open && !is_git(&path) {
            entry.keeps(path.as_os_str().len());
            self.open.push(path);
        }
        Ok(WalkShield::AsAbove)
    }

    fn unreadable(&mut self, _ground: &RootHandle, _relative: &Path) -> Result<(), SurveyError> {
        Ok(())
    }
}

impl OpenExceptions<'_> {
    /// Whether everything may come to be in a directory, at any depth: in one that is open nothing new is held.
    fn is_free(&self, directory: &Path) -> bool {
        let free = |directory: &Path| self.rules.holds_in(directory) == ProtectionExtent::Nothing;
        free(directory) && free(&directory.join("\u{1}"))
    }

    fn shows(&self, path: &Path) -> bool {
        !self.rules.holds(path) && self.rules.judge(path) != PathDecision::Hidden
    }
}

/// Most of a git directory is no work that a rule could mean by an exception, and what is in it has mounts of its own.
fn is_git(path: &Path) -> bool {
    path.components().any(|component| component.as_os_str().as_bytes() == b".git")
}
