//! What breaks around a container: the disk is full, the engine is gone, many come at once and one after the other.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::container_policy::configure;
use crate::mcp::Client;
use crate::podman::{Podman, Runtime};
use crate::testkit::{World, collect, eventually, finish, is_root};

const CONTAINER: &str = "backend = \"container\"";

/// C-23: with no room for a container nothing runs, and that is said; with room again everything does.
#[test]
fn a_full_disk_of_the_engine_is_told_and_nothing_runs() {
    let podman = Podman::with(Runtime::InSmallStorage);
    let (world, flags) = podman.world();
    let script = ["sh", "-c", "echo ran >ran"];
    let (pid, storage) = podman.storage();
    let own = if is_root() { &["--mount"][..] } else { &["--mount", "--user", "--preserve-credentials"] };
    let inside = |words: &[&str]| {
        let mut command = world.host("nsenter");
        finish(command.args(["--target", &pid.to_string()]).args(own).arg("--").args(words), b"")
    };
    let fill = storage.join("fill");
    let fill = fill.to_str().unwrap();
    inside(&["dd", "if=/dev/zero", &format!("of={fill}"), "bs=1M"]).expect(1).says("No space left");
    world.run(&flags.with(&[]), &script).expect(125).says("no space left");
    assert!(!world.workspace.join("ran").exists());
    let archive = world.home.join("more.tar");
    let owner = ["--owner=0", "--group=0", "-cf", archive.to_str().unwrap(), "-C", "/usr/bin", "bash"];
    finish(world.host("tar").args(owner), b"").expect(0);
    let more = ["build", "more", archive.to_str().unwrap()];
    podman.images(&world, &more).expect(125).says("no space left");
    let listed = podman.images(&world, &["list", "--json"]).expect(0).json();
    assert_eq!(listed["images"].as_array().unwrap().len(), 1, "what is not there is not on the list");
    inside(&["rm", fill]).expect(0);
    podman.images(&world, &more).expect(0);
    if is_root() {
        world.run(&flags.with(&[]), &script).expect(0);
        assert!(world.workspace.join("ran").exists());
    }
}

fn memory_and_descriptors(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (kilobytes, fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count())
}

fn directories_of_containers(world: &World) -> usize {
    let registry = fs::read_dir(world.state.join("ringfence/placeholders")).unwrap();
    let names = registry.map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("container-")).count()
}

fn exec(client: &mut Client, command: &str) -> Value {
    client.done("exec", json!({ "command": command }))
}

/// C-23, S003-9: fifty containers of one process leave nothing behind, in it or beside it.
#[test]
fn fifty_containers_one_after_the_other_leave_nothing() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    configure(&world, &podman, CONTAINER, "image = \"dev\"\nmax_age = \"1ms\"");
    let mut client = Client::new(&world, &[]);
    let pid = client.pid();
    let mut after_ten = (0, 0);
    for number in 1..=50 {
        let said =
            exec(&mut client, &format!("echo {number}; test -e /tmp/f || echo x >/tmp/f && cat /tmp/f"));
        assert_eq!(said["stdout"], format!("{number}\nx\n"), "each is fresh: {said}");
        if number == 10 {
            eventually("it rests", || directories_of_containers(&world) == 0);
            after_ten = memory_and_descriptors(pid);
        }
    }
    // The directory goes last, when the process holds nothing of its container any more.
    eventually("it rests", || directories_of_containers(&world) == 0);
    eventually("no descriptors more", || memory_and_descriptors(pid).1 <= after_ten.1);
    let after_fifty = memory_and_descriptors(pid);
    assert!(after_fifty.0 < after_ten.0 + 8 * 1024, "memory: {after_ten:?}, then {after_fifty:?} kB");
    podman.nothing_stays();
    client.end();
}

/// C-23: several at once in one workspace, each in its own container.
#[test]
fn several_at_once_are_apart() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let begin = |number: usize| {
        let script = format!(
            "echo {number} >/tmp/own; echo {number} >made-{number}; sleep 1; cat /tmp/own; hostname 2>/dev/null; ls /proc | grep -c '^[0-9]'"
        );
        let mut command = world.ringfence();
        command.arg("run").args(flags.with(&[])).args(["--", "sh", "-c", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..6).map(begin).collect();
    for (number, child) in children.into_iter().enumerate() {
        let done = collect(child).expect(0);
        let lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
        assert_eq!(lines.first(), Some(&number.to_string()), "{}", done.err);
        let processes: usize = lines.last().unwrap().parse().unwrap();
        assert!(processes < 10, "only its own processes: {processes}");
        assert!(world.workspace.join(format!("made-{number}")).exists());
    }
    podman.nothing_stays();
}

/// The engine is needed to make a container and to remove it, not to use it.
#[test]
fn a_session_goes_on_without_its_engine() {
    let mut podman = Podman::start();
    let (world, _) = podman.world();
    configure(&world, &podman, CONTAINER, "image = \"dev\"");
    let mut client = Client::new(&world, &[]);
    assert_eq!(exec(&mut client, "echo kept >/tmp/f")["exit_code"], 0);
    podman.stop();
    assert_eq!(exec(&mut client, "cat /tmp/f")["stdout"], "kept\n");
    // Another one cannot be had, and is not replaced by something else.
    world.run(&[], &["sh", "-c", "echo ran >ran"]).expect(125).says("container");
    assert!(!world.workspace.join("ran").exists());
    client.end();
    podman.start_again();
    podman.nothing_stays();
    world.run(&[], &["sh", "-c", "echo ran >ran"]).expect(0);
}
