use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use ringfence_types::{Access, PathDecision, Root};

use super::*;
use crate::survey::SurveyRules;

struct TestRules;

impl SurveyRules for TestRules {
    fn judge(&self, relative: &Path) -> PathDecision {
        let hidden = relative.file_name().is_some_and(|name| name == ".env");
        if hidden { PathDecision::Hidden } else { PathDecision::Open }
    }

    fn protected_at_root(&self) -> &[&str] {
        &[".git"]
    }

    fn protected_anywhere(&self) -> &[&str] {
        &[".claude"]
    }

    fn is_protected(&self, relative: &Path) -> bool {
        relative.components().any(|component| component.as_os_str() == ".claude")
    }
}

/// `a` is changed, `new/deep/b` comes, `c` goes.
struct Bench {
    dir: tempfile::TempDir,
}

const OLD: &[u8] = b"old\n";
const NEW: &[u8] = b"new\n";

impl Bench {
    fn new() -> Self {
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(bench.path("a"), OLD).unwrap();
        fs::write(bench.path("c"), OLD).unwrap();
        bench
    }

    fn path(&self, path: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap().join(path)
    }

    fn tree(&self) -> FileTree<'static> {
        FileTree::open(&[Root { path: ByteString::from(self.path("")), access: Access::Write }], &TestRules)
            .unwrap()
    }

    fn plan(&self, edits: &[FileEdit<'_>]) -> Result<ChangeSet, ChangeSetError> {
        self.tree().plan(&fs::canonicalize(self.dir.path()).unwrap(), edits, "tx_1")
    }

    fn changes(&self) -> ChangeSet {
        let (old, new) = (digest(OLD), digest(NEW));
        self.plan(&[
            edit("a", Some(&old), Some(&new)),
            edit("c", Some(&old), None),
            edit("new/deep/b", None, Some(&new)),
        ])
        .unwrap()
    }

    fn staged(&self) -> ChangeSet {
        let changes = self.changes();
        changes.stage(&[Some(NEW), None, Some(NEW)]).unwrap();
        changes
    }

    fn content(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.path(path)).ok()
    }

    #[track_caller]
    fn is_old(&self) {
        assert_eq!(self.everything(), ["a", "c"]);
        assert_eq!((self.content("a").unwrap(), self.content("c").unwrap()), (OLD.to_vec(), OLD.to_vec()));
    }

    #[track_caller]
    fn is_new(&self) {
        assert_eq!(self.everything(), ["a", "new", "new/deep", "new/deep/b"]);
        assert_eq!(
            (self.content("a").unwrap(), self.content("new/deep/b").unwrap()),
            (NEW.to_vec(), NEW.to_vec())
        );
    }

    fn everything(&self) -> Vec<String> {
        let root = self.path("");
        let mut found = vec![root.clone()];
        let mut at = 0;
        while let Some(path) = found.get(at).cloned() {
            if path.is_dir() {
                found.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            }
            at += 1;
        }
        let relative = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<String> = found.iter().skip(1).map(relative).collect();
        names.sort();
        names
    }
}

fn edit<'a>(path: &'a str, base: Option<&'a str>, result: Option<&'a str>) -> FileEdit<'a> {
    FileEdit { path: Path::new(path), base, result }
}

fn refusal(planned: Result<ChangeSet, ChangeSetError>) -> FileRefusal {
    match planned {
        Err(ChangeSetError::File(FileError::Refused { refusal, .. })) => refusal,
        other => panic!("{other:?}"),
    }
}

fn conflict(done: Result<(), ChangeSetError>) -> Vec<PathBuf> {
    match done {
        Err(ChangeSetError::Conflict { paths }) => paths,
        other => panic!("{other:?}"),
    }
}

#[test]
fn everything_changes_at_once_and_nothing_is_left() {
    let bench = Bench::new();
    let changes = bench.staged();
    assert_eq!(bench.content("a").unwrap(), OLD, "prepared is not visible under its name");
    changes.swap().unwrap();
    changes.clear().unwrap();
    bench.is_new();
}

#[test]
fn planning_touches_nothing() {
    let bench = Bench::new();
    bench.changes();
    bench.is_old();
}

#[test]
fn modes_of_old_files_stay_and_new_ones_are_plain() {
    let bench = Bench::new();
    fs::set_permissions(bench.path("a"), fs::Permissions::from_mode(0o755)).unwrap();
    let changes = bench.staged();
    changes.swap().unwrap();
    changes.clear().unwrap();
    let mode = |path| fs::metadata(bench.path(path)).unwrap().mode() & 0o777;
    assert_eq!(mode("a"), 0o755);
    assert_eq!(mode("new/deep/b") & 0o133, 0, "never executable, never writable by others");
}

#[test]
fn what_is_not_the_base_is_a_conflict_and_is_named() {
    let bench = Bench::new();
    let (old, new) = (digest(OLD), digest(NEW));
    for (path, base, result) in
        [("a", Some(&new), Some(&old)), ("a", None, Some(&old)), ("absent", Some(&old), None)]
    {
        let planned = bench.plan(&[edit(path, base.map(String::as_str), result.map(String::as_str))]);
        assert!(matches!(planned, Err(ChangeSetError::Conflict { paths }) if paths == [Path::new(path)]));
    }
    bench.is_old();
}

#[test]
fn places_that_may_not_change_are_refused() {
    let bench = Bench::new();
    let new = digest(NEW);
    fs::create_dir(bench.path("dir")).unwrap();
    symlink("a", bench.path("link")).unwrap();
    symlink("dir", bench.path("way")).unwrap();
    symlink("/nonexistent", bench.path("dangling")).unwrap();
    fs::write(bench.path("one"), OLD).unwrap();
    fs::hard_link(bench.path("one"), bench.path("two")).unwrap();
    for (path, expected) in [
        ("link", FileRefusal::Link),
        ("way/x", FileRefusal::Link),
        ("way/x/y", FileRefusal::Link),
        ("dangling", FileRefusal::Link),
        ("two", FileRefusal::HardLinked),
        ("dir", FileRefusal::NotRegular),
        ("a/below", FileRefusal::NotDirectory),
        (".claude/x", FileRefusal::Protected),
        ("dir/.claude/deep/x", FileRefusal::Protected),
        (".env", FileRefusal::Hidden),
        ("not/there/.env", FileRefusal::Hidden),
        (".git/hooks/x", FileRefusal::Protected),
        ("../x", FileRefusal::Outside),
    ] {
        assert_eq!(refusal(bench.plan(&[edit(path, None, Some(&new))])), expected, "{path}");
    }
}

/// Each point at which a process can die: before the swap everything is undone, after its beginning everything is finished.
#[test]
fn whoever_comes_after_undoes_or_finishes() {
    let bench = Bench::new();
    let changes = bench.changes();
    changes.withdraw(ChangeProgress::Staged).unwrap();
    bench.is_old();
    changes.make(&changes.open().unwrap(), Path::new("new")).unwrap();
    changes.withdraw(ChangeProgress::Staged).unwrap();
    bench.is_old();
    bench.staged().withdraw(ChangeProgress::Staged).unwrap();
    bench.is_old();
    for done in 0..=3 {
        let bench = Bench::new();
        let changes = bench.staged();
        let root = changes.open().unwrap();
        for entry in changes.entries.iter().take(done) {
            assert!(entry.swap(&changes.directory(&root, entry).unwrap()).is_ok());
        }
        let written = written_and_read(&changes);
        assert_eq!(written.complete().unwrap(), Vec::<PathBuf>::new(), "after {done}");
        bench.is_new();
        assert_eq!(written.complete().unwrap(), Vec::<PathBuf>::new(), "twice is once");
        bench.is_new();
    }
    for done in 0..=3 {
        let bench = Bench::new();
        let changes = bench.staged();
        let root = changes.open().unwrap();
        for entry in changes.entries.iter().take(done) {
            assert!(entry.swap(&changes.directory(&root, entry).unwrap()).is_ok());
        }
        changes.withdraw(ChangeProgress::Swapping).unwrap();
        bench.is_old();
    }
}

fn written_and_read(changes: &ChangeSet) -> ChangeSet {
    let text = toml::to_string(changes).unwrap();
    toml::from_str(&text).unwrap()
}

/// A file that changes between the last look and the exchange is not lost.
#[test]
fn a_change_in_the_last_moment_is_kept_and_stops_everything() {
    let bench = Bench::new();
    let changes = bench.staged();
    fs::write(bench.path("c"), "somebody's").unwrap();
    assert_eq!(conflict(changes.swap()), [Path::new("c")]);
    changes.withdraw(ChangeProgress::Swapping).unwrap();
    assert_eq!(bench.content("c").unwrap(), b"somebody's");
    assert_eq!(bench.content("a").unwrap(), OLD);
    assert_eq!(bench.everything(), ["a", "c"]);

    let bench = Bench::new();
    let changes = bench.staged();
    fs::write(bench.path("new/deep/b"), "somebody's").unwrap();
    assert_eq!(conflict(changes.swap()), [Path::new("new/deep/b")]);
    changes.withdraw(ChangeProgress::Swapping).unwrap();
    assert_eq!(bench.content("new/deep/b").unwrap(), b"somebody's");
    assert_eq!((bench.content("a").unwrap(), bench.content("c").unwrap()), (OLD.to_vec(), OLD.to_vec()));
}

/// The prepared file is in a directory that others may write: what gets in must be what was judged.
#[test]
fn prepared_bytes_that_were_changed_do_not_get_in() {
    let bench = Bench::new();
    let changes = bench.staged();
    fs::write(bench.path(".ringfence-tx_1-0.tmp"), "evil").unwrap();
    assert_eq!(conflict(changes.swap()), [Path::new("a")]);
    assert_eq!(bench.content("a").unwrap(), OLD);
    let spare = ".ringfence-tx_1-0.tmp";
    let kept = changes.withdraw(ChangeProgress::Swapping).unwrap_err();
    assert!(matches!(kept, ChangeSetError::Kept { paths } if paths == [Path::new(spare)]));
    assert_eq!(bench.content(spare).unwrap(), b"evil", "it is somebody's");
    fs::remove_file(bench.path(spare)).unwrap();
    changes.withdraw(ChangeProgress::Swapping).unwrap();
    bench.is_old();
}

#[test]
fn what_somebody_changed_after_a_crash_is_left_and_named() {
    let bench = Bench::new();
    let changes = bench.staged();
    fs::write(bench.path("c"), "somebody's").unwrap();
    assert_eq!(changes.complete().unwrap(), [Path::new("c")]);
    assert_eq!(bench.content("c").unwrap(), b"somebody's");
    assert_eq!(bench.content("a").unwrap(), NEW);
    assert_eq!(bench.everything(), ["a", "c", "new", "new/deep", "new/deep/b"]);

    let bench = Bench::new();
    let changes = bench.staged();
    fs::rename(bench.path("new"), bench.path("moved")).unwrap();
    assert_eq!(changes.complete().unwrap(), [Path::new("new/deep/b")]);
    assert_eq!(bench.content("a").unwrap(), NEW);
}

/// The spare file is gone and something else is there: that is not what was to be applied.
#[test]
fn a_file_of_somebody_else_is_not_taken_for_the_new_one() {
    let bench = Bench::new();
    let changes = bench.staged();
    fs::remove_file(bench.path("new/deep/.ringfence-tx_1-2.tmp")).unwrap();
    fs::write(bench.path("new/deep/b"), "somebody's").unwrap();
    assert_eq!(changes.complete().unwrap(), [Path::new("new/deep/b")]);
    assert_eq!(bench.content("new/deep/b").unwrap(), b"somebody's");

    // The control: with the right content it is the new one.
    let bench = Bench::new();
    let changes = bench.staged();
    fs::rename(bench.path("new/deep/.ringfence-tx_1-2.tmp"), bench.path("new/deep/b")).unwrap();
    assert_eq!(changes.complete().unwrap(), Vec::<PathBuf>::new());
    bench.is_new();
}

/// A file of a terabyte without a byte on disk would be read for an hour.
#[test]
fn what_is_too_large_to_be_ours_is_not_read() {
    let bench = Bench::new();
    let changes = bench.staged();
    File::options().write(true).open(bench.path("a")).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(changes.swap(), Err(ChangeSetError::Conflict { paths }) if paths == [Path::new("a")]));
    assert_eq!(changes.complete().unwrap(), [Path::new("a")]);
    assert_eq!(fs::metadata(bench.path("a")).unwrap().len(), 1 << 40, "it is somebody's");
}

#[test]
fn a_directory_behind_a_link_is_not_removed() {
    let bench = Bench::new();
    let changes = bench.staged();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(elsewhere.path().join("deep")).unwrap();
    fs::remove_dir_all(bench.path("new")).unwrap();
    symlink(elsewhere.path(), bench.path("new")).unwrap();
    changes.withdraw(ChangeProgress::Staged).unwrap();
    assert!(elsewhere.path().join("deep").is_dir());
    fs::remove_dir(bench.path("new/deep")).expect("control: by its path it can be removed");
}

/// Between planning and staging the way to a file becomes a link: nothing is written through it.
#[test]
fn a_link_that_comes_later_is_not_followed() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    let changes = bench.changes();
    symlink(outside.path(), bench.path("new")).unwrap();
    assert!(changes.stage(&[Some(NEW), None, Some(NEW)]).is_err());
    changes.withdraw(ChangeProgress::Staged).unwrap();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    assert_eq!(bench.everything(), ["a", "c", "new"]);
}

/// A command of a session that has the directory above can do this between the check of a proposal and its application.
#[test]
fn a_link_above_the_root_leads_nowhere() {
    let bench = Bench::new();
    let (root, other) = (bench.path("above/w"), bench.path("other/w"));
    fs::create_dir_all(&root).unwrap();
    fs::create_dir_all(&other).unwrap();
    let roots = [Root { path: ByteString::from(root.as_path()), access: Access::Write }];
    let tree = FileTree::open(&roots, &TestRules).unwrap();
    let new = digest(NEW);
    let changes = tree.plan(&root, &[edit("new/b", None, Some(&new))], "tx_1").unwrap();
    fs::rename(bench.path("above"), bench.path("moved")).unwrap();
    symlink("other", bench.path("above")).unwrap();
    let count = |place: &Path| fs::read_dir(place).unwrap().count();
    assert!(matches!(changes.stage(&[Some(NEW)]), Err(ChangeSetError::File(_))));
    assert!(changes.swap().is_err() && changes.withdraw(ChangeProgress::Swapping).is_err());
    assert_eq!((count(&other), count(&bench.path("moved/w"))), (0, 0));
    fs::write(root.join("control"), OLD).unwrap();
    assert_eq!(count(&other), 1, "control: by its path alone it is the other directory");
    fs::remove_file(bench.path("above")).unwrap();
    fs::rename(bench.path("moved"), bench.path("above")).unwrap();
    changes.stage(&[Some(NEW)]).unwrap();
    changes.swap().unwrap();
    changes.clear().unwrap();
    assert_eq!(fs::read(root.join("new/b")).unwrap(), NEW);
}
