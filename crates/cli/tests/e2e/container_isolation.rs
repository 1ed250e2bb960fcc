//! What a session in a container is, as the engine tells it and as the kernel has it; and what cannot be done in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::podman::{Flags, Podman};
use crate::test_timeouts::Patient;
use crate::testkit::{World, collect, finish, is_root, marker, processes_with, send};

/// A session that waits, with what the engine and the kernel know of it.
struct Running {
    child: Child,
    told: Value,
    /// The command inside, as the host counts.
    command: String,
}

impl Running {
    fn begin(world: &World, podman: &Podman, flags: &[&str]) -> Self {
        let mark = marker(world);
        let script = format!("echo started; sleep 1000; : {mark}");
        let mut command = world.ringfence();
        command.arg("run").args(flags).args(["--", "sh", "-c", &script]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Patient(child.stdout.as_mut().unwrap()).read_exact(&mut [0; 8]).unwrap();
        let told = podman.podman(&["inspect", &podman.running()[0]]).expect(0).json();
        let found = processes_with(&mark).into_iter().filter_map(|found| {
            let (pid, words) = found.split_once(": ")?;
            words.starts_with("sh ").then(|| pid.to_owned())
        });
        let command: Vec<String> = found.collect();
        assert_eq!(command.len(), 1, "the command of the session: {command:?}");
        Self { child, told: told[0].clone(), command: command[0].clone() }
    }

    fn end(self) {
        send(&self.child, Signal::TERM);
        assert_eq!(collect(self.child).code, Some(143));
    }

    fn proc(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.command)).unwrap()
    }

    fn status(&self, field: &str) -> String {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {field}")).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Where each mount is, and its own options; what is mounted last at a place is what is there.
    fn mounts(&self) -> BTreeMap<String, Vec<String>> {
        let text = self.proc("mountinfo");
        let fields = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        fields
            .map(|fields| (fields[4].to_owned(), fields[5].split(',').map(str::to_owned).collect()))
            .collect()
    }

    /// What the control group of `controller` has in a file, which is named otherwise in the second version.
    fn group(&self, controller: &str, [one, two]: [&str; 2]) -> String {
        let groups = self.proc("cgroup");
        let mut fields = groups.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
        let old = fields.clone().find(|fields| fields[1].split(',').any(|name| name == controller));
        let path = match old {
            Some(fields) => format!("/sys/fs/cgroup/{}{}/{one}", fields[1], fields[2]),
            None => format!("/sys/fs/cgroup{}/{two}", fields.next().unwrap()[2]),
        };
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
    }
}

/// S003-5, S003-8, S003-20, S004-2…6, S004-9, S004-25: every line of it as the engine has it.
#[test]
fn the_engine_says_that_a_session_is_closed() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let running = Running::begin(&world, &podman, &flags.with(&[]));
    let (host, config) = (&running.told["HostConfig"], &running.told["Config"]);
    let wanted = [
        ("ReadonlyRootfs", json!(true)),
        ("Privileged", json!(false)),
        ("NetworkMode", json!("none")),
        ("PidMode", json!("private")),
        ("UTSMode", json!("private")),
        ("UsernsMode", json!("")),
        ("CapAdd", json!([])),
        ("Devices", json!([])),
        ("GroupAdd", json!([])),
        ("PortBindings", json!({})),
        ("PublishAllPorts", json!(false)),
        ("VolumesFrom", json!(null)),
        ("AutoRemove", json!(true)),
    ];
    for (key, wanted) in wanted {
        assert_eq!(host[key], wanted, "{key}: {host}");
    }
    assert_ne!(host["IpcMode"], "host");
    assert!(host["SecurityOpt"].as_array().unwrap().contains(&"no-new-privileges".into()), "{host}");
    // What the launcher needs to map its user, and gives up: the kernel has none of it below.
    assert_eq!(running.told["EffectiveCaps"], json!(["CAP_SETFCAP"]));
    if is_root() {
        let memory = 4_i64 << 30;
        let limits =
            ["Memory", "MemorySwap", "PidsLimit", "CpuShares"].map(|key| host[key].as_i64().unwrap());
        assert_eq!(limits, [memory, memory, 52, 512], "{host}");
    }
    let places: Vec<&String> = host["Tmpfs"].as_object().unwrap().keys().collect();
    assert_eq!(places, ["/run", "/tmp", "/var/tmp"]);
    for options in host["Tmpfs"].as_object().unwrap().values() {
        assert!(options.as_str().unwrap().contains("noexec,nosuid,nodev"), "{options}");
    }
    assert_eq!((&config["Entrypoint"], &config["StopSignal"]), (&"/.ringfence/launch".into(), &9.into()));
    assert_eq!(bound(&running.told), wanted_bound(&world));
    running.end();
    podman.nothing_stays();
}

/// What is bound, and whether it is written.
fn bound(told: &Value) -> BTreeMap<String, bool> {
    let mounts = told["Mounts"].as_array().unwrap().iter();
    let entry = |mount: &Value| {
        assert_eq!((&mount["Type"], &mount["Propagation"]), (&"bind".into(), &"rprivate".into()), "{mount}");
        (mount["Destination"].as_str().unwrap().to_owned(), mount["RW"].as_bool().unwrap())
    };
    mounts.map(entry).collect()
}

fn wanted_bound(world: &World) -> BTreeMap<String, bool> {
    let closed =
        ["/.ringfence", "/etc/passwd", "/etc/group", "/etc/gitconfig"].map(|path| (path.to_owned(), false));
    let workspace = world.workspace.to_str().unwrap().to_owned();
    closed.into_iter().chain([("/home/ringfence".to_owned(), true), (workspace, true)]).collect()
}

/// S003-20, S003-35, S004-1, S004-4…6, S004-25, C-25: the same as the kernel has it, whatever the engine says.
#[test]
fn the_kernel_says_that_a_session_is_closed() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let running = Running::begin(&world, &podman, &flags.with(&[]));
    for namespace in ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"] {
        let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{namespace}")).unwrap();
        assert_ne!(of(&running.command), of("self"), "{namespace}");
    }
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(running.status(set), "0".repeat(16), "{set}");
    }
    assert_eq!(running.status("NoNewPrivs"), "1");
    assert_eq!(running.status("Seccomp"), "2");
    let caller = rustix::process::geteuid().as_raw();
    assert_eq!(running.status("Uid"), [caller.to_string().as_str(); 4].join(" "));
    let map: Vec<String> = running.proc("uid_map").split_whitespace().map(str::to_owned).collect();
    let inside = if caller == 0 { 1000 } else { caller };
    assert_eq!(
        (map.len(), map[0].as_str(), map[2].as_str()),
        (3, inside.to_string().as_str(), "1"),
        "{map:?}"
    );
    every_mount_is_closed(&running, &world);
    the_limits_are_those_of_the_documents(&running);
    running.end();
    podman.nothing_stays();
}

/// What is not read-only does not execute, besides the home and the workspace.
fn every_mount_is_closed(running: &Running, world: &World) {
    let mounts = running.mounts();
    let workspace = world.workspace.to_str().unwrap();
    let has = |place: &str, wanted: &[&str]| {
        let options = mounts.get(place).unwrap_or_else(|| panic!("nothing at {place}: {mounts:?}"));
        assert!(wanted.iter().all(|word| options.iter().any(|own| own == word)), "{place}: {options:?}");
    };
    for closed in ["/", "/dev", "/proc", "/run", "/sys", "/.ringfence", "/etc/passwd", "/etc/hosts"] {
        has(closed, &["ro"]);
    }
    for memory in ["/tmp", "/var/tmp", "/dev/shm"] {
        has(memory, &["rw", "noexec", "nosuid", "nodev"]);
    }
    for written in ["/home/ringfence", workspace] {
        has(written, &["rw", "nosuid", "nodev"]);
    }
    // Without root an engine binds each device of the host, and one of them over what it hides.
    let devices = ["full", "null", "random", "tty", "urandom", "zero"].map(|name| format!("/dev/{name}"));
    let open = mounts.iter().filter(|(place, options)| {
        let ours = [workspace, "/home/ringfence", "/proc/keys", "/proc/timer_list"].contains(&place.as_str());
        !ours
            && !devices.contains(place)
            && options.contains(&"rw".to_owned())
            && !options.contains(&"noexec".to_owned())
    });
    // Whoever may not see below /sys, which is covered, cannot write there either.
    let open: Vec<_> = open.filter(|(place, _)| !place.starts_with("/sys/")).collect();
    assert!(open.is_empty(), "{open:?}");
}

/// S000-41: what documents 003 and 004 leave to the caller has a default here.
fn the_limits_are_those_of_the_documents(running: &Running) {
    let limits = running.proc("limits");
    let soft = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    let rlimits = ["Max cpu time", "Max file size", "Max core file size", "Max open files"].map(soft);
    assert_eq!(rlimits, ["3600", "104857600", "1", "256"]);
    if !is_root() {
        // Without a control group that it may use, what is left are limits of each process and of each user.
        assert_eq!((soft("Max data size").as_str(), soft("Max processes").as_str()), ("4294967296", "52"));
        return;
    }
    let memory = (4_u64 << 30).to_string();
    assert_eq!(running.group("memory", ["memory.limit_in_bytes", "memory.max"]), memory);
    assert_eq!(running.group("pids", ["pids.max", "pids.max"]), "52");
    let weight = running.group("cpu", ["cpu.shares", "cpu.weight"]);
    assert!(["512", "20"].contains(&weight.as_str()), "{weight}");
    let devices = running.group("devices", ["devices.list", "cgroup.type"]);
    assert!(!devices.contains("a *:* rwm"), "every device: {devices}");
}

/// What a session may change is not the engine's limits: S004-4, with what was asked for in place of the default.
#[test]
fn fewer_processes_than_the_default_are_fewer_inside() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    // Each that was started is a line; nothing but the shell writes them.
    let script = "i=0; while [ $i -lt 40 ]; do sleep 1000 & i=$((i+1)); echo $i >>count; done; echo all-40";
    let started = |more: &[&str]| {
        let object = world.json(&flags.with(more), &["sh", "-c", script]);
        let count = world.read("count").unwrap().lines().count();
        fs::remove_file(world.workspace.join("count")).unwrap();
        (count, object["exit_code"].as_i64().unwrap(), object["outcome"]["limit_hit"].clone())
    };
    assert_eq!(started(&[]), (40, 0, Value::Null), "the control: fifty are the default");
    let (count, code, hit) = started(&["--pids", "20"]);
    assert!((15..=20).contains(&count), "{count}");
    assert_eq!((code, hit), (2, if is_root() { "processes".into() } else { Value::Null }));
    podman.nothing_stays();
}

/// S003-1, S004-4: nothing is no limit, neither none nor unlimited; it is refused before an engine is asked.
#[test]
fn limits_of_zero_are_refused_everywhere() {
    let world = World::new();
    let nowhere = Flags::of(&world.home.join("no-engine"));
    let container = nowhere.with(&[]);
    let zeros = [
        "--cpus",
        "--memory",
        "--pids",
        "--tmp-size",
        "--file-size",
        "--max-open-files",
        "--cpu-time",
        "--timeout",
    ];
    for backend in [&["--backend", "native"][..], &["--backend", "bubblewrap"], &container] {
        for flag in zeros {
            world
                .run(&[backend, &[flag, "0"]].concat(), &["touch", "made"])
                .expect(125)
                .says("invalid value '0'");
        }
    }
    let policy = world.home.join("policy.toml");
    let keys = ["cpus = 0", "cpus = \"0\"", "memory = \"0\"", "memory = 0", "processes = 0", "tmp = \"0\""];
    for key in keys {
        fs::write(&policy, format!("[limits]\n{key}\n")).unwrap();
        let done = world.run(&["--policy", policy.to_str().unwrap()], &["touch", "made"]).expect(125);
        assert!(done.err.contains("policy.toml:2:"), "{key}: {}", done.err);
    }
    assert_eq!(world.read("made"), None);
    world.run(&["--pids", "20", "--memory", "100m"], &["touch", "made"]).expect(0);
    assert_eq!(world.read("made").as_deref(), Some(""), "the control");
}

/// S004-25: what is put into memory inside is not executed, and nothing makes somebody else of who runs it.
#[test]
fn nothing_is_executed_in_memory_and_nobody_becomes_root() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let script = |place: &str| {
        format!("cp /bin/cat {place}/program && chmod 755 {place}/program && {place}/program kept")
    };
    world.write("kept", "executed");
    for place in ["/tmp", "/var/tmp", "/dev/shm"] {
        let done = world.run(&flags.with(&[]), &["sh", "-c", &script(place)]).expect(126);
        assert!(done.text().is_empty() && done.err.contains("Permission denied"), "{place}: {}", done.err);
    }
    let workspace = world.workspace.to_str().unwrap();
    let control = world.run(&flags.with(&[]), &["sh", "-c", &script(workspace)]).expect(0);
    assert_eq!(control.text(), "executed", "the control: a place that executes");
    let host = finish(world.host("sh").args(["-c", &script(world.beside("host").to_str().unwrap())]), b"");
    assert_eq!(host.expect(0).text(), "executed", "the control: the host");
    if is_root() {
        a_set_user_program_changes_nobody(&world, &flags);
    }
    podman.nothing_stays();
}

/// A program of root that everybody on the host becomes root by.
fn a_set_user_program_changes_nobody(world: &World, flags: &Flags) {
    let program = world.workspace.join("id");
    finish(world.host("cp").arg("/usr/bin/id").arg(&program), b"").expect(0);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(world.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let other = ["--reuid", "65534", "--clear-groups", program.to_str().unwrap(), "-u"];
    let control = finish(world.host("setpriv").args(other), b"").expect(0);
    assert_eq!(control.text(), "0\n", "the control");
    assert_eq!(world.run(&flags.with(&[]), &["./id", "-u"]).expect(0).text(), "1000\n");
    fs::remove_file(&program).unwrap();
}
