//! What a survey has collected for one root, and how it becomes the lists of a [`SurveyedRoot`].

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::seek::Candidate;
use super::{AbsentName, PlaceholderKind, RootView, SurveyError, SurveyedRoot};

/// Longest path, root included, that a mount can be placed on.
const MAX_PATH: usize = 4095;
/// The mounts of a root beyond which directories are closed as a whole. The kernel has a limit for the mounts of a sandbox (100000).
pub(super) const MOST_MOUNTS: usize = 32768;
/// The mounts of a root, after that, with which a start takes seconds. Beyond it no sandbox is made.
pub(super) const MOUNT_CEILING: usize = 49152;
/// The deepest path that is held by itself. Each directory above one is a mount too: a few hundred files far down would otherwise
/// be a million mounts, and to say so would take hours. People's work is less deep.
const DEEPEST: usize = 128;
/// The bytes of all paths that need a mount.
const MOST_MOUNTED: usize = 256 * 1024 * 1024;
/// The bytes of all files of a root that are shown with other content. Those beyond are hidden.
const MOST_REWRITTEN: usize = 64 * 1024 * 1024;

/// The paths that need mounts take too much memory.
#[derive(Debug)]
pub(super) struct TooManyNames;

#[derive(Debug, Default)]
pub(super) struct RootFindings {
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
    absent: BTreeMap<PathBuf, PlaceholderKind>,
    pins: BTreeSet<PathBuf>,
    rewritten: BTreeMap<PathBuf, Vec<u8>>,
    rewritten_bytes: usize,
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

impl RootFindings {
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

    pub(super) fn absent(&mut self, path: PathBuf, placeholder: PlaceholderKind) {
        // A path that cannot exist needs no placeholder, and can have none.
        if !can_exist(&path) {
            return;
        }
        let known = self.absent.entry(path).or_insert(placeholder);
        if *known == PlaceholderKind::Way {
            *known = placeholder;
        }
    }

    pub(super) fn pin(&mut self, path: PathBuf) {
        self.pins.insert(path);
    }

    /// Whether a file can still be shown with other content, which stays in memory for as long as the session lasts.
    pub(super) fn has_room(&self, content: &[u8]) -> bool {
        self.rewritten_bytes + content.len() <= MOST_REWRITTEN
    }

    pub(super) fn rewrite(&mut self, path: PathBuf, content: Vec<u8>) {
        self.rewritten_bytes += content.len();
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
        self.rewritten_bytes += other.rewritten_bytes;
        self.named.extend(other.named);
        self.gits.extend(other.gits);
        self.hidden_targets.extend(other.hidden_targets);
        self.closed_targets.extend(other.closed_targets);
        self.hidden_links.extend(other.hidden_links);
        self.shared.extend(other.shared);
        self.listing_lies |= other.listing_lies;
        self.candidates.extend(other.candidates);
    }

    /// Closes directories as a whole until not more than `most` mounts are left, as few as are enough, and the last of them as
    /// narrow as is enough. Returns them. No directory of `kept` is closed, nor what lies directly in the root.
    pub(super) fn thin_out(
        &mut self,
        most: usize,
        kept: &BTreeSet<PathBuf>,
    ) -> Result<BTreeSet<PathBuf>, TooManyNames> {
        let weights = self.weights()?;
        let mut closed = BTreeSet::new();
        let excess = weights.len().checked_sub(most).filter(|excess| *excess > 0);
        let Some(mut excess) = excess else { return Ok(closed) };
        for (path, weight) in frontier(&weights, kept) {
            let gain = weight - 1;
            if gain >= excess {
                closed.extend(narrowest(&weights, kept, path, excess));
                break;
            }
            closed.insert(path.to_owned());
            excess -= gain;
        }
        self.closed.extend(closed.iter().cloned());
        self.drop_hidden();
        Ok(closed)
    }

    /// Leaves what must not be read, and lets go of what must not be changed.
    pub(super) fn hide_only(&mut self) {
        let Self { protected, held, held_links, open, links, absent, pins, root_held, .. } = self;
        for set in [protected, held, held_links, open, links, pins] {
            set.clear();
        }
        absent.clear();
        *root_held = false;
    }

    /// How many mounts are needed now.
    pub(super) fn mounts(&self) -> Result<usize, TooManyNames> {
        Ok(self.mounted()?.len())
    }

    /// Every path that needs a mount: what is held, and the directories above it.
    fn mounted(&self) -> Result<BTreeSet<PathBuf>, TooManyNames> {
        let mut mounted: BTreeSet<PathBuf> = BTreeSet::new();
        let mut bytes = 0;
        for path in self.held_one_by_one().chain(&self.pins) {
            let new = |above: &&Path| !above.as_os_str().is_empty() && !mounted.contains(*above);
            let added: Vec<PathBuf> = path.ancestors().take_while(new).map(Path::to_owned).collect();
            bytes += added.iter().map(|path| path.as_os_str().len()).sum::<usize>();
            if bytes > MOST_MOUNTED {
                return Err(TooManyNames);
            }
            mounted.extend(added);
        }
        Ok(mounted)
    }

    /// How many mounts each path needs with all that is in it: one for itself, as what is held or as a directory above it.
    fn weights(&self) -> Result<BTreeMap<PathBuf, usize>, TooManyNames> {
        let paths: Vec<PathBuf> = self.mounted()?.into_iter().collect();
        let mut weights = vec![1; paths.len()];
        // What is in a directory comes right behind it. From the end, each is whole when it is added to what is above it.
        let mut above: Vec<usize> = Vec::new();
        let mut parents = vec![None; paths.len()];
        for (index, (path, parent)) in paths.iter().zip(&mut parents).enumerate() {
            while above.pop_if(|last| !paths.get(*last).is_some_and(|last| path.starts_with(last))).is_some()
            {
            }
            *parent = above.last().copied();
            above.push(index);
        }
        for (index, parent) in parents.iter().enumerate().rev() {
            let own = weights.get(index).copied().unwrap_or_default();
            if let Some(weight) = parent.and_then(|parent| weights.get_mut(parent)) {
                *weight += own;
            }
        }
        Ok(paths.into_iter().zip(weights).collect())
    }

    fn held_one_by_one(&self) -> impl Iterator<Item = &PathBuf> {
        let held = self.masks.iter().chain(&self.protected).chain(&self.held);
        let links = self.links.iter().chain(&self.held_links);
        held.chain(links).chain(self.absent.keys()).chain(self.rewritten.keys())
    }

    pub(super) fn finish(mut self, root: &Path, view: RootView) -> Result<SurveyedRoot, SurveyError> {
        self.drop_hidden();
        self.drop_covered();
        let read_only = self.with_exceptions();
        let pins = match view {
            RootView::Direct => self.all_pins(&read_only),
            RootView::Layered => BTreeSet::new(),
        };
        let surveyed = SurveyedRoot {
            path: root.to_owned(),
            masks: shallow_first(self.masks),
            protected: shallow_first(self.protected),
            protected_links: shallow_first(self.links),
            held_links: shallow_first(self.held_links),
            read_only: shallow_first(read_only),
            open: shallow_first(self.open),
            held: self.root_held,
            absent: self
                .absent
                .into_iter()
                .map(|(path, placeholder)| AbsentName { path, placeholder })
                .collect(),
            pins: shallow_first(pins),
            rewritten: self.rewritten.into_iter().collect(),
            view,
        };
        check_lengths(&surveyed)?;
        Ok(surveyed)
    }

    /// Links of protected names that lead into a root, with where they lead.
    pub(super) fn take_inner_links(&mut self) -> Vec<(PathBuf, PathBuf)> {
        std::mem::take(&mut self.inner_links)
    }

    /// Covers a link of a protected name, so that it neither leads anywhere inside nor can be replaced.
    pub(super) fn cover_link(&mut self, link: PathBuf) {
        self.links.insert(link);
    }

    /// Whether a path is protected, by itself or with what it lies in.
    pub(super) fn is_protected(&self, path: &Path) -> bool {
        beneath(&self.protected, path)
    }

    /// Nothing can be mounted on a path that the kernel does not take at once, and nothing is on one that is very deep, so that the
    /// nearest directory above that is neither stands for it: hidden for what is hidden, read-only for what must not change. Returns
    /// those directories.
    pub(super) fn shorten(&mut self, root: &Path) -> BTreeSet<PathBuf> {
        let longest = MAX_PATH.saturating_sub(root.as_os_str().len() + 1);
        let fits =
            |path: &Path| path.as_os_str().len() <= longest && path.components().nth(DEEPEST).is_none();
        let above = |path: &PathBuf| path.ancestors().find(|above| fits(above)).map(Path::to_owned);
        let hidden: Vec<PathBuf> = [&mut self.masks, &mut self.closed]
            .into_iter()
            .flat_map(|set| set.extract_if(.., |path| !fits(path)))
            .chain(self.rewritten.extract_if(.., |path, _| !fits(path)).map(|(path, _)| path))
            .filter_map(|path| above(&path))
            .collect();
        let held: Vec<PathBuf> = [&mut self.protected, &mut self.held, &mut self.links, &mut self.held_links]
            .into_iter()
            .flat_map(|set| set.extract_if(.., |path| !fits(path)))
            .chain(self.absent.extract_if(.., |path, _| !fits(path)).map(|(path, _)| path))
            .filter_map(|path| above(&path))
            .collect();
        self.open.retain(|path| fits(path));
        let pins: Vec<PathBuf> = self.pins.extract_if(.., |path| !fits(path)).collect();
        self.pins.extend(pins.iter().filter_map(above));
        let mut shortened: BTreeSet<PathBuf> = hidden.iter().chain(&held).cloned().collect();
        shortened.remove(Path::new(""));
        self.closed.extend(hidden.into_iter().filter(|path| !path.as_os_str().is_empty()));
        self.protected.extend(held.into_iter().filter(|path| !path.as_os_str().is_empty()));
        // What is closed is a mount, and each directory above it: they count from here on.
        self.drop_hidden();
        shortened
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
        let marks = HoldMarks { held: &all, open: &self.open, root_held: self.root_held };
        let inside = |path: &Path| path.parent().is_some_and(|parent| marks.holds(parent));
        self.protected.retain(|path| !inside(path) && !self.rewritten.contains_key(path));
        // A mask cannot be written through, but it does not hold the directories above it.
        let masked: Vec<PathBuf> = self.protected.extract_if(.., |path| self.masks.contains(path)).collect();
        self.pins.extend(masked.iter().filter_map(|path| path.parent()).map(Path::to_owned));
        self.links.retain(|path| !inside(path));
        self.held_links.retain(|path| !inside(path) && !self.links.contains(path));
        self.absent.retain(|path, _| !inside(path) && !all.contains(path));
        let waiting = self.absent.iter().filter(|(_, placeholder)| **placeholder != PlaceholderKind::Way);
        let waiting: BTreeSet<PathBuf> = waiting.map(|(path, _)| path.clone()).collect();
        self.absent.retain(|path, _| !path.parent().is_some_and(|parent| beneath(&waiting, parent)));
    }

    /// Nothing opens what is protected, and what is not held needs no opening.
    fn drop_useless_openings(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        open.retain(|path| !beneath(&self.protected, path) && !self.masks.contains(path));
        let marks = HoldMarks { held: &self.held, open: &open, root_held: self.root_held };
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
        let marks = HoldMarks { held: &all, open: &self.open, root_held: self.root_held };
        // What is open is a mount already.
        pins.retain(|path| !marks.holds(path) && !self.open.contains(path));
        pins
    }
}

/// The outermost directories that may be closed, which are all that lie in one that may not, the heaviest first.
fn frontier<'w>(weights: &'w BTreeMap<PathBuf, usize>, kept: &BTreeSet<PathBuf>) -> Vec<(&'w Path, usize)> {
    let is_kept = |path: &Path| path.as_os_str().is_empty() || kept.contains(path);
    let outermost = |path: &Path| !is_kept(path) && path.parent().is_some_and(is_kept);
    let directories = weights.iter().filter(|(path, weight)| **weight > 1 && outermost(path));
    let mut found: Vec<(&Path, usize)> =
        directories.map(|(path, weight)| (path.as_path(), *weight)).collect();
    found.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    found
}

/// The deepest directory in `path` that is enough, as long as only one is.
fn narrowest(
    weights: &BTreeMap<PathBuf, usize>,
    kept: &BTreeSet<PathBuf>,
    path: &Path,
    excess: usize,
) -> Option<PathBuf> {
    let inside = weights.range(path.to_owned()..).take_while(|(below, _)| below.starts_with(path));
    let enough = inside.filter(|(below, weight)| **weight > excess && !kept.contains(*below));
    enough.max_by_key(|(below, _)| below.components().count()).map(|(below, _)| below.clone())
}

/// What is held and what of it is open: the nearest of the two decides.
struct HoldMarks<'a> {
    held: &'a BTreeSet<PathBuf>,
    open: &'a BTreeSet<PathBuf>,
    root_held: bool,
}

impl HoldMarks<'_> {
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

fn can_exist(path: &Path) -> bool {
    const LONGEST_NAME: usize = 255;
    path.iter().all(|name| name.len() <= LONGEST_NAME && !name.as_bytes().contains(&0))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(masks: &[(&str, usize)]) -> RootFindings {
        let mut found = RootFindings::default();
        for (directory, count) in masks {
            (0..*count).for_each(|number| found.mask(Path::new(directory).join(format!("{number}/.env"))));
        }
        found
    }

    #[test]
    fn the_narrowest_directory_that_is_enough_is_closed() {
        let mut all = found(&[("src/made", 50), ("src/own", 5), ("docs", 5)]);
        let closed: Vec<PathBuf> = all.thin_out(40, &BTreeSet::new()).unwrap().into_iter().collect();
        assert_eq!(closed, [PathBuf::from("src/made")]);
        assert_eq!(all.masks.len(), 11, "the closed one and the others");
        assert!(found(&[("src/made", 50)]).thin_out(102, &BTreeSet::new()).unwrap().is_empty());
    }

    #[test]
    fn several_are_closed_where_one_is_not_enough_and_none_where_there_is_none() {
        assert_eq!(found(&[("a", 30), ("b", 30), ("c", 3)]).thin_out(20, &BTreeSet::new()).unwrap().len(), 2);
        let mut flat = RootFindings::default();
        (0..30).for_each(|number| flat.mask(PathBuf::from(format!(".env.{number}"))));
        assert!(flat.thin_out(10, &BTreeSet::new()).unwrap().is_empty());
    }

    /// Each directory above something hidden is a mount.
    #[test]
    fn a_few_files_far_down_take_neither_memory_nor_hours() {
        let root = Path::new("/w");
        let chains = |depth: usize| {
            let mut found = RootFindings::default();
            let deep: PathBuf = std::iter::repeat_n("a", depth).collect();
            (0..400).for_each(|number| found.mask(Path::new(&format!("c{number}")).join(&deep).join(".env")));
            found
        };
        let mut control = chains(20);
        assert!(control.shorten(root).is_empty());
        assert!(control.thin_out(MOST_MOUNTS, &BTreeSet::new()).unwrap().is_empty());
        assert_eq!(control.mounts().unwrap(), 400 * 22);
        let begun = std::time::Instant::now();
        let mut all = chains(1900);
        assert_eq!(all.shorten(root).len(), 400, "closed where it becomes too deep");
        assert!(!all.thin_out(MOST_MOUNTS, &BTreeSet::new()).unwrap().is_empty());
        let surveyed = all.finish(root, RootView::Direct).unwrap();
        assert!(surveyed.masks.iter().all(|mask| mask.components().count() <= DEEPEST));
        assert_eq!(surveyed.masks.len(), 400, "each is hidden by itself or with what is around it");
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }

    #[test]
    fn paths_that_take_too_much_memory_are_an_error() {
        let mut found = RootFindings::default();
        let name = "d".repeat(30);
        let deep: PathBuf = std::iter::repeat_n(name.as_str(), 120).collect();
        (0..2000).for_each(|number| found.mask(Path::new(&format!("c{number}")).join(&deep).join(".env")));
        assert!(found.thin_out(MOST_MOUNTS, &BTreeSet::new()).is_err());
    }

    #[test]
    fn what_is_worked_in_stays_open() {
        let kept: BTreeSet<PathBuf> = ["", ".git", "src", "src/.git"].map(PathBuf::from).into();
        let mut all = found(&[(".git/modules", 40), ("src/a", 40), ("src/b", 10)]);
        let closed = all.thin_out(30, &kept).unwrap();
        assert_eq!(
            closed.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>(),
            [".git/modules", "src/a"]
        );
        // As many as the loop of old would have taken minutes for.
        let mut many = RootFindings::default();
        (0..30000).for_each(|number| many.protect(PathBuf::from(format!("d{number}/.claude"))));
        let begun = std::time::Instant::now();
        assert_eq!(many.thin_out(40000, &kept).unwrap().len(), 20000);
        assert!(many.mounts().unwrap() <= 40000 && begun.elapsed().as_secs() < 10);
    }
}
