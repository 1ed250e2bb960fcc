//! What a survey has collected for one root, and how it becomes the lists of a [`SurveyedRoot`].

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::seek::Candidate;
use super::{Absent, Placeholder, SurveyError, SurveyedRoot, at};

/// Longest path, root included, that a mount can be placed on.
const MAX_PATH: usize = 4095;

#[derive(Debug, Default)]
pub(super) struct Found {
    masks: BTreeSet<PathBuf>,
    /// Directories that are masked as a whole.
    closed: BTreeSet<PathBuf>,
    protected: BTreeSet<PathBuf>,
    /// Like `protected`, but with exceptions.
    held: BTreeSet<PathBuf>,
    held_links: BTreeSet<PathBuf>,
    open: BTreeSet<PathBuf>,
    /// The root itself is held.
    pub(super) root_held: bool,
    links: BTreeSet<PathBuf>,
    /// Links that lead into a root, with where they lead.
    inner_links: Vec<(PathBuf, PathBuf)>,
    absent: BTreeMap<PathBuf, Placeholder>,
    pins: BTreeSet<PathBuf>,
    rewritten: BTreeMap<PathBuf, Vec<u8>>,
    /// Entries with a name that is protected anywhere, not inside another one.
    pub(super) named: Vec<PathBuf>,
    /// `.git` entries that are not inside something protected.
    pub(super) gits: Vec<PathBuf>,
    /// Held directories with exceptions in them.
    pub(super) excepted: Vec<PathBuf>,
    /// What hidden names link to, absolute.
    pub(super) hidden_targets: Vec<PathBuf>,
    /// Those of them that are hidden as whole directories.
    pub(super) closed_targets: Vec<PathBuf>,
    /// Links that lead to something hidden, absolute.
    pub(super) hidden_links: Vec<PathBuf>,
    /// Masked files that have another name somewhere.
    pub(super) shared: BTreeSet<(u64, u64)>,
    /// A directory listing named another inode than the file has (seen on stacked filesystems).
    pub(super) listing_lies: bool,
    pub(super) candidates: Vec<Candidate>,
}

impl Found {
    pub(super) fn mask(&mut self, path: PathBuf) {
        self.masks.insert(path);
    }

    pub(super) fn protect(&mut self, path: PathBuf) {
        self.protected.insert(path);
    }

    pub(super) fn protected(&self) -> impl Iterator<Item = &PathBuf> {
        self.protected.iter().chain(&self.held)
    }

    pub(super) fn close(&mut self, directory: PathBuf) {
        self.closed.insert(directory);
    }

    pub(super) fn hold(&mut self, path: PathBuf) {
        self.held.insert(path);
    }

    pub(super) fn hold_link(&mut self, link: PathBuf) {
        self.held_links.insert(link);
    }

    pub(super) fn held_links(&self) -> impl Iterator<Item = &PathBuf> {
        self.held_links.iter()
    }

    pub(super) fn open(&mut self, path: PathBuf) {
        self.open.insert(path);
    }

    /// A protected name that is a link; `inner` is where it leads if that is inside a root.
    pub(super) fn link(&mut self, link: PathBuf, inner: Option<PathBuf>) {
        match inner {
            Some(target) => self.inner_links.push((link, target)),
            None => {
                self.links.insert(link);
            }
        }
    }

    pub(super) fn absent(&mut self, path: PathBuf, placeholder: Placeholder) {
        let known = self.absent.entry(path).or_insert(placeholder);
        if *known == Placeholder::Way {
            *known = placeholder;
        }
    }

    pub(super) fn pin(&mut self, path: PathBuf) {
        self.pins.insert(path);
    }

    pub(super) fn rewrite(&mut self, path: PathBuf, content: Vec<u8>) {
        self.rewritten.insert(path, content);
    }

    /// Adds what another visitor of the same root has found.
    pub(super) fn absorb(&mut self, other: Self) {
        self.masks.extend(other.masks);
        self.closed.extend(other.closed);
        self.protected.extend(other.protected);
        self.held.extend(other.held);
        self.held_links.extend(other.held_links);
        self.open.extend(other.open);
        self.root_held |= other.root_held;
        self.excepted.extend(other.excepted);
        self.links.extend(other.links);
        self.inner_links.extend(other.inner_links);
        self.absent.extend(other.absent);
        self.pins.extend(other.pins);
        self.rewritten.extend(other.rewritten);
        self.named.extend(other.named);
        self.gits.extend(other.gits);
        self.hidden_targets.extend(other.hidden_targets);
        self.closed_targets.extend(other.closed_targets);
        self.hidden_links.extend(other.hidden_links);
        self.shared.extend(other.shared);
        self.listing_lies |= other.listing_lies;
        self.candidates.extend(other.candidates);
    }

    pub(super) fn finish(mut self, root: &Path) -> Result<SurveyedRoot, SurveyError> {
        self.settle_inner_links(root)?;
        self.drop_hidden();
        self.drop_covered();
        let read_only = self.with_exceptions();
        let pins = self.all_pins(&read_only);
        let surveyed = SurveyedRoot {
            path: root.to_owned(),
            masks: shallow_first(self.masks),
            protected: shallow_first(self.protected),
            protected_links: shallow_first(self.links),
            held_links: shallow_first(self.held_links),
            read_only: shallow_first(read_only),
            open: shallow_first(self.open),
            held: self.root_held,
            absent: self.absent.into_iter().map(|(path, placeholder)| Absent { path, placeholder }).collect(),
            pins: shallow_first(pins),
            rewritten: self.rewritten.into_iter().collect(),
        };
        check_lengths(&surveyed)?;
        Ok(surveyed)
    }

    /// A link to something that is protected itself changes nothing; any other link into a root is a way round.
    fn settle_inner_links(&mut self, root: &Path) -> Result<(), SurveyError> {
        for (link, target) in std::mem::take(&mut self.inner_links) {
            let direct =
                std::fs::read_link(root.join(&link)).map(|text| at::beside(&root.join(&link), &text));
            let fixed = target.strip_prefix(root).is_ok_and(|relative| beneath(&self.protected, relative));
            if !fixed || direct.ok().as_ref() != Some(&target) {
                return Err(SurveyError::ProtectedSymlink { link: root.join(link), target });
            }
            self.links.insert(link);
        }
        Ok(())
    }

    /// What lies in a masked directory cannot be reached, so nothing can be mounted there.
    fn drop_hidden(&mut self) {
        if self.closed.is_empty() {
            return;
        }
        let closed = std::mem::take(&mut self.closed);
        let hidden = |path: &Path| beneath(&closed, path);
        for set in [
            &mut self.masks,
            &mut self.protected,
            &mut self.held,
            &mut self.held_links,
            &mut self.open,
            &mut self.links,
            &mut self.pins,
        ] {
            set.retain(|path| !hidden(path));
        }
        self.absent.retain(|path, _| !hidden(path));
        self.rewritten.retain(|path, _| !hidden(path));
        let outermost = closed.iter().filter(|path| path.parent().is_none_or(|above| !hidden(above)));
        self.masks.extend(outermost.cloned());
    }

    /// What lies in a protected directory is protected with it, unless something in between is open.
    fn drop_covered(&mut self) {
        self.masks.remove(Path::new(""));
        self.masks.retain(|path| !self.rewritten.contains_key(path));
        self.drop_useless_openings();
        self.protected.append(&mut self.held);
        let all = self.protected.clone();
        let marks = Marks { held: &all, open: &self.open, root_held: self.root_held };
        let inside = |path: &Path| path.parent().is_some_and(|parent| marks.holds(parent));
        self.protected.retain(|path| !inside(path) && !self.rewritten.contains_key(path));
        // A mask cannot be written through, but it does not hold the directories above it.
        let masked: Vec<PathBuf> = self.protected.extract_if(.., |path| self.masks.contains(path)).collect();
        self.pins.extend(masked.iter().filter_map(|path| path.parent()).map(Path::to_owned));
        self.links.retain(|path| !inside(path));
        self.held_links.retain(|path| !inside(path) && !self.links.contains(path));
        self.absent.retain(|path, _| !inside(path) && !all.contains(path));
        let waiting = self.absent.iter().filter(|(_, placeholder)| **placeholder != Placeholder::Way);
        let waiting: BTreeSet<PathBuf> = waiting.map(|(path, _)| path.clone()).collect();
        self.absent.retain(|path, _| !path.parent().is_some_and(|parent| beneath(&waiting, parent)));
    }

    /// Nothing opens what is protected, and what is not held needs no opening.
    fn drop_useless_openings(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        open.retain(|path| !beneath(&self.protected, path) && !self.masks.contains(path));
        let marks = Marks { held: &self.held, open: &open, root_held: self.root_held };
        let needed = |path: &PathBuf| path.parent().is_some_and(|parent| marks.holds(parent));
        self.open = open.iter().filter(|path| needed(path)).cloned().collect();
    }

    /// The held directories that something open lies in.
    fn with_exceptions(&mut self) -> BTreeSet<PathBuf> {
        let held = |above: &&Path| self.protected.contains(*above);
        let around = self.open.iter().filter_map(|path| path.ancestors().skip(1).find(held));
        let found: BTreeSet<PathBuf> = around.map(Path::to_owned).collect();
        self.protected.retain(|path| !found.contains(path));
        found
    }

    fn all_pins(&self, read_only: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        let held = self.protected.iter().chain(&self.links).chain(&self.held_links).chain(read_only);
        let ends = held.chain(self.absent.keys()).chain(self.rewritten.keys());
        // Masks too: a directory that is moved to another name, or into `.git`, shows its secrets to the next run.
        let above = ends.chain(&self.masks).flat_map(|path| path.ancestors().skip(1));
        let named = self.pins.iter().flat_map(|path| path.ancestors());
        let mut pins: BTreeSet<PathBuf> = above.chain(named).map(Path::to_owned).collect();
        pins.remove(Path::new(""));
        let all: BTreeSet<PathBuf> = self.protected.union(read_only).cloned().collect();
        let marks = Marks { held: &all, open: &self.open, root_held: self.root_held };
        // What is open is a mount already.
        pins.retain(|path| !marks.holds(path) && !self.open.contains(path));
        pins
    }
}

/// What is held and what of it is open: the nearest of the two decides.
struct Marks<'a> {
    held: &'a BTreeSet<PathBuf>,
    open: &'a BTreeSet<PathBuf>,
    root_held: bool,
}

impl Marks<'_> {
    fn holds(&self, path: &Path) -> bool {
        for above in path.ancestors() {
            if self.open.contains(above) {
                return false;
            }
            if self.held.contains(above) {
                return true;
            }
        }
        self.root_held
    }
}

/// Whether `path` is one of `set` or inside one.
fn beneath(set: &BTreeSet<PathBuf>, path: &Path) -> bool {
    path.ancestors().any(|ancestor| set.contains(ancestor))
}

fn shallow_first(set: BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = set.into_iter().collect();
    paths.sort_by_cached_key(|path| path.components().count());
    paths
}

fn check_lengths(root: &SurveyedRoot) -> Result<(), SurveyError> {
    let absent = root.absent.iter().map(|absent| &absent.path);
    let rewritten = root.rewritten.iter().map(|(path, _)| path);
    let lists =
        root.masks.iter().chain(&root.protected).chain(&root.protected_links).chain(absent).chain(rewritten);
    let lists = lists.chain(&root.held_links).chain(&root.read_only).chain(&root.open);
    let above = root.path.as_os_str().len() + 1;
    match lists.into_iter().find(|path| above + path.as_os_str().as_bytes().len() > MAX_PATH) {
        Some(path) => Err(SurveyError::TooLong { path: root.path.join(path) }),
        None => Ok(()),
    }
}
