//! An answer is for what was shown: whatever changes before it is used is asked about again.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Child;

use crate::approval::session;
use crate::approvals::{READY, approve, configure, events, one_waiting};
use crate::terminal::Terminal;
use crate::testkit::{World, collect, script};

/// Asks about `command`, lets `change` happen, says yes, and returns how it goes on.
fn changed(world: &World, terminal: &Terminal, command: &str, change: impl FnOnce()) -> Child {
    let child = session(world, terminal, &format!("exec \"$RINGFENCE\" run --profile guarded -- {command}"));
    terminal.wait_for_question(1);
    one_waiting(world);
    change();
    terminal.type_in(b"yes\r");
    child
}

/// The attack, and the same without it.
fn attack(command: &str, prepare: impl Fn(&World), change: impl Fn(&World)) -> World {
    let world = World::new();
    prepare(&world);
    let terminal = Terminal::new(60, 100);
    collect(changed(&world, &terminal, command, || {})).expect(0);
    assert_eq!(world.read("ran").as_deref(), Some("good\n"), "control: {}", terminal.seen());
    fs::remove_file(world.workspace.join("ran")).unwrap();
    let terminal = Terminal::new(60, 100);
    let child = changed(&world, &terminal, command, || change(&world));
    terminal.wait_for("has changed; it is judged again");
    assert!(world.read("ran").is_none(), "nothing ran");
    terminal.wait_for_question(2);
    terminal.type_in(b"no\r");
    collect(child).expect(126);
    assert!(world.read("ran").is_none(), "nothing ran");
    let records = world.records();
    let answers: Vec<&str> =
        events(&records, "approval-decided").iter().map(|event| event["answer"].as_str().unwrap()).collect();
    assert_eq!(answers, ["once", "superseded", "deny"]);
    let requests = events(&records, "approval-requested");
    assert_ne!(requests[1]["transaction"], requests[2]["transaction"], "it is another question");
    world
}

#[test]
fn c7_a_script_that_is_swapped_between_question_and_yes_does_not_run() {
    attack(
        "python3 job.py",
        |world| drop(world.write("job.py", "open('ran', 'w').write('good\\n')\n")),
        |world| drop(world.write("job.py", "open('ran', 'w').write('evil\\n')\n")),
    );
}

/// That a list also writes to its script does not take the script out of the binding.
#[test]
fn c7_a_script_that_the_same_command_writes_to_is_bound() {
    for command in [
        "sh -c 'chmod +x job.py && python3 job.py'",
        "sh -c 'sed -i s/two/one/ job.py && python3 job.py'",
        "sh -c 'cp -n job.py job.py; python3 job.py'",
        "sh -c 'true >>job.py; python3 job.py'",
    ] {
        attack(
            command,
            |world| drop(world.write("job.py", "open('ran', 'w').write('good\\n')\n")),
            |world| drop(world.write("job.py", "open('ran', 'w').write('evil\\n')\n")),
        );
    }
}

/// No digest covers a script that the command changes before it runs: the prompt says so, and nothing is stored.
#[test]
fn c7_a_script_that_is_changed_first_is_named_as_not_bound_and_gets_no_grant() {
    let world = World::new();
    world.write("job.py", "open('ran', 'w').write('evil\\n')\n");
    let command = "sh -c 'sed -i s/evil/good/ job.py && python3 job.py'";
    let run = format!("exec \"$RINGFENCE\" run --profile guarded -- {command}");
    let terminal = Terminal::new(60, 100);
    let child = session(&world, &terminal, &run);
    terminal.wait_for_question(1);
    let shown = terminal.seen();
    assert!(shown.contains("not bound") && shown.contains("job.py"), "{shown}");
    assert!(shown.contains("the command changes it"), "{shown}");
    let id = one_waiting(&world);
    let (_terminal, done) = approve(&world, &id, "--session", b"yes\r");
    done.expect(1).says("not offered");
    assert!(world.read("ran").is_none(), "nothing ran");
    terminal.type_in(b"yes\r");
    collect(child).expect(0);
    assert_eq!(world.read("ran").as_deref(), Some("good\n"), "control: it runs what it made");
    assert!(events(&world.records(), "grant-created").is_empty());
    // The control: a list that only writes another file has no such line.
    let terminal = Terminal::new(60, 100);
    let run = run.replace("job.py &&", "other.py &&");
    world.write("other.py", "");
    let child = session(&world, &terminal, &run);
    terminal.wait_for_question(1);
    assert!(!terminal.seen().contains("not bound"), "{}", terminal.seen());
    terminal.type_in(b"no\r");
    collect(child).expect(126);
}

/// No digest covers a program or a script that does not exist yet: the prompt says so, and nothing is stored.
#[test]
fn c7_a_program_that_does_not_exist_yet_is_named_as_not_bound_and_gets_no_grant() {
    for command in ["./later", "sh -c 'cd sub; nice python3 later'"] {
        let world = World::new();
        let run = format!("exec \"$RINGFENCE\" run --profile guarded -- {command}");
        let asked = || {
            let terminal = Terminal::new(60, 120);
            let child = session(&world, &terminal, &run);
            terminal.wait_for_question(1);
            (terminal, child)
        };
        let (terminal, child) = asked();
        // Long paths break the line anywhere between words.
        let shown = terminal.seen().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains("not bound") && shown.contains("later` has when it is executed"), "{shown}");
        assert!(shown.contains("does not exist yet"), "{shown}");
        let (_terminal, done) = approve(&world, &one_waiting(&world), "--session", b"yes\r");
        done.expect(1).says("not offered");
        terminal.type_in(b"no\r");
        collect(child).expect(126);
        // The control: what exists is bound.
        script(&world.workspace.join("later"), "#!/bin/sh\n");
        let (terminal, child) = asked();
        assert!(!terminal.seen().contains("not bound"), "{}", terminal.seen());
        terminal.type_in(b"no\r");
        collect(child).expect(126);
    }
}

#[test]
fn c7_a_program_that_is_replaced_between_question_and_yes_does_not_run() {
    attack(
        "./tool",
        |world| script(&world.workspace.join("tool"), "#!/bin/sh\necho good >ran\n"),
        |world| {
            script(&world.workspace.join("other"), "#!/bin/sh\necho evil >ran\n");
            fs::rename(world.workspace.join("other"), world.workspace.join("tool")).unwrap();
        },
    );
}

#[test]
fn c7_a_policy_that_changes_between_question_and_yes_is_asked_about_again() {
    attack(
        "python3 job.py",
        |world| {
            configure(world, "[[command]]\nask = \"cargo\"\n");
            world.write("job.py", "open('ran', 'w').write('good\\n')\n");
        },
        |world| configure(world, "[[command]]\nask = \"make\"\n"),
    );
}

#[test]
fn c7_a_policy_that_denies_by_now_denies() {
    let world = World::new();
    world.write("job.py", "open('ran', 'w').write('good\\n')\n");
    let terminal = Terminal::new(60, 100);
    let deny = || configure(&world, "[[command]]\ndeny = \"python3\"\n");
    let child = changed(&world, &terminal, "python3 job.py", deny);
    let done = collect(child).expect(126);
    assert!(done.err.contains("config.toml:2"), "{}", done.err);
    assert!(world.read("ran").is_none());
}

#[test]
fn c7_a_directory_that_becomes_another_between_question_and_yes_is_asked_about_again() {
    let world = World::new();
    for (name, word) in [("a", "good"), ("b", "evil")] {
        world.write(&format!("{name}/job.py"), format!("open('../ran', 'w').write('{word}\\n')\n"));
    }
    let go = |terminal: &Terminal| {
        let run = "cd a; exec \"$RINGFENCE\" run --profile guarded --workspace .. -- python3 job.py";
        let child = session(&world, terminal, run);
        terminal.wait_for_question(1);
        child
    };
    let terminal = Terminal::new(60, 100);
    let child = go(&terminal);
    terminal.type_in(b"yes\r");
    collect(child).expect(0);
    assert_eq!(world.read("ran").as_deref(), Some("good\n"), "control");
    fs::remove_file(world.workspace.join("ran")).unwrap();
    let terminal = Terminal::new(60, 100);
    let child = go(&terminal);
    fs::rename(world.workspace.join("a"), world.workspace.join("old")).unwrap();
    symlink("b", world.workspace.join("a")).unwrap();
    terminal.type_in(b"yes\r");
    terminal.wait_for("has changed; it is judged again");
    assert!(world.read("ran").is_none());
    let id = one_waiting(&world);
    terminal.wait_for_question(2);
    terminal.type_in(b"no\r");
    collect(child).expect(126);
    assert!(!id.is_empty() && world.read("ran").is_none());
}

/// What was read for the first question is known in the second one as well, and the command reads it.
#[test]
fn c7_a_question_that_is_asked_again_knows_the_same_input() {
    let world = World::new();
    world.write("data", "one");
    let terminal = Terminal::new(60, 100);
    let run = "printf given | \"$RINGFENCE\" run --profile guarded -- sort -o made data -";
    let child = session(&world, &terminal, run);
    terminal.wait_for_question(1);
    world.write("data", "two");
    terminal.type_in(b"o");
    terminal.wait_for("has changed; it is judged again");
    terminal.wait_for_question(2);
    terminal.type_in(b"o");
    collect(child).expect(0);
    let records = world.records();
    let requests = events(&records, "approval-requested");
    let inputs: Vec<_> = requests.iter().map(|request| &request["call"]["stdin"]).collect();
    assert_eq!((inputs.len(), &inputs[0]["bytes"]), (2, &5.into()), "{inputs:?}");
    assert_eq!(inputs[0], inputs[1]);
    assert_eq!(world.read("made").as_deref(), Some("given\ntwo\n"));
}

#[test]
fn c7_an_answer_from_another_terminal_is_for_what_was_shown_as_well() {
    let world = World::new();
    world.write("data", "one");
    let terminal = Terminal::new(60, 100);
    let child = session(&world, &terminal, "exec \"$RINGFENCE\" run --profile guarded -- cp data copy");
    terminal.wait_for(READY);
    let id = one_waiting(&world);
    world.write("data", "two");
    let (_terminal, done) = approve(&world, &id, "", b"y");
    done.expect(1).says("changed since the request was made");
    let again = one_waiting(&world);
    assert_ne!(again, id);
    let (_terminal, done) = approve(&world, &again, "", b"y");
    done.expect(0);
    collect(child).expect(0);
    assert_eq!(world.read("copy").as_deref(), Some("two"), "what was shown the second time");
}

#[test]
fn what_never_holds_still_is_refused_in_the_end() {
    let world = World::new();
    world.write("data", "0");
    let terminal = Terminal::new(60, 100);
    let child = session(&world, &terminal, "exec \"$RINGFENCE\" run --profile guarded -- cp data copy");
    for round in 1..=3 {
        crate::testkit::eventually("the next question", || terminal.seen().matches(READY).count() >= round);
        world.write("data", round.to_string());
        terminal.type_in(b"o");
    }
    collect(child).expect(126).says("the action changed 3 times");
    assert!(world.read("copy").is_none());
}
