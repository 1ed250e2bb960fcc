//! Hostile contents: each is held, nothing blocks, nothing is followed, nothing is lost.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ringfence_types::HeldChange;

use super::*;

struct Tree {
    _directory: tempfile::TempDir,
    root: PathBuf,
}

impl Tree {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        Self { _directory: directory, root }
    }

    /// A directory that git takes for a repository.
    fn repository(&self, path: impl AsRef<Path>) -> PathBuf {
        let git = self.root.join(path);
        for directory in ["objects", "refs", "hooks"] {
            fs::create_dir_all(git.join(directory)).unwrap();
        }
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        git
    }

    fn places(&self) -> Places {
        let grounds = vec![Ground::open(&self.root).unwrap()];
        Places { grounds, outside: Vec::new(), fixed: BTreeSet::new(), accepted: BTreeSet::new() }
    }

    fn clear(&self) -> Vec<HeldChange> {
        let cleared = self.places().clear();
        assert_eq!(cleared.end, ClearedEnd::Clean, "{:?}", cleared.changes);
        assert!(self.places().findings().unwrap().is_empty());
        cleared.changes
    }
}

const EVIL: &str = "[core]\n\tbare = false\n\tfsmonitor = /x\n";

#[test]
fn settings_are_taken_out_and_the_original_stays() {
    let tree = Tree::new();
    let git = tree.repository("a/.git");
    fs::write(git.join("config"), EVIL).unwrap();
    let changes = tree.clear();
    assert_eq!(changes.len(), 1);
    assert_eq!(fs::read_to_string(git.join("config")).unwrap(), "[core]\n\tbare = false\n\t\n");
    assert_eq!(fs::read_to_string(changes[0].kept.as_ref().unwrap().as_path()).unwrap(), EVIL);
    // Once more: the name of the first original is not taken.
    fs::write(git.join("config"), EVIL).unwrap();
    assert_ne!(tree.clear()[0].kept, changes[0].kept);
}

#[test]
fn what_cannot_be_read_is_put_aside() {
    let tree = Tree::new();
    let (fifo, huge, broken, link) = (
        tree.repository("fifo"),
        tree.repository("huge"),
        tree.repository("broken"),
        tree.repository("link"),
    );
    rustix::fs::mkfifoat(rustix::fs::CWD, fifo.join("config"), rustix::fs::Mode::RUSR).unwrap();
    fs::write(huge.join("config"), vec![b'#'; 2 << 20]).unwrap();
    fs::write(broken.join("config"), "[core]\nfsmonitor = x\n!\n").unwrap();
    symlink("config", link.join("config")).unwrap();
    symlink("../huge/hooks", link.join("commondir")).unwrap();
    let changes = tree.clear();
    assert_eq!(changes.len(), 5, "{changes:?}");
    for git in [&fifo, &huge, &broken, &link] {
        assert!(fs::symlink_metadata(git.join("config")).is_err());
        assert!(fs::symlink_metadata(git.join("config.held-by-ringfence")).is_ok());
    }
}

#[test]
fn hooks_of_every_kind_are_held_and_samples_stay() {
    let tree = Tree::new();
    let git = tree.repository("a.git");
    let hooks = git.join("hooks");
    fs::write(hooks.join("pre-commit.sample"), "x").unwrap();
    fs::write(hooks.join("pre-commit"), "x").unwrap();
    fs::create_dir(hooks.join("update")).unwrap();
    symlink("/nowhere", hooks.join("post-update")).unwrap();
    fs::write(hooks.join(OsStr::from_bytes(b"odd\xff")), "x").unwrap();
    assert_eq!(tree.clear().len(), 4);
    let left = fs::read_dir(&hooks).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| !name.as_bytes().windows(5).any(|part| part == b".held")).collect();
    assert_eq!(left, ["pre-commit.sample"]);
}

#[test]
fn depth_hides_nothing() {
    let tree = Tree::new();
    let deep: PathBuf = std::iter::repeat_n("d", 300).collect();
    let git = tree.repository(deep.join(".git"));
    fs::write(git.join("config"), EVIL).unwrap();
    assert_eq!(tree.clear().len(), 1);
}

#[test]
fn letter_case_hides_nothing() {
    let tree = Tree::new();
    let git = tree.repository("a/.GIT");
    fs::write(git.join("config"), EVIL).unwrap();
    assert_eq!(tree.clear().len(), 1);
}

#[test]
fn pointers_may_lead_to_what_is_looked_at_and_nowhere_else() {
    let tree = Tree::new();
    let beside = Tree::new();
    let elsewhere = beside.repository("x.git");
    let own = tree.repository("own.git");
    fs::create_dir_all(tree.root.join("good")).unwrap();
    fs::create_dir_all(tree.root.join("bad")).unwrap();
    fs::create_dir_all(tree.root.join("linked")).unwrap();
    fs::write(tree.root.join("good/.git"), "gitdir: ../own.git\n").unwrap();
    fs::write(tree.root.join("bad/.git"), format!("gitdir: {}\n", elsewhere.display())).unwrap();
    symlink(&own, tree.root.join("linked/.git")).unwrap();
    fs::write(own.join("commondir"), format!("{}\n", elsewhere.display())).unwrap();
    assert_eq!(tree.clear().len(), 3);
    assert!(tree.root.join("good/.git").exists());
    assert!(elsewhere.join("HEAD").exists());
}

#[test]
fn what_was_there_before_is_accepted() {
    let tree = Tree::new();
    let git = tree.repository("a.git");
    fs::write(git.join("config"), EVIL).unwrap();
    fs::write(git.join("hooks/update"), "x").unwrap();
    let mut places = tree.places();
    places.accepted = places.findings().unwrap().into_iter().map(|finding| finding.print).collect();
    assert!(places.clear().changes.is_empty());
    fs::write(git.join("config"), format!("{EVIL}\tpager = y\n")).unwrap();
    fs::write(git.join("hooks/update"), "y").unwrap();
    let changes = places.clear().changes;
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(fs::read_to_string(git.join("config")).unwrap(), format!("{EVIL}\t\n"));
}

#[test]
fn rebase_commands_become_comments() {
    let tree = Tree::new();
    let git = tree.repository(".git");
    fs::create_dir(git.join("rebase-merge")).unwrap();
    let todo = git.join("rebase-merge/git-rebase-todo");
    fs::write(&todo, "pick 1234 x\nexec evil\n  x evil\nlabel exec\n").unwrap();
    assert_eq!(tree.clear().len(), 1);
    let text = fs::read_to_string(&todo).unwrap();
    assert_eq!(
        text,
        "pick 1234 x\n# held by ringfence: exec evil\n# held by ringfence:   x evil\nlabel exec\n"
    );
}

/// What a look costs in a tree of 20 000 files is printed, and bounded far above what it is.
#[test]
fn a_look_at_many_files_is_quick() {
    let tree = Tree::new();
    for directory in 0..1000 {
        let directory = tree.root.join(format!("{}/{directory}", directory % 10));
        fs::create_dir_all(&directory).unwrap();
        (0..20).for_each(|file| fs::write(directory.join(file.to_string()), "").unwrap());
    }
    let places = tree.places();
    let begun = std::time::Instant::now();
    assert!(places.findings().unwrap().is_empty());
    let took = begun.elapsed();
    println!("20 000 files in {took:?}");
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
}
