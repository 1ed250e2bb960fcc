//! The directories that git takes a relative path from.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::super::settings::is_harmless;
use super::{Examiner, MAX, Open, Place, Scene, all_names, one_line};
use crate::git_config::{self, GitSetting};
use crate::survey::{innermost, read_small, resolved};

/// The path of the `.git` file of a linked worktree.
pub(super) const LOCATION: &str = "gitdir";

/// What git appends to a local address when it looks for a repository, and for a bundle.
const ENDINGS: [&str; 5] = ["", "/.git", ".git", ".git/.git", ".bundle"];

impl<'s> Place<'s> {
    /// A repository that is used from `checkout`.
    fn used_from(scene: &'s Scene<'s>, git: PathBuf, checkout: PathBuf) -> Self {
        Self { scene, git, checkouts: OnceCell::from(vec![checkout]) }
    }

    /// Whether an address leads, from a directory that git works in for this repository, where no command can have looked.
    pub(super) fn address_leads_out(&self, path: &Path) -> bool {
        let own = [Some(self.git.as_path()), self.git.parent()];
        let is_up = path.components().any(|component| component == Component::ParentDir);
        // To git it is the repository itself.
        let is_here = path.components().all(|component| component == Component::CurDir);
        let leads_out = |base: &Path| places(&base.join(path)).any(|place| self.scene.is_elsewhere(&place));
        // Commands make no link in a checkout that they cannot see, and a name that is nothing there leads nowhere.
        let is_taken = |base: &Path| match is_up || !self.scene.leads_out(base) {
            true => leads_out(base),
            false => !is_here && places(&base.join(path)).any(|place| is_repository(&place)),
        };
        let checkouts = || self.checkouts().iter().filter(|checkout| checkout.is_dir());
        own.into_iter().flatten().any(leads_out) || checkouts().any(|checkout| is_taken(checkout))
    }

    /// Where the files of this repository are checked out, besides the directory around it.
    pub(super) fn checkouts(&self) -> &[PathBuf] {
        self.checkouts.get_or_init(|| self.all_checkouts())
    }

    fn all_checkouts(&self) -> Vec<PathBuf> {
        let place = innermost(self.scene.grounds, &self.git);
        let git = place.and_then(|(ground, relative)| Open::at(self.scene, ground, &relative));
        let Some(git) = git else { return Vec::new() };
        let linked = linked_worktrees(self.scene, &git);
        let located = linked.iter().chain([&git]).filter_map(checkout_of);
        configured_checkouts(&git).into_iter().chain(located).collect()
    }
}

impl Place<'_> {
    /// Where git in this git directory works.
    pub(super) fn own_checkouts(&self) -> Vec<PathBuf> {
        let place = innermost(self.scene.grounds, &self.git);
        let git = place.and_then(|(ground, relative)| Open::at(self.scene, ground, &relative));
        let Some(git) = git else { return vec![self.git.clone()] };
        let mut own = configured_checkouts(&git);
        own.extend(checkout_of(&git));
        let around = || self.git.parent().map(Path::to_owned);
        match own.is_empty() {
            true => around().into_iter().collect(),
            // One that cannot be told holds no file.
            false => own.iter().map(|path| resolved(path).unwrap_or_default()).collect(),
        }
    }
}

impl Scene<'_> {
    /// Whether a repository at `place` is where no command can have looked. Git follows a file that points at one.
    fn is_elsewhere(&self, place: &Path) -> bool {
        self.leads_out(place) || pointed_at(place).is_some_and(|target| self.leads_out(&target))
    }
}

impl Examiner<'_> {
    /// Whether something of `git` that is harmless elsewhere leads out from `checkout`, which a `.git` file makes one of its
    /// checkouts. Git takes the name of a remote that has no address for a path from there.
    pub(super) fn leads_out_from(&self, checkout: &Path, git: &Path) -> bool {
        let place = innermost(self.scene.grounds, git);
        let Some(git) = place.and_then(|(ground, git)| Open::at(self.scene, ground, &git)) else {
            return false;
        };
        if self.checked_index(&git, "index").is_some_and(|index| self.is_link_out(checkout, &index.listed)) {
            return true;
        }
        let common = self.common(&git);
        [Some(&git), common.as_ref()].into_iter().flatten().any(|git| {
            let (own, used) = (
                Place::new(self.scene, git.absolute.clone()),
                Place::used_from(self.scene, git.absolute.clone(), checkout.to_owned()),
            );
            let leads_out = |setting: &GitSetting| !is_harmless(setting, &used) && is_harmless(setting, &own);
            settings_of(git).any(|setting| !self.is_over() && leads_out(&setting))
        })
    }

    /// Whether one of these directories is a link to where no command can have looked. Git lists it through the link.
    pub(super) fn leads_out_of_checkouts(&self, git: &Open, directories: &[PathBuf]) -> bool {
        if directories.is_empty() {
            return false;
        }
        let place = Place::new(self.scene, git.absolute.clone());
        place.own_checkouts().iter().any(|checkout| self.is_link_out(checkout, directories))
    }

    /// Whether one of these directories of a checkout is a link out. Commands make none in a checkout that they cannot see.
    fn is_link_out(&self, checkout: &Path, directories: &[PathBuf]) -> bool {
        let paths = directories.iter().map(|directory| checkout.join(directory));
        let is_link = |path: &PathBuf| rustix::fs::readlink(path, Vec::new()).is_ok();
        let is_own = self.scene.is_strictest() || !self.scene.leads_out(checkout);
        let mut links = paths.take_while(|_| is_own && !self.is_over()).filter(is_link);
        links.any(|path| self.scene.leads_out(&path))
    }

    /// The repository that this one takes its configuration from.
    pub(super) fn common(&self, git: &Open) -> Option<Open> {
        let content = git.read("commondir")?;
        let (ground, relative) = self.scene.inside(&git.absolute.join(one_line(&content)?))?;
        Open::at(self.scene, ground, &relative)
    }
}

/// Where git looks for a local address.
fn places(address: &Path) -> impl Iterator<Item = PathBuf> {
    let bytes = address.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let stem = bytes.get(..end).unwrap_or_default().to_owned();
    ENDINGS.iter().map(move |ending| PathBuf::from(OsStr::from_bytes(&[&stem, ending.as_bytes()].concat())))
}

fn pointed_at(place: &Path) -> Option<PathBuf> {
    let file = resolved(place)?;
    let content = read_small(rustix::fs::CWD, &file, MAX)?;
    let target = one_line(content.strip_prefix(b"gitdir: ")?)?;
    Some(file.parent()?.join(target))
}

/// Whether git would take what is there for a repository.
fn is_repository(place: &Path) -> bool {
    place.join("HEAD").symlink_metadata().is_ok() || pointed_at(place).is_some()
}

fn settings_of(git: &Open) -> impl Iterator<Item = GitSetting> {
    let contents = ["config", "config.worktree"].into_iter().filter_map(|name| git.read(name));
    contents.flat_map(|content| git_config::parse(&content).settings)
}

fn configured_checkouts(git: &Open) -> Vec<PathBuf> {
    let worktrees =
        settings_of(git).filter(|setting| setting.section == b"core" && setting.key == b"worktree");
    worktrees.map(|setting| git.absolute.join(OsStr::from_bytes(&setting.value))).collect()
}

/// The parts of a repository that belong to its linked worktrees.
pub(super) fn linked_worktrees(scene: &Scene<'_>, git: &Open) -> Vec<Open> {
    let above = git.relative.join("worktrees");
    let listed = Open::at(scene, git.ground, &above).and_then(|worktrees| all_names(&worktrees.fd));
    let linked = listed.unwrap_or_default().into_iter().map(|name| above.join(name));
    linked.filter_map(|linked| Open::at(scene, git.ground, &linked)).collect()
}

fn checkout_of(linked: &Open) -> Option<PathBuf> {
    let content = linked.read(LOCATION)?;
    Some(linked.absolute.join(one_line(&content)?).parent()?.to_owned())
}
