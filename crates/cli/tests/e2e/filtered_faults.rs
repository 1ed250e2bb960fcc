//! What breaks closes: no flow without a record, a name, an answer.

use std::fs;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::filtered_secrets::{FLAGS, with_key};
use crate::internet::Internet;
use crate::test_timeouts::ended;
use crate::testkit::{collect, eventually, finish, processes_with, quoted};

const WEB: &[&str] = &["--net", "filtered", "--allow-host", "web.test", "--allow-host", "stall.test"];
const WAIT: &str = "touch up; while ! [ -e go ]; do sleep 0.05; done; ";

/// No ledger, no flow: moved away, or not to be written, while a command runs.
#[test]
fn a_ledger_that_cannot_be_written_closes_the_network() {
    let internet = Internet::new();
    let world = &internet.world;
    let child = internet.start(
        WEB,
        &format!("curl -sS https://web.test/ >first; {WAIT} curl -sS https://web.test/ >second 2>&1"),
    );
    eventually("the first flow", || world.workspace.join("up").exists());
    assert_eq!(internet.came_to("30.0.0.10"), 1, "the control: it works while the ledger is there");
    let ledger = world.ledger_path();
    fs::rename(&ledger, ledger.with_extension("away")).unwrap();
    world.write("go", "");
    collect(child);
    assert_eq!(internet.came_to("30.0.0.10"), 1);
    assert!(!world.read("second").unwrap().contains("hello"));
}

/// No record, no question to a name server: under a wildcard the name is chosen inside, and can carry what is read there.
#[test]
fn a_name_is_not_asked_for_before_its_flow_is_recorded() {
    let internet = Internet::new();
    let world = &internet.world;
    let wild = ["--net", "filtered", "--allow-host", "*.web.test"];
    let get = |name: &str| format!("curl -sS --max-time 10 https://{name}.web.test/ >{name} 2>&1");
    let script = format!("{}; {WAIT} {}; true", get("control-1"), get("stolen-2"));
    let child = internet.start(&wild, &script);
    eventually("the first flow", || world.workspace.join("up").exists());
    let asked = |name: &str| internet.names_asked().iter().filter(|asked| asked.contains(name)).count();
    assert!(asked("control-1") > 0, "the control: with a ledger it is asked for");
    let ledger = world.ledger_path();
    fs::rename(&ledger, ledger.with_extension("away")).unwrap();
    world.write("go", "");
    collect(child);
    assert_eq!(asked("stolen-2"), 0, "{:?}", internet.names_asked());
}

/// The state of ringfence on a small disk of its own.
fn state_on_a_small_disk(internet: &Internet) {
    let state = quoted(&internet.world.state);
    internet.arrange(&format!("mount -t tmpfs -o size=16m,mode=700 tmpfs {state}"));
}

/// No room for a record, no flow; room again, flows again.
#[test]
fn a_full_disk_closes_the_network() {
    let internet = Internet::new();
    let world = &internet.world;
    state_on_a_small_disk(&internet);
    let get = "curl -sS --max-time 20 https://web.test/";
    let child = internet.start(WEB, &format!("{get} >first; {WAIT} {get} >second 2>&1; true"));
    eventually("the first flow", || world.workspace.join("up").exists());
    assert_eq!(internet.came_to("30.0.0.10"), 1, "the control: it works while there is room");
    let filler = quoted(world.state.join("filler"));
    internet.arrange(&format!("! dd if=/dev/zero of={filler} bs=4096 2>/dev/null"));
    world.write("go", "");
    collect(child);
    assert_eq!(internet.came_to("30.0.0.10"), 1);
    assert!(!world.read("second").unwrap().contains("hello"));
    internet.arrange(&format!("rm {filler}"));
    internet.run(WEB, &["curl", "-sS", "https://web.test/"]).expect(0);
    assert_eq!(internet.came_to("30.0.0.10"), 2);
    finish(internet.ringfence().args(["ledger", "verify"]), b"").expect(0);
}

#[test]
fn a_ledger_that_can_only_be_read_closes_everything() {
    let internet = Internet::new();
    state_on_a_small_disk(&internet);
    let get = || internet.run(WEB, &["sh", "-c", "touch ran; curl -sS https://web.test/"]);
    get().expect(0);
    let ran = internet.world.workspace.join("ran");
    fs::remove_file(&ran).unwrap();
    let state = quoted(&internet.world.state);
    internet.arrange(&format!("mount -o remount,ro {state}"));
    let done = get();
    assert!(matches!(done.code, Some(125 | 126)), "{:?} {}", done.code, done.err);
    assert!(!ran.exists() && internet.came_to("30.0.0.10") == 1, "{}", done.err);
    internet.arrange(&format!("mount -o remount,rw {state}"));
    get().expect(0);
}

/// A host whose certificate nobody can vouch for is closed, although the client would take any, and is not tunnelled instead.
#[test]
fn n24_without_roots_an_inspected_host_is_closed() {
    let internet = Internet::new();
    with_key(&internet);
    let script = "curl -sSk --max-time 20 -o /dev/null -w '%{http_code}' -H \"Authorization: Bearer $MODEL_API_KEY\" https://web.test/echo";
    let get = || internet.run(FLAGS, &["sh", "-c", script]);
    assert_eq!(get().expect(0).text(), "200", "the control");
    let roots = internet.place.join("roots.pem");
    let good = fs::read(&roots).unwrap();
    internet.forget_visits();
    for broken in [&b""[..], b"-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n"] {
        fs::write(&roots, broken).unwrap();
        let done = get();
        assert_ne!(done.text(), "200", "{}", done.err);
        assert_eq!(internet.came_to("30.0.0.10"), 0, "{:?}", internet.visits());
    }
    fs::write(&roots, good).unwrap();
    assert_eq!(get().expect(0).text(), "200");
}

/// A proxy that stands still lets nothing pass, and goes on where it was.
#[test]
fn n24_a_stopped_ringfence_lets_nothing_pass() {
    let internet = Internet::new();
    let world = &internet.world;
    let script = format!("touch up; {WAIT} touch asking; curl -sS --max-time 60 https://web.test/");
    let child = internet.start(WEB, &script);
    eventually("it runs", || world.workspace.join("up").exists());
    let ringfence = internet.pid_of_ringfence(&child);
    kill_process(ringfence, Signal::STOP).unwrap();
    world.write("go", "");
    eventually("it asks", || world.workspace.join("asking").exists());
    // Whether it is led past somebody who stands still shows within this time, if at all.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(internet.came_to("30.0.0.10"), 0);
    kill_process(ringfence, Signal::CONT).unwrap();
    assert_eq!(collect(child).expect(0).text(), "hello from 30.0.0.10\n");
}

#[test]
fn a_silent_resolver_closes_and_a_working_one_opens_again() {
    let internet = Internet::new();
    let silent = internet.place.join("resolver-is-silent");
    fs::write(&silent, "").unwrap();
    let get = || internet.run(WEB, &["curl", "-sS", "--max-time", "40", "https://web.test/"]);
    let done = get();
    assert_ne!(done.code, Some(0));
    assert_eq!(internet.came_to("30.0.0.10"), 0);
    fs::remove_file(&silent).unwrap();
    get().expect(0);
}

#[test]
fn a_stalling_server_holds_up_nobody_else() {
    let internet = Internet::new();
    let script = "curl -sS --max-time 60 https://stall.test/ & for i in 1 2 3; do curl -sS https://web.test/; done; kill %1";
    let done = internet.run(WEB, &["sh", "-m", "-c", script]);
    assert_eq!(done.text().matches("hello").count(), 3, "{}", done.err);
}

/// When Ringfence is killed, everything inside is gone, and with it every flow.
#[test]
fn nothing_outlives_a_killed_ringfence() {
    let internet = Internet::new();
    let world = &internet.world;
    let marker = crate::testkit::marker(world);
    let script = format!(": {marker}; curl -sS https://web.test/ >first; {WAIT} curl -sS https://web.test/");
    let mut child = internet.start(WEB, &script);
    eventually("the first flow", || world.workspace.join("up").exists());
    let inside = internet.pid_of_ringfence(&child);
    kill_process(inside, Signal::KILL).unwrap();
    ended("ringfence, killed", &mut child);
    eventually("everything inside is gone", || processes_with(&marker).is_empty());
    world.write("go", "");
    assert_eq!(internet.came_to("30.0.0.10"), 1);
    // The next start finds what was left and closes it.
    internet.run(WEB, &["true"]).expect(0);
    let records: Vec<Value> = world.records();
    assert!(records.iter().any(|record| record["event"]["kind"] == "call-interrupted"), "{records:?}");
    world.ledger_tool(&["verify"]).expect(0);
}

/// A backend that cannot hold it refuses.
#[test]
fn a_backend_without_a_network_of_its_own_refuses() {
    let internet = Internet::new();
    let flags = [WEB, crate::testkit::LANDLOCK].concat();
    let done = internet.run(&flags, &["touch", "made"]);
    assert_ne!(done.code, Some(0));
    assert!(!internet.world.workspace.join("made").exists());
    if internet.knows_root() {
        internet
            .run(&[WEB, &["--backend", "bubblewrap"]].concat(), &["curl", "-sS", "https://web.test/"])
            .expect(0);
    }
}

/// Without its salt two findings of one secret cannot be told to be one: there is no network, instead of one without that.
#[test]
fn without_its_salt_there_is_no_network() {
    let internet = Internet::new();
    let state = internet.world.state.join("ringfence");
    internet.run(WEB, &["true"]).expect(0);
    fs::remove_file(state.join("salt")).unwrap();
    fs::create_dir(state.join("salt")).unwrap();
    let done = internet.run(WEB, &["sh", "-c", "touch made; curl -sS https://web.test/"]);
    assert_eq!(done.code, Some(125), "{}", done.err);
    assert!(!internet.world.workspace.join("made").exists());
    assert_eq!(internet.came_to("30.0.0.10"), 0);
    // The control: a new one is made where there is none.
    fs::remove_dir(state.join("salt")).unwrap();
    internet.run(WEB, &["curl", "-sS", "https://web.test/"]).expect(0);
    assert_eq!(internet.came_to("30.0.0.10"), 1);
}
