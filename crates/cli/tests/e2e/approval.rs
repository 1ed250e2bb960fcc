//! Questions at a terminal, through the real binary: the answer comes from the person, and from nowhere else.

use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::terminal::Terminal;
use crate::testkit::{Done, World, binary, collect, eventually, finish};

const READY: &str = "[e]xplain > ";

/// A shell whose controlling terminal is `terminal`, and which is in its foreground.
pub(crate) fn session(world: &World, terminal: &Terminal, script: &str) -> Child {
    session_of(world.host("setsid"), terminal, script)
}

/// The same, by a `setsid` of any host.
pub(crate) fn session_of(mut leader: Command, terminal: &Terminal, script: &str) -> Child {
    leader
        .env("RINGFENCE", binary())
        .args(["--ctty", "--wait", "sh", "-c", script])
        .stdin(terminal.end())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    leader.spawn().unwrap()
}

/// Writes a build script: a question in profile `guarded`. What is written says what an eager reader would take for a yes.
const WRITE: &str = "printf 'o\\nyes\\no\\n' | \"$RINGFENCE\" file write --profile guarded Makefile";

fn kinds(world: &World) -> Vec<String> {
    let kind = |record: &Value| record["event"]["kind"].as_str().unwrap_or_default().to_owned();
    let ours = |kind: &String| !["session", "chain", "checkpoint"].iter().any(|word| kind.starts_with(word));
    world.records().iter().map(kind).filter(ours).collect()
}

fn answered(keys: &[u8]) -> (World, Terminal, Done) {
    let world = World::new();
    let terminal = Terminal::new(60, 80);
    let before = terminal.mode();
    let child = session(&world, &terminal, WRITE);
    terminal.wait_for(READY);
    assert!(!world.workspace.join("Makefile").exists(), "nothing happens before the answer");
    terminal.type_in(keys);
    let done = collect(child);
    let after = terminal.mode();
    assert_eq!((before.local_modes, before.input_modes), (after.local_modes, after.input_modes));
    assert_eq!(before.output_modes, after.output_modes);
    (world, terminal, done)
}

#[test]
fn yes_at_the_terminal_lets_it_happen_and_is_written_down_first() {
    let (world, terminal, done) = answered(b"o");
    done.expect(0);
    terminal.wait_for("allowed once");
    let written = std::fs::read(world.workspace.join("Makefile")).unwrap();
    assert_eq!(written, b"o\nyes\no\n", "the standard input is the content and no answer");
    assert_eq!(
        kinds(&world),
        [
            "approval-requested",
            "authentication-attempted",
            "approval-decided",
            "call-intended",
            "call-settled"
        ]
    );
    let shown = terminal.seen();
    for text in ["be written?", "content      8 bytes", "path.build-script", "denied after 60 seconds"] {
        assert!(shown.contains(text), "`{text}` is missing in\n{shown}");
    }
}

#[test]
fn everything_else_is_a_no() {
    for keys in [&b"d"[..], b"\r", b"\x03", b"\x04"] {
        let (world, terminal, done) = answered(keys);
        done.expect(126).says("the answer was no");
        terminal.wait_for("denied");
        assert!(!world.workspace.join("Makefile").exists());
        assert_eq!(
            kinds(&world),
            ["approval-requested", "authentication-attempted", "approval-decided", "call-refused"]
        );
    }
}

#[test]
fn without_a_terminal_nobody_is_asked_and_nothing_happens() {
    let world = World::new();
    let mut command = world.host("setsid");
    command.args(["--wait", "sh", "-c", WRITE]);
    let done = finish(&mut command, b"").expect(126).says("no approver is available");
    assert!(!done.err.contains("[o]nce") && done.text().is_empty());
    assert!(!world.workspace.join("Makefile").exists());
}

/// A process in the background of its terminal would be stopped by the kernel at the first key, with nobody to wake it.
#[test]
fn from_the_background_nobody_is_asked() {
    let world = World::new();
    let terminal = Terminal::new(60, 80);
    let script = format!("set -m; ({WRITE}) & wait $!");
    collect(session(&world, &terminal, &script)).expect(126);
    assert!(!terminal.seen().contains("ringfence asks"), "{}", terminal.seen());
    assert!(!world.workspace.join("Makefile").exists());
}

#[test]
fn keys_that_were_typed_before_are_no_answer() {
    let world = World::new();
    let terminal = Terminal::new(60, 80);
    terminal.type_in(b"o\ro");
    let child = session(&world, &terminal, WRITE);
    terminal.wait_for("end of input deny");
    terminal.type_in(b"o");
    terminal.wait_for(READY);
    terminal.type_in(b"d");
    collect(child).expect(126);
    assert!(!world.workspace.join("Makefile").exists());
}

#[test]
fn a_signal_and_a_terminal_that_goes_away_are_a_no_and_leave_a_usable_terminal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let world = World::new();
        let terminal = Terminal::new(60, 80);
        let before = terminal.mode();
        let child = session(
            &world,
            &terminal,
            "echo $$ > pid; exec \"$RINGFENCE\" file write --profile guarded Makefile < pid",
        );
        terminal.wait_for(READY);
        let pid: i32 = std::fs::read_to_string(world.workspace.join("pid")).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
        collect(child).expect(126);
        eventually("the mode to be back", || terminal.mode().local_modes == before.local_modes);
        assert!(!world.workspace.join("Makefile").exists());
    }
}

/// A session has a terminal of its own, whose other end the agent may hold: nobody there says yes to what it starts.
#[test]
fn c8_what_runs_in_a_session_is_not_asked_about_what_it_starts() {
    let world = World::new();
    crate::testkit::copy_binary(world.workspace.join("rf"));
    let state = world.state.display();
    let write = "printf x | env -u RINGFENCE_SESSION_ID XDG_STATE_HOME=STATE ./rf file write --profile guarded Makefile"
        .replace("STATE", &state.to_string());
    let bare = "--danger --backend none --allow-sensitive-roots --danger-required-controls env";
    let attempts = [
        format!("export RINGFENCE_SESSION_ID=ses_1; {WRITE}"),
        format!("exec \"$RINGFENCE\" run {bare} -- sh -c '{write}'"),
    ];
    for attempt in attempts {
        let terminal = Terminal::new(60, 80);
        collect(session(&world, &terminal, &attempt)).expect(126).says("no approver is available");
        assert!(!terminal.seen().contains("[o]nce"), "{}", terminal.seen());
        assert!(!world.workspace.join("Makefile").exists());
    }
    let terminal = Terminal::new(60, 80);
    let control = session(&world, &terminal, &write);
    terminal.wait_for(READY);
    terminal.type_in(b"o");
    collect(control).expect(0);
}
