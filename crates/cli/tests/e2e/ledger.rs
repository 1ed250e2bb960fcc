//! Written before done: no record, no effect.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rustix::process::Signal;

use crate::testkit::{World, collect, eventually, finish, send};

fn kinds(world: &World) -> Vec<String> {
    world.records().iter().map(|record| record["event"]["kind"].as_str().unwrap().to_owned()).collect()
}

fn sqlite(world: &World, statement: &str) {
    finish(world.host("sqlite3").arg(world.ledger_path()).arg(statement), b"").expect(0);
}

/// S001-2, S001-4, S003-27, S003-30
#[test]
fn every_run_has_intent_decision_and_outcome() {
    let world = World::new();
    world.sh("exit 3").expect(3);
    let records = world.records();
    assert_eq!(kinds(&world), ["intent", "settled"]);
    let (intent, settled) = (&records[0]["event"], &records[1]["event"]);
    assert_eq!(intent["call"]["argv"], serde_json::json!(["sh", "-c", "exit 3"]));
    assert_eq!(intent["call"]["cwd"], world.workspace.to_str().unwrap());
    assert_eq!((&intent["decision"], &intent["profile"]), (&"allow".into(), &"workspace".into()));
    assert_eq!(intent["roots"][0]["access"], "write");
    assert_eq!(intent["transaction"], settled["transaction"]);
    assert_eq!(settled["outcome"]["exit"]["code"], 3);
    assert_eq!(settled["posture"]["backend"], "native");
    assert!(records[0]["time"].as_str() <= records[1]["time"].as_str());
    world.file(&["write", "note"], b"text").expect(0);
    world.file(&["read", "note"], b"").expect(0);
    assert_eq!(kinds(&world).len(), 6, "file calls as well");
    let done = world.ledger_tool(&["tail"]).expect(0);
    assert!(done.text().contains("write note") && done.text().contains("exit 3 in"), "{}", done.text());
    let id = intent["transaction"].as_str().unwrap();
    let shown = world.ledger_tool(&["show", id]).expect(0).text();
    assert!(shown.contains("\"argv\"") && shown.contains("settled"), "{shown}");
    world.ledger_tool(&["show", "tx_none"]).expect(125);
}

/// While a command runs, what it is has been on disk for a while.
#[test]
fn the_intent_is_there_before_the_effect() {
    let world = World::new();
    let child = world
        .ringfence()
        .args(["run", "--", "sh", "-c", "echo up >up; while [ ! -e go ]; do sleep 0.02; done"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it runs", || world.read("up").is_some());
    assert_eq!(kinds(&world), ["intent"]);
    world.write("go", "");
    collect(child).expect(0);
    assert_eq!(kinds(&world), ["intent", "settled"]);
}

/// S003-29
#[test]
fn refusals_are_in_the_ledger() {
    let world = World::new();
    world.run(&["--env", "LD_PRELOAD=/x"], &["touch", "made"]).expect(126);
    world.run(&["--workspace", "/etc"], &["touch", "made"]).expect(126);
    world.run(&["--backend", "landlock"], &["touch", "made"]).expect(126);
    world.file(&["read", "../outside"], b"").expect(126);
    let records = world.records();
    let codes: Vec<&str> =
        records.iter().filter_map(|record| record["event"]["refusal"]["code"].as_str()).collect();
    assert_eq!(codes, ["environment", "workspace", "floor", "path"]);
    assert_eq!(records[0]["event"]["call"]["argv"], serde_json::json!(["touch", "made"]));
    assert!(!world.workspace.join("made").exists());
    world.ledger_tool(&["verify"]).expect(0);
}

#[test]
fn secrets_in_arguments_are_redacted_in_the_ledger_alone() {
    let world = World::new();
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let done = world.run(&[], &["printf", "%s", &token]).expect(0);
    assert_eq!(done.text(), token, "the command gets what was typed");
    let records = world.records();
    assert!(!serde_json::to_string(&records).unwrap().contains(&token));
    assert_eq!(records[0]["event"]["call"]["argv"][0], "printf");
    assert!(records[0]["event"]["findings"][0].as_str().unwrap().starts_with("argv[2]"), "{}", records[0]);
    let bytes: Vec<u8> = ["ledger.db", "ledger.db-wal"]
        .iter()
        .flat_map(|name| fs::read(world.state.join("ringfence").join(name)).unwrap_or_default())
        .collect();
    assert!(!crate::testkit::contains(&bytes, token.as_bytes()), "not anywhere in the file");
    assert!(!world.ledger_tool(&["show", "1"]).expect(0).text().contains(&token));
}

#[test]
fn an_altered_ledger_is_found_and_nothing_more_is_done() {
    let world = World::new();
    for number in 1..=3 {
        world.sh(&format!("exit {number}")).expect(number);
    }
    let done = world.ledger_tool(&["verify", "--json"]).expect(0);
    assert_eq!((&done.json()["valid"], &done.json()["records"]), (&true.into(), &6.into()));
    let head = done.json()["head"].as_str().unwrap().to_owned();
    world.ledger_tool(&["verify", "--head", &head]).expect(0);
    sqlite(&world, "UPDATE record SET body = replace(body, 'exit 3', 'exit 4') WHERE seq = 5");
    let done = world.ledger_tool(&["verify"]).expect(1);
    assert!(done.err.contains('5'), "it names the record: {}", done.err);
    assert_eq!(world.ledger_tool(&["verify", "--json"]).expect(1).json()["valid"], false);
}

#[test]
fn an_altered_end_of_the_ledger_stops_the_next_run() {
    let world = World::new();
    world.sh("true").expect(0);
    sqlite(&world, "UPDATE record SET body = replace(body, 'settled', 'Settled') WHERE seq = 2");
    world.ledger_tool(&["verify"]).expect(1);
    let done = world.run(&[], &["touch", "made"]);
    assert!(matches!(done.code, Some(125 | 126)), "{:?} {}", done.code, done.err);
    assert!(!world.workspace.join("made").exists());
    sqlite(&world, "DROP TABLE record");
    let done = world.run(&[], &["touch", "made"]);
    assert!(matches!(done.code, Some(125 | 126)), "{:?} {}", done.code, done.err);
    fs::write(world.ledger_path(), "this is not a database").unwrap();
    let done = world.run(&[], &["touch", "made"]);
    assert!(matches!(done.code, Some(125 | 126)), "{:?} {}", done.code, done.err);
    assert!(!world.workspace.join("made").exists());
}

#[test]
fn a_cut_off_ledger_is_seen_with_the_head() {
    let world = World::new();
    world.sh("true").expect(0);
    world.sh("true").expect(0);
    let head = world.ledger_tool(&["verify", "--json"]).expect(0).json()["head"].as_str().unwrap().to_owned();
    sqlite(&world, "DELETE FROM record WHERE seq > 2");
    let done = world.ledger_tool(&["verify", "--head", &head]).expect(1);
    assert!(done.err.contains("does not verify"), "{}", done.err);
    world.ledger_tool(&["verify", "--head", "nonsense"]).expect(125);
}

#[test]
fn without_a_place_to_write_nothing_is_done() {
    let world = World::new();
    let file = world.beside("x").join("file");
    fs::write(&file, "").unwrap();
    let closed = world.beside("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let mut places = vec![file.clone(), file.join("below")];
    if !crate::testkit::is_root() {
        places.push(closed);
    }
    for place in places {
        let mut command = world.ringfence();
        command.env("XDG_STATE_HOME", &place).args(["run", "--", "touch", "made"]);
        let done = finish(&mut command, b"");
        assert!(matches!(done.code, Some(125 | 126)), "{}: {:?}", place.display(), done.code);
        assert!(done.err.contains("nothing is done"), "{}", done.err);
        let mut command = world.ringfence();
        command.env("XDG_STATE_HOME", &place).args(["file", "write", "made"]);
        assert!(matches!(finish(&mut command, b"x").code, Some(125 | 126)));
    }
    assert!(!world.workspace.join("made").exists());
}

/// What the kernel sends to who writes beyond `ulimit -f`.
const SIGXFSZ: i32 = 25;

/// A full disk, as far as one process can have one.
#[test]
fn with_no_room_for_the_record_nothing_is_done() {
    let world = World::new();
    let script = "ulimit -f 0; exec \"$RINGFENCE\" run -- touch made";
    for prepared in ["no ledger yet", "a ledger"] {
        let done = finish(world.host("sh").args(["-c", script]), b"");
        assert!(!world.workspace.join("made").exists(), "{prepared}: it was done without a record");
        assert!(
            matches!((done.code, done.signal), (Some(125 | 126), _) | (_, Some(SIGXFSZ))),
            "{prepared}: {done:?}"
        );
        world.sh("true").expect(0);
    }
}

#[test]
fn a_killed_run_stays_incomplete_in_the_record() {
    let world = World::new();
    let child = world
        .ringfence()
        .args(["run", "--", "sh", "-c", "echo up >up; exec sleep 600"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it runs", || world.read("up").is_some());
    send(&child, Signal::KILL);
    collect(child);
    world.sh("true").expect(0);
    let checked = world.ledger_tool(&["verify", "--json"]).expect(0).json();
    assert_eq!(checked["valid"], true);
    let transaction = world.records()[0]["event"]["transaction"].clone();
    assert_eq!(checked["incomplete"], serde_json::json!([transaction]));
    assert!(world.ledger_tool(&["verify"]).expect(0).text().contains("incomplete"));
}

#[test]
fn two_runs_at_once_make_one_chain() {
    let world = World::new();
    let children: Vec<_> = (0..4)
        .map(|_| {
            let mut command = world.ringfence();
            command
                .args(["run", "--", "true"])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for child in children {
        collect(child).expect(0);
    }
    let checked = world.ledger_tool(&["verify", "--json"]).expect(0).json();
    assert_eq!((&checked["records"], &checked["incomplete"]), (&8.into(), &serde_json::json!([])));
}
