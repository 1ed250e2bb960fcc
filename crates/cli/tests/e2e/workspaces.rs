//! Where a command runs, and the home it has there.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::testkit::{World, finish};

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
