//! What breaks closes: no flow without a record, a name, an answer.

use std::fs;

use serde_json::Value;

use crate::internet::Internet;
use crate::testkit::{collect, eventually, processes_with};

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
    rustix::process::kill_process(inside, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
    eventually("everything inside is gone", || processes_with(&marker).is_empty());
    world.write("go", "");
    assert_eq!(internet.came_to("30.0.0.10"), 1);
    // The next start finds what was left and closes it.
    internet.run(WEB, &["true"]).expect(0);
    let records: Vec<Value> = world.records();
    assert!(records.iter().any(|record| record["event"]["kind"] == "interrupted"), "{records:?}");
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
