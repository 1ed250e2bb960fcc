//! Going round in circles: the same call again and again, and the like after a no.

use std::process::Stdio;

use rustix::process::Signal;

use crate::approval::session;
use crate::approvals::{approvals, events, one_waiting};
use crate::terminal::Terminal;
use crate::testkit::{World, collect, eventually, send};

const SESSION: &[&str] = &["--session", "work"];

#[test]
fn the_same_command_is_noted_at_five_and_stopped_at_ten() {
    let world = World::new();
    for round in 1..10 {
        let done = world.run(SESSION, &["ls"]).expect(0);
        assert_eq!(done.err.contains("5 times in a row"), round == 5, "{round}: {}", done.err);
    }
    let stopped = world.run(SESSION, &["ls"]).expect(126);
    for text in ["came 9 times in a row", "loop.repeated", "do something else"] {
        assert!(stopped.err.contains(text), "{}", stopped.err);
    }
    let json = world.json(SESSION, &["ls"]);
    assert_eq!(json["refusal"]["code"], "loop");
    world.run(SESSION, &["true"]).expect(0);
    world.run(SESSION, &["ls"]).expect(0);
    world.run(&["--session", "other"], &["ls"]).expect(0);
    world.run(&[], &["ls"]).expect(0);
    let records = world.all_records();
    let found: Vec<(u64, bool)> = events(&records, "loop-detected")
        .iter()
        .map(|event| (event["repeats"].as_u64().unwrap(), event["stopped"].as_bool().unwrap()))
        .collect();
    assert_eq!(found, [(5, false), (10, true), (10, true)]);
    assert_eq!(events(&records, "session-started").len(), 3);
    assert_eq!(events(&records, "session-ended").len(), 1, "of the one without a name");
}

#[test]
fn what_changes_is_no_loop() {
    let world = World::new();
    for round in 0..12 {
        let done = world.run(SESSION, &["sh", "-c", "echo x >>log; wc -l log"]).expect(0);
        assert!(done.err.is_empty(), "{round}: {}", done.err);
    }
}

#[test]
fn c19_a_no_stands_and_the_like_of_it_ends_the_session() {
    let world = World::new();
    let ask = |command: &str| {
        let terminal = Terminal::new(60, 80);
        let script = format!("exec \"$RINGFENCE\" run --session work --profile guarded -- {command}");
        session(&world, &terminal, &script)
    };
    for round in 0..4 {
        let child = ask(&format!("mkdir made{round}"));
        approvals(&world, &["deny", &one_waiting(&world)]).expect(0);
        collect(child).expect(126).says("approval.denied");
    }
    collect(ask("mkdir made0")).expect(126).says("denied before in this session");
    let over = world.run(&["--session", "work", "--profile", "guarded"], &["ls"]).expect(126);
    assert!(over.err.contains("approval.circuit-breaker"), "{}", over.err);
    world.run(&["--profile", "guarded"], &["ls"]).expect(0);
}

#[test]
fn a_session_with_a_name_marks_what_an_earlier_process_of_it_left() {
    let world = World::new();
    let mut command = world.ringfence();
    command.args(["run", "--session", "work", "--", "sh", "-c", "echo up >up; exec sleep 600"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("it runs", || world.read("up").is_some());
    send(&child, Signal::KILL);
    collect(child);
    world.run(SESSION, &["true"]).expect(0);
    let records = world.all_records();
    let left = events(&records, "call-intended")[0]["transaction"].clone();
    let interrupted = events(&records, "call-interrupted");
    assert_eq!((interrupted.len(), &interrupted[0]["transaction"]), (1, &left));
    assert_eq!(events(&records, "session-started").len(), 1);
}

/// The process that began the session is gone; the one that goes on with it is not.
#[test]
fn another_start_leaves_the_question_of_a_session_with_a_name_alone() {
    let world = World::new();
    world.run(SESSION, &["true"]).expect(0);
    let terminal = Terminal::new(60, 80);
    let script = "exec \"$RINGFENCE\" run --session work --profile guarded -- mkdir made";
    let child = session(&world, &terminal, script);
    terminal.wait_for("[e]xplain > ");
    let id = one_waiting(&world);
    world.run(&[], &["true"]).expect(0);
    world.run(SESSION, &["true"]).expect(0);
    assert_eq!(one_waiting(&world), id);
    terminal.type_in(b"o");
    collect(child).expect(0);
    assert!(world.workspace.join("made").is_dir());
}
