//! Other engines than Podman with runc: Podman with crun, and Docker. Both need root here; without it they say why not.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::attempts::all_held;
use crate::docker::Docker;
use crate::podman::{Flags, Podman, Runtime};
use crate::test_timeouts::Patient;
use crate::testkit::{World, collect, eventually, finish, is_root, marker, processes_with, send};

/// What must hold in whatever engine.
fn holds_as_everywhere(world: &World, flags: &Flags) {
    world.repository();
    let secret = marker(world);
    world.write(".env", &secret);
    let script = "id -u; echo to-err >&2; echo x >probe; cat .env; cat /proc/net/dev | wc -l; exit 7";
    let control = finish(world.host("sh").args(["-c", "cat .env"]), b"").expect(0);
    assert_eq!(control.text(), secret);
    let object = world.json(&flags.with(&[]), &["sh", "-c", script]);
    assert_eq!((&object["exit_code"], object["stdout"].as_str()), (&7.into(), Some("1000\n3\n")), "{object}");
    assert!(object["stderr"].as_str().unwrap().starts_with("to-err\n"), "{object}");
    let levels = object["posture"]["controls"].as_object().unwrap();
    assert!(levels.values().all(crate::testkit::is_held), "{object}");
    let probe = fs::metadata(world.workspace.join("probe")).unwrap();
    assert_eq!(probe.uid(), rustix::process::geteuid().as_raw());

    let echo = finish(world.ringfence().arg("run").args(flags.with(&[])).args(["--", "cat"]), b"in\0out");
    assert_eq!(echo.expect(0).out, b"in\0out");
    let steer = "echo x >.git/hooks/pre-commit; mkdir .claude; for d in /etc /usr / /run; do echo x >$d/x; done; grep Cap /proc/self/status";
    let steered = world.run(&flags.with(&[]), &["sh", "-c", steer]).text();
    assert!(!world.workspace.join(".git/hooks/pre-commit").exists());
    assert!(!world.workspace.join(".claude").exists());
    assert_eq!(steered.matches(&"0".repeat(16)).count(), 5, "{steered}");

    let mark = marker(world);
    let script = format!("setsid sh -c 'sleep 1000 # {mark}' & sleep 1000");
    world.run(&flags.with(&["--timeout", "1s"]), &["bash", "-c", &script]).expect(124);
    assert_eq!(processes_with(&mark), Vec::<String>::new());
    let hog = "x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo kept ${#x}";
    let object = world.json(&flags.with(&["--memory", "100m"]), &["bash", "-c", hog]);
    assert_eq!(object["outcome"]["limit_hit"], "memory", "{object}");
    let net = flags.with(&["--net", "filtered", "--allow-host", "web.test"]);
    let get = ["curl", "-sS", "--max-time", "20", "http://other.test/"];
    let refused = world.run(&net, &get);
    assert!(refused.err.contains("--allow-host other.test"), "{}", refused.err);
    finish(world.ringfence().args(["secret", "set", "tool-key"]), secret.as_bytes()).expect(0);
    let script = "stat -c %a \"$TOOL_KEY_FILE\"; wc -c <\"$TOOL_KEY_FILE\"";
    let kept = world.run(&flags.with(&["--secret", "tool-key"]), &["sh", "-c", script]).expect(0);
    assert_eq!(kept.text(), format!("400\n{}\n", secret.len()));
}

fn begin(world: &World, flags: &Flags) -> Child {
    let mut command = world.ringfence();
    command.arg("run").args(flags.with(&[])).args(["--", "sh", "-c", "echo started; sleep 1000"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 8];
    Patient(child.stdout.as_mut().unwrap()).read_exact(&mut said).unwrap();
    assert_eq!(&said, b"started\n");
    child
}

/// What an ordinary user has instead is rootless Podman.
pub(crate) fn docker_needs_root() {
    let place = tempfile::tempdir().unwrap();
    let refused = finish(Command::new("/usr/sbin/dockerd").arg("--data-root").arg(place.path()), b"");
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("needs to be started with root"), "{}", refused.err);
}

/// S003-1, S003-4…9, S004-1…6, C-22, C-23: what holds with Podman holds with Docker, as root.
#[test]
fn docker_as_root_holds_what_podman_holds() {
    if !is_root() {
        return docker_needs_root();
    }
    let mut docker = Docker::start();
    let (world, flags) = docker.world();
    holds_as_everywhere(&world, &flags);
    let doctor = finish(world.ringfence().arg("doctor").args(flags.with(&["--json"])), b"").expect(0).json();
    assert_eq!(
        (&doctor["engines"][0]["kind"], &doctor["engines"][0]["privilege"]),
        (&"docker".into(), &"rootful".into())
    );
    world.run(&flags.with(&["--runtime", "runc"]), &["true"]).expect(0);
    world
        .run(&flags.with(&["--runtime", "runsc"]), &["sh", "-c", "echo ran >ran"])
        .expect(125)
        .says("`runsc` was asked for")
        .says("daemon.json");
    assert!(!world.workspace.join("ran").exists());
    docker.nothing_stays();

    // Killed without a chance to clean up; killed from outside; and the engine dies.
    let child = begin(&world, &flags);
    send(&child, Signal::KILL);
    assert_eq!(collect(child).signal, Some(9));
    eventually("the container goes with its session", || docker.containers().is_empty());
    let child = begin(&world, &flags);
    docker.docker(&["kill", &docker.containers()[0]]).expect(0);
    assert_eq!(collect(child).code, Some(125));
    docker.nothing_stays();
    let child = begin(&world, &flags);
    docker.kill();
    send(&child, Signal::TERM);
    assert_eq!(collect(child).code, Some(143));
    docker.start_again();
    docker.nothing_stays();

    // A tag that moves, an image that goes.
    let listed = docker.images(&world, &["list", "--json"]).expect(0).json();
    let id = listed["images"][0]["id"].as_str().unwrap().to_owned();
    docker.docker(&["rmi", "--force", &id]).expect(0);
    docker.images(&world, &["verify", "dev"]).expect(1);
    world.run(&flags.with(&[]), &["true"]).expect(125).says("does not have the image");
}

/// S003-43: of the battery what depends on an engine most, privileges and networks, in Docker, as root. All of it takes two minutes.
#[test]
fn docker_as_root_holds_attempts_on_privileges_and_networks() {
    if !is_root() {
        return docker_needs_root();
    }
    let docker = Docker::start();
    let (world, flags) = docker.world();
    for part in ["S1", "N1"] {
        let flags = flags.with(&["--attack", "--json", "--only", part]);
        let report = finish(world.ringfence().arg("doctor").args(flags), b"").json();
        all_held(&report, part);
        assert_eq!(report["backend"], "container");
    }
}

/// S004-1: Podman with crun, as root. Without root crun does not start here, and that is said.
#[test]
fn crun_as_root_holds_what_runc_holds() {
    let podman = Podman::with(Runtime::Crun);
    let (world, flags) = podman.world();
    if is_root() {
        world.run(&flags.with(&["--runtime", "crun"]), &["true"]).expect(0);
        world
            .run(&flags.with(&["--runtime", "runc"]), &["true"])
            .expect(125)
            .says("starts containers with crun");
        holds_as_everywhere(&world, &flags);
        let flags = flags.with(&["--attack", "--json", "--only", "S1"]);
        all_held(&finish(world.ringfence().arg("doctor").args(flags), b"").json(), "S1");
    } else {
        let script = ["sh", "-c", "echo ran >ran"];
        let failed = world.run(&flags.with(&[]), &script);
        assert!(failed.err.contains("crun"), "{}", failed.err);
        assert!(!world.workspace.join("ran").exists());
    }
    podman.nothing_stays();
}
