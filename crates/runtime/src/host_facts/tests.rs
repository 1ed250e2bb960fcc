//! Tests with real files and real git.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use ringfence_authz::env::ApproverPresence;

use super::*;
use crate::session::Toolchain;

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(path)
    }

    fn write(&self, path: &str, content: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn program(&self, path: &str) -> PathBuf {
        let path = self.write(path, "#!/bin/sh\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn git(&self, directory: &str, arguments: &[&str]) -> &Self {
        fs::create_dir_all(self.path(directory)).unwrap();
        let output = Command::new("git")
            .current_dir(self.path(directory))
            .env_clear()
            .envs([
                ("PATH", "/usr/bin:/bin"),
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("GIT_AUTHOR_NAME", "a"),
                ("GIT_AUTHOR_EMAIL", "a@example.test"),
                ("GIT_COMMITTER_NAME", "a"),
                ("GIT_COMMITTER_EMAIL", "a@example.test"),
            ])
            .args(["-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        self
    }

    fn repository(&self, directory: &str) -> &Self {
        self.git(directory, &["init", "-q", "."]);
        self.write(&format!("{directory}/file"), "x\n");
        self.git(directory, &["add", "file"]).git(directory, &["commit", "-qm", "one"])
    }

    /// Whether git itself works in the repository of the directory above.
    fn git_takes_above(&self, directory: &str) -> bool {
        let mut git = Command::new("git");
        git.current_dir(self.path(directory)).env_clear().env("PATH", "/usr/bin:/bin");
        let output = git.args(["rev-parse", "--absolute-git-dir"]).output().unwrap();
        let above = self.path(directory).parent().unwrap().join(".git");
        String::from_utf8(output.stdout).unwrap().trim_end() == above.to_str().unwrap()
    }

    fn programs(&self, directory: &str) -> Vec<String> {
        machine(Vec::new()).git_programs(&self.path(directory))
    }
}

fn machine(toolchains: Vec<Toolchain>) -> LiveHost {
    LiveHost::new(&HostSetup {
        state_dir: PathBuf::from("/nonexistent"),
        config_dir: PathBuf::from("/nonexistent"),
        home: None,
        host_env: Vec::new(),
        attendance: ApproverPresence::Unattended,
        toolchains,
        files: Vec::new(),
        sweeper: None,
        own: Vec::new(),
    })
}

#[test]
fn programs_are_found_as_inside_the_fence() {
    let bench = Bench::new();
    let tool = bench.program("chain/bin/tool");
    bench.program("elsewhere/git");
    symlink(bench.path("elsewhere/git"), bench.path("chain/bin/git")).unwrap();
    let toolchain = Toolchain {
        roots: vec![bench.path("chain")],
        programs: vec![bench.path("chain/bin")],
        env: Vec::new(),
        links: Vec::new(),
    };
    let machine = machine(vec![toolchain]);
    let cwd = bench.path("");
    let sh = machine.program(b"sh", &cwd).unwrap();
    assert!(sh.starts_with("/usr/bin") || sh.starts_with("/bin"), "{sh:?}");
    assert_eq!(sh, fs::canonicalize("/bin/sh").unwrap());
    assert_eq!(machine.program(b"tool", &cwd), Some(tool));
    let git = machine.program(b"git", &cwd).unwrap();
    assert!(git.starts_with("/usr"), "a link out of the toolchain leads nowhere inside: {git:?}");
    assert_eq!(machine.program(b"./elsewhere/git", &cwd), Some(bench.path("elsewhere/git")));
    assert_eq!(machine.program(b"elsewhere/git", &cwd), Some(bench.path("elsewhere/git")));
    bench.write("plain", "x");
    for name in [&b""[..], b"no-such-program", b"./plain", b"./elsewhere", b"sh/", b"./missing", b"\xff\xfe"]
    {
        assert_eq!(machine.program(name, &cwd), None, "{name:?}");
    }
}

#[test]
fn links_are_followed_and_what_is_missing_is_kept() {
    let bench = Bench::new();
    bench.write("a/b/file", "x");
    symlink("a/b", bench.path("to-b")).unwrap();
    symlink("../to-b/new", bench.path("a/dangling")).unwrap();
    symlink("loop", bench.path("loop")).unwrap();
    symlink("/etc", bench.path("out")).unwrap();
    let machine = machine(Vec::new());
    for (path, real) in [
        ("to-b/file", "a/b/file"),
        ("to-b/x/y", "a/b/x/y"),
        ("to-b/../x", "a/x"),
        ("to-b/..", "a"),
        ("a/dangling", "a/b/new"),
        ("a/dangling/more", "a/b/new/more"),
        ("missing/../x", "missing"),
        ("a/./b//file", "a/b/file"),
        ("a/b/file/x", "a/b/file/x"),
    ] {
        assert_eq!(machine.real_path(&bench.path("").join(path)), bench.path(real), "{path}");
    }
    assert_eq!(machine.real_path(&bench.path("out/nothing/here")), Path::new("/etc/nothing/here"));
    assert!(machine.real_path(&bench.path("loop/x")).starts_with(bench.path("loop")));
    for own in ["/dev/stdin", "/proc/self/cwd/x", "/dev/fd/3"] {
        assert_eq!(machine.real_path(Path::new(own)), Path::new(own));
    }
}

#[test]
fn kinds_are_told_through_links() {
    let bench = Bench::new();
    bench.write("dir/file", "x");
    symlink("dir", bench.path("link")).unwrap();
    symlink("nothing", bench.path("dangling")).unwrap();
    let machine = machine(Vec::new());
    let kind = |path: &str| machine.kind(&bench.path(path));
    assert_eq!((kind("link"), kind("link/file")), (PathKind::Directory, PathKind::File));
    assert_eq!((kind("dangling"), kind("dir/none")), (PathKind::Missing, PathKind::Missing));
    assert_eq!(machine.kind(Path::new("/dev/null")), PathKind::Other);
}

#[test]
fn a_harmless_repository_has_no_programs() {
    let bench = Bench::new();
    assert_eq!(bench.programs(""), Vec::<String>::new(), "no repository");
    bench.repository("r").git("r", &["config", "user.name", "x; y"]);
    bench.git("r", &["remote", "add", "origin", "https://example.test/x"]);
    fs::create_dir_all(bench.path("r/deep/er")).unwrap();
    assert_eq!(bench.programs("r/deep/er"), Vec::<String>::new());
}

#[test]
fn settings_written_by_git_are_found_from_anywhere_in_the_repository() {
    let bench = Bench::new();
    bench.repository("r");
    fs::create_dir_all(bench.path("r/deep/er")).unwrap();
    for (key, value) in [
        ("diff.z.command", "sh -c evil"),
        ("diff.a b.textconv", "evil"),
        ("filter.x.clean", "evil # not a comment"),
        ("merge.m.driver", "evil"),
    ] {
        bench.git("r", &["config", key, value]);
        assert!(bench.programs("r/deep/er").contains(&key.to_owned()), "{key}");
    }
    bench.git("r", &["config", "extensions.worktreeConfig", "true"]);
    bench.git("r", &["config", "--worktree", "diff.w.textconv", "evil"]);
    assert!(bench.programs("r").contains(&"diff.w.textconv".to_owned()));
}

#[test]
fn hooks_of_reading_commands_count_wherever_they_are() {
    let bench = Bench::new();
    bench.repository("r");
    bench.program("r/.git/hooks/pre-commit");
    assert_eq!(bench.programs("r"), Vec::<String>::new(), "no reading command runs it");
    bench.program("r/.git/hooks/post-index-change");
    assert_eq!(bench.programs("r").len(), 1);
    fs::remove_file(bench.path("r/.git/hooks/post-index-change")).unwrap();
    bench.git("r", &["config", "core.hooksPath", "own/hooks"]);
    fs::create_dir_all(bench.path("r/deep")).unwrap();
    assert_eq!(bench.programs("r/deep"), Vec::<String>::new());
    bench.program("r/own/hooks/post-index-change");
    assert_eq!(bench.programs("r/deep").len(), 1, "relative to the top of the worktree");
    bench.git("r", &["config", "core.hooksPath", "~/hooks"]);
    assert_eq!(bench.programs("r").len(), 1, "another home is not known");
}

#[test]
fn includes_are_followed_whatever_their_condition() {
    let bench = Bench::new();
    bench.repository("r").git("r", &["config", "include.path", "../inc/one"]);
    bench.write("r/inc/one", "[includeIf \"gitdir:/never\"]\n\tpath = two\n[include]\n\tpath = one\n");
    bench.write("r/inc/two", "[diff \"x\"]\n\tcommand = evil\n");
    assert_eq!(bench.programs("r"), ["diff.x.command"]);
    bench.write("r/inc/two", "[include]\n\tpath = ~/config\n");
    assert_eq!(bench.programs("r").len(), 1, "what is in another home is not known");
    bench.write("r/inc/two", "[include]\n\tpath = missing\n");
    assert_eq!(bench.programs("r"), Vec::<String>::new());
}

#[test]
fn worktrees_and_bare_repositories_are_found() {
    let bench = Bench::new();
    bench.repository("r").git("r", &["config", "diff.z.command", "evil"]);
    bench.git("r", &["worktree", "add", "-q", "../linked"]);
    assert_eq!(bench.programs("linked"), ["diff.z.command"], "by way of `commondir`");
    bench.git("", &["clone", "-q", "--bare", "r", "bare"]);
    bench.git("bare", &["config", "diff.b.command", "evil"]);
    assert_eq!(bench.programs("bare"), ["diff.b.command"]);
    assert_eq!(bench.programs("bare/refs/heads"), ["diff.b.command"]);
    for (name, content) in
        [("HEAD", "ref: refs/heads/main\n"), ("config", "[diff \"p\"]\n\ttextconv = evil\n")]
    {
        bench.write(&format!("planted/{name}"), content);
    }
    for name in ["objects", "refs"] {
        fs::create_dir_all(bench.path("planted").join(name)).unwrap();
    }
    assert_eq!(bench.programs("planted"), ["diff.p.textconv"]);
}

/// Git takes the repository above a directory that only looks like one, so its settings count and its files are printed.
#[test]
fn a_directory_that_only_looks_like_a_repository_hides_none() {
    let bench = Bench::new();
    bench.repository("r").git("r", &["config", "diff.z.command", "evil"]);
    let fake = |name: &str, head: &str| {
        bench.write(&format!("r/{name}/HEAD"), head);
        for table in ["objects", "refs"] {
            fs::create_dir_all(bench.path("r").join(name).join(table)).unwrap();
        }
        bench.programs(&format!("r/{name}"))
    };
    for (name, head) in [("words", "garbage\n"), ("elsewhere", "ref: heads/main\n"), ("short", "0123\n")] {
        let found = fake(name, head);
        assert!(found.iter().any(|setting| setting == "diff.z.command"), "{name}: {found:?}");
    }
    assert_eq!(fake("valid", "ref: refs/heads/main\n"), Vec::<String>::new(), "git stops at a real one");
}

/// What git itself takes at a directory that looks like a repository decides whether the one above counts.
#[test]
fn a_repository_is_recognised_where_git_recognises_it() {
    type Layout = fn(&Path);
    let layouts: &[(&str, Layout)] = &[
        ("valid", |_| {}),
        ("digest", |git| fs::write(git.join("HEAD"), "0123456789012345678901234567890123456789\n").unwrap()),
        ("garbage", |git| fs::write(git.join("HEAD"), "garbage\n").unwrap()),
        ("no HEAD", |git| fs::remove_file(git.join("HEAD")).unwrap()),
        ("link to a ref", |git| link("refs/heads/x", &git.join("HEAD"))),
        ("link elsewhere", |git| link("heads/x", &git.join("HEAD"))),
        ("no objects", |git| fs::remove_dir(git.join("objects")).unwrap()),
        ("no refs", |git| fs::remove_dir(git.join("refs")).unwrap()),
        ("link as objects", |git| {
            fs::remove_dir(git.join("objects")).unwrap();
            link("missing", &git.join("objects"));
        }),
        ("itself", |git| fs::write(git.join("commondir"), ".\n").unwrap()),
        ("common elsewhere", |git| {
            let above = git.ancestors().find(|above| above.ends_with("r")).unwrap().join(".git");
            fs::write(git.join("commondir"), above.to_str().unwrap()).unwrap();
            fs::remove_dir(git.join("refs")).unwrap();
        }),
        ("common missing", |git| fs::write(git.join("commondir"), "../missing\n").unwrap()),
    ];
    for is_bare in [true, false] {
        for (name, prepare) in layouts {
            let bench = Bench::new();
            bench.repository("r").git("r", &["config", "diff.above.command", "evil"]);
            let directory = bench.path("r/inner");
            let git = if is_bare { directory.clone() } else { directory.join(".git") };
            for table in ["objects", "refs"] {
                fs::create_dir_all(git.join(table)).unwrap();
            }
            fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
            prepare(&git);
            let found = bench.programs("r/inner");
            let is_above = found.iter().any(|setting| setting == "diff.above.command");
            // Its common directory has the configuration of the one above.
            let shares = *name == "common elsewhere";
            assert_eq!(is_above, shares || bench.git_takes_above("r/inner"), "{name}: {found:?}");
            let tracked = machine(Vec::new()).git_tracked(&directory);
            assert!(
                !bench.git_takes_above("r/inner") || tracked.is_none_or(|files| !files.is_empty()),
                "{name}"
            );
        }
    }
    let bench = Bench::new();
    bench.repository("r").write("r/.git/commondir", ".\n");
    bench.git("r", &["status"]);
    assert_eq!(bench.programs("r"), Vec::<String>::new());
    assert!(machine(Vec::new()).git_tracked(&bench.path("r")).is_some());
}

/// Without an index git prints files of commits that it finds elsewhere.
#[test]
fn only_a_repository_without_objects_needs_no_index() {
    let bench = Bench::new();
    bench.repository("full");
    let tracked = |name: &str| machine(Vec::new()).git_tracked(&bench.path(name));
    type Change = fn(&Bench, &Path);
    let elsewhere: [(&str, Change); 4] = [
        ("common", |bench, git| {
            fs::write(git.join("commondir"), bench.path("full/.git").as_os_str().as_bytes()).unwrap()
        }),
        ("alternates", |bench, git| {
            let store = bench.path("full/.git/objects");
            fs::write(git.join("objects/info/alternates"), store.as_os_str().as_bytes()).unwrap();
        }),
        ("linked", |bench, git| {
            fs::remove_dir_all(git.join("objects")).unwrap();
            symlink(bench.path("full/.git/objects"), git.join("objects")).unwrap();
        }),
        ("packs", |bench, git| {
            fs::remove_dir(git.join("objects/pack")).unwrap();
            symlink(bench.path("full/.git/objects/pack"), git.join("objects/pack")).unwrap();
        }),
    ];
    for (name, change) in elsewhere {
        fs::create_dir(bench.path(name)).unwrap();
        bench.git(name, &["init", "-q"]);
        assert_eq!(tracked(name), Some(Vec::new()), "{name}");
        change(&bench, &bench.path(name).join(".git"));
        assert_eq!(tracked(name), None, "{name}");
    }
}

fn link(target: &str, name: &Path) {
    let _absent = fs::remove_file(name);
    symlink(target, name).unwrap();
}

/// `git diff` refreshes the index, which runs a hook.
#[test]
fn the_hook_of_reading_commands_is_found_wherever_it_is() {
    let found = |prepare: &dyn Fn(&Bench)| {
        let bench = Bench::new();
        bench.repository("w");
        prepare(&bench);
        bench.programs("w")
    };
    let harmless: [&dyn Fn(&Bench); 2] = [
        &|bench| {
            bench.program("w/.git/hooks/pre-commit");
        },
        &|bench| {
            bench.git("w", &["config", "core.hooksPath", "h"]);
        },
    ];
    for prepare in harmless {
        assert_eq!(found(prepare), Vec::<String>::new());
    }
    let hooked: [&dyn Fn(&Bench); 4] = [
        &|bench| {
            bench.program("w/.git/hooks/post-index-change");
        },
        &|bench| {
            bench.git("w", &["config", "core.hooksPath", "h"]).program("w/h/post-index-change");
        },
        &|bench| {
            bench.git("w", &["config", "core.hooksPath", "~/h"]);
        },
        &|bench| {
            let hook = bench.program("elsewhere/post-index-change");
            bench.git("w", &["config", "core.hooksPath", hook.parent().unwrap().to_str().unwrap()]);
        },
    ];
    for prepare in hooked {
        assert_eq!(found(prepare).len(), 1, "{:?}", found(prepare));
    }
}

#[test]
fn submodules_in_the_index_count() {
    for version in ["2", "4"] {
        let bench = Bench::new();
        bench.repository("lib").repository("super");
        bench.git("super", &["update-index", "--index-version", version]);
        bench.git("super", &["submodule", "add", "-q", "../lib", "third/party"]);
        assert_eq!(bench.programs("super"), Vec::<String>::new(), "version {version}");
        bench.git("super/third/party", &["config", "diff.s.command", "evil"]);
        assert_eq!(bench.programs("super"), ["diff.s.command"], "version {version}");
        // A submodule that only the index knows, in a repository inside the worktree.
        bench.repository("super/own").git("super/own", &["config", "filter.o.smudge", "evil"]);
        assert_eq!(bench.programs("super"), ["diff.s.command"], "not in the index yet");
        bench.git("super", &["add", "own"]);
        let mut found = bench.programs("super");
        found.sort();
        assert_eq!(found, ["diff.s.command", "filter.o.smudge"], "version {version}");
        bench.git("super", &["update-index", "--split-index"]);
        assert_eq!(bench.programs("super").len(), 2, "split index, version {version}");
    }
}

/// Git takes an entry for a submodule by the upper bits of its mode, and in a split index by those of an entry without a name.
#[test]
fn submodules_that_an_index_hides_count() {
    let replaced = |content: &[u8], from: &[u8], to: &[u8]| {
        let at = content.windows(from.len()).position(|part| part == from).unwrap();
        [&content[..at], to, &content[at + from.len()..]].concat()
    };
    let bench = Bench::new();
    bench.repository("super").repository("super/own").git("super", &["add", "own"]);
    bench.git("super/own", &["config", "filter.o.clean", "evil"]);
    let index = bench.path("super/.git/index");
    let content = fs::read(&index).unwrap();
    fs::write(&index, replaced(&content, &[0, 0, 0xe0, 0], &[0, 0, 0xe1, 0xa4])).unwrap();
    assert_eq!(bench.programs("super"), ["filter.o.clean"]);

    fs::write(&index, &content).unwrap();
    bench.git("super", &["update-index", "--split-index"]);
    bench.write("super/own/more", "x").pop();
    bench.git("super/own", &["add", "more"]).git("super/own", &["commit", "-qm", "two"]);
    bench.git("super", &["add", "own"]);
    let found = bench.programs("super");
    assert!(found.iter().any(|found| found.contains("index")) || found == ["filter.o.clean"], "{found:?}");
    let shared = fs::read_dir(bench.path("super/.git")).unwrap().flatten().map(|entry| entry.path());
    let shared = shared.into_iter().find(|path| path.to_str().unwrap().contains("sharedindex.")).unwrap();
    let content = fs::read(&shared).unwrap();
    fs::write(&shared, replaced(&content, &[0, 0, 0xe0, 0], &[0, 0, 0x81, 0xa4])).unwrap();
    let found = bench.programs("super");
    assert!(found.iter().any(|found| found.contains("cannot read the index")), "{found:?}");
}

#[test]
fn submodules_count_whatever_the_digest() {
    let bench = Bench::new();
    bench.repository("super").git("super", &["init", "-q", "--object-format=sha256", "new"]);
    bench.git("super/new", &["init", "-q", "--object-format=sha256", "own"]);
    bench.git("super/new/own", &["commit", "-q", "--allow-empty", "-m", "x"]);
    bench.git("super/new/own", &["config", "filter.o.clean", "evil"]);
    assert_eq!(bench.programs("super/new"), Vec::<String>::new(), "not in the index yet");
    bench.git("super/new", &["add", "own"]);
    assert_eq!(bench.programs("super/new"), ["filter.o.clean"]);
}

#[test]
fn a_worktree_that_is_elsewhere_is_a_reason() {
    let bench = Bench::new();
    bench.repository("r").git("r", &["config", "core.worktree", ".."]);
    assert_eq!(bench.programs("r"), Vec::<String>::new(), "its own directory");
    bench.git("r", &["config", "core.worktree", "../.."]);
    assert_eq!(bench.programs("r"), ["core.worktree"]);
}

#[test]
fn a_directory_that_cannot_be_entered_is_none() {
    let bench = Bench::new();
    let directory = bench.path("shut");
    fs::create_dir_all(&directory).unwrap();
    assert_eq!(machine(Vec::new()).kind(&directory), PathKind::Directory);
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(machine(Vec::new()).kind(&directory), PathKind::Other);
}

#[test]
fn what_cannot_be_told_is_a_reason() {
    let large = format!("[x]\n{}", "y = z\n".repeat(200_000));
    for (path, content) in [
        ("r/.git/config", "[core\n"),
        ("r/.git/config", "[a]\n\tb = \\q\n[diff \"x\"]\n\tcommand = evil\n"),
        ("r/.git/config", large.as_str()),
        ("r/.git/config.worktree", "!\n"),
        ("r/.git/index", "not an index \0\0\u{0}\n"),
        ("wt/.git", "something else\n"),
    ] {
        let bench = Bench::new();
        bench.repository("r");
        if path == "r/.git/index" {
            fs::write(bench.path(path), [b"junk".as_slice(), &[0, 0, 0xe0, 0], b"junk"].concat()).unwrap();
        } else {
            bench.write(path, content);
        }
        let found = bench.programs(path.split('/').next().unwrap());
        assert!(found.iter().any(|reason| reason.contains("cannot")), "{path}: {found:?}");
    }
    let bench = Bench::new();
    bench.repository("r");
    fs::remove_file(bench.path("r/.git/config")).unwrap();
    fs::create_dir(bench.path("r/.git/config")).unwrap();
    assert!(!bench.programs("r").is_empty(), "a directory instead of a file");
    fs::remove_dir(bench.path("r/.git/config")).unwrap();
    let fifo = bench.path("r/.git/config");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(!bench.programs("r").is_empty(), "a pipe instead of a file, without waiting for it");
    let bench = Bench::new();
    bench.repository("r");
    let fifo = bench.path("r/.git/index");
    fs::remove_file(&fifo).unwrap();
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(!bench.programs("r").is_empty(), "a pipe instead of an index, without waiting for it");
}
