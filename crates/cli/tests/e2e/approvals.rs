//! Questions that are answered from elsewhere: another terminal, another operator, too late, by nobody, by the agent itself.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::approval::{session, session_of};
use crate::internet::Internet;
use crate::terminal::Terminal;
use crate::test_timeouts::{Patient, ended};
use crate::testkit::{Done, World, binary, collect, eventually, finish, send};

pub(crate) const READY: &str = "[e]xplain > ";
pub(crate) const CONFIRM: &str = "anything else denies > ";
const MAKE: &str = "exec \"$RINGFENCE\" run --profile guarded -- mkdir made";

pub(crate) fn approvals(world: &World, arguments: &[&str]) -> Done {
    finish(world.ringfence().arg("approvals").args(arguments), b"")
}

pub(crate) fn grants(world: &World, arguments: &[&str]) -> Done {
    finish(world.ringfence().arg("grants").args(arguments), b"")
}

/// The ids of the pending approvals.
pub(crate) fn waiting(world: &World) -> Vec<String> {
    let list = approvals(world, &["list", "--json"]).expect(0).json();
    list["approvals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|question| question["id"].as_str().unwrap().to_owned())
        .collect()
}

pub(crate) fn one_waiting(world: &World) -> String {
    eventually("one question waits", || waiting(world).len() == 1);
    waiting(world).remove(0)
}

/// A process without any terminal.
pub(crate) fn alone(world: &World, script: &str) -> Child {
    let mut command = world.host("setsid");
    command.args(["--wait", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

pub(crate) fn events<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().map(|record| &record["event"]).filter(|event| event["kind"] == kind).collect()
}

/// Somebody at a terminal of their own who says yes to `id`, once it is shown.
pub(crate) fn approve(world: &World, id: &str, more: &str, keys: &[u8]) -> (Terminal, Done) {
    let terminal = Terminal::new(60, 120);
    let child = session(world, &terminal, &format!("exec \"$RINGFENCE\" approvals approve {id} {more}"));
    terminal.wait_for(CONFIRM);
    terminal.type_in(keys);
    let done = collect(child);
    (terminal, done)
}

/// `ringfence approvals watch` in a terminal; it ends when this is dropped.
pub(crate) struct Watcher {
    child: Child,
    pid: i32,
    pub(crate) terminal: Terminal,
}

impl Watcher {
    pub(crate) fn new(world: &World) -> Self {
        Self::at(world, Terminal::new(60, 120))
    }

    pub(crate) fn at(world: &World, terminal: Terminal) -> Self {
        Self::by(world.host("setsid"), world, terminal)
    }

    /// On the host of an internet: a yes is for the files that the asker sees, so the watcher has to see the same.
    pub(crate) fn within(internet: &Internet) -> Self {
        Self::by(internet.host("setsid"), &internet.world, Terminal::new(60, 120))
    }

    fn by(leader: Command, world: &World, terminal: Terminal) -> Self {
        let script = "echo $$ >watcher; exec \"$RINGFENCE\" approvals watch >up";
        let child = session_of(leader, &terminal, script);
        eventually("somebody watches", || world.read("up").is_some_and(|text| text.contains("waiting")));
        let pid = world.read("watcher").unwrap().trim().parse().unwrap();
        Self { child, pid, terminal }
    }

    /// Runs a command, and types a key when its question is shown.
    pub(crate) fn answer(&self, key: &[u8], command: &mut Command, input: &[u8]) -> Done {
        self.answering(key, || finish(command, input))
    }

    pub(crate) fn answering<T: Send>(&self, key: &[u8], asks: impl FnOnce() -> T + Send) -> T {
        let count = || self.terminal.seen().matches("[d]eny > ").count();
        let before = count();
        std::thread::scope(|scope| {
            let done = scope.spawn(asks);
            eventually("the question is shown", || count() > before);
            self.terminal.type_in(key);
            done.join().unwrap()
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        signal(self.pid, Signal::KILL);
        ended("who watches, killed", &mut self.child);
    }
}

#[test]
fn s003_13_a_second_terminal_answers_while_the_first_waits() {
    let world = World::new();
    let first = Terminal::new(60, 80);
    let child = session(&world, &first, MAKE);
    first.wait_for(READY);
    let id = one_waiting(&world);
    assert!(!world.workspace.join("made").exists());
    let listed = approvals(&world, &["list"]).expect(0).text();
    assert!(listed.contains(&id) && listed.contains("medium") && listed.contains("mkdir made"), "{listed}");
    let (second, done) = approve(&world, id.get(..8).unwrap(), "", b"y");
    let done = done.expect(0);
    assert!(done.text().contains("allowed once"), "{}", done.text());
    assert!(second.seen().contains("May `mkdir` run with 1 argument?"), "{}", second.seen());
    collect(child).expect(0);
    first.wait_for("answered elsewhere: allowed once by ");
    assert!(first.seen().contains(" at /dev/pts/"), "{}", first.seen());
    assert!(world.workspace.join("made").is_dir());
    let records = world.records();
    let decided = events(&records, "approval-decided");
    assert_eq!((decided.len(), &decided[0]["answer"]), (1, &"once".into()));
    assert_eq!(decided[0]["actor"]["principal"], "operator");
    assert!(decided[0]["actor"]["terminal"].as_str().unwrap().starts_with("/dev/pts/"));
    assert_eq!(events(&records, "authentication-attempted").len(), 1);
    assert!(waiting(&world).is_empty());
}

#[test]
fn every_channel_shows_the_same_prompt() {
    let world = World::new();
    let first = Terminal::new(60, 200);
    let child = session(&world, &first, MAKE);
    first.wait_for(READY);
    let id = one_waiting(&world);
    let json = approvals(&world, &["show", &id, "--json"]).expect(0).json();
    let shown = approvals(&world, &["show", &id]).expect(0).text();
    let fields = json["request"]["prompt"]["fields"].as_array().unwrap();
    assert!(fields.len() > 8, "{json}");
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (on_screen, in_show) = (squeezed(&first.seen()), squeezed(&shown));
    for field in fields {
        let text = squeezed(field[1].as_str().unwrap());
        assert!(on_screen.contains(&text), "`{text}` is not in {on_screen}");
        assert!(in_show.contains(&text), "`{text}` is not in {in_show}");
    }
    first.type_in(b"d");
    collect(child).expect(126);
}

#[test]
fn without_a_terminal_it_waits_for_somebody_who_watches() {
    let world = World::new();
    collect(alone(&world, MAKE)).expect(126).says("no approver is available");
    let watcher = Watcher::new(&world);
    let child = alone(&world, MAKE);
    watcher.terminal.wait_for("[d]eny > ");
    assert!(watcher.terminal.seen().contains("May `mkdir` run"), "{}", watcher.terminal.seen());
    watcher.terminal.type_in(b"o");
    collect(child).expect(0);
    assert!(world.workspace.join("made").is_dir());
    let child = alone(&world, "exec \"$RINGFENCE\" run --json --profile guarded -- mkdir other");
    eventually("the next question", || watcher.terminal.seen().matches("[d]eny > ").count() == 2);
    watcher.terminal.type_in(b"d");
    let refused = collect(child).expect(126).json();
    assert!(refused["refusal"]["rule"].as_str().unwrap().starts_with("approval.denied"), "{refused}");
    assert!(!world.workspace.join("other").exists());
    drop(watcher);
    eventually("nobody watches any more", || {
        collect(alone(&world, MAKE)).err.contains("no approver is available")
    });
}

#[test]
fn of_two_operators_exactly_one_decides_and_both_are_told_the_truth() {
    let world = World::new();
    let first = Terminal::new(60, 80);
    let child = session(&world, &first, MAKE);
    first.wait_for(READY);
    let id = one_waiting(&world);
    let terminals = [Terminal::new(60, 120), Terminal::new(40, 120)];
    let script = format!("exec \"$RINGFENCE\" approvals approve {id}");
    let children = terminals.each_ref().map(|terminal| session(&world, terminal, &script));
    terminals.iter().for_each(|terminal| terminal.wait_for(CONFIRM));
    terminals.iter().for_each(|terminal| terminal.type_in(b"y"));
    let done = children.map(collect);
    let mut codes = done.each_ref().map(|done| done.code.unwrap());
    codes.sort_unstable();
    assert_eq!(codes, [0, 1], "{done:?}");
    let loser = done.iter().find(|done| done.code == Some(1)).unwrap();
    assert!(
        loser.err.contains("answered before: once") || loser.err.contains("answered elsewhere"),
        "{}",
        loser.err
    );
    collect(child).expect(0);
    assert_eq!(events(&world.records(), "approval-decided").len(), 1);
    assert_eq!(events(&world.records(), "call-intended").len(), 1);
}

#[test]
fn c16_an_answer_counts_once() {
    let world = World::new();
    let first = Terminal::new(60, 80);
    let child = session(&world, &first, MAKE);
    first.wait_for(READY);
    let id = one_waiting(&world);
    approvals(&world, &["deny", &id, "--reason", "not today"]).expect(0);
    collect(child).expect(126).says("the answer was no").says("not today");
    let again = approvals(&world, &["deny", &id]).expect(1);
    assert!(again.err.contains("it was answered before: deny by"), "{}", again.err);
    approvals(&world, &["deny", "tx_nothing"]).expect(1).says("no approval with id `tx_nothing`");
    assert!(!world.workspace.join("made").exists());
    assert_eq!(events(&world.records(), "approval-decided").len(), 1);
}

pub(crate) fn configure(world: &World, text: &str) {
    let directory = world.home.join(".config/ringfence");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("config.toml"), text).unwrap();
}

#[test]
fn c17_time_runs_out_and_an_answer_after_it_is_none() {
    let world = World::new();
    configure(&world, "[approvals]\ntimeout = \"3s\"\n");
    let first = Terminal::new(60, 80);
    let child = session(&world, &first, MAKE);
    first.wait_for(READY);
    collect(child).expect(126).says("no answer came in time").says("approval.expired");
    let id = events(&world.records(), "approval-requested")[0]["transaction"].as_str().unwrap().to_owned();
    first.wait_for("no answer: denied");
    let late = approvals(&world, &["deny", &id]).expect(1);
    assert!(late.err.contains("it was answered before: expired by ringfence"), "{}", late.err);
    let terminal = Terminal::new(60, 80);
    let script = format!("exec \"$RINGFENCE\" approvals approve {id}");
    collect(session(&world, &terminal, &script)).expect(1).says("answered before: expired");
    assert!(!world.workspace.join("made").exists());
}

/// The process that runs `mkdir made` for us.
fn asker(world: &World) -> i32 {
    world.read("pid").unwrap().trim().parse().unwrap()
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[test]
fn c9_a_question_whose_asker_was_killed_is_closed_and_permits_nothing() {
    let world = World::new();
    let first = Terminal::new(60, 80);
    let child = session(&world, &first, &format!("echo $$ >pid; {MAKE}"));
    first.wait_for(READY);
    let id = one_waiting(&world);
    signal(asker(&world), Signal::KILL);
    collect(child);
    assert!(waiting(&world).is_empty());
    let terminal = Terminal::new(60, 80);
    let script = format!("exec \"$RINGFENCE\" approvals approve {id}");
    collect(session(&world, &terminal, &script)).expect(1).says("answered before: expired");
    let records = world.records();
    assert_eq!(events(&records, "approval-decided")[0]["answer"], "expired");
    assert_eq!(events(&records, "call-refused")[0]["transaction"], id.as_str());
    assert!(events(&records, "call-intended").is_empty() && !world.workspace.join("made").exists());
}

#[test]
fn s001_28_an_answer_whose_asker_was_killed_before_it_could_act_is_never_used() {
    let world = World::new();
    let first = Terminal::new(60, 80);
    let child = session(&world, &first, &format!("echo $$ >pid; {MAKE}"));
    first.wait_for(READY);
    let id = one_waiting(&world);
    signal(asker(&world), Signal::STOP);
    let (_terminal, done) = approve(&world, &id, "", b"y");
    done.expect(0);
    signal(asker(&world), Signal::KILL);
    collect(child);
    assert!(waiting(&world).is_empty());
    let records = world.records();
    assert_eq!(events(&records, "approval-decided")[0]["answer"], "once");
    assert!(events(&records, "call-intended").is_empty() && !world.workspace.join("made").exists());
    let closed = events(&records, "call-refused");
    assert_eq!((closed.len(), &closed[0]["transaction"]), (1, &id.as_str().into()), "{closed:?}");
    collect(alone(&world, MAKE)).expect(126).says("no approver is available");
}

#[test]
fn control_the_same_with_a_pause_instead_of_a_kill_is_done_once() {
    let world = World::new();
    let first = Terminal::new(60, 80);
    let child = session(&world, &first, &format!("echo $$ >pid; {MAKE}"));
    first.wait_for(READY);
    let id = one_waiting(&world);
    signal(asker(&world), Signal::STOP);
    let (_terminal, done) = approve(&world, &id, "", b"y");
    done.expect(0);
    signal(asker(&world), Signal::CONT);
    collect(child).expect(0);
    assert!(world.workspace.join("made").is_dir());
    assert_eq!(events(&world.records(), "call-intended").len(), 1);
}

#[test]
fn a_yes_takes_a_person_at_a_terminal_who_was_shown_the_question() {
    let world = World::new();
    let first = Terminal::new(60, 80);
    let child = session(&world, &first, MAKE);
    first.wait_for(READY);
    let id = one_waiting(&world);
    let script = format!("exec \"$RINGFENCE\" approvals approve {id}");
    collect(alone(&world, &script)).expect(126).says("a yes takes a person at a terminal");
    let terminal = Terminal::new(60, 80);
    let background = format!("set -m; (\"$RINGFENCE\" approvals approve {id}) & wait $!");
    collect(session(&world, &terminal, &background)).expect(126);
    for keys in [&b"n"[..], b"\r", b"\x03", b"o"] {
        let (_terminal, done) = approve(&world, &id, "", keys);
        done.expect(1).says("nothing was answered");
    }
    assert_eq!(waiting(&world), [id.as_str()], "it still waits");
    let refused = events(&world.records(), "authentication-attempted")
        .iter()
        .filter(|event| event["refusal"]["rule"] == "approval.no-terminal")
        .count();
    assert_eq!(refused, 2);
    approvals(&world, &["deny", &id]).expect(0);
    collect(child).expect(126);
}

/// Everything an agent inside can try, and the same from outside as the control.
#[test]
fn c8_what_runs_in_the_fence_cannot_answer_its_own_question() {
    let world = World::new();
    crate::testkit::copy_binary(world.workspace.join("rf"));
    let first = Terminal::new(60, 80);
    let child = session(&world, &first, MAKE);
    first.wait_for(READY);
    let id = one_waiting(&world);
    let state = world.state.display().to_string();
    let attempts = [
        format!("./rf approvals deny {id}"),
        format!("XDG_STATE_HOME={state} ./rf approvals deny {id}"),
        format!("env -u RINGFENCE_SESSION_ID XDG_STATE_HOME={state} ./rf approvals deny {id}"),
        format!("env -u RINGFENCE_SESSION_ID XDG_STATE_HOME={state} setsid ./rf approvals deny {id}"),
    ];
    for attempt in &attempts {
        let done = world.sh(attempt);
        assert_ne!(done.code, Some(0), "{attempt}: {}", done.err);
    }
    // A backend that contains nothing shows the ledger; who answers is still not the one who asks.
    let bare =
        ["--danger", "--backend", "none", "--allow-sensitive-roots", "--danger-required-controls", "env"];
    for attempt in &attempts[1..3] {
        world.sh_with(&bare, attempt).expect(126).says("what runs in a session does not answer");
    }
    assert_eq!(waiting(&world), [id.as_str()], "nothing was answered");
    let refused = |event: &&&Value| event["refusal"]["rule"] == "approval.from-session";
    assert_eq!(events(&world.records(), "authentication-attempted").iter().filter(refused).count(), 2);
    let control = finish(world.host("sh").args(["-c", &attempts[0]]), b"");
    control.expect(0);
    collect(child).expect(126);
}

#[test]
fn something_else_can_be_approved_instead_and_is_judged_as_anything() {
    let world = World::new();
    let first = Terminal::new(60, 80);
    let child = session(&world, &first, MAKE);
    first.wait_for(READY);
    let id = one_waiting(&world);
    let (terminal, done) = approve(&world, &id, "--replace -- mkdir -v other", b"y");
    done.expect(0);
    assert!(terminal.seen().contains("run this instead, once: mkdir -v other"), "{}", terminal.seen());
    collect(child).expect(0);
    assert!(world.workspace.join("other").is_dir() && !world.workspace.join("made").exists());
    let records = world.records();
    let (decided, intent) = (events(&records, "approval-decided")[0], events(&records, "call-intended")[0]);
    assert_eq!(intent["call"]["argv"], serde_json::json!(["mkdir", "-v", "other"]));
    assert_eq!(decided["fingerprint"], intent["fingerprint"]);
    assert_ne!(events(&records, "approval-requested")[0]["fingerprint"], intent["fingerprint"]);
    let child = session(&world, &first, MAKE);
    let id = one_waiting(&world);
    let (_terminal, done) = approve(&world, &id, "--replace -- rm -rf other", b"y");
    done.expect(0);
    collect(child).expect(126).says("deny-list.deletion");
    assert!(world.workspace.join("other").is_dir(), "a no of the policy stays one");
}

#[test]
fn d8_what_an_agent_writes_stays_text_wherever_it_is_shown() {
    let world = World::new();
    let watcher = Watcher::new(&world);
    let evil = "a\u{1b}[2J\nringfence asks\r\u{202e}\u{7}b";
    let mut command = Command::new("setsid");
    command.arg("--wait").arg(binary()).args([
        "run",
        "--profile",
        "guarded",
        "--reason",
        evil,
        "--",
        "mkdir",
        evil,
    ]);
    command
        .env_clear()
        .env("HOME", &world.home)
        .env("XDG_STATE_HOME", &world.state)
        .env("PATH", "/usr/bin:/bin");
    command.current_dir(&world.workspace).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let id = one_waiting(&world);
    watcher.terminal.wait_for("[d]eny > ");
    let texts = [
        approvals(&world, &["list"]).text(),
        approvals(&world, &["show", &id]).text(),
        world.ledger_tool(&["tail"]).text(),
        watcher.terminal.seen().replace("\r\n", "\n"),
    ];
    for text in texts {
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{7}', '\r']), "{text:?}");
        assert!(!text.lines().skip(1).any(|line| line.starts_with("ringfence asks\u{202e}")), "{text:?}");
    }
    let json = approvals(&world, &["list", "--json"]).text();
    assert!(!json.trim_end().contains(char::is_control), "{json:?}");
    approvals(&world, &["deny", &id]).expect(0);
    let done = collect(child).expect(126);
    assert!(!done.err.contains(['\u{1b}', '\u{202e}']), "{:?}", done.err);
}

#[test]
fn s001_26_questions_that_are_off_are_refused_whoever_watches() {
    let world = World::new();
    configure(&world, "approval = \"never\"\n");
    let _watcher = Watcher::new(&world);
    let done = collect(alone(&world, MAKE)).expect(126);
    assert!(done.err.contains("approvals are off"), "{}", done.err);
    assert!(!world.workspace.join("made").exists());
    assert!(events(&world.records(), "approval-requested").is_empty());
}

#[test]
fn a_signal_ends_the_wait_for_somebody_elsewhere() {
    let world = World::new();
    let _watcher = Watcher::new(&world);
    let mut command = world.ringfence();
    command.args(["run", "--json", "--profile", "guarded", "--", "mkdir", "made"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = one_waiting(&world);
    send(&child, Signal::INT);
    collect(child).expect(126);
    assert!(approvals(&world, &["deny", &id]).expect(1).err.contains("answered before: deny by ringfence"));
}

/// Each commit costs a wait for the disk: one before the command, one after it.
#[test]
fn a_run_without_a_question_writes_to_the_ledger_twice() {
    let world = World::new();
    world.run(&[], &["true"]).expect(0);
    let trace = world.beside("trace").join("calls");
    let mut command = world.host("strace");
    command.args(["-f", "-y", "-e", "trace=fsync,fdatasync", "-o"]).arg(&trace).arg(binary());
    finish(command.args(["run", "--", "true"]), b"").expect(0);
    let calls = fs::read_to_string(&trace).unwrap();
    assert_eq!(calls.lines().filter(|line| line.contains("ledger.db-wal")).count(), 2, "{calls}");
}

#[test]
fn a_stream_of_questions_is_read_as_long_as_somebody_reads_it() {
    let world = World::new();
    let mut command = world.ringfence();
    command.args(["approvals", "watch", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut watcher = command.spawn().unwrap();
    let mut lines = BufReader::new(Patient(watcher.stdout.take().unwrap())).lines();
    let asking = || {
        let mut command = world.ringfence();
        command.args(["run", "--json", "--profile", "guarded", "--", "mkdir", "made"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let holds = || {
        fs::read_dir(world.state.join("ringfence/approvals/watching"))
            .is_ok_and(|mut all| all.next().is_some())
    };
    eventually("it watches", holds);
    let child = asking();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let asked = next();
    assert_eq!(asked["event"], "requested");
    approvals(&world, &["deny", asked["id"].as_str().unwrap()]).expect(0);
    let closed = next();
    assert_eq!((&closed["event"], &closed["decision"]["answer"]), (&"closed".into(), &"deny".into()));
    assert_eq!(closed["id"], asked["id"]);
    collect(child).expect(126);
    drop(lines);
    assert!(ended("who watches, whom nobody reads", &mut watcher).success());
    let refused = collect(asking()).expect(126).json();
    assert!(refused["refusal"]["rule"].as_str().unwrap().starts_with("approval.unreachable"), "{refused}");
}

/// Whatever the file of the supervisor is called, what it runs knows it.
#[test]
fn c8_a_renamed_supervisor_is_known_to_what_it_runs() {
    let world = World::new();
    let other = world.beside("programs").join("fence-of-mine");
    crate::testkit::copy_binary(&other);
    crate::testkit::copy_binary(world.workspace.join("rf"));
    world.run(&[], &["true"]).expect(0);
    let script = format!(
        "env -u RINGFENCE_SESSION_ID XDG_STATE_HOME={} ./rf ledger checkpoint",
        world.state.display()
    );
    let bare =
        ["--danger", "--backend", "none", "--allow-sensitive-roots", "--danger-required-controls", "env"];
    let mut command = std::process::Command::new(&other);
    world.dress(&mut command);
    command.arg("run").args(bare).args(["--", "sh", "-c", &script]);
    finish(&mut command, b"").expect(126).says("act as its operator");
    finish(world.host("sh").args(["-c", &script]), b"").expect(0);
}

#[test]
fn c8_what_only_an_operator_does_is_not_done_from_a_session() {
    let world = World::new();
    world.run(&[], &["true"]).expect(0);
    let commands: [&[&str]; 9] = [
        &["ledger", "prune", "--older-than", "1d"],
        &["ledger", "checkpoint"],
        &["ledger", "rotate-key"],
        &["ledger", "restart", "--reason", "because"],
        &["session", "end", "work"],
        &["policy", "approve"],
        &["proposal", "apply", "tx_1"],
        &["proposal", "discard", "tx_1"],
        &["secret", "rm", "X"],
    ];
    for command in commands {
        let before = events(&world.records(), "authentication-attempted").len();
        let inside = finish(world.ringfence().args(command).env("RINGFENCE_SESSION_ID", "ses_1"), b"");
        inside.expect(126).says("or act as its operator");
        let records = world.records();
        let refused = events(&records, "authentication-attempted");
        assert_eq!(refused.len(), before + 1, "{command:?}");
        assert_eq!(refused.last().unwrap()["refusal"]["rule"], "approval.from-session", "{command:?}");
        let outside = finish(world.ringfence().args(command), b"");
        let needs_terminal = outside.err.contains("a yes takes a person at a terminal");
        assert!(outside.code != Some(126) || needs_terminal, "control: {command:?}: {}", outside.err);
        assert!(!outside.err.contains("act as its operator"), "{}", outside.err);
    }
}
