//! What an image says about how it wants to be run, and that none of it makes a session weaker.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::docker::Docker;
use crate::podman::Podman;
use crate::test_timeouts::Patient;
use crate::testkit::{World, collect, eventually, is_root, send};

/// Everything that an image can ask for. `WORKSPACE` is where its check leaves a file.
const ASKS: &str = r#"FROM localhost/ringfence/dev:latest
ENV LD_PRELOAD=/evil.so LD_LIBRARY_PATH=/evil PATH=/evil:/usr/bin:/bin BASH_ENV=/evil.sh API_TOKEN=token-of-the-image
USER 0:0
VOLUME ["/data", "/opt/tools", "/tmp/cache"]
WORKDIR /data
ENTRYPOINT ["/bin/sh", "-c", "echo entrypoint >&2"]
CMD ["echo", "cmd"]
STOPSIGNAL SIGCONT
EXPOSE 8080
HEALTHCHECK --interval=1s CMD touch WORKSPACE/checked
LABEL io.ringfence.registry=0000000000000000 io.ringfence.owner=1-1-1 io.ringfence.config=0 \
      io.containers.capabilities=SYS_ADMIN,NET_ADMIN,SETUID io.podman.annotations.privileged=TRUE
"#;

/// The same for Docker, which looks for what it builds from in a registry, and asks nobody about what it imports.
fn changes(world: &World) -> Vec<String> {
    let text = ASKS.replace("\\\n", "").replace("WORKSPACE", world.workspace.to_str().unwrap());
    let unknown = ["FROM", "STOPSIGNAL"];
    let lines = text.lines().filter(|line| !unknown.iter().any(|word| line.starts_with(word)));
    lines.map(str::to_owned).collect()
}

fn recipe(world: &World, text: &str) -> String {
    let place = world.beside("recipe");
    fs::write(place.join("Dockerfile"), text.replace("WORKSPACE", world.workspace.to_str().unwrap()))
        .unwrap();
    place.to_str().unwrap().to_owned()
}

/// On the operator's list as `NAME`.
fn build(podman: &Podman, world: &World, (name, text): (&str, &str)) {
    let (place, tag) = (recipe(world, text), format!("localhost/{name}:1"));
    podman.podman(&["build", "--pull=never", "--format=docker", "--tag", &tag, &place]).expect(0);
    podman.images(world, &["add", name, &tag]).expect(0);
}

struct Using<'u> {
    image: &'u str,
    engine: &'u Path,
}

impl Using<'_> {
    fn flags(&self) -> [&str; 6] {
        ["--backend", "container", "--image", self.image, "--engine", self.engine.to_str().unwrap()]
    }

    fn begin(&self, world: &World) -> Child {
        let mut command = world.ringfence();
        command.arg("run").args(self.flags()).args(["--", "sh", "-c", "echo started; sleep 1000"]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Patient(child.stdout.as_mut().unwrap()).read_exact(&mut [0; 8]).unwrap();
        child
    }
}

fn end(child: Child) {
    send(&child, Signal::TERM);
    assert_eq!(collect(child).code, Some(143));
}

/// Whether the image's own wishes are had without us: each of them is real.
const CONTROL: &str = "id -u; echo $API_TOKEN; for d in /data /tmp/cache; do cp /bin/cat $d/program && $d/program /dev/null && echo $d; done";

/// Who one is, what is set, and how each place of the image that would be writable is mounted.
const LOOK: &str = "id -u; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'; env | grep -cE 'LD_|BASH_ENV|TOKEN|evil'; pwd; \
    for d in /data /opt/tools /tmp/cache; do grep \" $d \" /proc/self/mountinfo | cut -d' ' -f5,6; echo x >$d/new; done 2>/dev/null; true";

/// S003-20, S004-5, S004-6, S004-25, C-24: variables, users, volumes, programs, checks, signals and labels of an image.
#[test]
fn what_an_image_asks_for_makes_nothing_weaker() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    build(&podman, &world, ("asks", ASKS));
    let limits = ["--ulimit", "nofile=256:256", "--ulimit", "nproc=1000:1000"];
    let workspace = world.workspace.to_str().unwrap();
    let shared = format!("{workspace}:{workspace}");
    let run = ["run", "--rm", "--network", "none", "--volume", &shared, "--env", "LD_PRELOAD="];
    let control =
        [&run[..], &limits, &["--entrypoint", "/bin/sh", "localhost/asks:1", "-c", CONTROL]].concat();
    let had = podman.podman(&control).expect(0).text();
    assert_eq!(had, "0\ntoken-of-the-image\n/data\n/tmp/cache\n", "the control: all of it is had without us");

    let socket = podman.socket();
    let asks = Using { image: "asks", engine: &socket };
    let inside = world.run(&asks.flags(), &["sh", "-c", LOOK]).expect(0);
    let uid = if is_root() { 1000 } else { rustix::process::geteuid().as_raw() };
    let places = ["/data", "/opt/tools", "/tmp/cache"]
        .map(|place| format!("{place} ro,nosuid,nodev,noexec,relatime\n"));
    let wanted = format!("{uid}\nNoNewPrivs:1\nSeccomp:2\n0\n{workspace}\n{}", places.concat());
    let said = inside.text().replace(&format!("CapEff:{}\n", "0".repeat(16)), "");
    assert_eq!((said, inside.err.as_str()), (wanted, ""));

    let child = asks.begin(&world);
    let running = podman.running();
    let told = podman.podman(&["inspect", &running[0]]).expect(0).json();
    nothing_of_it_is_in_the_container(&told[0]);
    podman.podman(&["healthcheck", "run", &running[0]]).expect(125).says("no defined healthcheck");
    assert_eq!(podman.podman(&["volume", "ls", "--quiet"]).expect(0).text(), "", "no volume was made");
    end(child);
    assert!(!world.workspace.join("checked").exists());
    podman.nothing_stays();
    a_check_of_an_image_is_real(&podman, &world, &[&run[..], &limits].concat());
}

fn nothing_of_it_is_in_the_container(told: &Value) {
    let (host, config) = (&told["HostConfig"], &told["Config"]);
    assert_eq!((&config["Entrypoint"], &config["StopSignal"]), (&"/.ringfence/launch".into(), &9.into()));
    assert_eq!((&config["Cmd"], &config["WorkingDir"]), (&Value::Null, &"/".into()), "{config}");
    assert_eq!(
        (&host["Privileged"], &told["EffectiveCaps"]),
        (&false.into(), &serde_json::json!(["CAP_SETFCAP"]))
    );
    for (label, of_the_image) in [("registry", "0000000000000000"), ("owner", "1-1-1"), ("config", "0")] {
        assert_ne!(config["Labels"][format!("io.ringfence.{label}")], of_the_image, "{config}");
    }
    assert_eq!(
        (&host["PortBindings"], &told["NetworkSettings"]["Ports"]),
        (&serde_json::json!({}), &serde_json::json!({}))
    );
}

/// The control: in a container that somebody else has made of it, the engine runs it.
fn a_check_of_an_image_is_real(podman: &Podman, world: &World, run: &[&str]) {
    let detached = [&run[..1], &["--detach", "--name", "control"], &run[2..]].concat();
    podman
        .podman(&[&detached[..], &["--entrypoint", "/bin/sleep", "localhost/asks:1", "1000"]].concat())
        .expect(0);
    podman.podman(&["healthcheck", "run", "control"]).expect(0);
    assert!(world.workspace.join("checked").exists(), "the control");
    podman.podman(&["rm", "--force", "--time", "0", "--volumes", "control"]).expect(0);
}

/// S004-2, S004-5: an engine makes a directory on the host for each volume. One around or inside what is bound is refused.
#[test]
fn a_volume_of_an_image_is_made_nowhere_on_the_host() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    let socket = podman.socket();
    for (number, volume) in ["WORKSPACE/planted", "/home", "/sys/fs/cgroup"].into_iter().enumerate() {
        let name = format!("volume-{number}");
        build(
            &podman,
            &world,
            (&name, &format!("FROM localhost/ringfence/dev:latest\nVOLUME [\"{volume}\"]\n")),
        );
        let using = Using { image: &name, engine: &socket };
        let done = world.run(&using.flags(), &["sh", "-c", "echo ran >ran"]).expect(125);
        assert!(done.err.contains("the image declares a volume at"), "{volume}: {}", done.err);
    }
    assert_eq!((world.read("ran"), world.workspace.join("planted").exists()), (None, false));
    assert_eq!(podman.containers(), Vec::<String>::new());
    assert_eq!(podman.podman(&["volume", "ls", "--quiet"]).expect(0).text(), "");
}

/// S003-2, S004-6: Docker runs a check by itself, beside what we have made. As root; without root there is no Docker.
#[test]
fn docker_runs_no_check_of_an_image() {
    if !is_root() {
        return crate::container_engines::docker_needs_root();
    }
    let docker = Docker::start();
    let (world, _) = docker.world();
    let archive = docker.archive();
    let changes = changes(&world);
    let changes = changes.iter().flat_map(|change| ["--change", change.as_str()]);
    let import: Vec<&str> =
        ["import"].into_iter().chain(changes).chain([archive.to_str().unwrap(), "asks:1"]).collect();
    docker.docker(&import).expect(0);
    docker.images(&world, &["add", "asks", "asks:1"]).expect(0);
    let workspace = world.workspace.to_str().unwrap();
    let shared = format!("{workspace}:{workspace}");
    let run = ["run", "--detach", "--network=none", "--env", "LD_PRELOAD=", "--volume", &shared];
    let control =
        docker.docker(&[&run[..], &["--entrypoint", "/bin/sleep", "asks:1", "1000"]].concat()).expect(0);
    eventually("the control: Docker runs the check", || world.workspace.join("checked").exists());
    docker.docker(&["rm", "--force", "--volumes", control.text().trim()]).expect(0);
    fs::remove_file(world.workspace.join("checked")).unwrap();

    let socket = docker.socket();
    let asks = Using { image: "asks", engine: &socket };
    let child = asks.begin(&world);
    let told = docker.docker(&["inspect", &docker.containers()[0]]).expect(0).json();
    assert_eq!(
        (&told[0]["State"]["Health"], &told[0]["Config"]["Healthcheck"]["Test"]),
        (&Value::Null, &serde_json::json!(["NONE"]))
    );
    end(child);
    let inside = world.run(&asks.flags(), &["sh", "-c", LOOK]).expect(0).text();
    let closed = ["/data", "/opt/tools", "/tmp/cache"]
        .map(|place| inside.contains(&format!("{place} ro,nosuid,nodev,noexec")));
    assert_eq!(closed, [true; 3], "{inside}");
    assert!(inside.starts_with("1000\n") && inside.contains("NoNewPrivs:1\nSeccomp:2\n0\n"), "{inside}");
    assert!(!world.workspace.join("checked").exists());
    docker.nothing_stays();
}
