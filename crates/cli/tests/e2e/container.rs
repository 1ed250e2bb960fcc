//! Sessions in containers: real Podman, rootful as root and rootless as anybody else, with an image made here.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;

use ringfence_authz::Policy;
use ringfence_authz::env::ApproverPresence;
use ringfence_runtime::images::ImageRequest;
use ringfence_runtime::{CallEnd, CommandIo, HostSetup, OutputTarget, Runtime, SessionSpec, StdinSource};
use ringfence_types::{Backend, ByteString, Call, ExecCall, NetMode, Profile, StandardInput};
use rustix::process::Signal;
use serde_json::Value;

use crate::attempts::all_held;
use crate::everyday_work;
use crate::internet::Internet;
use crate::podman::Podman;
use crate::terminal::Terminal;
use crate::test_timeouts::{LIFETIME, Patient, joined};
use crate::testkit::{
    collect, contains, eventually, finish, finish_within, is_held, is_root, marker, processes_with, send,
};

fn not_held(object: &Value) -> Vec<&String> {
    let controls = object["posture"]["controls"].as_object().unwrap();
    controls.iter().filter(|(_, level)| !is_held(level)).map(|(name, _)| name).collect()
}

/// S003-4…9, S003-20, S003-33, S003-41, S004-2, S004-5, S004-6, C-22, C-25: a container is made, used and gone; who is
/// inside is not root, and what they write belongs to the caller.
#[test]
fn a_command_runs_in_an_image_and_nothing_stays() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let object = world.json(&flags.with(&[]), &["sh", "-c", "id -u; echo to-err >&2; echo x >probe; exit 7"]);
    assert_eq!(object["exit_code"], 7, "{object}");
    assert_eq!(object["stderr"], "to-err\n");
    let uid: u32 = object["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert_ne!(uid, 0);
    assert_eq!(object["posture"]["backend"], "container");
    assert!(not_held(&object).is_empty(), "{object}");
    let probe = fs::metadata(world.workspace.join("probe")).unwrap();
    assert_eq!(probe.uid(), rustix::process::geteuid().as_raw());
    podman.nothing_stays();

    let script = "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t' ' '; cat /proc/net/dev | wc -l";
    let done = world.run(&flags.with(&[]), &["sh", "-c", script]).expect(0);
    let none = "0".repeat(16);
    assert_eq!(
        done.text(),
        format!("CapBnd: {none}\nCapEff: {none}\nNoNewPrivs: 1\nSeccomp: 2\n3\n").replace(
            &format!("CapBnd: {none}\nCapEff: {none}\n"),
            &format!("CapEff: {none}\nCapBnd: {none}\n")
        )
    );
    for place in ["/etc/x", "/usr/x", "/x", "/dev/x", "/var/x", "/run/x", "/.ringfence/x"] {
        let done = world.run(&flags.with(&[]), &["sh", "-c", &format!("echo x >{place}")]);
        assert_eq!(done.code, Some(2), "{place}: {}", done.err);
        let why = ["Read-only file system", "Permission denied", "Directory nonexistent"];
        assert!(why.iter().any(|why| done.err.contains(why)), "{place}: {}", done.err);
    }
}

/// S003-7, S003-8, S003-35, S004-23: exec semantics are those of `native`.
#[test]
fn streams_exits_signals_and_limits_are_those_of_native() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let echo =
        finish(world.ringfence().arg("run").args(flags.with(&[])).args(["--", "cat"]), b"through\0bytes");
    assert_eq!(echo.expect(0).out, b"through\0bytes");
    world.run(&flags.with(&[]), &["sh", "-c", "kill -TERM $$"]).expect(143);
    world.run(&flags.with(&[]), &["no-such-program"]).expect(127).says("No such file");

    let mark = marker(&world);
    let script = format!("sh -c 'sleep 1000 # {mark}' & setsid sh -c 'sleep 1000 # {mark}' & sleep 1000");
    world.run(&flags.with(&["--timeout", "1s"]), &["bash", "-c", &script]).expect(124);
    assert_eq!(processes_with(&mark), Vec::<String>::new());

    let capped = world.json(&flags.with(&["--max-output", "1k"]), &["sh", "-c", "head -c 100000 /dev/zero"]);
    assert_eq!(capped["outcome"]["stdout"]["dropped"], 100_000 - 1024, "{capped}");
    let big =
        world.run(&flags.with(&["--file-size", "1m"]), &["dd", "if=/dev/zero", "of=big", "bs=1M", "count=3"]);
    assert_eq!(big.code, Some(153), "the signal for files that are too large: {}", big.err);
    assert_eq!(fs::metadata(world.workspace.join("big")).unwrap().len(), 1 << 20);

    let script = "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; echo all-60-started";
    let object = world.json(&flags.with(&["--pids", "20"]), &["bash", "-c", script]);
    assert!(!object["stdout"].as_str().unwrap().contains("all-60"), "{object}");
    let hog = "x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo kept ${#x}";
    let control = finish(world.host("bash").args(["-c", hog]), b"").expect(0);
    assert_eq!(control.text(), "kept 300000000\n");
    let object = world.json(&flags.with(&["--memory", "100m"]), &["bash", "-c", hog]);
    assert!(!object["stdout"].as_str().unwrap().contains("kept"), "{object}");
    if is_root() {
        assert_eq!(object["outcome"]["limit_hit"], "memory", "{object}");
    }

    let terminal = Terminal::new(30, 90);
    let mut command = world.ringfence();
    command.arg("run").args(flags.with(&[])).args(["--", "sh", "-c", "stty size; read x; echo got-$x"]);
    let child = command.stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end()).spawn().unwrap();
    terminal.wait_for("30 90");
    terminal.type_in(b"word\n");
    terminal.wait_for("got-word");
    assert_eq!(collect(child).code, Some(0));
    podman.nothing_stays();
}

/// S003-3, S003-5, S003-34, S003-43, S004-2: none, read-only and read-write; hidden and protected files as in `native`.
/// Each attempt gets through on the host.
#[test]
fn the_workspace_is_held_as_in_native() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    world.repository();
    let secret = marker(&world);
    world.write(".env", &secret);
    world.write("sub/key.pem", &secret);
    std::os::unix::fs::symlink("sub/key.pem", world.workspace.join("innocent")).unwrap();
    let outside = world.beside("outside");
    fs::write(outside.join("file"), &secret).unwrap();
    let read = format!("cat .env sub/key.pem innocent {}/file", outside.display());
    let control = finish(world.host("sh").args(["-c", &read]), b"").expect(0);
    assert_eq!(control.text(), secret.repeat(4));
    let done = world.run(&flags.with(&[]), &["sh", "-c", &read]);
    assert!(!done.text().contains(&secret), "{}", done.text());

    let steer = "echo x >.git/hooks/pre-commit; echo x >>.git/config; mkdir .claude; echo x >.claude/settings.json; mv .git g";
    world.run(&flags.with(&[]), &["sh", "-c", steer]);
    assert!(!world.workspace.join(".git/hooks/pre-commit").exists());
    assert!(!world.read(".git/config").unwrap().ends_with("x\n"));
    assert!(!world.workspace.join(".claude").exists() && !world.workspace.join("g").exists());
    world
        .run(
            &flags.with(&[]),
            &["sh", "-c", "echo two >>readme && git -c user.name=n -c user.email=e commit -qam second"],
        )
        .expect(0);
    assert_eq!(world.git(&world.workspace, &["log", "--format=%s"]), "second\nfirst\n");

    let shown = outside.to_str().unwrap();
    let overwrite = format!("cat {shown}/file; echo x >{shown}/file; echo x >{shown}/new");
    let done = world.run(&flags.with(&["--read", shown]), &["sh", "-c", &overwrite]);
    assert_eq!(done.text(), secret);
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), secret);
    assert!(!outside.join("new").exists());
    world.run(&flags.with(&["--write", shown]), &["sh", "-c", &overwrite]).expect(0);
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "x\n");

    let policy = world.home.join("policy.toml");
    fs::write(&policy, "workspace_access = \"read\"\n").unwrap();
    let flagged = flags.with(&["--policy", policy.to_str().unwrap()]);
    world.run(&flagged, &["sh", "-c", "cat readme && echo x >new"]).expect(2).says("Read-only file system");
    assert!(!world.workspace.join("new").exists());
    // The control: what was refused is possible where the policy is not read-only.
    world.run(&flags.with(&[]), &["sh", "-c", "echo x >new"]).expect(0);
    assert!(world.workspace.join("new").exists());
}

/// S004-16, S004-17: a secret is a file in memory; the engine never knows it.
#[test]
fn a_secret_is_a_file_that_the_engine_does_not_know() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let value = format!("value-of-{}", marker(&world));
    finish(world.ringfence().args(["secret", "set", "tool-key"]), value.as_bytes()).expect(0);
    let script = "stat -c %a \"$TOOL_KEY_FILE\"; wc -c <\"$TOOL_KEY_FILE\"; echo started; read x; env";
    let mut command = world.ringfence();
    command.arg("run").args(flags.with(&["--secret", "tool-key"])).args(["--", "sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = Patient(child.stdout.take().unwrap());
    let mut said = Vec::new();
    while !contains(&said, b"started") {
        let mut some = [0; 64];
        let count = stdout.read(&mut some).unwrap();
        assert_ne!(count, 0, "it ended: {}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&some[..count]);
    }
    assert!(
        said.starts_with(format!("400\n{}\n", value.len()).as_bytes()),
        "{}",
        String::from_utf8_lossy(&said)
    );
    let running = podman.containers();
    let inspected = podman.podman(&["inspect", &running[0]]).expect(0).text();
    assert!(inspected.contains("\"ringfence\"") && !inspected.contains(&value));
    child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    stdout.read_to_end(&mut said).unwrap();
    assert_eq!(collect(child).code, Some(0));
    assert!(!contains(&said, value.as_bytes()));
}

/// C-24, S004-3: what is not pinned, listed and closed is refused, and says what would change that. Nothing falls back
/// to another backend, in either direction.
#[test]
fn what_a_container_may_not_be_is_refused() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let socket = podman.socket();
    let engine = ["--engine", socket.to_str().unwrap()];
    let attempt = |flags: &[&str]| {
        let done = world.run(flags, &["sh", "-c", "echo ran >ran"]);
        assert!(!world.workspace.join("ran").exists(), "{flags:?}");
        done
    };
    let container = |more: &[&'static str]| [&["--backend", "container"], &engine[..], more].concat();
    attempt(&container(&[])).expect(126).says("needs an image").says("image list");
    attempt(&container(&["--image", "other"])).expect(126).says("not on the operator's list");
    attempt(&["--image", "dev"]).expect(126).says("backend is not `container`");
    attempt(&["--backend", "native", "--image", "dev"]).expect(126).says("backend is not `container`");
    attempt(&flags.with(&["--read", "/etc/ssl"])).expect(126).says("part of the system");
    let near = socket.parent().unwrap().to_str().unwrap();
    attempt(&flags.with(&["--read", near])).expect(126).says("engine's own socket");
    attempt(&["--backend", "container", "--image", "dev", "--engine", "/nonexistent/sock"])
        .expect(125)
        .says("no engine")
        .says("podman system service");

    let odd = world.beside("w,dst=,etc");
    attempt(&flags.with(&["--write", odd.to_str().unwrap()]))
        .expect(126)
        .says("the engine does not support the path");
    let refusals: Vec<Value> =
        world.records().into_iter().filter(|record| record["event"]["kind"] == "call-refused").collect();
    assert_eq!(refusals.len(), 7, "{refusals:?}");
    world.run(&flags.with(&[]), &["sh", "-c", "echo ran >ran"]).expect(0);
    assert!(world.workspace.join("ran").exists());
}

/// C-24: a name is one digest, whatever the engine's tags come to mean; nothing is pulled.
#[test]
fn images_are_pinned_by_digest() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let image = |arguments: &[&str]| podman.images(&world, arguments);
    let listed = image(&["list", "--json"]).expect(0).json();
    let id = listed["images"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&listed["images"][0]["name"], &listed["images"][0]["present"]),
        (&"dev".into(), &true.into())
    );
    image(&["add", "again", &id]).expect(0);
    image(&["add", "absent", "localhost/never:1"])
        .expect(125)
        .says("does not have the image")
        .says("never pulled");

    // The tag moves to another image; the name does not.
    let archive = world.home.join("other.tar");
    fs::write(world.home.join("marker"), "other").unwrap();
    let home = world.home.to_str().unwrap();
    let owner = ["--owner=0", "--group=0"];
    finish(world.host("tar").args(owner).args(["-cf", archive.to_str().unwrap(), "-C", home, "marker"]), b"")
        .expect(0);
    podman.podman(&["import", archive.to_str().unwrap(), "localhost/ringfence/dev:latest"]).expect(0);
    image(&["add", "dev", "localhost/ringfence/dev:latest"])
        .expect(125)
        .says("another digest")
        .says("image rm dev");
    world.run(&flags.with(&[]), &["sh", "-c", "test ! -e /marker"]).expect(0);
    image(&["verify", "dev"]).expect(0);

    podman.podman(&["rmi", "--force", &id]).expect(0);
    let verified = image(&["verify", "dev"]).expect(1);
    assert!(verified.text().contains("MISSING"), "{}", verified.text());
    world.run(&flags.with(&[]), &["true"]).expect(125).says("does not have the image");
    let changes = world.records();
    let changed = changes.iter().filter(|record| record["event"]["kind"] == "policy-changed").count();
    assert_eq!(changed, 2, "what agents run in is on the record");

    let list = world.home.join(".config/ringfence/images.toml");
    fs::set_permissions(&list, fs::Permissions::from_mode(0o666)).unwrap();
    world.run(&flags.with(&[]), &["true"]).expect(126).says("written by others");
}

/// C-23, S003-9: whatever ends, nothing stays.
#[test]
fn nothing_outlives_its_session() {
    let mut podman = Podman::start();
    let (world, flags) = podman.world();
    let mark = marker(&world);
    let begin = || {
        let script = format!("echo started; sleep 1000 # {mark}; true");
        let mut command = world.ringfence();
        command.arg("run").args(flags.with(&[])).args(["--", "sh", "-c", &script]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 8];
        Patient(child.stdout.as_mut().unwrap()).read_exact(&mut said).unwrap();
        assert_eq!(&said, b"started\n");
        child
    };
    // Killed without a chance to clean up.
    let child = begin();
    assert_eq!(podman.containers().len(), 1);
    send(&child, Signal::KILL);
    assert_eq!(collect(child).signal, Some(9));
    eventually("the container goes with its session", || podman.containers().is_empty());
    eventually("its processes, too", || processes_with(&mark).iter().all(|found| !found.contains("sleep")));

    // Two at once, one of them killed from outside.
    let (first, second) = (begin(), begin());
    let running = podman.containers();
    assert_eq!(running.len(), 2);
    podman.podman(&["kill", &running[0]]).expect(0);
    eventually("one has ended", || podman.containers().len() == 1);
    send(&first, Signal::TERM);
    send(&second, Signal::TERM);
    let codes = [collect(first), collect(second)].map(|done| done.code);
    assert!(codes.contains(&Some(125)) && codes.contains(&Some(143)), "{codes:?}");
    podman.nothing_stays();

    // The engine goes away while a command runs: the command does not notice, and still nothing stays.
    let child = begin();
    podman.stop();
    send(&child, Signal::TERM);
    assert_eq!(collect(child).code, Some(143));
    podman.start_again();
    eventually("it is removed without the service", || podman.containers().is_empty());
}

/// C-23: what a session left that was killed before its container started is swept by the next; what belongs to a living
/// one, or to nobody we know, stays.
#[test]
fn orphans_are_swept_at_the_next_start() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let id = podman.id(&world);
    let mut sleeper = world.ringfence();
    sleeper.arg("run").args(flags.with(&[])).args(["--", "sh", "-c", "echo started; sleep 1000"]);
    let mut sleeper =
        sleeper.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    Patient(sleeper.stdout.as_mut().unwrap()).read_exact(&mut [0; 8]).unwrap();
    let living = podman.containers();
    let inspected: Value = serde_json::from_str(&podman.podman(&["inspect", &living[0]]).text()).unwrap();
    let labels = &inspected[0]["Config"]["Labels"];
    let (registry, owner) =
        (labels["io.ringfence.registry"].as_str().unwrap(), labels["io.ringfence.owner"].as_str().unwrap());
    let (before, started) = owner.rsplit_once('-').unwrap();
    let dead = format!("{before}-{}", started.parse::<u64>().unwrap() + 1);
    let create = |name: &str, registry: &str, owner: &str| {
        let (registry, owner) =
            (format!("io.ringfence.registry={registry}"), format!("io.ringfence.owner={owner}"));
        podman
            .podman(&[
                "create",
                "--name",
                name,
                "--network",
                "none",
                "--label",
                &registry,
                "--label",
                &owner,
                &id,
                "true",
            ])
            .expect(0)
            .text()
    };
    let orphan = create("ringfence-container-1-orphan", registry, &dead);
    let foreign = create("ringfence-container-1-foreign", "0000000000000000", &dead);
    // An image can have our labels; what somebody else has made of it is not ours.
    let imitated = create("own", registry, &dead);
    assert_eq!(podman.containers().len(), 4);
    world.run(&flags.with(&[]), &["true"]).expect(0);
    eventually("the orphan and what swept it are gone", || podman.containers().len() == 3);
    let left = podman.containers();
    assert!(!left.contains(&orphan.trim().to_owned()));
    assert!(left.contains(&foreign.trim().to_owned()) && left.contains(&living[0]));
    assert!(left.contains(&imitated.trim().to_owned()));
    send(&sleeper, Signal::TERM);
    assert_eq!(collect(sleeper).code, Some(143));
}

/// C-23, S004-10, S004-23, S004-24: one container for all calls of a session; it keeps what calls leave in /tmp, and goes
/// with the session.
#[test]
fn calls_of_a_session_share_one_container() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    let setup = HostSetup {
        state_dir: world.state.join("ringfence"),
        config_dir: world.home.join(".config/ringfence"),
        home: Some(world.home.clone()),
        host_env: Vec::new(),
        attendance: ApproverPresence::Unattended,
        toolchains: Vec::new(),
        files: Vec::new(),
        sweeper: None,
        own: Vec::new(),
    };
    let runtime = Runtime::open(setup).unwrap();
    let mut policy = Policy::new(Profile::Workspace);
    policy.backend = Some(Backend::Container);
    let mut asked = SessionSpec::new(world.workspace.clone(), policy);
    asked.image = Some(ImageRequest { name: "dev".parse().unwrap(), engine: podman.socket(), runtime: None });
    let mut session = runtime.session(asked).unwrap().unwrap();
    let mut call = |script: &str| {
        let argv = ["sh", "-c", script].map(ByteString::from).to_vec();
        let cwd = ByteString::from(world.workspace.as_path());
        let call = Call::Exec(ExecCall {
            argv,
            cwd,
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        });
        let mut stdout = Vec::new();
        let io = CommandIo {
            stdin: StdinSource::Empty,
            stdout: OutputTarget::Buffer(&mut stdout),
            stderr: OutputTarget::Discard,
            interrupts: &[],
            timeout: None,
            output_bytes: 0,
        };
        let settled = session.call(call, io);
        let CallEnd::Executed(outcome) = settled.ended else { panic!("{:?}", settled.ended) };
        (outcome.exit.code(), String::from_utf8(stdout).unwrap())
    };
    assert_eq!(call("echo kept >/tmp/f; exit 4"), (4, String::new()));
    let first = podman.containers();
    assert_eq!(first.len(), 1);
    for number in 0..20 {
        assert_eq!(call(&format!("cat /tmp/f # {number}")), (0, "kept\n".to_owned()));
    }
    assert_eq!(podman.containers(), first);
    session.end().unwrap();
    podman.nothing_stays();
}

/// Without the variables that lead to the proxy: what is left is led there by the namespace.
const UNAWARE: &str = "unset $(env | cut -d= -f1 | grep -i '_proxy$'); exec \"$@\"";

/// S004-3: the filtered network of a container is the one of `native`, for clients that know of the proxy and for others.
#[test]
fn a_container_reaches_the_allowed_host_and_no_other() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let web = flags.with(&["--net", "filtered", "--allow-host", "web.test"]);
    let get = |url: &'static str| ["curl", "-sS", "--fail", "--max-time", "20", url];
    let ways = [&[][..], &["sh", "-c", UNAWARE, "sh"]];
    for before in ways {
        let other = world.run(&web, &[before, &get("http://other.test/")].concat());
        assert_eq!((other.code, other.text().as_str()), (Some(22), ""), "{}", other.err);
        assert!(other.err.contains("--allow-host other.test"), "{}", other.err);
    }
    if is_root() {
        // Only root can have an internet of its own in which the operator's files are still the operator's.
        let internet = Internet::new();
        let flags = podman.equip_by(internet.ringfence());
        let web = flags.with(&["--net", "filtered", "--allow-host", "web.test"]);
        for before in ways {
            let allowed = internet.run(&web, &[before, &get("http://web.test/")].concat()).expect(0);
            assert_eq!(allowed.text(), "hello from 30.0.0.10\n");
            internet.forget_visits();
            internet.run(&web, &[before, &get("http://other.test/")].concat()).expect(22);
            assert_eq!(internet.visits(), Vec::<Value>::new());
        }
        let control = internet.control(&get("http://other.test/")).expect(0);
        assert_eq!(control.text(), "hello from 30.0.0.20\n");
    }
    podman.nothing_stays();
}

/// S004-3: an allowed flow, rootful as root and rootless as anybody else: to a server of this machine, which a rule opens by name.
#[test]
fn a_container_reaches_what_a_rule_opens_on_this_machine() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut request = [0; 1024];
        let count = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved").unwrap();
        String::from_utf8_lossy(&request[..count]).into_owned()
    });
    let policy = world.home.join("policy.toml");
    fs::write(&policy, format!("[[host]]\nallow = [\"localhost:{port}\"]\nallow_private_addresses = true\n"))
        .unwrap();
    let flags = flags.with(&["--net", "filtered", "--policy", policy.to_str().unwrap()]);
    let get = |port: u16| {
        let url = format!("http://localhost:{port}/x");
        world.run(&flags, &["curl", "--noproxy", "", "-sS", "--max-time", "20", &url])
    };
    let other = get(port.wrapping_add(1));
    assert!(other.err.contains("is not allowed for this host"), "{}", other.err);
    assert_eq!(get(port).expect(0).text(), "served");
    assert!(joined("the server has answered", served).starts_with("GET /x "));
    let flows = world.records();
    assert!(flows.iter().any(|record| record["event"]["kind"] == "call-intended"
        && record.to_string().contains(&format!("\"port\":{port}"))));
}

/// S003-43: what people do all day works in an image as well.
#[test]
fn legitimate_work_passes_in_a_container() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    for (what, script, expected) in everyday_work::CASES {
        let done = world.run(&flags.with(&[]), &["sh", "-c", script]);
        assert_eq!((done.code, done.text().as_str()), (Some(0), expected), "{what}: {}", done.err);
    }
    // Compilers and languages, with the machine's own instead of another image of a gigabyte.
    everyday_work::real_tools_work(&world, &flags.with(&["--read", "/usr"]));
}

/// S004-8: an engine counts when it answers and starts something.
#[test]
fn doctor_tries_the_engine() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let doctor = |arguments: &[&str]| finish(world.ringfence().arg("doctor").args(arguments), b"");
    let told = doctor(&flags.with(&["--json"])).expect(0).json();
    let wanted = if is_root() { "rootful" } else { "rootless" };
    assert_eq!(
        (&told["engines"][0]["kind"], &told["engines"][0]["privilege"]),
        (&"podman".into(), &wanted.into())
    );
    assert_eq!(told["backends"][0]["posture"]["backend"], "container", "{told}");
    let nowhere = doctor(&["--engine", "/nonexistent/sock"]).text();
    assert!(nowhere.contains("there is no engine at"), "{nowhere}");
}

/// S003-43: every attempt of the battery, inside a container.
#[test]
fn a_container_holds_every_attempt() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let flags = flags.with(&["--attack", "--json"]);
    // More than the patience of `finish`: it is some two hundred containers.
    let report = finish_within(LIFETIME, world.ringfence().arg("doctor").args(flags), b"").json();
    all_held(&report, "");
    assert_eq!((&report["whole"], &report["backend"]), (&true.into(), &"container".into()));
}

/// The workspace of a container is one of ours: an approval given for one image holds for no other.
#[test]
fn the_image_is_on_the_record() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    world.run(&flags.with(&[]), &["true"]).expect(0);
    let records = world.all_records();
    let started = records.iter().find(|record| record["event"]["kind"] == "session-started").unwrap();
    let id = podman.id(&world);
    assert!(
        started["event"]["policy_digest"].as_str().unwrap().ends_with(&format!("image {id}")),
        "{started}"
    );
}
