//! Refs that lead git to write elsewhere, and worktrees that are said to be elsewhere.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType};

use super::super::resume_options::is_plain_ref;
use super::elsewhere::{LOCATION, linked_worktrees};
use super::{Examiner, Open, Place, Reason, one_line};
use crate::survey::{LONGEST_RESOLVED, innermost, read_small, resolved};

/// The refs beside `refs` that git writes as refs. `FETCH_HEAD` and `MERGE_HEAD` are files of another form to it.
const ROOT_REFS: [&str; 11] = [
    "AUTO_MERGE",
    "BISECT_EXPECTED_REV",
    "BISECT_HEAD",
    "CHERRY_PICK_HEAD",
    "HEAD",
    "MERGE_AUTOSTASH",
    "NOTES_MERGE_PARTIAL",
    "NOTES_MERGE_REF",
    "ORIG_HEAD",
    "REBASE_HEAD",
    "REVERT_HEAD",
];

impl Examiner<'_> {
    /// Every file that git takes for a ref.
    pub(super) fn symbolic_refs(&mut self, git: &Open) {
        ROOT_REFS.iter().for_each(|name| self.symbolic_ref(git, name.as_ref()));
        let mut ahead = vec![git.relative.join("refs")];
        while let Some(relative) = ahead.pop() {
            let Some(directory) = Open::at(self.scene, git.ground, &relative) else { continue };
            for (name, kind) in entries(&directory) {
                if self.is_over() {
                    return;
                }
                match kind {
                    FileType::Directory => ahead.push(relative.join(name)),
                    _ => self.symbolic_ref(&directory, &name),
                }
            }
        }
    }

    fn symbolic_ref(&mut self, directory: &Open, name: &OsStr) {
        // A link is a finding of its own.
        if directory.kind(name) != Some(FileType::RegularFile) {
            return;
        }
        self.only_name(directory, name);
        if !directory.read(name).is_some_and(|content| is_plain_ref(&content)) {
            self.note(directory.entry(name, Reason::SymbolicRef));
        }
    }

    /// The `gitdir` of each linked worktree, into whose place `git worktree repair` writes a `.git` file. Git looks at nothing else
    /// of a worktree for that.
    pub(super) fn worktree_locations(&mut self, git: &Open) {
        if git.has("commondir") {
            self.worktree_location(git, &[]);
        }
        let linked = linked_worktrees(self.scene, git);
        if linked.is_empty() {
            return;
        }
        let place = Place::new(self.scene, git.absolute.clone());
        let around = git.absolute.parent().map(Path::to_owned);
        let bases: Vec<PathBuf> =
            place.checkouts().iter().cloned().chain([git.absolute.clone()]).chain(around).collect();
        linked.iter().for_each(|linked| self.worktree_location(linked, &bases));
    }

    /// `bases`: where git can work, because git up to 2.47 takes a relative path from there.
    fn worktree_location(&mut self, linked: &Open, bases: &[PathBuf]) {
        if !linked.has(LOCATION) {
            return;
        }
        self.only_name(linked, LOCATION);
        let content = linked.read(LOCATION);
        let path = content.as_deref().and_then(|content| one_line(content.trim_ascii_end()));
        let is_foreign = |path: &Path| {
            let places = bases.iter().chain([&linked.absolute]).map(|base| base.join(path));
            places.into_iter().any(|path| self.is_foreign_place(linked, &path))
        };
        if path.is_none_or(is_foreign) || self.scene.is_strictest() {
            self.note(linked.entry(LOCATION, Reason::WorktreeLocation));
        }
    }

    /// Whether a `.git` file at `path` would be new in a directory that is not for commands to write, or in a git directory.
    /// What is not there stays as it is: a command has worktrees in its own `/tmp`, and the host those on a disk that it takes
    /// away. The host makes worktrees beside its workspace too, and their `.git` files lead back.
    fn is_foreign_place(&self, git: &Open, path: &Path) -> bool {
        // Git takes it apart and follows it. No work has such a path.
        if path.as_os_str().len() > LONGEST_RESOLVED {
            return true;
        }
        let is_foreign = |checkout: &Path| match innermost(self.scene.grounds, checkout) {
            Some(_) => self.scene.is_in_repository(checkout),
            None => !leads_back(git, checkout),
        };
        // Without `.git` at its end git takes the path itself for that of the worktree.
        let named = [path.parent(), Some(path)].into_iter().flatten().filter_map(resolved);
        named.filter(|checkout| checkout.is_dir()).any(|checkout| is_foreign(&checkout))
    }
}

/// The `.git` file of a directory that no command can write.
fn leads_back(git: &Open, checkout: &Path) -> bool {
    const POINTER: u64 = 64 * 1024;
    let content = read_small(rustix::fs::CWD, &checkout.join(".git"), POINTER);
    let target = content.as_deref().and_then(|content| content.strip_prefix(b"gitdir: ")).and_then(one_line);
    target.is_some_and(|target| resolved(&checkout.join(target)).as_ref() == Some(&git.absolute))
}

/// What git can take for a part of the name of a ref: none begins with a dot.
fn entries(directory: &Open) -> Vec<(OsString, FileType)> {
    let Ok(listed) = Dir::read_from(&directory.fd) else { return Vec::new() };
    let named = listed.flatten().filter(|entry| !entry.file_name().to_bytes().starts_with(b"."));
    let kinds = named.map(|entry| {
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        let kind = match entry.file_type() {
            // Not every file system says it.
            FileType::Unknown => directory.kind(&name).unwrap_or(FileType::Unknown),
            known => known,
        };
        (name, kind)
    });
    kinds.collect()
}
