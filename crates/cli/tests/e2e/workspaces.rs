//! Where a command runs, and the home it has there.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::testkit::{World, finish, marker};

fn pwd_in(world: &World, cwd: &Path, flags: &[&OsStr]) -> Vec<u8> {
    let mut command = world.ringfence();
    command.arg("run").args(flags).args(["--", "sh", "-c", "touch made-here && pwd"]).current_dir(cwd);
    let mut out = finish(&mut command, b"").expect(0).out;
    out.pop();
    out
}

/// S000-13, S000-16: in the workspace, or in the directory of it where the caller stands.
#[test]
fn command_starts_in_the_workspace() {
    let world = World::new();
    world.repository();
    let sub = world.workspace.join("a/b");
    fs::create_dir_all(&sub).unwrap();
    assert_eq!(pwd_in(&world, &world.workspace, &[]), world.workspace.as_os_str().as_bytes());
    assert_eq!(pwd_in(&world, &sub, &[]), sub.as_os_str().as_bytes());
    assert!(sub.join("made-here").exists());
    let flags = [OsStr::new("--workspace"), world.workspace.as_os_str()];
    assert_eq!(pwd_in(&world, &world.home, &flags), world.workspace.as_os_str().as_bytes());
    assert!(!world.home.join("made-here").exists());
}

/// S002-4: who stands outside the workspace does not bring that place along.
#[test]
fn cwd_outside_the_workspace_is_refused() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::write(outside.join("file"), "out").unwrap();
    let mut command = world.ringfence();
    command.arg("run").arg("--workspace").arg(&world.workspace).args(["--", "sh", "-c", "pwd; cat file"]);
    let done = finish(command.current_dir(&outside), b"").expect(1);
    assert_eq!(done.text().trim(), world.workspace.to_str().unwrap());
    let gone = world.beside("gone");
    let script = format!("cd {0} && rmdir {0} && exec \"$RINGFENCE\" run -- touch made", gone.display());
    finish(world.host("sh").args(["-c", &script]), b"").expect(125).says("current directory");
}

/// S000-8
#[test]
fn symlinked_workspace_is_resolved() {
    let world = World::new();
    let link = world.workspace.with_file_name("link");
    symlink(&world.workspace, &link).unwrap();
    fs::create_dir(world.workspace.join("sub")).unwrap();
    let real = world.workspace.as_os_str().as_bytes();
    assert_eq!(pwd_in(&world, &link, &[]), real);
    assert_eq!(pwd_in(&world, &world.home, &[OsStr::new("--workspace"), link.as_os_str()]), real);
    let flags = [OsStr::new("--workspace"), world.workspace.as_os_str()];
    assert_eq!(pwd_in(&world, &link.join("sub"), &flags), world.workspace.join("sub").as_os_str().as_bytes());
}

#[test]
fn any_name_can_be_a_workspace() {
    let world = World::new();
    for name in [
        &b"with space"[..],
        b"quote'\"",
        b"new\nline",
        b"\xff\xfe not utf-8",
        b"$(touch x)",
        b"-dash",
        b"semi;colon",
    ] {
        let path = world.workspace.with_file_name(OsStr::from_bytes(name));
        fs::create_dir(&path).unwrap();
        fs::write(path.join(".env"), "hidden").unwrap();
        assert_eq!(pwd_in(&world, &path, &[]), path.as_os_str().as_bytes());
        assert!(path.join("made-here").exists(), "{path:?}");
        let mut command = world.ringfence();
        let done = finish(command.args(["run", "--", "cat", ".env"]).current_dir(&path), b"");
        assert_eq!(done.code, Some(1), "{path:?}: {}", done.err);
        assert_eq!(crate::testkit::names(&path), [".env", "made-here"], "{path:?}");
    }
    world.ledger_tool(&["verify"]).expect(0);
    world.ledger_tool(&["tail"]).expect(0);
}

#[test]
fn a_workspace_may_be_in_any_temporary_directory() {
    for place in ["/tmp", "/var/tmp"] {
        for backend in ["native", "bubblewrap"] {
            let world = World::below(Path::new(place));
            let script = "echo kept >kept; echo x >/tmp/private; ls /tmp /var/tmp; pwd";
            let done = world.sh_with(&["--backend", backend], script).expect(0);
            assert!(done.text().ends_with(&format!("{}\n", world.workspace.display())), "{}", done.text());
            assert_eq!(world.read("kept").as_deref(), Some("kept\n"));
            assert!(!Path::new("/tmp/private").exists());
            let left = crate::testkit::names(&world.state.join("ringfence/placeholders"));
            assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("bubblewrap-")), "{left:?}");
        }
    }
}

#[test]
fn the_home_inside_is_kept_per_workspace() {
    let world = World::new();
    world.sh("echo first >~/note; mkdir -p ~/.cache/x; echo $HOME").expect(0);
    assert_eq!(world.sh("cat ~/note").expect(0).text(), "first\n", "it persists");
    let other = world.beside("other");
    let mut command = world.ringfence();
    finish(command.args(["run", "--", "sh", "-c", "cat ~/note"]).current_dir(&other), b"").expect(1);
    assert_eq!(
        crate::testkit::names(&world.home),
        Vec::<std::ffi::OsString>::new(),
        "the real one is untouched"
    );
}

/// S002-25: Ringfence's own files are never a workspace, nor inside one.
#[test]
fn state_inside_the_workspace_is_protected() {
    let world = World::new();
    let state = world.workspace.join("state");
    let mut command = world.ringfence();
    command.env("XDG_STATE_HOME", &state).args(["run", "--", "sh", "-c", "ls -R; touch made"]);
    let done = finish(&mut command, b"").expect(126);
    assert!(done.err.contains("workspace.own-state"), "{}", done.err);
    assert!(!world.workspace.join("made").exists());
}

/// S000-49
#[test]
fn two_runs_share_one_workspace() {
    let world = World::new();
    world.sh("echo shared >file").expect(0);
    assert_eq!(world.sh("cat file").expect(0).text(), "shared\n");
    assert_eq!(world.read("file").as_deref(), Some("shared\n"));
}

/// Nothing beside it, nothing installed, nothing in the environment but a home.
#[test]
fn the_binary_is_one_self_contained_file() {
    let world = World::new();
    let alone = world.beside("alone").join("rf");
    crate::testkit::copy_binary(&alone);
    let mut command = std::process::Command::new(&alone);
    command.env_clear().env("HOME", &world.home).current_dir(&world.workspace);
    let done = finish(command.args(["run", "--", "sh", "-c", "echo works; id -u >made"]), b"").expect(0);
    assert_eq!(done.text(), "works\n");
    assert!(world.workspace.join("made").exists());
    assert!(world.home.join(".local/state/ringfence/ledger.db").exists());
}

/// A file that is made belongs to the caller, with ordinary permissions.
#[test]
fn what_is_made_inside_is_the_callers() {
    use std::os::unix::fs::MetadataExt as _;
    let world = World::new();
    world.sh("umask; echo x >file; mkdir directory; chmod 750 directory").expect(0);
    let file = fs::metadata(world.workspace.join("file")).unwrap();
    assert_eq!(
        (file.uid(), file.gid()),
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    );
    assert_eq!(file.mode() & 0o777, 0o644);
    assert_eq!(fs::metadata(world.workspace.join("directory")).unwrap().mode() & 0o777, 0o750);
}

/// S003-5, S003-34: nothing of the workspace is there, commands start in its home, and what they leave there is kept.
#[test]
fn a_closed_workspace_is_not_there() {
    let world = World::new();
    world.repository();
    let secret = marker(&world);
    world.write("docs/file", &secret);
    fs::create_dir(world.workspace.join("sub")).unwrap();
    let workspace = world.workspace.to_str().unwrap();
    let look = format!(
        "pwd; cat {workspace}/docs/file; ls -A {workspace}; echo x >{workspace}/new; echo kept >kept"
    );
    let control = finish(world.host("sh").args(["-c", &look]).current_dir(world.beside("control")), b"");
    assert!(control.expect(0).text().contains(&secret), "the control");
    fs::remove_file(world.workspace.join("new")).unwrap();
    let before = crate::testkit::names(&world.workspace);
    for backend in ["native", "bubblewrap"] {
        let mut command = world.ringfence();
        command.args(["run", "--backend", backend, "--workspace-access", "none", "--", "sh", "-c", &look]);
        let done = finish(command.current_dir(world.workspace.join("sub")), b"").expect(0);
        assert_eq!(done.text(), "/home/ringfence\n", "{backend}");
        assert_eq!(crate::testkit::names(&world.workspace), before, "{backend}");
        let flags = ["--backend", backend, "--workspace-access", "none"];
        assert_eq!(world.run(&flags, &["sh", "-c", "cat kept; rm kept"]).expect(0).text(), "kept\n");
        // A part of it can be shown all the same.
        let docs = format!("{workspace}/docs");
        let shown = world.run(&[&flags[..], &["--read", &docs]].concat(), &["sh", "-c", &look]);
        assert_eq!(shown.expect(0).text(), format!("/home/ringfence\n{secret}docs\n"), "{backend}");
    }
    let intent =
        world.records().into_iter().rfind(|record| record["event"]["kind"] == "call-intended").unwrap();
    assert_eq!(intent["event"]["call"]["cwd"], "/home/ringfence", "{intent}");
    world
        .sh_with(&["--workspace-access", "none", "--backend", "landlock"], "true")
        .expect(126)
        .says("cannot close");
}

/// By policy it holds for every door, and no flag opens it again.
#[test]
fn a_policy_closes_the_workspace_for_every_door() {
    let world = World::new();
    world.write("file", "content\n");
    let policy = world.home.join("policy.toml");
    fs::write(&policy, "workspace_access = \"none\"\n").unwrap();
    let policy = policy.to_str().unwrap();
    let flags = ["--policy", policy];
    let told = |verb: &[&str], flags: &[&str], rest: &[&str]| {
        finish(world.ringfence().args(verb).args(flags).args(rest), b"new\n")
    };
    assert_eq!(told(&["run"], &flags, &["--", "pwd"]).expect(0).text(), "/home/ringfence\n");
    told(&["file", "read"], &flags, &["file"]).expect(126).says("path.access");
    told(&["file", "write"], &flags, &["file"]).expect(126).says("path.access");
    told(&["check"], &flags, &["--read", "file"]).expect(11);
    told(&["check"], &flags, &["--", "true"]).expect(0);
    let more = ["--policy", policy, "--workspace-access", "read"];
    told(&["run"], &more, &["--", "true"]).expect(126).says("policy.ceiling");
    let review = ["--policy", policy, "--profile", "review"];
    told(&["proposal", "create"], &review, &["--file", "file"]).expect(126).says("path.access");
    assert_eq!(world.read("file").as_deref(), Some("content\n"));
}

/// A part that is only read is held by what was asked for, wherever the workspace is: this one is in a temporary directory, which is
/// private inside.
#[test]
fn a_part_that_is_only_read_is_held_in_a_temporary_directory() {
    for directory in ["/tmp", "/var/tmp"] {
        let world = World::below(Path::new(directory));
        world.write("part/file", "seen\n");
        let policy = world.home.join("policy.toml");
        fs::write(&policy, "[[root]]\npath = \"part\"\naccess = \"read\"\n").unwrap();
        let script = "cat part/file; echo x >part/file; echo x >part/new; echo y >beside";
        let flags = ["--policy", policy.to_str().unwrap()];
        let object = world.json(&flags, &["sh", "-c", script]);
        assert_eq!((&object["posture"]["backend"], &object["stdout"]), (&"native".into(), &"seen\n".into()));
        let held = (world.read("part/file"), world.read("part/new"), world.read("beside"));
        assert_eq!(held, (Some("seen\n".to_owned()), None, Some("y\n".to_owned())), "{directory}");
        finish(world.host("sh").args(["-c", script]), b"").expect(0);
        assert_eq!(world.read("part/new").as_deref(), Some("x\n"), "the control");
    }
}

/// A part with access `none` closes what it names, under every other name of it as well.
#[test]
fn a_closed_part_is_not_there() {
    let world = World::new();
    let secret = marker(&world);
    world.write("a/part/deep/file", &secret);
    world.write("a/part/open/file", &secret);
    fs::hard_link(world.workspace.join("a/part/deep/file"), world.workspace.join("alias")).unwrap();
    symlink("a/part/deep/file", world.workspace.join("link")).unwrap();
    let policy = world.home.join("policy.toml");
    let closed = "[[root]]\npath = \"a/part\"\naccess = \"none\"\n";
    fs::write(&policy, closed).unwrap();
    let script = "cat a/part/deep/file alias link; ls a/part; echo x >a/part/new; mv a/part away; mv a gone; echo y >a/beside";
    for backend in ["native", "bubblewrap"] {
        let flags = ["--policy", policy.to_str().unwrap(), "--backend", backend];
        let done = world.sh_with(&flags, script).expect(0);
        assert_eq!(done.text(), "", "{backend}");
        assert_eq!(crate::testkit::names(&world.workspace.join("a/part")), ["deep", "open"], "{backend}");
        // `mv` makes a directory and copies what it can read.
        for copy in ["away/deep", "gone/part/deep"] {
            assert!(!world.workspace.join(copy).exists(), "{backend}: {copy}");
        }
        for copy in ["away", "gone"] {
            let _none = fs::remove_dir_all(world.workspace.join(copy));
        }
        assert_eq!(world.read("a/beside").as_deref(), Some("y\n"), "what is around it is open");
    }
    let inner = "[[root]]\npath = \"a/part/open\"\naccess = \"read\"\n";
    fs::write(&policy, format!("{closed}{inner}")).unwrap();
    let flags = ["--policy", policy.to_str().unwrap()];
    world.sh_with(&flags, "true").expect(126).says("is closed as a whole");
    fs::remove_file(&policy).unwrap();
    let control = finish(world.host("sh").args(["-c", script]), b"");
    assert!(
        control.text().contains(&secret) && world.workspace.join("gone").exists(),
        "the control: {}",
        control.err
    );
}

/// What is shown to every command, because it is the system's or a toolchain, can be closed as well, where that can be held.
#[test]
fn a_closed_part_of_a_toolchain_is_not_there() {
    let world = World::new();
    let inner = world.home.join(".pyenv/inner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("file"), "seen\n").unwrap();
    let policy = world.home.join("policy.toml");
    let under = |access: &str, backend: &str| {
        fs::write(&policy, access).unwrap();
        let look = format!("cat {}/file; exit 0", inner.display());
        world.sh_with(&["--policy", policy.to_str().unwrap(), "--backend", backend], &look)
    };
    assert_eq!(under("", "native").expect(0).text(), "seen\n", "the control");
    let closed = format!("[[root]]\npath = \"{}\"\naccess = \"none\"\n", inner.display());
    assert_eq!(under(&closed, "native").expect(0).text(), "");
    under(&closed, "bubblewrap").expect(126).says("which is part of the system");
}

/// What every sandbox has of /etc cannot be taken away, and nothing runs where somebody asks for that.
#[test]
fn what_is_shown_of_etc_is_not_closed_in_silence() {
    let world = World::new();
    let policy = world.home.join("policy.toml");
    for path in ["/etc/ssl/certs", "/etc/ssl", "/etc"] {
        fs::write(&policy, format!("[[root]]\npath = \"{path}\"\naccess = \"none\"\n")).unwrap();
        for backend in ["native", "bubblewrap"] {
            let flags = ["--policy", policy.to_str().unwrap(), "--backend", backend];
            let done = world.sh_with(&flags, "touch made");
            assert!(matches!(done.code, Some(125 | 126)), "{path} {backend}: {done:?}");
        }
    }
    assert!(world.read("made").is_none());
    fs::write(&policy, "").unwrap();
    world.sh_with(&["--policy", policy.to_str().unwrap()], "touch made; ls /etc/ssl/certs").expect(0);
    assert!(world.read("made").is_some(), "the control");
}
