//! Written before done: no record, no effect.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rustix::process::Signal;

use crate::test_timeouts::Patient;
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
    assert_eq!(kinds(&world), ["call-intended", "sandbox-started", "call-settled"]);
    let [intent, launched, settled] = [0, 1, 2].map(|at| &records[at]["event"]);
    assert_eq!(intent["call"]["argv"], serde_json::json!(["sh", "-c", "exit 3"]));
    assert_eq!(intent["call"]["cwd"], world.workspace.to_str().unwrap());
    assert_eq!((&intent["decision"], &intent["profile"]), (&"allow".into(), &"workspace".into()));
    assert_eq!(intent["roots"][0]["access"], "write");
    assert_eq!(intent["transaction"], settled["transaction"]);
    assert_eq!(settled["outcome"]["exit"]["code"], 3);
    assert_eq!(launched["posture"]["backend"], "native");
    assert!(records[0]["time"].as_str() <= records[1]["time"].as_str());
    world.file(&["write", "note"], b"text").expect(0);
    world.file(&["read", "note"], b"").expect(0);
    assert_eq!(kinds(&world).len(), 7, "file calls as well");
    let done = world.ledger_tool(&["tail"]).expect(0);
    assert!(done.text().contains("write note") && done.text().contains("exit 3 in"), "{}", done.text());
    let id = intent["transaction"].as_str().unwrap();
    let shown = world.ledger_tool(&["show", id]).expect(0).text();
    assert!(shown.contains("argv: [\"sh\",\"-c\",\"exit 3\"]") && shown.contains("call-settled"), "{shown}");
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
    assert_eq!(kinds(&world), ["call-intended"]);
    world.write("go", "");
    collect(child).expect(0);
    assert_eq!(kinds(&world), ["call-intended", "sandbox-started", "call-settled"]);
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
    world.run(&[], &["sh", "-c", "printf %s \"$0\" >got", &token]).expect(0);
    assert_eq!(world.read("got"), Some(token.clone()), "the command gets what was typed");
    let records = world.records();
    assert!(!serde_json::to_string(&records).unwrap().contains(&token));
    assert_eq!(records[0]["event"]["call"]["argv"][0], "sh");
    assert!(
        records[0]["event"]["findings"][0]["location"].as_str().unwrap().starts_with("argv[3]"),
        "{}",
        records[0]
    );
    let bytes: Vec<u8> = ["ledger.db", "ledger.db-wal"]
        .iter()
        .flat_map(|name| fs::read(world.state.join("ringfence").join(name)).unwrap_or_default())
        .collect();
    assert!(!crate::testkit::contains(&bytes, token.as_bytes()), "not anywhere in the file");
    assert!(!world.ledger_tool(&["show", "3"]).expect(0).text().contains(&token));
}

#[test]
fn an_altered_ledger_is_found_and_nothing_more_is_done() {
    let world = World::new();
    for number in 1..=3 {
        world.sh(&format!("exit {number}")).expect(number);
    }
    let done = world.ledger_tool(&["verify", "--json"]).expect(0);
    assert_eq!((&done.json()["valid"], &done.json()["records"]), (&true.into(), &16.into()));
    let head = done.json()["head"].as_str().unwrap().to_owned();
    world.ledger_tool(&["verify", "--head", &head]).expect(0);
    sqlite(&world, "UPDATE record SET body = replace(body, 'exit 3', 'exit 4') WHERE seq = 13");
    let done = world.ledger_tool(&["verify"]).expect(1);
    assert!(done.err.contains("record 13"), "it names the record: {}", done.err);
    assert_eq!(world.ledger_tool(&["verify", "--json"]).expect(1).json()["valid"], false);
}

#[test]
fn an_altered_end_of_the_ledger_stops_the_next_run() {
    let world = World::new();
    world.sh("true").expect(0);
    sqlite(&world, "UPDATE record SET body = replace(body, 'session', 'Session') WHERE seq = 6");
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
    sqlite(&world, "DELETE FROM record WHERE seq > 5");
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

/// What a killed run left is closed by the next one, and nothing is done again.
#[test]
fn a_killed_run_is_marked_as_interrupted_by_the_next() {
    let world = World::new();
    let child = world
        .ringfence()
        .args(["run", "--", "sh", "-c", "echo up >>up; exec sleep 600"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it runs", || world.read("up").is_some());
    world.sh("true").expect(0);
    let transaction = world.records()[0]["event"]["transaction"].clone();
    let checked = world.ledger_tool(&["verify", "--json"]).expect(0).json();
    assert_eq!(checked["incomplete"], serde_json::json!([transaction]), "control: it runs");
    assert!(world.ledger_tool(&["verify"]).expect(0).text().contains("incomplete"));
    send(&child, Signal::KILL);
    collect(child);
    world.sh("true").expect(0);
    let checked = world.ledger_tool(&["verify", "--json"]).expect(0).json();
    assert_eq!((&checked["valid"], &checked["incomplete"]), (&true.into(), &serde_json::json!([])));
    let records = world.records();
    let of_it = records.iter().filter(|record| record["event"]["transaction"] == transaction);
    let kinds: Vec<&str> = of_it.map(|record| record["event"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["call-intended", "call-interrupted"]);
    assert_eq!(world.read("up").unwrap(), "up\n", "nothing is done twice");
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
    assert_eq!((&checked["records"], &checked["incomplete"]), (&21.into(), &serde_json::json!([])));
}

/// Who looked, at what, and how much of it.
#[test]
fn reading_is_recorded_with_who_read() {
    let world = World::new();
    world.sh("true").expect(0);
    world.ledger_tool(&["tail", "-n", "2"]).expect(0);
    world.ledger_tool(&["show", "3"]).expect(0);
    world.ledger_tool(&["checkpoint"]).expect(0);
    world.ledger_tool(&["prove", "3"]).expect(0);
    world.ledger_tool(&["export", "--format", "jsonl"]).expect(0);
    let records = world.all_records();
    let reads: Vec<_> = records.iter().filter(|record| record["event"]["kind"] == "ledger-read").collect();
    let how: Vec<_> = reads.iter().map(|record| record["event"]["operation"].as_str().unwrap()).collect();
    assert_eq!(how, ["tail", "show", "prove", "export"]);
    assert_eq!(reads[0]["event"]["records"], 2);
    let by = &reads[0]["event"]["actor"];
    assert_eq!(
        (&by["principal"], &by["uid"]),
        (&"operator".into(), &rustix::process::getuid().as_raw().into())
    );
}

#[test]
fn what_cannot_be_written_can_still_be_read() {
    let world = World::new();
    world.sh("true").expect(0);
    sqlite(&world, "UPDATE record SET body = replace(body, 'session', 'Session') WHERE seq = 6");
    let done = world
        .ledger_tool(&["tail", "-n", "3", "--kind", "call-intended"])
        .expect(0)
        .says("cannot record this read");
    assert!(done.text().contains("call-intended"), "{}", done.text());
}

#[test]
fn tail_filters_and_follows() {
    let world = World::new();
    world.sh("exit 1").expect(1);
    world.run(&["--env", "LD_PRELOAD=/x"], &["true"]).expect(126);
    let only = world.ledger_tool(&["tail", "--kind", "call-refused", "--json"]).expect(0).text();
    assert_eq!(only.lines().count(), 1, "{only}");
    let all = world.all_records();
    let session = all[1]["event"]["session"].as_str().unwrap();
    let of_session =
        world.ledger_tool(&["tail", "--session", session.get(..12).unwrap(), "--json"]).expect(0).text();
    assert_eq!(of_session.lines().count(), 5, "{of_session}");
    assert_eq!(world.ledger_tool(&["tail", "--since", "2999-01-01"]).expect(0).text(), "");
    world.ledger_tool(&["tail", "--since", "yesterday"]).expect(125).says("2026-11-15");
    world.ledger_tool(&["tail", "--kind", "nothing"]).expect(125).says("call-intended");
    world.ledger_tool(&["tail", "--session", "ses_zz"]).expect(125).says("ses_zz");

    let mut follow = world.ringfence();
    follow.args(["ledger", "tail", "-f", "-n", "1", "--kind", "call-settled", "--json"]);
    let mut child = follow.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(Patient(child.stdout.take().unwrap())).lines();
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["event"]["outcome"]["exit"]["code"], 1);
    for code in [7, 8] {
        world.sh(&format!("exit {code}")).expect(code);
        assert_eq!(next()["event"]["outcome"]["exit"]["code"], code);
    }
    drop(lines);
    // Nobody reads any more, so it ends by itself.
    let done = collect(child);
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn the_agents_text_is_escaped_wherever_it_is_shown() {
    let world = World::new();
    let nasty = "a\u{1b}[2Jb\u{202e}c\r|=\\";
    world.run(&[], &["printf", "%s", nasty]).expect(0);
    for arguments in [&["tail"][..], &["show", "3"], &["export", "--format", "cef"]] {
        let text = world.ledger_tool(arguments).expect(0).text();
        assert!(text.contains("printf"), "{text}");
        for bad in ['\u{1b}', '\u{202e}', '\r'] {
            assert!(!text.contains(bad), "{arguments:?}: {text:?}");
        }
    }
    let json = world.all_records();
    assert_eq!(json[2]["event"]["call"]["argv"][2], nasty, "machines get what it was");
}

#[test]
fn a_proof_is_checked_without_the_ledger() {
    let world = World::new();
    world.sh("exit 3").expect(3);
    world.ledger_tool(&["prove", "3"]).expect(125).says("checkpoint");
    let signed = world.ledger_tool(&["checkpoint", "--json"]).expect(0).json();
    let key = signed["checkpoint"]["key"].as_str().unwrap().to_owned();
    let transaction = world.records()[0]["event"]["transaction"].as_str().unwrap().to_owned();
    let proof = world.ledger_tool(&["prove", &transaction]).expect(0);
    let file = world.write("proof", &proof.out);
    let elsewhere = World::new();
    let path = file.to_str().unwrap();
    let done = elsewhere.ledger_tool(&["verify", "--proof", path, "--key", &key]).expect(0);
    assert_eq!(done.text().lines().filter(|line| line.contains("is proved")).count(), 3, "{}", done.text());
    let other = "0".repeat(64);
    elsewhere.ledger_tool(&["verify", "--proof", path, "--key", &other]).expect(1).says("another key");
    fs::write(&file, proof.text().replace("exit 3", "exit 4")).unwrap();
    elsewhere.ledger_tool(&["verify", "--proof", path, "--key", &key]).expect(1).says("is invalid");
    fs::write(&file, "{}").unwrap();
    elsewhere.ledger_tool(&["verify", "--proof", path]).expect(125).says("holds no proof");
}

#[test]
fn an_older_copy_is_seen_with_a_checkpoint_and_by_the_anchor() {
    let world = World::new();
    let anchor = world.beside("other-disk").join("anchor");
    let config = world.home.join(".config/ringfence");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("ledger.toml"), format!("anchor_file = {:?}\n", anchor.to_str().unwrap())).unwrap();
    world.sh("true").expect(0);
    let state = world.state.join("ringfence");
    let older: Vec<_> =
        ["ledger.db", "ledger.db-wal"].map(|name| (name, fs::read(state.join(name)).unwrap())).into();
    world.sh("exit 5").expect(5);
    let kept = world.write("kept.json", "");
    world.ledger_tool(&["checkpoint", "--out", kept.to_str().unwrap()]).expect(0);
    assert_eq!(fs::read_to_string(&anchor).unwrap().lines().count(), 1);
    world.ledger_tool(&["verify", "--checkpoint", kept.to_str().unwrap()]).expect(0);
    world.ledger_tool(&["verify", "--checkpoint", anchor.to_str().unwrap()]).expect(0);

    fs::remove_file(state.join("ledger.db-shm")).unwrap();
    older.iter().for_each(|(name, bytes)| fs::write(state.join(name), bytes).unwrap());
    let copy = world.ledger_path();
    world.ledger_tool(&["verify", "--file", copy.to_str().unwrap()]).expect(0);
    let elsewhere = ["--file", copy.to_str().unwrap(), "--checkpoint", kept.to_str().unwrap()];
    world.ledger_tool(&[&["verify"], &elsewhere[..]].concat()).expect(1).says("missing");
    world.ledger_tool(&["verify"]).expect(1).says("anchor");
    let done = world.run(&[], &["touch", "made"]);
    assert!(matches!(done.code, Some(125 | 126)) && !world.workspace.join("made").exists(), "{done:?}");
    fs::write(config.join("ledger.toml"), "anchor = 1\n").unwrap();
    world.run(&[], &["touch", "made"]).expect(125).says("ledger.toml");
}

#[test]
fn a_broken_ledger_is_restarted_with_a_reason() {
    let world = World::new();
    world.sh("true").expect(0);
    world.ledger_tool(&["restart", "--reason", "no reason"]).expect(125).says("nothing to restart");
    sqlite(&world, "UPDATE record SET body = replace(body, 'session', 'Session') WHERE seq = 6");
    let done = world.run(&[], &["touch", "made"]);
    assert!(done.err.contains("restart") && !world.workspace.join("made").exists(), "{}", done.err);
    world.ledger_tool(&["restart"]).expect(125);
    world.ledger_tool(&["restart", "--reason", " "]).expect(125).says("reason");
    let done = world.ledger_tool(&["restart", "--reason", "restored from backup", "--json"]).expect(0).json();
    assert!(done["problem"].as_str().unwrap().contains("record 6"), "{done}");
    world.ledger_tool(&["verify", "--file", done["archive"].as_str().unwrap()]).expect(1);
    world.run(&[], &["touch", "made"]).expect(0);
    assert!(world.workspace.join("made").exists());
    let beginning = &world.all_records()[0]["event"];
    assert_eq!(beginning["continues"]["reason"], "restored from backup");
    assert_eq!(beginning["continues"]["actor"]["uid"], rustix::process::getuid().as_raw());
    world.ledger_tool(&["verify"]).expect(0);
}

#[test]
fn pruning_forgets_what_was_said_and_keeps_the_chain() {
    let world = World::new();
    world.sh("echo forget-this-word").expect(0);
    let dry = world.ledger_tool(&["prune", "--older-than", "1ms", "--dry-run", "--json"]).expect(0).json();
    assert_eq!((&dry["records"], &dry["pruned"]), (&5.into(), &false.into()));
    world.ledger_tool(&["prune", "--older-than", "90d"]).expect(0);
    assert!(
        world.ledger_tool(&["show", "3"]).expect(0).text().contains("forget-this-word"),
        "it is not that old"
    );
    let done = world
        .ledger_tool(&["prune", "--older-than", "1ms", "--class", "activity", "--json"])
        .expect(0)
        .json();
    assert_eq!((&done["records"], &done["pruned"]), (&5.into(), &true.into()));
    let shown = world.ledger_tool(&["show", "3"]).expect(0).text();
    assert!(shown.contains("pruned") && !shown.contains("forget-this-word"), "{shown}");
    let checked = world.ledger_tool(&["verify", "--json"]).expect(0).json();
    assert_eq!((&checked["valid"], &checked["pruned"]), (&true.into(), &5.into()));
    assert!(world.ledger_tool(&["stats"]).expect(0).text().contains("5 records were pruned"));
    world.sh("true").expect(0);
}

#[test]
fn a_key_is_rotated_and_both_are_known() {
    let world = World::new();
    world.sh("true").expect(0);
    let first =
        world.ledger_tool(&["verify", "--json"]).expect(0).json()["keys"][0].as_str().unwrap().to_owned();
    let second =
        world.ledger_tool(&["rotate-key", "--json"]).expect(0).json()["key"].as_str().unwrap().to_owned();
    world.ledger_tool(&["checkpoint"]).expect(0);
    let keys = world.ledger_tool(&["verify", "--json"]).expect(0).json()["keys"].clone();
    assert_eq!(keys, serde_json::json!([first, second]));
    for key in [&first, &second] {
        world.ledger_tool(&["verify", "--key", key]).expect(0);
    }
    world.ledger_tool(&["verify", "--key", &"0".repeat(64)]).expect(1).says("expected key");
    world.ledger_tool(&["verify", "--key", "short"]).expect(125).says("64 hexadecimal");
}

/// With another key every command is refused, so `verify` says why. A copy of the file is verified without its key.
#[test]
fn a_lost_key_is_told_by_verify() {
    let world = World::new();
    world.sh("true").expect(0);
    world.ledger_tool(&["verify"]).expect(0);
    let key = world.ledger_path().with_extension("key");
    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    world.ledger_tool(&["verify"]).expect(1).says("ledger.key");
    let told = world.ledger_tool(&["verify", "--json"]).expect(1).json();
    assert_eq!(told["valid"], false, "{told}");
    world.sh("true").expect(126);
    world.ledger_tool(&["verify", "--file", world.ledger_path().to_str().unwrap()]).expect(0);
    fs::write(&key, kept).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    world.ledger_tool(&["verify"]).expect(0);
}

#[test]
fn exports_are_what_other_systems_expect() {
    let world = World::new();
    let token = format!("gh{}_{}", 'p', "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    world.run(&[], &["printf", "%s", &token]).expect(0);
    world.run(&["--env", "LD_PRELOAD=/x"], &["true"]).expect(126);
    world.file(&["write", "note"], b"text").expect(0);
    let export = |format: &str| world.ledger_tool(&["export", "--format", format]).expect(0).text();
    let parsed = |text: String| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let plain = parsed(export("jsonl"));
    assert_eq!(plain[0]["event"]["kind"], "chain-started");
    let ocsf = parsed(export("ocsf"));
    let one = |class: u32, activity: u32| {
        let found = ocsf.iter().find(|event| event["class_uid"] == class && event["activity_id"] == activity);
        found.unwrap_or_else(|| panic!("no {class}/{activity}")).clone()
    };
    let launch = one(1007, 1);
    assert_eq!((&launch["type_uid"], &launch["action_id"]), (&100_701.into(), &1.into()));
    assert!(launch["process"]["cmd_line"].as_str().unwrap().starts_with("printf"));
    assert_eq!(launch["attestation_list"][0]["fingerprint"]["value"], plain[2]["hash"]);
    assert_eq!(launch["attestation_list"][0]["prev_event"]["fingerprint"]["value"], plain[1]["hash"]);
    assert_eq!(one(1007, 2)["exit_code"], 0);
    assert_eq!(one(1001, 3)["file"]["path"], "note");
    assert!(one(2006, 1)["finding_info"]["title"].as_str().unwrap().contains("argv[2]"));
    let denied = ocsf.iter().find(|event| event["action_id"] == 2).unwrap();
    assert_eq!((&denied["disposition"], &denied["status"]), (&"Blocked".into(), &"Failure".into()));
    let cef = export("cef");
    assert!(cef.lines().all(|line| line.starts_with("CEF:0|Ringfence|ringfence|")), "{cef}");
    assert!(cef.contains("act=deny") && cef.contains("cs1Label=rule"), "{cef}");
    for text in [export("jsonl"), export("ocsf"), cef] {
        assert!(!text.contains(&token));
    }
    let none = world.ledger_tool(&["export", "--format", "jsonl", "--until", "2020-01-01"]).expect(0).text();
    assert_eq!(none, "");
    world.ledger_tool(&["export", "--format", "xml"]).expect(125).says("jsonl");
}

/// What cannot be written down is not claimed to be there.
#[test]
fn no_message_claims_a_record_that_is_not_there() {
    let world = World::new();
    world.sh("exit 0").expect(0);
    sqlite(&world, "DELETE FROM record WHERE seq = 2");
    for arguments in [&["run", "--", "touch", "made"][..], &["run", "--profile", "nonsense", "--", "true"]] {
        let done = finish(world.ringfence().args(arguments), b"");
        assert_ne!(done.code, Some(0));
        assert!(!done.err.contains("intent is recorded") && !done.err.contains("incomplete"), "{}", done.err);
    }
    let refused = finish(world.ringfence().args(["file", "read", "/etc/shadow"]), b"");
    assert!(!refused.err.contains("intent is recorded"), "{}", refused.err);
    assert!(!world.workspace.join("made").exists());
    // Broken while a command runs.
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
    sqlite(&world, "DELETE FROM record WHERE kind = 'call-intended'");
    world.write("go", "");
    let done = collect(child);
    assert!(done.err.contains("could not be recorded"), "control: {}", done.err);
    assert!(!done.err.contains("intent is recorded") && !done.err.contains("incomplete"), "{}", done.err);
}
