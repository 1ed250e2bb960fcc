//! The life of a container: made ahead, used by one session, removed when it has rested, is old, or belongs to nobody.

use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::container_policy::configure;
use crate::mcp::Client;
use crate::podman::Podman;
use crate::test_timeouts::Patient;
use crate::testkit::{collect, eventually};

const CONTAINER: &str = "backend = \"container\"";

fn exec(client: &mut Client, command: &str) -> Value {
    client.done("exec", json!({ "command": command }))
}

/// C-23, S004-10: a container waits before anything is called, the first call gets it, and the next one waits again.
#[test]
fn containers_wait_for_the_calls_that_need_them() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    configure(&world, &podman, CONTAINER, "image = \"dev\"\nwarm_containers = 1");
    let running = || podman.running();
    // What waits is ready a moment after the engine says that it runs: whoever calls before that gets one of its own.
    let is_used = (0..5).any(|_try| {
        let mut client = Client::new(&world, &[]);
        eventually("one waits", || running().len() == 1);
        let waited = running();
        assert_eq!(exec(&mut client, "echo kept >/tmp/f; echo ran >ran")["exit_code"], 0);
        assert_eq!(world.read("ran").as_deref(), Some("ran\n"));
        eventually("another waits", || running().len() == 2);
        assert_eq!(exec(&mut client, "cat /tmp/f")["stdout"], "kept\n");
        // The call is in the one that waited: what kills that kills what the call left.
        podman.podman(&["kill", &waited[0]]).expect(0);
        eventually("it is dead", || !running().contains(&waited[0]));
        let broken = client.call("exec", json!({ "command": "cat /tmp/f" }));
        let is_broken = broken["structuredContent"]["ended"] == "failed";
        if is_broken {
            // The second gets the other one, which is fresh.
            assert_eq!(exec(&mut client, "test -e /tmp/f || echo fresh")["stdout"], "fresh\n");
        }
        client.end();
        podman.nothing_stays();
        is_broken
    });
    assert!(is_used, "no call got what waited");

    let client = Client::new(&world, &[]);
    eventually("one waits", || running().len() == 1);
    client.kill();
    eventually("it goes with its process", || podman.containers().is_empty());
}

/// C-23: what waited is used only if it is what the call needs: another workspace under the same name is another.
#[test]
fn a_container_that_waited_is_not_taken_for_another() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    configure(&world, &podman, CONTAINER, "image = \"dev\"\nwarm_containers = 1");
    let mut client = Client::new(&world, &[]);
    eventually("one waits", || podman.running().len() == 1);
    let inspected: Value =
        serde_json::from_str(&podman.podman(&["inspect", &podman.running()[0]]).text()).unwrap();
    assert_eq!(inspected[0]["Config"]["Labels"]["io.ringfence.config"].as_str().unwrap().len(), 64);
    let aside = world.beside("aside");
    fs::remove_dir(&aside).unwrap();
    fs::rename(&world.workspace, &aside).unwrap();
    fs::create_dir(&world.workspace).unwrap();
    assert_eq!(exec(&mut client, "echo here >made")["exit_code"], 0);
    assert_eq!(world.read("made").as_deref(), Some("here\n"));
    assert!(!aside.join("made").exists());
    // One that died while it waited is not used, and nobody notices.
    client.end();
    let mut client = Client::new(&world, &[]);
    eventually("one waits", || podman.running().len() == 1);
    podman.podman(&["kill", &podman.running()[0]]).expect(0);
    assert_eq!(exec(&mut client, "cat made")["stdout"], "here\n");
    client.end();
    podman.nothing_stays();
}

/// C-23, S004-10: a container that nothing ran in is removed, and so is one that is old; the session goes on in another.
#[test]
fn what_has_rested_or_is_old_is_removed() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    for key in ["max_idle", "max_age"] {
        configure(&world, &podman, CONTAINER, &format!("image = \"dev\"\n{key} = \"1s\""));
        let mut client = Client::new(&world, &[]);
        assert_eq!(exec(&mut client, "echo kept >/tmp/f; echo kept >f")["exit_code"], 0);
        eventually("it is removed while the session goes on", || podman.containers().is_empty());
        assert_eq!(exec(&mut client, "test -e /tmp/f || cat f")["stdout"], "kept\n");
        client.end();
    }
    // The control: without these it stays.
    configure(&world, &podman, CONTAINER, "image = \"dev\"");
    let mut client = Client::new(&world, &[]);
    assert_eq!(exec(&mut client, "echo kept >/tmp/f")["exit_code"], 0);
    let first = podman.containers();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(
        (podman.containers(), exec(&mut client, "cat /tmp/f")["stdout"].as_str()),
        (first, Some("kept\n"))
    );
    client.end();
    podman.nothing_stays();
}

/// Connects to every control socket that comes to be, from namespaces of its own, before the container does.
const INTRUDER: &str = r#"
import os, socket, sys, time
print("ready", flush=True)
while True:
    for name in os.listdir(sys.argv[1]):
        try:
            os.chdir(os.path.join(sys.argv[1], name))
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.connect("control")
            print("in", flush=True)
            time.sleep(1000)
        except OSError:
            pass
"#;

/// Whoever connects has to be the process that the engine has started.
#[test]
fn nobody_else_is_taken_for_the_container() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let script = ["sh", "-c", "echo ran >ran"];
    world.run(&flags.with(&[]), &["true"]).expect(0);
    let registry = world.state.join("ringfence/placeholders");
    let mut intruder = world.host("unshare");
    let apart = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
        "--net",
        "--ipc",
        "--mount",
        "--uts",
    ];
    intruder.args(apart).args(["python3", "-c", INTRUDER]).arg(&registry);
    let mut intruder = intruder.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    Patient(intruder.stdout.as_mut().unwrap()).read_exact(&mut ready).unwrap();
    let refused = world.run(&flags.with(&[]), &script);
    intruder.kill().unwrap();
    assert_eq!(collect(intruder).text(), "in\n");
    refused.expect(125).says("connected, but PID 1 of the container is");
    assert!(!world.workspace.join("ran").exists());
    podman.nothing_stays();
    world.run(&flags.with(&[]), &script).expect(0);
}

/// S004-1: a runtime that was asked for is used or refused, with what would change that.
#[test]
fn a_runtime_is_used_or_refused() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    world.run(&flags.with(&["--runtime", "runc"]), &["true"]).expect(0);
    for absent in ["crun", "runsc"] {
        let fix = format!("podman --runtime {absent} system service");
        world
            .run(&flags.with(&["--runtime", absent]), &["sh", "-c", "echo ran >ran"])
            .expect(125)
            .says("starts containers with runc")
            .says(&fix);
    }
    configure(&world, &podman, CONTAINER, "image = \"dev\"\nruntime = \"runsc\"");
    world.run(&[], &["sh", "-c", "echo ran >ran"]).expect(125).says("`runsc` was asked for");
    assert!(!world.workspace.join("ran").exists());
    podman.nothing_stays();
}
