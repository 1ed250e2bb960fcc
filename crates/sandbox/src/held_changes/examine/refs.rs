//! Refs that lead git to write elsewhere, and worktrees that are said to be elsewhere.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Dir, FileType};

use super::super::resume_options::is_plain_ref;
use super::{Examiner, Open, Reason, one_line};
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
        let is_file = directory.kind(name) == Some(FileType::RegularFile);
        if is_file && !directory.read(name).is_some_and(|content| is_plain_ref(&content)) {
            self.note(directory.entry(name, Reason::SymbolicRef));
        }
    }

    /// The `gitdir` of a linked worktree, into whose place `git worktree repair` writes a `.git` file.
    pub(super) fn worktree_location(&mut self, git: &Open) {
        const FILE: &str = "gitdir";
        if !git.has(FILE) || !git.has("commondir") {
            return;
        }
        self.only_name(git, FILE);
        let content = git.read(FILE);
        let path = content.as_deref().and_then(one_line).map(|path| git.absolute.join(path));
        if path.is_none_or(|path| self.is_foreign_place(git, &path)) || self.scene.is_strictest() {
            self.note(git.entry(FILE, Reason::WorktreeLocation));
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
        let checkout = path.parent().and_then(resolved).filter(|checkout| checkout.is_dir());
        let Some(checkout) = checkout else { return false };
        let is_own = innermost(self.scene.grounds, &checkout).is_some();
        if is_own { self.scene.is_in_repository(&checkout) } else { !leads_back(git, &checkout) }
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
