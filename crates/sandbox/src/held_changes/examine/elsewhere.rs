//! The directories that git takes a relative path from.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::{Open, Place, Scene, all_names, one_line};
use crate::git_config;
use crate::survey::{innermost, resolved};

/// The path of the `.git` file of a linked worktree.
pub(super) const LOCATION: &str = "gitdir";

impl Place<'_> {
    /// Whether an address leads, from a directory that git works in for this repository, where no command can have looked.
    pub(super) fn address_leads_out(&self, path: &Path) -> bool {
        let own = [Some(self.git.clone()), self.git.parent().map(Path::to_owned)];
        let is_up = path.components().any(|component| component == Component::ParentDir);
        let elsewhere = || self.checkouts().into_iter().filter(|checkout| checkout.is_dir());
        // From a checkout elsewhere a name means something else only if it leads up: git finds a remote by it first.
        let bases: Vec<PathBuf> = match is_up {
            true => own.into_iter().flatten().chain(elsewhere()).collect(),
            false => own.into_iter().flatten().collect(),
        };
        bases.iter().any(|base| self.scene.leads_out(&base.join(path)))
    }

    /// Where the files of this repository are checked out, besides the directory around it.
    pub(super) fn checkouts(&self) -> Vec<PathBuf> {
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

fn configured_checkouts(git: &Open) -> Vec<PathBuf> {
    let contents = ["config", "config.worktree"].into_iter().filter_map(|name| git.read(name));
    let settings = contents.flat_map(|content| git_config::parse(&content).settings);
    let worktrees = settings.filter(|setting| setting.section == b"core" && setting.key == b"worktree");
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
