//! What `rerere` knows of: `git commit` writes what was recorded into files with these names, and records what is in them.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType};

use super::super::git_paths::{self, MAX_INDEX};
use super::{Examiner, Open, Place, Reason};
use crate::survey::{innermost, open_directory, read_small};

impl Examiner<'_> {
    pub(super) fn conflicts(&mut self, git: &Open) {
        const LIST: &str = "MERGE_RR";
        if !git.has(LIST) {
            return;
        }
        self.only_name(git, LIST);
        let content = git.read(LIST);
        if content.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        let unresolved = self.unresolved(git);
        let checkouts = Place::new(self.scene, git.absolute.clone()).own_checkouts();
        let is_open = |path: &Path| {
            unresolved.contains(path.as_os_str().as_bytes())
                && checkouts.iter().all(|checkout| self.is_file_without_links(checkout, path))
        };
        let is_held =
            |path: &Path| self.is_over() || self.scene.is_fixed_in_a_checkout(path) || !is_open(path);
        if !content.is_some_and(|content| git_paths::is_plain_conflicts(&content, &is_held)) {
            self.note(git.entry(LIST, Reason::Conflicts));
        }
    }

    /// The paths that git has in conflict. With one of them it neither merges nor changes the branch, so none becomes a link.
    fn unresolved(&self, git: &Open) -> BTreeSet<Vec<u8>> {
        let mut found = BTreeSet::new();
        let content = read_small(git.fd.as_fd(), Path::new("index"), MAX_INDEX);
        if let Some((content, format)) = content.zip(self.object_format(git)) {
            let _shared = git_paths::visit_index(&content, format, |entry| {
                if entry.is_conflict {
                    found.insert(entry.path.to_vec());
                }
            });
        }
        found
    }

    /// `git commit` follows links: the file may be any of the user's.
    fn is_file_without_links(&self, checkout: &Path, path: &Path) -> bool {
        let file = checkout.join(path);
        let place = innermost(self.scene.grounds, &file);
        let ground = place.and_then(|(ground, file)| Some((self.scene.grounds.get(ground)?, file)));
        let Some((root, file)) = ground else { return false };
        let above = file.parent().map(Path::as_os_str).unwrap_or_default();
        let name = file.file_name().unwrap_or_default();
        let directory = open_directory(root.fd.as_fd(), above.as_bytes());
        let stat = directory.and_then(|fd| rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW));
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }
}
