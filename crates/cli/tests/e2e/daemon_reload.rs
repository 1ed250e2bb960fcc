//! Configuration that changes while the daemon runs.

use std::fs;

use ringfence_api::{CallInfo, CallState, ReadFile, SessionInfo};
use rustix::process::Signal;
use serde_json::Value;

use crate::approvals::configure;
use crate::daemon_fixture::{Served, exec};
use crate::daemon_separation_of_duties::Online;
use crate::testkit::{World, eventually, send};

/// Replaces the file in one step, as an editor does, and waits until the daemon has looked at it.
pub(crate) fn change(served: &Served, text: &str) -> Value {
    let before = served.records("policy-changed").len();
    let file = served.world.home.join(".config/ringfence/config.toml");
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, &file).unwrap();
    let mut last = Value::Null;
    eventually("it is looked at and written down", || {
        let records = served.records("policy-changed");
        last = records.last().cloned().unwrap_or_default();
        records.len() == before + 1
    });
    last["event"].clone()
}

fn says(event: &Value) -> String {
    event["change"].as_str().unwrap().to_owned()
}

fn run(served: &Served, session: &SessionInfo, argv: &[&str]) -> CallInfo {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    served.client().call(&ringfence_api::ExecRequest { argv, ..exec(session, "") }).unwrap()
}

fn rule(info: &CallInfo) -> String {
    assert_eq!(info.state, CallState::Refused, "{info:?}");
    info.refusal.clone().unwrap().message
}

const NEVER: &str = "profile = \"guarded\"\napproval = \"never\"\n";

fn allowing(names: &[&str]) -> String {
    let commands: Vec<[&str; 1]> = names.iter().map(|name| [*name]).collect();
    format!("{NEVER}[[command]]\nallow = {commands:?}\n")
}

/// S002-17, C-10: what takes away counts with the next call of what runs; what gives more counts for what begins.
#[test]
fn a_change_takes_away_from_what_runs_and_gives_only_to_what_begins() {
    let world = World::new();
    configure(&world, &allowing(&["touch", "mkdir"]));
    let served = Served::with(world, &[]);
    let session = served.session();
    assert_eq!(run(&served, &session, &["touch", "a"]).exit_code, Some(0), "control");
    let event = change(&served, &allowing(&["mkdir", "nproc"]));
    assert!(says(&event).starts_with("read again"), "{event}");
    rule(&run(&served, &session, &["touch", "b"]));
    assert_eq!(run(&served, &session, &["mkdir", "c"]).exit_code, Some(0), "what both allow");
    rule(&run(&served, &session, &["nproc"]));
    let later = served.session();
    assert_eq!(run(&served, &later, &["nproc"]).exit_code, Some(0), "what begins has what holds now");
    rule(&run(&served, &later, &["touch", "b"]));
    change(&served, &allowing(&["touch", "mkdir"]));
    assert_eq!(run(&served, &session, &["touch", "d"]).exit_code, Some(0), "back to what it began with");
    for (name, is_there) in [("a", true), ("b", false), ("c", true), ("d", true)] {
        assert_eq!(served.world.workspace.join(name).exists(), is_there, "{name}");
    }
}

/// What a rule hides is hidden from the next command, also where its fence stood already; what it shows stays hidden.
#[test]
fn files_that_a_change_hides_are_hidden_from_the_next_command() {
    let world = World::new();
    configure(&world, "");
    for name in ["plain", "other"] {
        world.write(name, "content");
    }
    let served = Served::with(world, &[]);
    let session = served.session();
    let reads = |name: &str| run(&served, &session, &["cat", name]).exit_code == Some(0);
    assert!(reads("plain") && reads("other"), "control");
    change(&served, "[[path]]\ndeny = \"plain\"\n");
    assert!(!reads("plain") && reads("other"));
    let narrow = served.session();
    change(&served, "");
    assert!(reads("plain"), "back to what it began with");
    let narrow_reads = run(&served, &narrow, &["cat", "plain"]);
    assert_ne!(narrow_reads.exit_code, Some(0), "what began with less has no more: {narrow_reads:?}");
}

/// A place that gave less when a session began gives no more because what said so is left out.
#[test]
fn a_root_that_is_left_out_opens_nothing_for_what_runs() {
    let world = World::new();
    let root = |access: &str| format!("[[root]]\npath = \"sub\"\naccess = \"{access}\"\n");
    configure(&world, &root("none"));
    world.write("sub/x", "content");
    let served = Served::with(world, &[]);
    let reads = |session: &SessionInfo| {
        let read = ReadFile { session: session.session.clone(), path: "sub/x".into() };
        served.client().call(&read).is_ok()
    };
    let makes = |session: &SessionInfo, path: &str| {
        let made = run(&served, session, &["touch", path]).exit_code == Some(0);
        assert_eq!(made, served.world.read(path).is_some());
        made
    };
    let closed = served.session();
    assert!(!reads(&closed));
    change(&served, &root("read"));
    let read_only = served.session();
    assert!(reads(&read_only) && !makes(&read_only, "sub/one"));
    assert!(!reads(&closed), "what gives more is for what begins");
    change(&served, "");
    let open = served.session();
    assert!(reads(&open) && makes(&open, "sub/two"), "the control");
    assert!(!reads(&closed) && reads(&read_only) && !makes(&read_only, "sub/three"));
    assert!(makes(&read_only, "elsewhere"));
}

/// A limit that is lowered holds for the next command, one that is raised does not.
#[test]
fn limits_only_fall_for_what_runs() {
    let world = World::new();
    configure(&world, "[limits]\nmax_open_files = 256\n");
    let served = Served::with(world, &[]);
    let session = served.session();
    let limit = || {
        let info = run(&served, &session, &["sh", "-c", "ulimit -n > limit"]);
        assert_eq!(info.exit_code, Some(0), "{info:?}");
        served.world.read("limit").unwrap().trim().to_owned()
    };
    assert_eq!(limit(), "256");
    change(&served, "[limits]\nmax_open_files = 128\n");
    assert_eq!(limit(), "128");
    change(&served, "[limits]\nmax_open_files = 512\n");
    assert_eq!(limit(), "256");
}

/// A file that is wrong changes nothing, for nobody, and that is written down with its place.
#[test]
fn a_file_that_is_wrong_leaves_everything_as_it_was() {
    let world = World::new();
    configure(&world, &allowing(&["touch"]));
    let served = Served::with(world, &[]);
    let session = served.session();
    for wrong in ["profile = \"no-such\"\n", "danger = true\n", "[[command]]\nallow = [\"rm\"\n"] {
        let event = change(&served, wrong);
        let says = says(&event);
        assert!(says.starts_with("not taken") && says.contains("config.toml"), "{says}");
        for session in [&session, &served.session()] {
            assert_eq!(run(&served, session, &["touch", "made"]).exit_code, Some(0), "{wrong}");
            rule(&run(&served, session, &["mkdir", "never"]));
        }
    }
    assert!(!served.world.workspace.join("never").exists());
    let event = change(&served, NEVER);
    assert!(says(&event).starts_with("read again"), "{event}");
    rule(&run(&served, &session, &["touch", "later"]));
}

/// SIGHUP is heard, and ends nothing.
#[test]
fn sighup_reads_it_again_and_ends_nothing() {
    let world = World::new();
    configure(&world, &allowing(&["touch"]));
    let served = Served::with(world, &[]);
    let session = served.session();
    for _ in 0..3 {
        send(&served.child, Signal::HUP);
    }
    assert_eq!(run(&served, &session, &["touch", "a"]).exit_code, Some(0));
    configure(&served.world, NEVER);
    send(&served.child, Signal::HUP);
    eventually("it counts", || run(&served, &session, &["touch", "b"]).state == CallState::Refused);
}

/// The workspace's own file counts with the next call as well; it could never give more.
#[test]
fn the_file_of_a_workspace_counts_with_the_next_call() {
    let world = World::new();
    configure(&world, "");
    let served = Served::with(world, &[]);
    let session = served.session();
    assert_eq!(run(&served, &session, &["touch", "a"]).exit_code, Some(0), "control");
    served.world.write(".ringfence/policy.toml", "approval = \"never\"\n[[command]]\ndeny = [\"touch\"]\n");
    rule(&run(&served, &session, &["touch", "b"]));
    served.world.write(".ringfence/policy.toml", "no such thing");
    rule(&run(&served, &session, &["touch", "b"]));
    assert!(!served.world.workspace.join("b").exists(), "what cannot be read leaves what held before");
}

/// Hosts while a session runs: one that is taken away is closed with the next flow of what runs, one that is added is for what begins.
#[test]
fn hosts_that_change_close_for_what_runs_and_open_for_what_begins() {
    let online = Online::with(&hosts(&["web.test", "more.test"]));
    let mut client = online.client(None);
    let session = online.session();
    let reached = |client: &mut ringfence_client::Client, session: &SessionInfo, host: &str| {
        let script = format!("curl -sS --max-time 60 -o /dev/null https://{host}/");
        client.call(&exec(session, &script)).unwrap().exit_code == Some(0)
    };
    let came = |address: &str| online.internet.came_to(address);
    assert!(reached(&mut client, &session, "web.test") && came("30.0.0.10") > 0, "control");
    let looked = || {
        let records = online.internet.world.all_records();
        records.iter().filter(|record| record["event"]["kind"] == "policy-changed").count()
    };
    let before = looked();
    online.internet.operator(&hosts(&["other.test", "more.test"]));
    eventually("it is read again", || looked() > before);
    online.internet.forget_visits();
    assert!(!reached(&mut client, &session, "web.test") && came("30.0.0.10") == 0, "taken away");
    assert!(
        !reached(&mut client, &session, "other.test") && came("30.0.0.20") == 0,
        "not what it began with"
    );
    let later = online.session();
    assert!(reached(&mut client, &later, "other.test") && came("30.0.0.20") > 0, "for what begins");
    assert!(!reached(&mut client, &later, "web.test") && came("30.0.0.10") == 0);
}

fn hosts(names: &[&str]) -> String {
    format!("net = \"filtered\"\napproval = \"never\"\n[[host]]\nallow = {names:?}\n")
}

/// Profile and approval: what is stricter counts with the next call of what runs; what is wider does not reach it.
#[test]
fn a_profile_and_a_way_to_ask_that_change_only_narrow_what_runs() {
    let world = World::new();
    configure(&world, "profile = \"workspace\"\n");
    let served = Served::with(world, &[]);
    let session = served.session();
    let made = |name: &str| served.world.workspace.join(name).exists();
    assert_eq!(run(&served, &session, &["mkdir", "a"]).exit_code, Some(0), "control");
    change(&served, NEVER);
    rule(&run(&served, &session, &["mkdir", "b"]));
    assert!(!made("b"), "`guarded` lists no `mkdir`, and nobody is asked");
    let strict = served.session();
    change(&served, "profile = \"workspace\"\n");
    assert_eq!(run(&served, &session, &["mkdir", "c"]).exit_code, Some(0), "back to what it began with");
    rule(&run(&served, &strict, &["mkdir", "d"]));
    assert!(!made("d"), "it began with less, and is given no more");
    // Nor is anybody asked where it began with nobody to ask.
    change(&served, "profile = \"guarded\"\napproval = \"ask\"\n");
    rule(&run(&served, &strict, &["mkdir", "d"]));
    assert!(served.records("approval-requested").is_empty() && !made("d"));
}

/// Tools: one that is taken away is gone for what runs, one that is added is for what begins.
#[test]
fn tools_that_change_only_narrow_what_runs() {
    let world = World::new();
    let tools = |allow: &str, deny: &str| format!("[[tool]]\nallow = {allow:?}\n[[tool]]\ndeny = {deny:?}\n");
    configure(&world, &tools("mcp__one__read", "mcp__two__read"));
    let served = Served::with(world, &[]);
    let decision = |session: &SessionInfo, tool: &str| {
        let request = serde_json::json!({ "session": session.session, "subject": { "tool": tool } });
        let told = served.client().raw(ringfence_api::Method::PolicyExplain, request).unwrap();
        told["decision"].as_str().unwrap().to_owned()
    };
    let session = served.session();
    assert_eq!(decision(&session, "mcp__one__read"), "allow", "control");
    assert_eq!(decision(&session, "mcp__two__read"), "deny", "control");
    change(&served, &tools("mcp__two__read", "mcp__one__read"));
    assert_eq!(decision(&session, "mcp__one__read"), "deny", "taken away");
    assert_eq!(decision(&session, "mcp__two__read"), "deny", "it began without it");
    let later = served.session();
    assert_eq!(decision(&later, "mcp__two__read"), "allow", "for what begins");
    assert_eq!(decision(&later, "mcp__one__read"), "deny");
}
