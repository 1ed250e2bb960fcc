//! Commands work on a copy-on-write view of their roots: everything works in it, and nothing of it reaches the host.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence_sandbox::{LayerMountPaths, LayerSource, UnsupportedFeature};
use ringfence_types::{Control, ControlLevel};

use super::*;

const SECRET: &str = "hunter2-in-the-layer";

/// Hides `.env` and protects what the rules of a policy would.
struct LayerRules;

impl SurveyRules for LayerRules {
    fn judge(&self, relative: &Path) -> PathDecision {
        if relative.file_name().is_some_and(|name| name == ".env") {
            PathDecision::Hidden
        } else {
            PathDecision::Open
        }
    }
    fn protected_at_root(&self) -> &[&str] {
        &[".claude", ".git", ".mcp.json", ".vscode"]
    }
    fn protected_anywhere(&self) -> &[&str] {
        &[".claude", ".vscode"]
    }
    fn is_protected(&self, _relative: &Path) -> bool {
        false
    }
}

/// Directories next to the roots, as the layer of a transaction has them.
#[derive(Debug)]
struct TestLayer {
    place: PathBuf,
    works: AtomicUsize,
}

impl TestLayer {
    fn at(place: PathBuf) -> Arc<Self> {
        Arc::new(Self { place, works: AtomicUsize::new(0) })
    }

    fn upper(&self, root: &Path) -> PathBuf {
        let name = root.as_os_str().to_str().unwrap().replace('/', "_");
        self.place.join(name).join("upper")
    }
}

impl LayerSource for TestLayer {
    fn mount_of(&self, root: &Path) -> io::Result<LayerMountPaths> {
        let upper = self.upper(root);
        fs::create_dir_all(&upper)?;
        fs::set_permissions(&upper, fs::metadata(root)?.permissions())?;
        let number = self.works.fetch_add(1, Ordering::Relaxed);
        let work = upper.with_file_name(format!("work.{number}"));
        fs::create_dir(&work)?;
        Ok(LayerMountPaths { upper, work })
    }
}

/// A world whose workspace is layered.
struct LayeredWorld {
    world: World,
    layer: Arc<TestLayer>,
}

impl Drop for LayeredWorld {
    fn drop(&mut self) {
        open_work_directories(&self.world.path(""));
    }
}

/// The kernel leaves directories without permissions in each work directory.
fn open_work_directories(place: &Path) {
    for path in fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()) {
        if !fs::symlink_metadata(&path).unwrap().is_dir() {
            continue;
        }
        if path
            .components()
            .any(|part| part.as_os_str().to_str().is_some_and(|name| name.starts_with("work.")))
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        open_work_directories(&path);
    }
}

impl LayeredWorld {
    fn new() -> Self {
        let world = World::new();
        let layer = TestLayer::at(world.path("layers"));
        Self { world, layer }
    }

    fn spec(&self) -> SandboxSpec {
        SandboxSpec { layer: Some(self.layer.clone()), ..self.world.spec() }
    }

    fn start(&self) -> Sandbox {
        Sandbox::start(&self.spec(), &LayerRules).unwrap()
    }

    fn workspace(&self) -> PathBuf {
        self.world.path("workspace")
    }

    fn upper(&self) -> PathBuf {
        self.layer.upper(&self.workspace())
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.workspace().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Runs a script that must succeed.
    fn sh(&self, session: &mut Sandbox, script: &str) -> String {
        let (finished, output) = run(session, &self.world.sh(&format!("exec 2>&1; {script}"))).unwrap();
        assert_eq!(finished.exit.code(), 0, "{script}\n{output}");
        output
    }

    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(self.workspace()).env_clear().env("PATH", "/usr/bin:/bin");
        git.env("HOME", self.world.path("home")).env("GIT_CONFIG_NOSYSTEM", "1");
        let done = git.args::<[&str; 0], &str>([]).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Kind, mode, size, inode and content of everything below a directory.
fn snapshot(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![directory.to_owned()];
    while let Some(path) = ahead.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let kind = metadata.file_type();
        let content = if kind.is_dir() {
            ahead.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        } else if kind.is_symlink() {
            format!("{:?}", fs::read_link(&path).unwrap())
        } else if kind.is_file() {
            format!("{:?}", fs::read(&path).ok())
        } else {
            "special".to_owned()
        };
        let text =
            format!("{:o} {} {:?} {content}", metadata.mode(), metadata.ino(), metadata.modified().unwrap());
        found.insert(path, text);
    }
    found
}

fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == 0)
}

/// Every file below a directory that holds these bytes.
fn holding(directory: &Path, bytes: &str) -> Vec<PathBuf> {
    open_work_directories(directory);
    let found = snapshot(directory).into_keys().filter(|path| path.is_file());
    found
        .filter(|path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).contains(bytes))
        .collect()
}

const CHANGES: &str = "echo new > made; echo more >> kept; rm gone; mv moved dir/arrived; mkdir -p a/b; echo x > a/b/c; \
                       rm -r tree; mkdir tree; echo y > tree/fresh; ln -s /nowhere link; chmod 700 mode; : > emptied";

fn before_changes(world: &LayeredWorld) {
    for name in
        ["kept", "gone", "moved", "dir/in", "tree/old", "tree/below/old", "mode", "emptied", "untouched"]
    {
        world.write(name, &format!("{name} of the host\n"));
    }
}

#[test]
fn changes_are_in_the_upper_directory_and_not_on_the_host() {
    let world = LayeredWorld::new();
    before_changes(&world);
    let before = snapshot(&world.workspace());
    let mut session = world.start();
    assert_eq!(snapshot(&world.workspace()), before, "nothing is put on the host while a session runs");
    world.sh(&mut session, CHANGES);
    let seen = world.sh(
        &mut session,
        "cat made kept dir/arrived a/b/c tree/fresh; ls; ls tree; stat -c %a mode; readlink link",
    );
    drop(session);
    assert_eq!(snapshot(&world.workspace()), before, "nothing of it reached the host");
    assert!(seen.starts_with("new\nkept of the host\nmore\nmoved of the host\nx\ny\n"), "{seen}");
    assert!(seen.ends_with("fresh\n700\n/nowhere\n") && !seen.contains("gone"), "{seen}");
    let upper = world.upper();
    assert_eq!(fs::read_to_string(upper.join("made")).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(upper.join("kept")).unwrap(), "kept of the host\nmore\n");
    assert!(is_whiteout(&upper.join("gone")) && is_whiteout(&upper.join("moved")));
    assert_eq!(fs::read_to_string(upper.join("dir/arrived")).unwrap(), "moved of the host\n");
    assert!(upper.join("tree/fresh").is_file() && !upper.join("tree/old").exists());
    assert!(!upper.join("untouched").exists());
    // The control: the same without a layer.
    let mut direct = world.world.start();
    world.sh(&mut direct, CHANGES);
    drop(direct);
    assert_ne!(snapshot(&world.workspace()), before);
}

#[test]
fn a_second_command_sees_what_the_first_one_made() {
    let world = LayeredWorld::new();
    let mut session = world.start();
    world.sh(&mut session, "echo one > f; mkdir d");
    world.sh(&mut session, "echo two >> f; mv f d/f");
    assert_eq!(world.sh(&mut session, "cat d/f; ls"), "one\ntwo\nd\n");
    drop(session);
    // Another view of the same layer shows it too, and another layer does not.
    assert_eq!(world.sh(&mut world.start(), "cat d/f"), "one\ntwo\n");
    assert_eq!(fs::read_dir(world.workspace()).unwrap().count(), 0);
}

const PROTECTED: &str = "set -e; echo '#!/bin/sh' > .git/hooks/post-commit; chmod +x .git/hooks/post-commit; \
     git config core.fsmonitor /tmp/x; mkdir -p .vscode .claude sub/.vscode; echo '{}' > .vscode/settings.json; \
     echo '{}' > .mcp.json; echo '{}' > .claude/settings.json; echo x > sub/.vscode/tasks.json; echo y > .gitmodules; \
     mv .git/hooks .git/other; mkdir .git/hooks; echo z > .git/hooks/pre-push";

#[test]
fn protected_paths_can_be_changed_in_the_view_and_stay_as_they_are_on_the_host() {
    let world = LayeredWorld::new();
    world.git(&["init", "-q"]);
    world.write(".vscode/settings.json", "the host's");
    world.write("sub/file", "");
    let before = snapshot(&world.workspace());
    let mut session = world.start();
    world.sh(&mut session, PROTECTED);
    assert_eq!(
        world.sh(&mut session, "git config core.fsmonitor; cat .vscode/settings.json"),
        "/tmp/x\n{}\n"
    );
    assert_eq!(snapshot(&world.workspace()), before, "while the session runs");
    assert_eq!(session.take_held(), [], "nothing is held that did not land");
    drop(session);
    assert_eq!(snapshot(&world.workspace()), before);
    assert!(world.upper().join(".git/hooks/pre-push").is_file() && world.upper().join(".mcp.json").is_file());
    // The control: without a layer the first of these changes is refused.
    let mut direct = Sandbox::start(&world.world.spec(), &LayerRules).unwrap();
    let (refused, _) = run(&mut direct, &world.world.sh(PROTECTED)).unwrap();
    assert_ne!(refused.exit.code(), 0);
}

/// A repository whose configuration would run a program of the agent at the host's next `git status`, were it to land.
#[test]
fn what_would_be_held_on_the_host_stays_untouched_in_the_view() {
    let world = LayeredWorld::new();
    let mut session = world.start();
    world.sh(&mut session, "git init -q made && git -C made config core.fsmonitor ./evil");
    assert_eq!(world.sh(&mut session, "git -C made config core.fsmonitor"), "./evil\n");
    assert_eq!(session.take_held(), []);
    drop(session);
    assert!(!world.workspace().join("made").exists());
    assert!(fs::read_to_string(world.upper().join("made/.git/config")).unwrap().contains("evil"));
}

/// Ways to a hidden file. Each ends by reading wherever the file could be by then.
const WAYS_TO_SECRET: &[&str] = &[
    "true",
    "ln conf/.env x; ln -P conf/.env y",
    "mv conf moved",
    "python3 -c 'import os; os.rename(\"conf\", \"moved\")'",
    "cp -r conf copy; cp -al conf links; tar c conf | tar x -C /tmp",
    "rm -rf conf; mkdir conf",
    "mkdir other; python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b\"conf\", -100, b\"other\", 2)'",
    "mv conf/.env x; mv -f conf/other conf/.env",
    "chmod 777 conf conf/.env; chmod -R a+rwx conf; touch conf conf/.env; echo >> conf/.env",
    "ln -s conf/.env x; ln -s conf moved",
    "exec 3< conf; cat /proc/self/fd/3/.env; cd conf; cat .env; cd ..",
    "mkdir moved; python3 -c 'import os\nfor p, n, v in [(\"conf\", \"opaque\", b\"y\"), (\"conf\", \"redirect\", b\"/top\"), (\"moved\", \"redirect\", \
     b\"/conf\"), (\"moved\", \"overlay.redirect\", b\"/conf\"), (\"moved\", \"origin\", b\"\")]: os.setxattr(p, \"user.overlay.\" + n, v)'",
    "touch moved; python3 -c 'import os\nfor n, v in [(\"metacopy\", b\"\"), (\"redirect\", b\"/conf/.env\")]: os.setxattr(\"moved\", \
     \"user.overlay.\" + n, v)'",
    "rm -f conf/other; mknod conf/other c 0 0; mknod conf/.env c 0 0",
    "mv top/conf moved; mv top moved",
    "python3 -c 'import os,mmap; f = os.open(\"conf/.env\", os.O_RDWR); os.ftruncate(f, 3)'",
    "git init -q . ; git add -f conf; git show :conf/.env; git stash",
];

const READ_ANYWHERE: &str = "cat conf/.env x y z alias copy/.env links/.env moved moved/.env moved/conf/.env other/.env top/conf/.env \
     conf/other /tmp/conf/.env 2>/dev/null; grep -rs hunter2 . /tmp; true";

#[test]
fn hidden_files_stay_hidden_in_the_view() {
    for attempt in WAYS_TO_SECRET {
        let world = LayeredWorld::new();
        let host = |path: &str| world.write(path, &format!("{SECRET}\n"));
        host("conf/.env");
        host("top/conf/.env");
        world.write("conf/other", "open\n");
        fs::hard_link(world.workspace().join("conf/.env"), world.workspace().join("alias")).unwrap();
        let script = format!("{{ {attempt}; }} 2>/dev/null; {READ_ANYWHERE}");
        let before = snapshot(&world.workspace());
        let mut session = world.start();
        for _ in 0..2 {
            let (_, output) = run(&mut session, &world.world.sh(&script)).unwrap();
            assert!(!output.contains(SECRET), "{attempt}: {output}");
        }
        drop(session);
        assert_eq!(holding(&world.world.path("layers"), SECRET), Vec::<PathBuf>::new(), "{attempt}");
        assert_eq!(snapshot(&world.workspace()), before, "{attempt}");
        // The control: where nothing hides it, the same script reads it.
        let layer = TestLayer::at(world.world.path("control"));
        let open = SandboxSpec { layer: Some(layer), ..world.world.spec() };
        let (_, output) =
            run(&mut Sandbox::start(&open, &NoRules).unwrap(), &world.world.sh(&script)).unwrap();
        assert!(output.contains(SECRET), "{attempt}: {output}");
    }
}

/// An editor on the host replaces the hidden file by renaming another one over it.
#[test]
fn a_hidden_file_that_the_host_replaces_stays_hidden_in_the_view() {
    let world = LayeredWorld::new();
    world.write("conf/.env", "old");
    let mut session = world.start();
    let read = "cat conf/.env; true";
    world.sh(&mut session, read);
    for round in 0..3 {
        world.write("conf/new", SECRET);
        fs::rename(world.workspace().join("conf/new"), world.workspace().join("conf/.env")).unwrap();
        let output = world.sh(&mut session, &format!("{read}; sleep 0.06; {read}"));
        assert!(!output.contains(SECRET), "{round}: {output}");
    }
    fs::remove_file(world.workspace().join("conf/.env")).unwrap();
    world.write("conf/.env", SECRET);
    let output = world.sh(&mut session, &format!("{read}; sleep 0.06; {read}"));
    assert!(!output.contains(SECRET), "{output}");
}

#[test]
fn a_whiteout_can_be_made_on_the_host_and_not_in_the_view() {
    let world = LayeredWorld::new();
    world.write("victim", "here");
    // The control: this user may make one outside. Where a hidden name is one, there is nothing to mask.
    for name in ["outside", ".env"] {
        let path = world.workspace().join(name);
        let made = Command::new("mknod").arg(&path).args(["c", "0", "0"]).status().unwrap();
        assert!(made.success() && is_whiteout(&path));
    }
    let mut session = world.start();
    let tried = "rm -f victim; for p in victim inside .env; do mknod $p c 0 0; echo $?; done; \
                 python3 -c 'import os, stat\ntry: os.mknod(\"inside\", stat.S_IFCHR, 0)\nexcept OSError as e: print(e.errno)'";
    let output = world.sh(&mut session, tried);
    let lines: Vec<&str> = output.lines().filter(|line| !line.contains("mknod")).collect();
    assert_eq!(lines, ["1", "1", "1", "1"], "{output}");
    drop(session);
    assert!(is_whiteout(&world.upper().join("victim")), "its removal is one");
    assert!(!world.upper().join("inside").exists() && !world.upper().join(".env").exists());
}

#[test]
fn no_way_leads_to_the_directories_of_the_layer() {
    let world = LayeredWorld::new();
    world.write("f", "host");
    let mut session = world.start();
    world.sh(&mut session, "echo in-the-upper > made");
    fs::write(world.upper().with_file_name("layer-marker"), "").unwrap();
    fs::write(world.upper().join("upper-marker"), "").unwrap();
    let layers = world.world.path("layers");
    let layers = layers.to_str().unwrap();
    let tries = format!(
        "ls -d {layers} {layers}/.. ; cd {layers}; find / -name layer-marker; cat /proc/self/mountinfo | grep layers; \
         for p in /proc/[0-9]*; do ls $p/root/{layers} $p/cwd/../layers; for f in $p/fd/*; do readlink $f; ls -d $f/../layers; done; done; \
         ls ../layers ../../layers; echo x > {layers}/escaped; echo x > ../layers/escaped"
    );
    let (_, output) = run(&mut session, &world.world.sh(&tries)).unwrap();
    assert!(!output.contains("layer"), "{output}");
    // The control: a root that shows the layer does so, and is refused with a layer in it.
    let open = Root { path: ByteString::from(world.world.path("layers")), access: Access::Read };
    let mut spec = world.world.spec();
    spec.roots.push(open);
    let (_, output) = run(&mut Sandbox::start(&spec, &NoRules).unwrap(), &world.world.sh(&tries)).unwrap();
    assert!(output.contains("layer-marker"), "{output}");
    spec.layer = Some(world.layer.clone());
    let reason = refused(&spec);
    assert!(reason.contains("workspace` cannot have a layer: the layer's own directory is in"), "{reason}");
    // Nothing above a root is reachable either, and the lower directory is not writable by another way.
    let (_, output) =
        run(&mut session, &world.world.sh("cd ..; pwd; ls; ls /proc/1/root/; ls -l /proc/1/fd")).unwrap();
    assert!(!output.contains("registry") && !output.contains("layers"), "{output}");
    assert_eq!(fs::read_to_string(world.workspace().join("f")).unwrap(), "host");
    assert!(!world.workspace().join("made").exists());
}

/// The refusal for a layer that cannot be made; nothing ran.
fn refused(spec: &SandboxSpec) -> String {
    let error = Sandbox::start(spec, &NoRules).unwrap_err();
    let what = matches!(error, SandboxStartError::Unsupported { what: UnsupportedFeature::Layer, .. });
    assert!(what && error.hint().is_some(), "{error:?}");
    assert!(!error.is_about_this_machine() && !error.is_transient());
    error.to_string()
}

/// A name that would have a meaning among mount options.
const SECOND: &str = "se:co,nd \\x";

#[test]
fn two_roots_and_a_root_in_a_root_have_a_layer_each() {
    let world = LayeredWorld::new();
    let roots =
        [(SECOND, Access::Write), ("workspace/inner", Access::Write), ("workspace/shown", Access::Read)];
    let mut spec = world.spec();
    for (name, access) in roots {
        fs::create_dir_all(world.world.path(name)).unwrap();
        fs::write(world.world.path(name).join("f"), name).unwrap();
        spec.roots.push(Root { path: ByteString::from(world.world.path(name)), access });
    }
    fs::create_dir_all(world.world.path("readable/deep")).unwrap();
    for (name, access) in [("readable", Access::Read), ("readable/deep", Access::Write)] {
        spec.roots.push(Root { path: ByteString::from(world.world.path(name)), access });
    }
    let hosts: Vec<PathBuf> = ["workspace", SECOND, "readable"].map(|name| world.world.path(name)).into();
    let before: Vec<_> = hosts.iter().map(|host| snapshot(host)).collect();
    let mut session = Sandbox::start(&spec, &LayerRules).unwrap();
    let script = "echo o > outer; echo i > inner/f; echo s > '../se:co,nd \\x/f'; echo d > ../readable/deep/f; \
                  ! echo no > shown/f; ! echo no > ../readable/f; cat outer inner/f '../se:co,nd \\x/f' ../readable/deep/f shown/f";
    let output = world.sh(&mut session, script);
    assert!(output.ends_with("o\ni\ns\nd\nworkspace/shown"), "{output}");
    drop(session);
    assert_eq!(hosts.iter().map(|host| snapshot(host)).collect::<Vec<_>>(), before);
    let upper = |name: &str| world.layer.upper(&world.world.path(name));
    let read = |name: &str, file: &str| fs::read_to_string(upper(name).join(file)).unwrap();
    assert_eq!((read("workspace", "outer"), read("workspace/inner", "f")), ("o\n".into(), "i\n".into()));
    assert_eq!((read(SECOND, "f"), read("readable/deep", "f")), ("s\n".into(), "d\n".into()));
    assert!(!upper("workspace").join("inner/f").exists(), "what is in the inner root is in its own layer");
    assert!(!upper("workspace/shown").exists() && !upper("readable").exists());
}

const GIT: &str = "set -e; export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'; \
     git config user.name A; git config user.email a@b; git remote add up /nowhere; git checkout -q -b topic; \
     mkdir -p src .vscode; echo a > src/a; echo v > .vscode/settings.json; git add -A; git commit -qm one; \
     git checkout -q -; git checkout -q -b other; echo c > c; git add c; git commit -qm two; git merge -q topic -m three; \
     git mv c d; git commit -qm four; git stash list; git branch -u topic; git tag v1; git gc -q; git worktree add -q wt topic; \
     git rebase -q topic; git rm -rq src; git commit -qm five; git checkout -q v1; git checkout -q main; git status --short; git branch -a";

const GIT_STATE: &str = "git log --all --format='%H %T %s' | sort; git remote -v; git config user.name; \
     git config branch.other.merge; git ls-files -s; git status --short; git stash list; git worktree list --porcelain | grep branch";

#[test]
fn git_works_in_the_view_as_it_does_without_a_fence() {
    let world = LayeredWorld::new();
    world.git(&["init", "-q", "-b", "main"]);
    world.write("first", "1");
    world.git(&["add", "."]);
    world.git(&["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "zero"]);
    let before = snapshot(&world.workspace());
    let mut session = world.start();
    let inside = world.sh(&mut session, &format!("{GIT}; {GIT_STATE}"));
    drop(session);
    assert_eq!(snapshot(&world.workspace()), before);
    // The control: the same repository, the same commands, no fence.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("exec 2>&1; {GIT}; {GIT_STATE}")]).current_dir(world.workspace());
    shell
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", world.world.path("home"))
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let outside = shell.output().unwrap();
    assert_eq!(inside, String::from_utf8(outside.stdout).unwrap());
    assert!(outside.status.success(), "{inside}");
}

/// A linked worktree: its repository is elsewhere, follows the workspace, and has a layer as well.
#[test]
fn a_repository_elsewhere_is_layered_with_its_worktree() {
    let world = LayeredWorld::new();
    let main = world.world.path("main");
    let script = format!(
        "git init -q -b main {0} && cd {0} && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m zero && \
         rmdir {1} && git worktree add -q -b topic {1}",
        main.display(),
        world.workspace().display()
    );
    let made = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let before = (snapshot(&world.workspace()), snapshot(&main));
    let mut session = world.start();
    world.sh(
        &mut session,
        "echo a > a; git add a; git -c user.name=A -c user.email=a@b commit -qm one; git config x.y z",
    );
    assert_eq!(world.sh(&mut session, "git log --format=%s; git config x.y"), "one\nzero\nz\n");
    drop(session);
    assert_eq!((snapshot(&world.workspace()), snapshot(&main)), before);
    assert!(world.layer.upper(&main.join(".git")).join("config").is_file());
}

/// KERNEL: a socket or FIFO in an overlay is another object than the one below it.
#[test]
fn sockets_and_fifos_of_the_host_do_not_answer_in_the_view() {
    let world = LayeredWorld::new();
    let early = UnixListener::bind(world.workspace().join("early")).unwrap();
    let mut session = world.start();
    let late = UnixListener::bind(world.workspace().join("late")).unwrap();
    let connect = "for s in early late; do python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' $s \
                   2>/dev/null && echo reached $s; done; true";
    let output = world.sh(&mut session, connect);
    assert_eq!(output, "");
    let ipc = session.posture().controls[&Control::Ipc].clone();
    assert!(matches!(ipc, ControlLevel::Enforced { .. }), "{ipc:?}");
    drop(session);
    // A control: without a view a socket that comes later is reached, unless Landlock tells it from the own ones.
    let mut direct = world.world.start();
    let _later = UnixListener::bind(world.workspace().join("later")).unwrap();
    let reached = world.sh(&mut direct, &connect.replace("early late", "later"));
    assert_eq!(reached == "reached later\n", ringfence_sandbox::landlock_abi() < Some(9), "{reached}");
    for (name, listener) in [("early", &early), ("late", &late)] {
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "{name}");
        // The control: outside both answer.
        UnixStream::connect(world.workspace().join(name)).unwrap();
        assert!(listener.accept().is_ok(), "{name}");
    }
}

#[test]
fn a_file_with_credentials_is_shown_without_them_in_the_view() {
    let world = LayeredWorld::new();
    world.git(&["init", "-q"]);
    world.git(&["remote", "add", "origin", &format!("https://user:{SECRET}@example.invalid/x")]);
    let mut session = world.start();
    let output =
        world.sh(&mut session, "cat .git/config; cp .git/config c; cat c; git config --get-regexp remote");
    assert!(!output.contains(SECRET) && output.contains("example.invalid"), "{output}");
    drop(session);
    assert_eq!(holding(&world.world.path("layers"), SECRET), Vec::<PathBuf>::new());
}

#[test]
fn only_the_native_backend_has_a_layer() {
    let world = LayeredWorld::new();
    let others =
        [Backend::Bubblewrap, Backend::Landlock, Backend::Container, Backend::External, Backend::None];
    for backend in others {
        let reason = refused(&SandboxSpec { backend, ..world.spec() });
        assert!(reason.contains("has no layer"), "{reason}");
    }
    let view = HostView::WholeMachine { hidden: Vec::new(), frozen: Vec::new() };
    assert!(refused(&SandboxSpec { view, ..world.spec() }).contains("danger"));
    assert!(!world.layer.place.exists(), "nothing was made");
}

#[test]
fn the_posture_says_that_roots_are_layered() {
    let world = LayeredWorld::new();
    let by = |session: &Sandbox| match &session.posture().controls[&Control::FsWrite] {
        ControlLevel::Enforced { by } => by.clone(),
        other => panic!("{other:?}"),
    };
    assert!(by(&world.start()).contains("a layer over each writable root"));
    assert!(!by(&world.world.start()).contains("layer"));
}

/// A layer whose directories cannot be mounted together, or not at all.
#[derive(Debug)]
struct BrokenLayer {
    upper: PathBuf,
    work: Option<PathBuf>,
}

impl LayerSource for BrokenLayer {
    fn mount_of(&self, _root: &Path) -> io::Result<LayerMountPaths> {
        let work = self.work.clone().ok_or(io::ErrorKind::StorageFull)?;
        Ok(LayerMountPaths { upper: self.upper.clone(), work })
    }
}

#[test]
fn a_root_that_cannot_be_mounted_is_refused_with_its_name_and_the_reason() {
    let world = LayeredWorld::new();
    world.write("f", "host");
    let upper = world.world.path("upper");
    fs::create_dir(&upper).unwrap();
    // The kernel takes no work directory inside of the upper one.
    fs::create_dir(upper.join("work")).unwrap();
    let work = Some(upper.join("work"));
    let spec =
        SandboxSpec { layer: Some(Arc::new(BrokenLayer { upper: upper.clone(), work })), ..world.spec() };
    let reason = refused(&spec);
    assert!(reason.contains("workspace` cannot have a layer: overlayfs does not take"), "{reason}");
    // A file is no root for a view.
    let file = Root { path: ByteString::from(world.workspace().join("f")), access: Access::Write };
    let reason =
        refused(&SandboxSpec { roots: vec![world.world.spec().roots.remove(0), file], ..world.spec() });
    assert!(reason.contains("f` cannot have a layer: it is no directory"), "{reason}");
    // That the layer itself fails is no refusal.
    let spec = SandboxSpec { layer: Some(Arc::new(BrokenLayer { upper, work: None })), ..world.spec() };
    match Sandbox::start(&spec, &LayerRules) {
        Err(SandboxStartError::Layer { root, .. }) => assert_eq!(root, world.workspace()),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_to_string(world.workspace().join("f")).unwrap(), "host");
}

/// Where the second process of a test works.
const PLACE: &str = "RINGFENCE_TEST_LAYER_PLACE";

/// In mounts of its own, which only a second process can have.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test that starts itself again tells it so")]
fn a_root_with_a_mount_in_it_and_a_layer_on_an_overlay_are_refused() {
    if let Some(place) = std::env::var_os(PLACE) {
        return refuse_mounts(Path::new(&place));
    }
    let world = World::new();
    for name in ["workspace/data", "layers", "lower", "work.outer"] {
        fs::create_dir(world.path(name)).unwrap();
    }
    let mounts = "cd \"$0\" && mount -t tmpfs t workspace/data && mount -t overlay o -o userxattr,lowerdir=lower,upperdir=layers,workdir=work.outer layers \
                  && exec \"$1\" --exact layer::a_root_with_a_mount_in_it_and_a_layer_on_an_overlay_are_refused --nocapture";
    let program = std::env::current_exe().unwrap();
    let mut apart = Command::new("unshare");
    apart.args(["-Urm", "sh", "-c", mounts]).arg(world.path("")).arg(program).env(PLACE, world.path(""));
    let done = apart.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && world.path("refused").exists(), "{said}");
    open_work_directories(&world.path(""));
}

fn refuse_mounts(place: &Path) {
    let world = World::at(place);
    let spec = |layers: &str| SandboxSpec { layer: Some(TestLayer::at(world.path(layers))), ..world.spec() };
    let reason = refused(&spec("beside"));
    assert!(reason.contains("workspace/data` is mounted in it"), "{reason}");
    assert!(Command::new("umount").arg(world.path("workspace/data")).status().unwrap().success());
    let reason = refused(&spec("layers"));
    assert!(reason.contains("overlayfs does not take its file system"), "{reason}");
    // The control: a layer elsewhere.
    let (finished, _) =
        run(&mut Sandbox::start(&spec("beside"), &NoRules).unwrap(), &world.sh("echo x > f")).unwrap();
    assert_eq!(finished.exit.code(), 0);
    assert!(!world.path("workspace/f").exists());
    fs::write(world.path("refused"), "").unwrap();
}

/// Puts a link in the place of the root when it is asked for directories.
#[derive(Debug)]
struct SwappingLayer {
    inner: Arc<TestLayer>,
    victim: PathBuf,
}

impl LayerSource for SwappingLayer {
    fn mount_of(&self, root: &Path) -> io::Result<LayerMountPaths> {
        let paths = self.inner.mount_of(root)?;
        fs::remove_dir(root)?;
        std::os::unix::fs::symlink(&self.victim, root)?;
        Ok(paths)
    }
}

#[test]
fn a_root_that_became_a_link_is_not_layered() {
    let world = LayeredWorld::new();
    let victim = world.world.path("victim");
    fs::create_dir(&victim).unwrap();
    let layer = Arc::new(SwappingLayer { inner: world.layer.clone(), victim });
    let started = Sandbox::start(&SandboxSpec { layer: Some(layer), ..world.spec() }, &LayerRules);
    assert!(
        matches!(started, Err(SandboxStartError::Step { errno: rustix::io::Errno::NOTDIR, .. })),
        "{started:?}"
    );
}

/// The modes of the root are those of its upper directory, and nothing else of the host's file system is changed by a start.
#[test]
fn the_view_has_the_mode_of_its_root() {
    let world = LayeredWorld::new();
    fs::set_permissions(world.workspace(), fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(world.sh(&mut world.start(), "stat -c %a ."), "750\n");
}
