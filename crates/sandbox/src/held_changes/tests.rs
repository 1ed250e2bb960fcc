//! Hostile contents: each is held, nothing blocks, nothing is followed, nothing is lost.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use ringfence_types::HeldChange;
use rustix::fs::{Mode, OFlags};

use super::*;

mod contents;

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
        let grounds = vec![RootHandle::open(&self.root).unwrap()];
        Places {
            grounds,
            outside: Vec::new(),
            visible: Vec::new(),
            fixed: BTreeSet::new(),
            hooks_of_user: Vec::new(),
            accepted: BTreeSet::new(),
            at_most: LOOK_AT_MOST,
        }
    }

    fn clear(&self) -> Vec<HeldChange> {
        let cleared = self.places().clear();
        assert_eq!(cleared.end, ClearedEnd::Clean, "{:?}", cleared.changes);
        assert!(self.places().findings().unwrap().is_empty());
        cleared.changes
    }
}

impl Drop for Tree {
    /// Some are deeper than the standard library removes.
    fn drop(&mut self) {
        if let (Some(parent), Some(name)) = (self.root.parent(), self.root.file_name()) {
            let _removed = crate::beneath::remove_tree(parent, name);
        }
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

/// Git of the host writes some files in place, and so through another name into whatever has it too.
#[test]
fn what_is_trusted_for_its_content_has_one_name() {
    use std::os::unix::fs::PermissionsExt as _;
    let tree = Tree::new();
    let (git, bare) = (tree.repository("a/.git"), tree.repository("b.git"));
    let hook = bare.join("hooks/update");
    fs::write(&hook, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(tree.root.join("c/.hg")).unwrap();
    fs::write(bare.join("config"), "[core]\n\tbare = true\n").unwrap();
    fs::write(git.join("config"), "[core]\n\tbare = false\n").unwrap();
    fs::write(git.join("commondir"), ".\n").unwrap();
    fs::write(tree.root.join("c/.hg/hgrc"), "# mine\n").unwrap();
    fs::write(tree.root.join("listed"), "kept\n").unwrap();
    fs::hard_link(tree.root.join("listed"), tree.root.join("listed too")).unwrap();
    let mut places = tree.places();
    let candidates = places.candidates(Patience::new()).unwrap();
    let of_host = places.scene(ExaminationMode::First, Patience::new()).examine(&candidates).unwrap();
    places.accepted = of_host.into_iter().map(|finding| finding.print).collect();
    let trusted = [
        hook.clone(),
        bare.join("config"),
        git.join("config"),
        git.join("commondir"),
        tree.root.join("c/.hg/hgrc"),
    ];
    for (number, file) in trusted.iter().enumerate() {
        fs::hard_link(file, tree.root.join(format!("name{number}"))).unwrap();
    }
    let cleared = places.clear();
    assert_eq!(cleared.end, ClearedEnd::Clean, "{:?}", cleared.changes);
    assert!(cleared.changes.iter().all(|change| change.rule == "held.link"), "{:?}", cleared.changes);
    assert_eq!(cleared.changes.len(), trusted.len(), "{:?}", cleared.changes);
    for (number, file) in trusted.iter().enumerate() {
        let other = tree.root.join(format!("name{number}"));
        assert_eq!(fs::read(file).unwrap(), fs::read(&other).unwrap());
        assert_eq!((fs::metadata(file).unwrap().nlink(), fs::metadata(&other).unwrap().nlink()), (1, 1));
        let beside = fs::read_dir(file.parent().unwrap()).unwrap().flatten();
        let named =
            |entry: &fs::DirEntry| entry.file_name().as_bytes().windows(5).any(|part| part == b".held");
        assert!(!beside.into_iter().any(|entry| named(&entry)), "nothing is left beside it");
    }
    assert_eq!(fs::metadata(&hook).unwrap().mode() & 0o777, 0o755, "a hook of the host still runs");
    assert_eq!(fs::metadata(tree.root.join("listed")).unwrap().nlink(), 2, "other files may have two names");
}

/// A setting that is held anyway takes the name with it.
#[test]
fn a_second_name_of_what_is_held_is_told_once() {
    let tree = Tree::new();
    let git = tree.repository("a/.git");
    fs::write(git.join("config"), EVIL).unwrap();
    fs::hard_link(git.join("config"), tree.root.join("name")).unwrap();
    let changes = tree.clear();
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0].rule, "held.git-config");
    assert_eq!(fs::metadata(git.join("config")).unwrap().nlink(), 1);
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

#[test]
fn options_that_let_a_patch_write_anywhere_are_held() {
    for (options, held) in [
        ("'--unsafe-paths' '--apply'\n", 1),
        ("--build-fake-ancestor=/home/u/x\n", 1),
        ("'--directory=../x'\n", 1),
        ("", 0),
        (" '-C1' '-p2' '--whitespace=fix' '--ignore-whitespace' '--reject'\n", 0),
    ] {
        let tree = Tree::new();
        let git = tree.repository(".git");
        fs::create_dir(git.join("rebase-apply")).unwrap();
        fs::write(git.join("rebase-apply/apply-opt"), options).unwrap();
        assert_eq!(tree.clear().len(), held, "{options}");
        assert_eq!(git.join("rebase-apply/apply-opt").exists(), held == 0, "{options}");
    }
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

/// Each link stands where the look goes on to another directory.
#[test]
fn links_in_the_middle_hide_nothing() {
    let tree = Tree::new();
    let beside = Tree::new();
    let git = tree.repository("a/.git");
    fs::write(beside.root.join("alternates"), "/nowhere\n").unwrap();
    fs::create_dir_all(tree.root.join("steps")).unwrap();
    fs::write(tree.root.join("steps/git-rebase-todo"), "exec x\n").unwrap();
    symlink("../../steps", git.join("rebase-merge")).unwrap();
    symlink(&beside.root, git.join("sequencer")).unwrap();
    symlink(&beside.root, git.join("objects/info")).unwrap();
    fs::create_dir_all(tree.root.join("real")).unwrap();
    fs::write(tree.root.join("real/hgrc"), "[hooks]\nupdate = x\n").unwrap();
    fs::write(tree.root.join("real/config.toml"), "x = 1\n").unwrap();
    fs::create_dir_all(tree.root.join("j/.jj")).unwrap();
    fs::create_dir_all(tree.root.join("k/.jj")).unwrap();
    symlink("real", tree.root.join(".hg")).unwrap();
    symlink(&beside.root, tree.root.join("j/.hg")).unwrap();
    symlink("../../real", tree.root.join("j/.jj/repo")).unwrap();
    fs::write(tree.root.join("k/.jj/repo"), "../../real").unwrap();
    let changes = tree.clear();
    let mut held: Vec<String> = changes
        .iter()
        .map(|change| change.path.as_path().strip_prefix(&tree.root).unwrap().display().to_string())
        .collect();
    held.sort();
    let expected = [
        ".hg",
        "a/.git/objects/info",
        "a/.git/rebase-merge",
        "a/.git/sequencer",
        "j/.hg",
        "j/.jj/repo",
        "real/config.toml",
        "real/hgrc",
        "steps/git-rebase-todo",
    ];
    assert_eq!(held, expected);
    assert!(beside.root.join("alternates").exists());
}

#[test]
fn pointers_with_a_zero_byte_or_without_a_known_end_are_held() {
    let tree = Tree::new();
    tree.repository("own.git");
    for (name, target) in [("a", "../own.git\0"), ("b", "../own.git\0/x"), ("c", "x/../../own.git")] {
        fs::create_dir(tree.root.join(name)).unwrap();
        fs::write(tree.root.join(name).join(".git"), format!("gitdir: {target}\n")).unwrap();
    }
    let git = tree.repository("d.git");
    fs::write(git.join("commondir"), "../own.git\0\n").unwrap();
    fs::create_dir(git.join("objects/info")).unwrap();
    fs::write(git.join("objects/info/alternates"), "\"/state\"\n").unwrap();
    assert_eq!(tree.clear().len(), 5);
}

/// Whatever the directories above a workspace are called.
#[test]
fn a_repository_of_the_host_is_no_part_of_another_by_its_path() {
    let tree = Tree::new();
    let root = tree.root.join("modules/w");
    let git = tree.repository("modules/w/.git");
    let module = tree.repository("modules/w/.git/modules/m");
    fs::create_dir_all(root.join("src")).unwrap();
    fs::create_dir_all(root.join("m")).unwrap();
    fs::write(root.join("src/.git"), "gitdir: ../.git\n").unwrap();
    fs::write(root.join("m/.git"), "gitdir: ../.git/modules/m\n").unwrap();
    let fixed = BTreeSet::from([git.join("config"), module.join("config")]);
    let places = Places { grounds: vec![RootHandle::open(&root).unwrap()], fixed, ..tree.places() };
    let changes = places.clear().changes;
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0].path.as_path(), root.join("src/.git"));
}

/// A remote has the name that a setting of a branch gives it, whatever that is.
#[test]
fn no_name_makes_a_remote_harmless() {
    let tree = Tree::new();
    let git = tree.repository(".git");
    fs::create_dir(git.join("remotes")).unwrap();
    for name in ["a.sample", "b.held-by-ringfence", "c"] {
        fs::write(git.join("remotes").join(name), "URL: /x\n").unwrap();
    }
    assert_eq!(tree.clear().len(), 1);
    assert!(!git.join("remotes").exists() && git.join("remotes.held-by-ringfence/c").exists());
    let places = tree.places();
    fs::create_dir(git.join("branches")).unwrap();
    fs::write(git.join("branches/a"), "x").unwrap();
    let accepted = places.findings().unwrap().into_iter().map(|finding| finding.print).collect();
    let places = Places { accepted, ..tree.places() };
    assert!(places.clear().changes.is_empty(), "control: it was there");
    fs::write(git.join("branches/a"), "y").unwrap();
    assert_eq!(places.clear().changes.len(), 1);
}

/// Neither commands nor programs of this user come into a directory of another user that is closed for both.
#[test]
fn closed_directories_of_other_users_end_no_look() {
    let slash = RootHandle::open(Path::new("/")).unwrap();
    let places = Places { grounds: vec![slash], ..Tree::new().places() };
    let candidate = Candidate { relative: "root".into(), kind: crate::survey::CandidateKind::Closed };
    let findings = places.scene(ExaminationMode::Later, Patience::new()).examine(&[vec![candidate]]).unwrap();
    let own = fs::metadata("/root").unwrap().uid() == rustix::process::geteuid().as_raw();
    assert_eq!(findings.len(), usize::from(own));
}

#[test]
fn a_look_that_takes_too_long_is_unfinished() {
    let tree = Tree::new();
    fs::create_dir(tree.root.join("x")).unwrap();
    let places = Places { at_most: std::time::Duration::ZERO, ..tree.places() };
    let cleared = places.clear();
    assert!(matches!(cleared.end, ClearedEnd::Unfinished { .. }));
    assert_eq!(cleared.changes[0].rule, "held.unfinished");
    assert!(cleared.changes[0].what.contains("0 s"), "{:?}", cleared.changes);
}

/// Longer than a path that the kernel takes, several times.
#[test]
fn paths_longer_than_the_kernel_takes_hide_nothing() {
    let tree = Tree::new();
    let name = "d".repeat(200);
    let mode = rustix::fs::Mode::RWXU;
    let mut directory = rustix::fs::open(&tree.root, rustix::fs::OFlags::DIRECTORY, mode).unwrap();
    for depth in 0..60 {
        // Repositories on both sides of the long way.
        rustix::fs::mkdirat(&directory, ".git", mode).unwrap();
        let git = rustix::fs::openat(&directory, ".git", rustix::fs::OFlags::DIRECTORY, mode).unwrap();
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        let config = rustix::fs::openat(&git, "config", flags, mode).unwrap();
        rustix::io::write(&config, EVIL.as_bytes()).unwrap();
        rustix::fs::mkdirat(&directory, name.as_str(), mode)
            .unwrap_or_else(|errno| panic!("{depth}: {errno}"));
        directory =
            rustix::fs::openat(&directory, name.as_str(), rustix::fs::OFlags::DIRECTORY, mode).unwrap();
    }
    assert_eq!(tree.clear().len(), 60);
}

mod journals {
    use super::super::journal::{Others, Record, repair};
    use super::*;

    struct Leftover {
        tree: Tree,
        registry: tempfile::TempDir,
        root: PathBuf,
    }

    /// A session that was killed with a root in `a`.
    fn left() -> Leftover {
        let tree = Tree::new();
        let registry = tempfile::tempdir().unwrap();
        let root = tree.root.join("a/w");
        fs::create_dir_all(&root).unwrap();
        let places = Places { grounds: vec![RootHandle::open(&root).unwrap()], ..tree.places() };
        let record = Record::of(&places, BTreeSet::new()).unwrap();
        Others::read(registry.path()).unwrap().begin(&record).unwrap().leave();
        Leftover { tree, registry, root }
    }

    fn journals(left: &Leftover) -> usize {
        let names = fs::read_dir(left.registry.path()).unwrap().flatten().map(|entry| entry.path());
        names.filter(|path| path.extension().is_some_and(|known| known == "watch")).count()
    }

    #[test]
    fn what_a_killed_session_left_is_repaired_and_nothing_in_its_place() {
        let plant =
            |left: &Leftover| fs::write(left.tree.repository("a/w/x.git").join("config"), EVIL).unwrap();
        let control = left();
        plant(&control);
        assert_eq!(repair(control.registry.path()).len(), 1);
        assert_eq!(journals(&control), 0);

        let linked = left();
        fs::rename(linked.tree.root.join("a"), linked.tree.root.join("b")).unwrap();
        fs::create_dir_all(linked.tree.root.join("c/w")).unwrap();
        symlink("c", linked.tree.root.join("a")).unwrap();
        plant(&linked);
        assert_eq!(repair(linked.registry.path()), Vec::new(), "a link above the root");

        let replaced = left();
        fs::rename(&replaced.root, replaced.tree.root.join("b")).unwrap();
        plant(&replaced);
        assert_eq!(repair(replaced.registry.path()), Vec::new(), "another directory in its place");
    }

    /// A command can close the root that it works in. Its owner opens it again, and may do so after another session has started.
    #[test]
    fn a_root_that_was_closed_is_looked_at_all_the_same() {
        let left = left();
        let config = left.tree.repository("a/w/x.git").join("config");
        fs::write(&config, EVIL).unwrap();
        let close = |mode| fs::set_permissions(&left.root, fs::Permissions::from_mode(mode)).unwrap();
        close(0o000);
        assert_eq!(repair(left.registry.path()).len(), 1);
        assert_eq!(journals(&left), 0);
        close(0o700);
        assert_eq!(fs::read_to_string(config).unwrap(), "[core]\n\tbare = false\n\t\n");
    }

    /// Root finds no directory closed.
    #[test]
    fn a_root_that_cannot_be_reached_keeps_its_journal() {
        let left = left();
        let above = left.tree.root.join("a");
        fs::write(left.tree.repository("a/w/x.git").join("config"), EVIL).unwrap();
        fs::set_permissions(&above, fs::Permissions::from_mode(0o000)).unwrap();
        let changes = repair(left.registry.path());
        let kept = journals(&left);
        fs::set_permissions(&above, fs::Permissions::from_mode(0o700)).unwrap();
        match rustix::process::geteuid().is_root() {
            true => assert_eq!((changes[0].rule.as_str(), kept), ("held.git-config", 0)),
            false => {
                assert_eq!((changes[0].rule.as_str(), kept), ("held.unfinished", 1));
                assert_eq!(repair(left.registry.path()).len(), 1, "the next start looks");
                assert_eq!(journals(&left), 0);
            }
        }
    }

    #[test]
    fn what_a_session_may_have_made_is_not_the_hosts() {
        let left = left();
        let print = finding::Print::of(&[b"x"]);
        let others = Others::read(left.registry.path()).unwrap();
        assert!(others.may_have_made(&left.root.join("x"), &print));
        assert!(!others.may_have_made(&left.tree.root.join("elsewhere"), &print));
        drop(others);
        repair(left.registry.path());
        let others = Others::read(left.registry.path()).unwrap();
        assert!(!others.may_have_made(&left.root.join("x"), &print), "its last look is done");
    }

    #[test]
    fn a_record_that_cannot_be_read_is_told() {
        let left = left();
        for path in fs::read_dir(left.registry.path()).unwrap().flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|known| known == "watch") {
                fs::write(path, "{").unwrap();
            }
        }
        assert_eq!(repair(left.registry.path())[0].rule, "held.unfinished");
        assert_eq!(repair(left.registry.path()), Vec::new());
    }
}

/// Git takes a path of any length apart and follows it; to do the same would take minutes.
#[test]
fn a_worktree_at_the_end_of_a_very_long_path_is_held() {
    let way = |turns: usize| format!("{}../elsewhere/.git\n", "x/../".repeat(turns));
    for (turns, held) in [(3, 0), (200_000, 1)] {
        let tree = Tree::new();
        let git = tree.repository("a.git");
        fs::create_dir(git.join("x")).unwrap();
        fs::write(git.join("commondir"), ".\n").unwrap();
        fs::create_dir(tree.root.join("elsewhere")).unwrap();
        fs::write(git.join("gitdir"), way(turns)).unwrap();
        let begun = std::time::Instant::now();
        let changes = tree.clear();
        assert_eq!(
            changes.iter().filter(|change| change.rule == "held.git-pointer").count(),
            held,
            "{changes:?}"
        );
        assert!(begun.elapsed().as_secs() < 60);
    }
}

/// A command makes a chain of any length. What followed it by recursion ended the process, and every later one that looked.
#[test]
fn a_chain_of_repositories_is_looked_at_to_its_end() {
    const LENGTH: usize = 5_000;
    let tree = Tree::new();
    let git = tree.root.join("first/.git");
    fs::create_dir_all(&git).unwrap();
    fs::write(git.join("commondir"), "../../chain/0").unwrap();
    for number in 0..LENGTH {
        let link = tree.root.join(format!("chain/{number}"));
        fs::create_dir_all(&link).unwrap();
        fs::write(link.join("commondir"), format!("../{}", number + 1)).unwrap();
    }
    let last = tree.root.join(format!("chain/{LENGTH}"));
    fs::create_dir_all(last.join("hooks")).unwrap();
    fs::write(last.join("hooks/pre-commit"), "x").unwrap();
    let cleared = tree.clear();
    assert!(cleared.iter().any(|change| change.rule == RuleId::HeldGitHook), "{}", cleared.len());
    assert!(!last.join("hooks/pre-commit").exists());
}

#[test]
fn a_chain_of_configurations_is_looked_at_to_its_end() {
    const LENGTH: usize = 5_000;
    let tree = Tree::new();
    let git = tree.repository("a/.git");
    fs::create_dir(tree.root.join("i")).unwrap();
    fs::write(git.join("config"), "[include]\npath = ../../i/0\n").unwrap();
    for number in 0..LENGTH {
        let file = tree.root.join(format!("i/{number}"));
        fs::write(file, format!("[include]\npath = {}\n", number + 1)).unwrap();
    }
    fs::write(tree.root.join(format!("i/{LENGTH}")), "[core]\nfsmonitor = x\n").unwrap();
    let places = tree.places();
    let candidates = places.candidates(Patience::new()).unwrap();
    let found = places.scene(ExaminationMode::First, Patience::new()).examine(&candidates).unwrap();
    assert!(found.iter().any(|finding| finding.name == OsStr::new(&LENGTH.to_string())), "{}", found.len());
}

/// Makes directories with the longest of names, one in the other.
fn nested(tree: &Tree, name: &str, depth: usize) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(&tree.root, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, name, flags, Mode::empty()).unwrap();
    }
    at
}

/// The path of each entry is as long as a command likes, and each of them was kept.
#[test]
fn paths_take_a_bounded_amount_of_memory() {
    let tree = Tree::new();
    let deep = nested(&tree, &"d".repeat(255), 500);
    let links = |numbers: std::ops::Range<usize>| {
        numbers.for_each(|number| rustix::fs::symlinkat("x", &deep, format!("{number}")).unwrap());
    };
    links(0..100);
    let places = tree.places();
    assert_eq!(places.candidates(Patience::new()).unwrap().concat().len(), 100, "control: these have room");
    links(100..1200);
    assert!(matches!(places.candidates(Patience::new()), Err(SurveyError::TooMuch { .. })));
    assert!(matches!(places.clear().end, ClearedEnd::Unfinished { why } if why.contains("too much memory")));
}

#[test]
fn findings_take_a_bounded_amount_of_memory() {
    let tree = Tree::new();
    let deep = nested(&tree, &"d".repeat(255), 200);
    rustix::fs::mkdirat(&deep, ".git", Mode::RWXU).unwrap();
    let settings = |count: usize| {
        let text: String = (0..count).map(|number| format!("[a]\nk{number} = x\n")).collect();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&deep, ".git/config", flags, Mode::RUSR | Mode::WUSR).unwrap();
        fs::File::from(file).write_all(text.as_bytes()).unwrap();
    };
    settings(10);
    assert_eq!(tree.places().findings().unwrap().len(), 10, "control: these have room");
    settings(3000);
    assert!(matches!(tree.places().findings(), Err(SurveyError::TooMuch { .. })));
}

/// Each directory above a `.git` may be a repository, and each takes as long to reach as it is deep.
#[test]
fn what_is_found_is_looked_at_for_a_bounded_time() {
    let tree = Tree::new();
    let deep = nested(&tree, "refs", 1500);
    for number in 0..20 {
        rustix::fs::mkdirat(&deep, format!("{number}"), Mode::RWXU).unwrap();
        rustix::fs::mkdirat(&deep, format!("{number}/.git"), Mode::RWXU).unwrap();
    }
    let places = tree.places();
    let candidates = places.candidates(Patience::new()).unwrap();
    let look = |most: Duration| places.scene(ExaminationMode::Later, Patience::of(most)).examine(&candidates);
    assert!(matches!(look(Duration::from_millis(100)), Err(SurveyError::TooSlow { .. })));
    assert!(look(Duration::MAX).is_ok(), "control: nothing else is wrong with it");
}
