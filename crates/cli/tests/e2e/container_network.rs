//! The networks of containers: the whole one, which is the engine's and never the host's, and what no profile may have.

use std::io::ErrorKind;
use std::os::unix::net::UnixListener;

use serde_json::Value;

use crate::internet::Internet;
use crate::podman::{Flags, Podman, Runtime};
use crate::testkit::{World, is_root, names};

const FULL: &[&str] = &["--net", "full"];

fn get(url: &str) -> [&str; 6] {
    ["curl", "-sS", "--fail", "--max-time", "10", url]
}

/// An internet, and an engine on its host. The engine's bridge, rules and leases are in namespaces of the test.
fn engine_on_the_host_of_an_internet() -> (Internet, Podman) {
    let internet = Internet::new();
    internet.arrange("mount -t tmpfs tmpfs /var/lib; mount -t tmpfs tmpfs /run");
    let podman = Podman::with(Runtime::In(internet.holder()));
    (internet, podman)
}

fn json(internet: &Internet, flags: &[&str], command: &[&str]) -> Value {
    internet.run(&[flags, &["--json"]].concat(), command).json()
}

/// S004-3, C-22: with `full` a container reaches what the host reaches, through a network of the engine: not the host's own, and without
/// any right over it. It has to be asked for as in `native`, and is on the record as there.
#[test]
fn a_container_has_the_whole_network_where_it_was_asked_for() {
    if !is_root() {
        return a_network_that_the_engine_cannot_make_is_told();
    }
    let (internet, podman) = engine_on_the_host_of_an_internet();
    let flags = podman.equip_by(internet.ringfence());
    let url = "http://other.test/";
    let reached = "hello from 30.0.0.20\n";
    assert_eq!(internet.control(&get(url)).expect(0).text(), reached, "the control");
    internet.forget_visits();
    for (more, code) in [(&[][..], 6), (&["--net", "none"], 6), (&["--allow-host", "web.test"], 22)] {
        let closed = internet.run(&flags.with(more), &get(url)).expect(code);
        assert_eq!((closed.text(), internet.visits()), (String::new(), Vec::new()), "{more:?}");
    }
    let open = json(&internet, &flags.with(FULL), &get(url));
    assert_eq!((&open["exit_code"], open["stdout"].as_str()), (&0.into(), Some(reached)), "{open}");
    assert_eq!(internet.came_to("30.0.0.20"), 1);
    let native = json(&internet, FULL, &get(url));
    assert_eq!(native["stdout"].as_str(), Some(reached), "{native}");
    assert_ne!(open["posture"]["controls"]["net"], native["posture"]["controls"]["net"], "other networks");
    for object in [&open, &native] {
        assert_eq!(object["posture"]["controls"]["net"]["level"], "absent", "{object}");
        assert!(crate::testkit::is_held(&object["posture"]["controls"]["ipc"]), "{object}");
    }
    it_is_not_the_network_of_the_host(&internet, &flags);
    podman.nothing_stays();
}

fn it_is_not_the_network_of_the_host(internet: &Internet, flags: &Flags) {
    let host = internet.listen_on_host();
    let loopback = format!("http://127.0.0.1:{}/", host.port);
    internet.run(&flags.with(FULL), &get(&loopback)).expect(7);
    assert_eq!(host.visitors(), 0, "the host's loopback");
    // It hangs up on who has something to say, which is an error to curl.
    internet.run(FULL, &get(&loopback));
    assert_eq!(host.visitors(), 1, "the control: in `native` it is the host's network");
    // Names, addresses and rules of it are not the command's to change.
    let change = "for f in /etc/resolv.conf /etc/hosts /proc/sys/net/ipv4/ip_forward; do (echo '# 1' >>$f) 2>/dev/null && echo $f; done; \
                  grep -c 'eth0' /proc/net/dev; grep ^CapEff /proc/self/status | tr -d '\\t'";
    let said = internet.run(&flags.with(FULL), &["sh", "-c", change]).expect(0).text();
    assert_eq!(said, format!("1\nCapEff:{}\n", "0".repeat(16)));
}

/// Without root an engine makes networks with a program that is not there ([`Podman::start`]).
fn a_network_that_the_engine_cannot_make_is_told() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let script = ["sh", "-c", "echo ran >ran"];
    world
        .run(&flags.with(FULL), &script)
        .expect(125)
        .says("cannot make a network for --net full")
        .says("slirp4netns")
        .says("--net filtered");
    assert_eq!(world.read("ran"), None);
    podman.nothing_stays();
    world.run(&flags.with(&[]), &script).expect(0);
    assert_eq!(world.read("ran").as_deref(), Some("ran\n"), "the control");
}

/// S004-1, S004-25: the most that a profile gives holds in a container, and is looked at before the engine is spoken to.
#[test]
fn a_network_above_the_profile_is_refused_before_the_engine_is_asked() {
    let podman = Podman::start();
    let (world, real) = podman.world();
    let place = world.beside("silent");
    let socket = place.join("api.sock");
    let engine = UnixListener::bind(&socket).unwrap();
    engine.set_nonblocking(true).unwrap();
    let was_asked = || !matches!(engine.accept(), Err(error) if error.kind() == ErrorKind::WouldBlock);
    let silent = Flags::of(&socket);
    let before = names(&world.state);
    let policy = world.home.join("policy.toml");
    std::fs::write(&policy, "net = \"filtered\"\n").unwrap();
    let above: [(&[&str], &str); 7] = [
        (&["--profile", "air-gapped", "--net", "filtered"], "none"),
        (&["--profile", "air-gapped", "--allow-host", "web.test"], "none"),
        (&["--profile", "air-gapped", "--net", "full"], "none"),
        (&["--profile", "strict", "--net", "full"], "filtered"),
        (&["--profile", "review", "--net", "full"], "review"),
        (&["--policy", policy.to_str().unwrap(), "--net", "full"], "filtered"),
        (&["--net", "full", "--allow-host", "web.test"], "nothing holds"),
    ];
    for (flags, said) in above {
        world.run(&silent.with(flags), &["ls"]).expect(126).says(said);
        assert!(!was_asked(), "{flags:?}");
    }
    assert_eq!(podman.containers(), Vec::<String>::new());
    assert!(names(&world.state).len() <= before.len() + 1, "nothing but the ledger was made");
    let refusals = world.records().iter().filter(|record| record["event"]["kind"] == "call-refused").count();
    assert_eq!(refusals, above.len());
    // The control: what the profile gives is had, of an engine that answers.
    world.write("readme", "read\n");
    for profile in ["air-gapped", "strict"] {
        let given = world.run(&real.with(&["--profile", profile]), &["cat", "readme"]).expect(0);
        assert_eq!(given.text(), "read\n");
    }
    is_asked_when_it_may(&world, &silent, &engine);
    podman.nothing_stays();
}

/// The control of who was asked: a call that is allowed speaks to the engine.
fn is_asked_when_it_may(world: &World, silent: &Flags, engine: &UnixListener) {
    let mut call = world.ringfence();
    call.arg("run").args(silent.with(&["--profile", "strict"])).args(["--", "ls"]);
    let null = std::process::Stdio::null;
    let mut child = call.stdin(null()).stdout(null()).stderr(null()).spawn().unwrap();
    crate::testkit::eventually("the engine is asked", || engine.accept().is_ok());
    crate::test_timeouts::end(&mut child);
}
