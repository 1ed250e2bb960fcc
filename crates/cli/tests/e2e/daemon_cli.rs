//! Commands that ask the daemon where one runs, and do without where none does.

use ringfence_api::{CreateSession, ExecRequest, Method};
use ringfence_types::Profile;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon_fixture::{Served, exec};
use crate::test_timeouts::ended;
use crate::testkit::{LANDLOCK, World, binary, eventually, finish, send};

/// What the daemon was asked, by whom it was let in.
pub(crate) fn asked(served: &Served, purpose: &str) -> usize {
    let records = served.records("authentication-attempted");
    records.iter().filter(|record| record["event"]["purpose"] == purpose).count()
}

/// A daemon that has said where it is.
pub(crate) fn posted(served: Served) -> Served {
    let file = served.world.state.join("ringfence/daemon.socket");
    eventually("it says where it is", || file.exists());
    served
}

/// S003-15: the same words, answered by the daemon: what is revoked is cut off before the command ends.
#[test]
fn tokens_are_made_and_ended_by_the_daemon_where_one_runs() {
    let served = posted(Served::new());
    let minted = |flags: &[&str]| {
        let done = served.ringfence(&[&["token", "create", "ci"], flags].concat()).expect(0);
        done.text().trim_end().to_owned()
    };
    let token = minted(&["--scope", "read", "--expires", "1h"]);
    let id = token.split('_').nth(2).unwrap();
    assert_eq!(asked(&served, Method::TokenCreate.name()), 1);
    let listed = served.ringfence(&["token", "list", "--json"]).expect(0).json();
    assert_eq!((&listed["tokens"][0]["id"], &listed["tokens"][0]["label"]), (&json!(id), &json!("ci")));
    let mut holder = served.client_with(&token);
    let mut events = holder.events(&Default::default()).unwrap();
    let second = served.ringfence(&["token", "rotate", id.get(..6).unwrap()]).expect(0).text();
    assert_ne!(second.trim_end(), token);
    let cut = events.find_map(Result::err);
    assert!(matches!(cut, Some(ringfence_client::ClientError::Api(_))), "{cut:?}");
    let revoked = served.ringfence(&["token", "revoke", id]).expect(0).text();
    assert!(revoked.contains("revoked"), "{revoked}");
    assert_eq!(asked(&served, Method::TokenRevoke.name()), 1);
    served.ringfence(&["token", "rotate", id]).expect(125).says("revoked");
    served
        .ringfence(&["token", "create", "x", "--scope", "read", "--operator", "ann"])
        .expect(125)
        .says("hint:");
    served.ringfence(&["device", "approve", "00000-00000"]).expect(125).says("no device waits");
    assert_eq!(
        asked(&served, Method::TokenRotate.name()),
        3,
        "what was refused was asked there, and refused there"
    );
}

/// The way back in: without a daemon, also after one that was killed, the same words work on the store itself.
#[test]
fn without_a_daemon_the_store_itself_is_used() {
    let mut served = posted(Served::new());
    served.ringfence(&["token", "create", "one", "--scope", "read"]).expect(0);
    send(&served.child, Signal::KILL);
    let _status = ended("the daemon", &mut served.child);
    assert!(served.world.state.join("ringfence/daemon.socket").exists(), "what it left leads nowhere");
    served.ringfence(&["token", "create", "two", "--scope", "read"]).expect(0);
    let tokens = served.ringfence(&["token", "list", "--json"]).expect(0).json();
    assert_eq!(tokens["tokens"].as_array().unwrap().len(), 2);
    assert_eq!(asked(&served, Method::TokenCreate.name()), 1);
    let status = served.ringfence(&["status", "--json"]).expect(0).json();
    assert_eq!(status["daemon"], Value::Null);
}

#[test]
fn status_shows_the_daemon_with_what_waits() {
    let world = World::new();
    let none = finish(world.ringfence().arg("status"), b"").expect(0).text();
    assert!(none.contains("ringfence serve"), "{none}");
    let served = posted(Served::with(world, &["--drain-timeout", "10ms"]));
    let guarded = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
    let session = served.client().call(&guarded).unwrap();
    let argv = ["mkdir", "made"].map(str::to_owned).to_vec();
    served.client().call(&ExecRequest { background: true, argv, ..exec(&session, "") }).unwrap();
    let status = || served.ringfence(&["status", "--json"]).expect(0).json()["daemon"].clone();
    eventually("a question waits", || status()["pending_approvals"] == 1);
    let seen = status();
    assert_eq!((&seen["sessions"], &seen["version"]), (&json!(1), &json!(env!("CARGO_PKG_VERSION"))));
    let text = served.ringfence(&["status"]).expect(0).text();
    assert!(text.contains("1 sessions, 1 pending approvals"), "{text}");
    let mut served = served;
    send(&served.child, Signal::TERM);
    let _status = ended("the daemon", &mut served.child);
    assert!(!served.world.state.join("ringfence/daemon.socket").exists());
}

/// What is inside a fence is not asked for by the daemon either.
#[test]
fn a_command_inside_a_fence_makes_no_token_by_the_daemon() {
    let served = posted(Served::new());
    let make = format!("'{}' token create x --scope admin", binary().display());
    let inside = served.world.sh_with(LANDLOCK, &make);
    assert!(!inside.text().contains("rf_api_"), "{}", inside.text());
    assert_eq!(asked(&served, Method::TokenCreate.name()), 0);
    let mut control = served.world.host("sh");
    let made = finish(control.args(["-c", &make]), b"").expect(0);
    assert!(made.text().contains("rf_api_"));
    assert_eq!(asked(&served, Method::TokenCreate.name()), 1, "the control: outside the daemon makes one");
}

/// One that hangs keeps nobody from what is in the store.
#[test]
fn a_daemon_that_hangs_is_done_without() {
    let served = posted(Served::new());
    let minted = served.ringfence(&["token", "create", "ci", "--scope", "read"]).expect(0).text();
    let id = minted.split('_').nth(2).unwrap();
    send(&served.child, Signal::STOP);
    let revoked = served.ringfence(&["token", "revoke", id]);
    send(&served.child, Signal::CONT);
    revoked.expect(0).says("continuing without the daemon");
    let mut late = served.client_with(minted.trim_end());
    let refused = late.raw(Method::WhoAmI, json!({}));
    assert!(matches!(refused, Err(ringfence_client::ClientError::Api(_))), "{refused:?}");
}

/// S003-15, S003-18: operators and devices by the daemon. What is removed is cut off before the command ends, and no password is
/// anywhere but where it is kept as a hash.
#[test]
fn operators_and_devices_are_made_and_ended_by_the_daemon_where_one_runs() {
    let served = posted(Served::new());
    let password = ["correct", "horse", "battery"].join(" ");
    let with_password = |arguments: &[&str]| {
        let mut command = served.world.ringfence();
        finish(command.args(arguments), password.as_bytes())
    };
    let added = with_password(&["operator", "add", "ann", "--scope", "read,approve"]).expect(0).text();
    assert_eq!(added, "added ann: may read,approve in any\n");
    with_password(&["operator", "add", "ann", "--scope", "read"])
        .expect(125)
        .says("operator set-password ann");
    let set = with_password(&["operator", "set-password", "ann"]).expect(0).text();
    assert_eq!(set, "set the password of ann: may read,approve in any\n");
    let mut short = served.world.ringfence();
    finish(short.args(["operator", "set-password", "ann"]), b"short").expect(125).says("12");
    let mut bytes = served.world.ringfence();
    finish(bytes.args(["operator", "set-password", "ann"]), &[0xff; 20]).expect(125).says("UTF-8");
    let minted = ["token", "create", "hers", "--scope", "approve", "--operator", "ann"];
    let token = served.ringfence(&minted).expect(0).text();
    let mut holder = served.client_with(token.trim_end());
    let mut questions = holder.questions().unwrap();
    // The same without the daemon is told in the same words.
    let listed = || served.ringfence(&["operator", "list"]).expect(0).text();
    assert_eq!(listed(), directly(&served, listed));
    served.ringfence(&["operator", "rm", "bob"]).expect(125).says("no operator `bob`");
    let removed = served.ringfence(&["operator", "rm", "ann"]).expect(0).text();
    assert_eq!(removed, "removed ann: may read,approve in any\n");
    let cut = questions.find_map(Result::err);
    assert!(matches!(cut, Some(ringfence_client::ClientError::Api(_))), "{cut:?}");
    for (method, times) in [
        (Method::OperatorAdd, 2),
        (Method::OperatorSetPassword, 2),
        (Method::OperatorList, 1),
        (Method::OperatorRemove, 2),
    ] {
        assert_eq!(asked(&served, method.name()), times, "{}", method.name());
    }
    let mut grep = served.world.host("grep");
    finish(grep.args(["-rl", &password]).arg(&served.world.state), b"").expect(1);
    let (child, code) = crate::identity::pairing(&served.world, "phone.json", "read");
    served.ringfence(&["device", "approve", &code]).expect(0);
    let first = crate::testkit::collect(child).expect(0).text().trim_end().to_owned();
    let second = served.ringfence(&["device", "refresh", "phone.json"]).expect(0).text();
    let device = served.client_with(second.trim_end()).call(&ringfence_api::WhoAmI {}).unwrap();
    assert_eq!(device.kind, "device");
    let before = served.client_with(&first).raw(Method::WhoAmI, json!({}));
    assert!(before.is_err(), "the token before the next is worth nothing");
    let (child, code) = crate::identity::pairing(&served.world, "other.json", "read");
    served.ringfence(&["device", "refuse", &code]).expect(0);
    crate::testkit::collect(child).expect(125).says("");
    assert!(!served.world.workspace.join("other.json").exists());
}

/// What comes of it without the daemon, which goes on.
pub(crate) fn directly<T>(served: &Served, what: impl FnOnce() -> T) -> T {
    let (file, aside) = (served.world.state.join("ringfence/daemon.socket"), served.world.beside("aside"));
    let aside = aside.join("socket");
    std::fs::rename(&file, &aside).unwrap();
    let came = what();
    std::fs::rename(&aside, &file).unwrap();
    came
}

/// Nobody gives more than they have, and is told which scope is missing.
#[test]
fn an_operator_over_the_interface_is_never_wider_than_its_maker() {
    let served = Served::new();
    let admin = crate::daemon_rights::minted(&served, ringfence_types::Scope::Admin);
    let password = ["correct", "horse", "battery"].join(" ");
    let add = |token: &str, scopes: &[&str]| {
        let rights = json!({ "scopes": scopes, "workspaces": "any" });
        let request = json!({ "name": "eve", "rights": rights, "password": password });
        served.client_with(token).raw(Method::OperatorAdd, request)
    };
    let refused = |answer: Result<Value, ringfence_client::ClientError>| match answer {
        Err(ringfence_client::ClientError::Api(error)) => error,
        other => panic!("{other:?}"),
    };
    let wider = refused(add(&admin, &["admin", "approve"]));
    assert_eq!(
        (wider.code, wider.rule.as_deref()),
        (ringfence_api::ErrorCode::Forbidden, Some("identity.wider-than-parent"))
    );
    assert!(wider.message.contains("`approve`"), "{}", wider.message);
    let reader = crate::daemon_rights::minted(&served, ringfence_types::Scope::Read);
    let scope = refused(add(&reader, &["read"]));
    assert_eq!(
        (scope.code, scope.rule.as_deref()),
        (ringfence_api::ErrorCode::Forbidden, Some("identity.scope"))
    );
    assert!(scope.message.contains("`admin`") && scope.hint.unwrap().contains("--scope admin"));
    let wide = served.world.ringfence();
    let mut wide = wide;
    finish(wide.args(["operator", "add", "boss", "--scope", "admin,approve"]), password.as_bytes()).expect(0);
    // Whoever knows the password of somebody has what they have.
    let takes_over = served
        .client_with(&admin)
        .raw(Method::OperatorSetPassword, json!({ "name": "boss", "password": "a password of another" }));
    assert_eq!(refused(takes_over).rule.as_deref(), Some("identity.wider-than-parent"));
    let changes = served.records("identity-changed");
    let verbs: Vec<&Value> = changes.iter().map(|record| &record["event"]["change"]["verb"]).collect();
    assert!(!verbs.contains(&&json!("password-set")), "{verbs:?}");
    // The control: what it has itself.
    add(&admin, &["admin"]).unwrap();
    let listed = served.client_with(&admin).raw(Method::OperatorList, json!({})).unwrap();
    assert_eq!(listed["operators"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains("argon2"), "{listed}");
}

/// Every command finds the same daemon, wherever it listens.
#[test]
fn sessions_are_found_at_the_socket_that_the_daemon_says() {
    let world = World::new();
    let socket = world.beside("elsewhere").join("other.sock");
    let served = posted(Served::at(world, socket, &[]));
    let session = served.ringfence(&["session", "create"]).expect(0).text();
    let listed = served.ringfence(&["session", "list"]).expect(0).text();
    assert!(listed.contains(session.trim_end()), "{listed}");
    let none = served.world.beside("none").join("none.sock");
    served
        .ringfence(&["session", "list", "--socket", none.to_str().unwrap()])
        .expect(125)
        .says("no daemon answers");
}

/// What is typed, piped or set for a command of a session reaches it, as with `ringfence run`.
#[test]
fn a_command_of_a_session_gets_all_that_it_was_given() {
    let served = posted(Served::new());
    served.world.write("sub/x", "");
    let id = served.ringfence(&["session", "create"]).expect(0).text();
    let id = id.trim_end();
    let run = |flags: &[&str], argv: &[&str], input: &[u8]| {
        let mut command = served.world.ringfence();
        finish(command.args([&["session", "run"], flags, &[id, "--"], argv].concat()), input)
    };
    assert_eq!(run(&[], &["cat"], b"x\n").expect(0).text(), "x\n");
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(run(&[], &["cat"], &bytes).expect(0).out, bytes);
    let most = vec![0; 700 * 1024];
    assert_eq!(run(&[], &["wc", "-c"], &most).expect(0).text().trim(), "716800");
    run(&[], &["touch", "begun"], &[most, vec![0]].concat()).expect(125).says("session input");
    assert_eq!(served.world.read("begun"), None);
    let script = "pwd; echo $COLOUR; echo aside >&2; exit 3";
    let flags = ["--cwd", "sub", "--env", "COLOUR=red", "--reason", "to see it"];
    let done = run(&flags, &["sh", "-c", script], b"").expect(3).says("aside");
    assert_eq!(done.text(), format!("{}/sub\nred\n", served.world.workspace.display()));
    let object = run(&["--json"], &["sh", "-c", "cat; exit 3"], b"piped").expect(3).json();
    assert_eq!((&object["stdout"], &object["exit_code"]), (&json!("piped"), &json!(3)));
    assert_eq!(
        run(&["--json", "--env", "LD_PRELOAD=x"], &["true"], b"").expect(126).json()["state"],
        "refused"
    );
    run(&["--timeout", "100ms"], &["sleep", "100"], b"").expect(124);
}

/// A value that cannot be passed on is no other value instead.
#[test]
fn a_variable_that_is_not_text_is_told_and_not_changed() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let served = posted(Served::new());
    let variable = OsStr::from_bytes(b"COLOUR=\xff");
    let mut create = served.world.ringfence();
    finish(create.args(["session", "create", "--env"]).arg(variable), b"")
        .expect(125)
        .says("`COLOUR` is not UTF-8");
    assert_eq!(served.sessions().len(), 0);
    let session = served.session();
    let mut run = served.world.ringfence();
    run.args(["session", "run", "--env"]).arg(variable).args([
        session.session.as_str(),
        "--",
        "touch",
        "begun",
    ]);
    finish(&mut run, b"").expect(125).says("`COLOUR` is not UTF-8");
    assert_eq!(served.world.read("begun"), None);
}

/// Calls that go on by themselves, by the command line alone: found, read, written to, signalled and ended.
#[test]
fn calls_in_the_background_are_managed_at_the_command_line() {
    let served = posted(Served::new());
    let id = served.ringfence(&["session", "create"]).expect(0).text();
    let id = id.trim_end();
    let mut watch = served.world.ringfence();
    watch.args(["session", "activity", "--json", "--after", "0", id]);
    let watch =
        watch.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let session = |words: &[&str], input: &[u8]| {
        let mut command = served.world.ringfence();
        finish(command.arg("session").args(words), input)
    };
    let begun = |flags: &[&str], script: &str| {
        let words = [&["run", "--background"], flags, &[id, "--", "sh", "-c", script]].concat();
        session(&words, b"").expect(0).text().trim_end().to_owned()
    };
    let reader = begun(&["--interactive"], "cat; echo end >&2");
    session(&["input", "--keep-open", id, &reader], b"first\n").expect(0);
    let long = vec![b'x'; 300_000];
    session(&["input", id, &reader], &long).expect(0);
    let logs = session(&["logs", id, &reader], b"").expect(0).says("end");
    assert_eq!(logs.out, [b"first\n".as_slice(), &long].concat());
    let last = session(&["logs", "--json", id, &reader], b"").expect(0).text();
    let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!((&last["chunk"], &last["call"]["exit_code"]), (&json!("ended"), &json!(0)));
    session(&["input", id, &reader], b"late").expect(125);
    let trap = "trap 'echo usr > heard' USR1; touch ready; while :; do sleep 0.02; done";
    let trapped = begun(&[], trap);
    eventually("it runs", || served.world.read("ready").is_some());
    session(&["signal", id, &trapped, "usr1"], b"").expect(0);
    eventually("the signal", || served.world.read("heard").is_some());
    session(&["signal", id, &trapped, "STOP"], b"").expect(125).says("TERM");
    session(&["cancel", id, &trapped], b"").expect(0);
    eventually("it is over", || {
        let calls = session(&["calls", "--json", id], b"").expect(0).json();
        calls["calls"].as_array().unwrap().iter().all(|call| call["state"] != "running")
    });
    let calls = session(&["calls", id], b"").expect(0).text();
    assert_eq!(calls.lines().count(), 2, "{calls}");
    session(&["report-activity", "--activity", "thinking", id, "about it"], b"").expect(0);
    session(&["stop", id], b"").expect(0);
    let seen = crate::testkit::collect(watch).expect(0).text();
    let kinds: Vec<Value> = seen.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<&Value> = kinds.iter().map(|event| &event["event"]["claim"]).collect();
    assert!(texts.contains(&&json!("about it")), "{seen}");
    assert_eq!(kinds.last().unwrap()["kind"], "session-ended", "{seen}");
    session(&["activity", id], b"").expect(125).says("ledger tail");
}
