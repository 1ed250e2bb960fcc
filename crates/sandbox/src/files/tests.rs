use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

struct TestRules;

impl SurveyRules for TestRules {
    fn judge(&self, relative: &Path) -> PathDecision {
        match relative.file_name().and_then(OsStr::to_str) {
            Some(".env") => PathDecision::Hidden,
            Some(name) if name.ends_with(".pem") => PathDecision::HiddenUnlessPublic,
            _ => PathDecision::Open,
        }
    }

    fn protected_at_root(&self) -> &[&str] {
        &[".git", ".ringfence"]
    }

    fn protected_anywhere(&self) -> &[&str] {
        &[".claude"]
    }

    fn is_protected(&self, relative: &Path) -> bool {
        relative.components().any(|component| component.as_os_str() == ".claude")
    }
}

struct Bench {
    dir: tempfile::TempDir,
}

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

impl Bench {
    /// `w` is writable, `r` is readable, `secret` is neither and outside both.
    fn new() -> Self {
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        for directory in ["w/sub/..foo", "r", "w2", "w/.claude"] {
            fs::create_dir_all(bench.path(directory)).unwrap();
        }
        for file in
            ["w/file", "w/sub/deep", "w/sub/..foo/x", "w/.env", "r/file", "secret", "w2/other", "w/.claude/s"]
        {
            fs::write(bench.path(file), file).unwrap();
        }
        bench
    }

    fn path(&self, path: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap().join(path)
    }

    fn tree(&self) -> FileTree<'static> {
        let root = |path, access| Root { path: ByteString::from(self.path(path)), access };
        FileTree::open(
            &[root("w", Access::Write), root("r", Access::Read), root("w2", Access::None)],
            &TestRules,
        )
        .unwrap()
    }

    fn link(&self, link: &str, target: &str) {
        symlink(target.replace("{}", self.path("").to_str().unwrap()), self.path(link)).unwrap();
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, FileError>) -> FileRefusal {
    match result {
        Err(FileError::Refused { refusal, .. }) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn missing<T: std::fmt::Debug>(result: Result<T, FileError>) -> bool {
    matches!(&result, Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound)
}

const MAX: u64 = 1 << 20;

#[test]
fn reads_inside() {
    let bench = Bench::new();
    let tree = bench.tree();
    let read = |path: &str| tree.read(Path::new(path), MAX).unwrap();
    assert_eq!(read("file"), b"w/file");
    assert_eq!(read("sub/../file"), b"w/file");
    assert_eq!(read("./sub/..foo/x"), b"w/sub/..foo/x");
    assert_eq!(read(bench.path("w/sub/deep").to_str().unwrap()), b"w/sub/deep");
    assert_eq!(read(bench.path("r/file").to_str().unwrap()), b"r/file");
    assert!(missing(tree.read(Path::new("none"), MAX)));
}

/// S000-5, S000-9, S001-14: no path leads out, and a name that only begins like a root is not in it.
#[test]
fn reads_nothing_outside() {
    let bench = Bench::new();
    bench.link("w/up", "../secret");
    bench.link("w/abs", "{}secret");
    bench.link("w/dir", "..");
    bench.link("w/magic", "/proc/self/root");
    assert_eq!(fs::read(bench.path("w/up")).unwrap(), b"secret", "control");
    assert_eq!(fs::read(bench.path("w/dir/secret")).unwrap(), b"secret", "control");
    let tree = bench.tree();
    let absolute = bench.path("secret");
    let sibling = bench.path("w2/other");
    let climbing = bench.path("w/../secret");
    for path in
        ["../secret", "sub/../../secret", "up", "abs", "dir/secret", "magic/etc/passwd", "/etc/passwd"]
            .map(Path::new)
            .into_iter()
            .chain([absolute.as_path(), &sibling, &climbing])
    {
        assert_eq!(refusal(tree.read(path, MAX)), FileRefusal::Outside, "{path:?}");
        assert_eq!(refusal(tree.write(path, b"")), FileRefusal::Outside, "{path:?}");
    }
    assert_eq!(fs::read(bench.path("secret")).unwrap(), b"secret");
}

/// As inside, where the roots have the same paths.
#[test]
fn follows_links_that_stay_inside() {
    let bench = Bench::new();
    bench.link("w/sub/rel", "../file");
    bench.link("w/abs", "{}w/sub/deep");
    bench.link("w/other", "../r/file");
    let tree = bench.tree();
    assert_eq!(tree.read(Path::new("sub/rel"), MAX).unwrap(), b"w/file");
    assert_eq!(tree.read(Path::new("abs"), MAX).unwrap(), b"w/sub/deep");
    assert_eq!(tree.read(Path::new("other"), MAX).unwrap(), b"r/file");
    tree.write(Path::new("sub/rel"), b"through").unwrap();
    assert_eq!(fs::read(bench.path("w/file")).unwrap(), b"through");
    assert!(bench.path("w/sub/rel").is_symlink());
    assert_eq!(refusal(tree.write(Path::new("other"), b"")), FileRefusal::ReadOnly);
}

#[test]
fn hidden_files_are_hidden_by_every_name() {
    let bench = Bench::new();
    bench.link("w/alias", ".env");
    fs::hard_link(bench.path("w/.env"), bench.path("w/sub/hard")).unwrap();
    fs::create_dir(bench.path("w/a")).unwrap();
    fs::write(bench.path("w/a/target"), "A").unwrap();
    bench.link("w/a/.env", "target");
    fs::write(bench.path("w/key.pem"), "-----BEGIN PRIVATE KEY-----\n").unwrap();
    fs::write(bench.path("w/cert.pem"), CERTIFICATE).unwrap();
    assert_eq!(fs::read(bench.path("w/sub/hard")).unwrap(), b"w/.env", "control");
    let tree = bench.tree();
    for path in [".env", "alias", "sub/hard", "sub/../.env", "a/.env", "a/target", "key.pem"] {
        assert_eq!(refusal(tree.read(Path::new(path), MAX)), FileRefusal::Hidden, "{path}");
        assert_eq!(refusal(tree.write(Path::new(path), b"")), FileRefusal::Hidden, "{path}");
    }
    assert_eq!(tree.read(Path::new("cert.pem"), MAX).unwrap(), CERTIFICATE.as_bytes());
    fs::write(bench.path("w/sub/.env"), "later").unwrap();
    assert_eq!(refusal(tree.read(Path::new("sub/.env"), MAX)), FileRefusal::Hidden);
    assert_eq!(refusal(tree.write(Path::new("sub/..foo/.env"), b"")), FileRefusal::Hidden);
}

#[test]
fn protected_paths_are_read_but_not_written() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("w/inner/.git/hooks")).unwrap();
    fs::write(bench.path("w/inner/.git/config"), "[remote \"o\"]\n\turl = https://u:hunter2@h/r\n").unwrap();
    fs::write(bench.path("w/inner/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    bench.link("w/hooks", "inner/.git/hooks");
    let tree = bench.tree();
    assert_eq!(tree.read(Path::new(".claude/s"), MAX).unwrap(), b"w/.claude/s");
    for path in [
        ".claude/s",
        ".claude/new",
        "sub/.claude",
        ".ringfence",
        ".git",
        "inner/.git/hooks/pre-commit",
        "hooks/pre-commit",
        "inner/.git/config",
        "inner/.git/commondir",
    ] {
        assert_eq!(refusal(tree.write(Path::new(path), b"x")), FileRefusal::Protected, "{path}");
    }
    assert_eq!(refusal(tree.symlink(Path::new(".claude/l"), Path::new("../file"))), FileRefusal::Protected);
    assert!(!bench.path("w/inner/.git/hooks/pre-commit").exists());
    tree.write(Path::new("inner/.git/HEAD"), b"ref: refs/heads/x\n").unwrap();
    let shown = String::from_utf8(tree.read(Path::new("inner/.git/config"), MAX).unwrap()).unwrap();
    assert!(shown.contains("redacted@h") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn writes_replace_in_one_step_and_keep_the_mode() {
    let bench = Bench::new();
    fs::set_permissions(bench.path("w/file"), fs::Permissions::from_mode(0o750)).unwrap();
    let before = fs::metadata(bench.path("w/file")).unwrap();
    let tree = bench.tree();
    tree.write(Path::new("file"), b"new content").unwrap();
    let after = fs::metadata(bench.path("w/file")).unwrap();
    assert_eq!(fs::read(bench.path("w/file")).unwrap(), b"new content");
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino());
    tree.write(Path::new("sub/created"), b"c").unwrap();
    assert_eq!(fs::read(bench.path("w/sub/created")).unwrap(), b"c");
    assert!(missing(tree.write(Path::new("no/such/dir"), b"")));
    let leftover =
        tree.list(Path::new("")).unwrap().into_iter().any(|entry| entry.name.as_bytes().ends_with(b".tmp"));
    assert!(!leftover);
}

/// S002-8, C-8, C-9: nothing is written through a link that leads nowhere or a file with a second name.
#[test]
fn writes_that_would_reach_something_else_are_refused() {
    let bench = Bench::new();
    bench.link("w/dangling", "nowhere");
    bench.link("w/out", "{}new outside");
    fs::hard_link(bench.path("w/file"), bench.path("w/second")).unwrap();
    let tree = bench.tree();
    assert_eq!(refusal(tree.write(Path::new("dangling"), b"x")), FileRefusal::DanglingLink);
    assert_eq!(refusal(tree.write(Path::new("out"), b"x")), FileRefusal::Outside);
    assert_eq!(refusal(tree.write(Path::new("second"), b"x")), FileRefusal::HardLinked);
    assert_eq!(refusal(tree.write(&bench.path("r/file"), b"x")), FileRefusal::ReadOnly);
    assert_eq!(refusal(tree.write(&bench.path("r/new"), b"x")), FileRefusal::ReadOnly);
    for malformed in ["new/", "sub/..", "", "."] {
        tree.write(Path::new(malformed), b"x").unwrap_err();
    }
    assert!(!bench.path("w/nowhere").exists() && !bench.path("new outside").exists());
    assert_eq!(fs::read(bench.path("w/second")).unwrap(), b"w/file");
}

#[test]
fn only_regular_files_are_files() {
    let bench = Bench::new();
    let fifo = bench.path("w/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bench.path("w/socket")).unwrap();
    bench.link("r/null", "/dev/null");
    let tree = bench.tree();
    for path in ["fifo", "socket", "sub"] {
        assert_eq!(refusal(tree.read(Path::new(path), MAX)), FileRefusal::NotRegular, "{path}");
        assert_eq!(refusal(tree.write(Path::new(path), b"")), FileRefusal::NotRegular, "{path}");
    }
    assert_eq!(refusal(tree.read(&bench.path("r/null"), MAX)), FileRefusal::Outside);
    assert_eq!(refusal(tree.list(Path::new("file"))), FileRefusal::NotDirectory);
}

#[test]
fn reads_no_more_than_asked_for() {
    let bench = Bench::new();
    let tree = bench.tree();
    assert_eq!(refusal(tree.read(Path::new("file"), 5)), FileRefusal::TooLarge);
    assert_eq!(tree.read(Path::new("file"), 6).unwrap().len(), 6);
}

/// S000-9, S000-14: the root itself can be listed, nothing above it.
#[test]
fn lists_directories() {
    let bench = Bench::new();
    bench.link("w/link", "file");
    let tree = bench.tree();
    let names = |path: &Path| -> Vec<(String, EntryKind)> {
        let entries = tree.list(path).unwrap();
        entries.into_iter().map(|entry| (entry.name.into_string().unwrap(), entry.kind)).collect()
    };
    let expected = [
        (".claude", EntryKind::Directory),
        (".env", EntryKind::File),
        ("file", EntryKind::File),
        ("link", EntryKind::Link),
        ("sub", EntryKind::Directory),
    ];
    let expected = expected.map(|(name, kind)| (name.to_owned(), kind));
    assert_eq!(names(Path::new("")), expected);
    assert_eq!(names(Path::new(".")), expected);
    assert_eq!(names(&bench.path("w")), expected);
    assert_eq!(refusal(tree.list(Path::new(".."))), FileRefusal::Outside);
    assert_eq!(refusal(tree.list(Path::new("/"))), FileRefusal::Outside);
}

/// S000-15.
#[test]
fn links_are_made_only_to_the_inside() {
    let bench = Bench::new();
    bench.link("w/dir", "..");
    let tree = bench.tree();
    let link = |path: &str, target: &str| tree.symlink(Path::new(path), Path::new(target));
    link("sub/good", "../file").unwrap();
    link("future", "not yet/there").unwrap();
    link("absolute", bench.path("w/file").to_str().unwrap()).unwrap();
    assert_eq!(tree.read(Path::new("sub/good"), MAX).unwrap(), b"w/file");
    for target in
        ["../secret", "/etc/passwd", "sub/../../secret", "dir/secret", "/proc/self/root/etc", "../missing"]
    {
        assert_eq!(refusal(link("bad", target)), FileRefusal::Outside, "{target}");
    }
    assert_eq!(refusal(link("file", "sub")), FileRefusal::Exists);
    assert_eq!(refusal(link("../l", "w/file")), FileRefusal::Outside);
    assert!(!bench.path("w/bad").is_symlink() && !bench.path("l").is_symlink());
}

#[test]
fn the_innermost_root_decides() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("w/shut")).unwrap();
    fs::write(bench.path("w/shut/x"), "x").unwrap();
    bench.link("w/in", "sub/deep");
    let root = |path, access| Root { path: ByteString::from(bench.path(path)), access };
    let roots = [root("w", Access::Write), root("w/sub", Access::Read), root("w/shut", Access::None)];
    let tree = FileTree::open(&roots, &TestRules).unwrap();
    assert_eq!(tree.read(Path::new("in"), MAX).unwrap(), b"w/sub/deep");
    assert_eq!(refusal(tree.write(Path::new("in"), b"")), FileRefusal::ReadOnly);
    assert_eq!(refusal(tree.write(Path::new("sub/new"), b"")), FileRefusal::ReadOnly);
    assert_eq!(refusal(tree.read(Path::new("shut/x"), MAX)), FileRefusal::Outside);
    assert_eq!(refusal(tree.list(Path::new("shut"))), FileRefusal::Outside);
}

#[test]
fn names_of_any_bytes() {
    let bench = Bench::new();
    let tree = bench.tree();
    let odd = Path::new(OsStr::from_bytes(b"sub/a b\n\xff"));
    tree.write(odd, b"odd").unwrap();
    assert_eq!(tree.read(odd, MAX).unwrap(), b"odd");
    let zero = Path::new(OsStr::from_bytes(b"a\0b"));
    assert_eq!(refusal(tree.read(zero, MAX)), FileRefusal::Malformed);
    let error = tree.read(Path::new("no\x1b[2J"), MAX).unwrap_err().to_string();
    assert!(!error.contains('\x1b'), "{error}");
}

#[test]
fn entries_are_moved_and_removed_and_links_stand_for_themselves() {
    let bench = Bench::new();
    let tree = bench.tree();
    symlink("sub/deep", bench.path("w/link")).unwrap();
    assert_eq!(tree.stat(Path::new("link")).unwrap().bytes, "w/sub/deep".len() as u64);
    assert_eq!(tree.stat(Path::new("sub")).unwrap().kind, EntryKind::Directory);
    tree.rename(Path::new("file"), Path::new("sub/moved")).unwrap();
    assert_eq!(fs::read_to_string(bench.path("w/sub/moved")).unwrap(), "w/file");
    tree.rename(Path::new("sub/moved"), Path::new("sub/deep")).unwrap();
    assert_eq!(fs::read_to_string(bench.path("w/sub/deep")).unwrap(), "w/file");
    assert_eq!(refusal(tree.rename(Path::new("link"), Path::new("x"))), FileRefusal::Link);
    assert_eq!(refusal(tree.rename(Path::new("sub/deep"), Path::new("link"))), FileRefusal::Link);
    assert_eq!(refusal(tree.rename(Path::new("sub"), Path::new("x"))), FileRefusal::NotRegular);
    tree.remove(Path::new("link")).unwrap();
    assert!(bench.path("w/sub/deep").exists(), "only the link is gone");
    assert!(matches!(tree.remove(Path::new("sub")), Err(FileError::Io { .. })), "it is not empty");
    tree.remove(Path::new("sub/deep")).unwrap();
    assert!(!bench.path("w/sub/deep").exists());
}

#[test]
fn nothing_hidden_protected_read_only_or_outside_is_moved_or_removed() {
    let bench = Bench::new();
    let tree = bench.tree();
    fs::hard_link(bench.path("w/.env"), bench.path("w/alias")).unwrap();
    let tree_after_link = bench.tree();
    let path = |name: &str| bench.path(name);
    for (name, expected) in [
        ("w/.env", FileRefusal::Hidden),
        ("w/.claude/s", FileRefusal::Protected),
        ("w/.claude", FileRefusal::Protected),
        ("r/file", FileRefusal::ReadOnly),
        ("w2/other", FileRefusal::Outside),
        ("secret", FileRefusal::Outside),
    ] {
        assert_eq!(refusal(tree.remove(&path(name))), expected, "remove {name}");
        assert_eq!(refusal(tree.rename(&path(name), &path("w/x"))), expected, "move {name}");
        assert_eq!(refusal(tree.check(&path(name), FileOperation::Remove)), expected, "check {name}");
    }
    for (name, expected) in [
        ("w/.env", FileRefusal::Hidden),
        ("w/.claude/new", FileRefusal::Protected),
        ("w/.ringfence/policy.toml", FileRefusal::Protected),
        ("r/new", FileRefusal::ReadOnly),
        ("secret", FileRefusal::Outside),
    ] {
        let moved = tree.rename(&path("w/file"), &path(name));
        // A directory that is missing is no place for a file either.
        let missing = matches!(&moved, Err(FileError::Io { .. }));
        assert!(missing || refusal(moved) == expected, "over {name}");
    }
    assert_eq!(refusal(tree_after_link.rename(&path("w/alias"), &path("w/x"))), FileRefusal::Hidden);
    assert_eq!(refusal(tree.stat(&path("w/.env"))), FileRefusal::Hidden);
    assert_eq!(refusal(tree.remove(&path("w"))), FileRefusal::Outside);
    assert!(["w/.env", "w/file", "w/.claude/s", "r/file", "secret"].iter().all(|name| path(name).exists()));
}

/// Somebody who has only `w/sub` left: what counts is where a path arrives, whatever its name.
#[test]
fn what_is_left_is_left_by_its_real_place() {
    let bench = Bench::new();
    bench.link("w/sub/out", "../file");
    bench.link("w/sub/up", "..");
    bench.link("w/sub/near", "deep");
    bench.link("w/in", "sub");
    let left = AllOrOnly::of(Some([Subtree::new(&bench.path("w/sub")).unwrap()]));
    let whole = bench.tree();
    let tree = bench.tree().leaving(left);
    let at = |path: &str| bench.path("w").join(path);
    for beyond in ["file", "sub/out", "sub/up/file", "sub/../file"] {
        whole.read(&at(beyond), 100).unwrap();
        assert_eq!(refusal(tree.read(&at(beyond), 100)), FileRefusal::NotLeft, "{beyond}");
        assert_eq!(refusal(tree.stat(&at(beyond))), FileRefusal::NotLeft, "{beyond}");
        assert_eq!(refusal(tree.write(&at(beyond), b"x")), FileRefusal::NotLeft, "{beyond}");
        assert_eq!(refusal(tree.check(&at(beyond), FileOperation::Write)), FileRefusal::NotLeft, "{beyond}");
    }
    assert_eq!(refusal(tree.list(&at("sub/up"))), FileRefusal::NotLeft);
    assert_eq!(refusal(tree.write(&at("sub/up/new"), b"x")), FileRefusal::NotLeft);
    assert_eq!(refusal(tree.check(&at("sub/up/no/new"), FileOperation::Write)), FileRefusal::NotLeft);
    assert_eq!(refusal(tree.rename(&at("sub/deep"), &at("sub/up/moved"))), FileRefusal::NotLeft);
    assert_eq!(refusal(tree.rename(&at("sub/up/file"), &at("sub/taken"))), FileRefusal::NotLeft);
    assert_eq!(refusal(tree.remove(&at("sub/up/file"))), FileRefusal::NotLeft);
    assert_eq!(refusal(tree.symlink(&at("sub/up/link"), Path::new("file"))), FileRefusal::NotLeft);
    for inside in ["sub/deep", "sub/near", "in/deep", "sub/up/sub/deep"] {
        assert_eq!(tree.read(&at(inside), 100).unwrap(), b"w/sub/deep", "{inside}");
    }
    tree.write(&at("in/new"), b"x").unwrap();
    // The link itself is in there.
    tree.remove(&at("sub/out")).unwrap();
    assert!(bench.path("w/file").exists() && bench.path("w/sub/new").exists());
}

/// The kernel breaks a walk over `..` off when anything is renamed meanwhile, wherever that is.
#[test]
fn a_rename_elsewhere_stops_no_walk() {
    let (bench, elsewhere) = (Bench::new(), tempfile::tempdir().unwrap());
    let [one, other] = ["one", "other"].map(|name| elsewhere.path().join(name));
    fs::write(&one, "x").unwrap();
    let tree = bench.tree();
    let over = AtomicBool::new(false);
    let (read, broken_off) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::rename(&one, &other).unwrap();
                fs::rename(&other, &one).unwrap();
            }
        });
        let root = fs::File::open(bench.path("w")).unwrap();
        let walk = || {
            let (flags, resolve) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::BENEATH);
            rustix::fs::openat2(&root, "sub/../file", flags, Mode::empty(), resolve)
        };
        // The control: without another try some of the walks end so.
        let broken_off = (0..1_000_000).any(|_| matches!(walk(), Err(Errno::AGAIN)));
        let read = (0..2000).all(|_| tree.read(&bench.path("w/sub/../file"), 100).is_ok());
        over.store(true, Ordering::Relaxed);
        (read, broken_off)
    });
    assert!(broken_off && read, "broken off: {broken_off}, read: {read}");
}

/// What is left can be a file, in a directory that is not.
#[test]
fn one_file_can_be_left() {
    let bench = Bench::new();
    let left = AllOrOnly::of(Some([Subtree::new(&bench.path("w/new")).unwrap()]));
    let tree = bench.tree().leaving(left);
    tree.write(&bench.path("w/new"), b"x").unwrap();
    assert_eq!(tree.read(&bench.path("w/new"), 10).unwrap(), b"x");
    assert_eq!(refusal(tree.list(&bench.path("w"))), FileRefusal::NotLeft);
}
