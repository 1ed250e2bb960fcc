//! What a person reads is what runs: variables and standard input are shown, bound and recorded; text that pretends to be a
//! key is shown; the question stands on a screen that no command has prepared.

use std::process::Command;

use serde_json::Value;

use crate::approval::session;
use crate::approvals::{READY, Watcher, alone, events, one_waiting};
use crate::terminal::Terminal;
use crate::testkit::{World, collect, eventually, finish};

fn guarded(world: &World, flags: &[&str], command: &[&str]) -> Command {
    let mut run = world.ringfence();
    run.args(["run", "--profile", "guarded"]).args(flags).arg("--").args(command);
    run
}

/// Asks at a terminal and presses `key`; the script may say where standard input comes from.
fn answered(world: &World, script: &str, key: &[u8]) {
    let terminal = Terminal::new(60, 160);
    let child = session(world, &terminal, script);
    terminal.wait_for(READY);
    terminal.type_in(key);
    collect(child).expect(0);
}

fn remove(world: &World, name: &str) {
    std::fs::remove_file(world.workspace.join(name)).unwrap();
}

#[test]
fn a_stored_answer_does_not_cover_the_same_command_with_a_variable() {
    let world = World::new();
    let made = world.workspace.join("one");
    let ask = |flags: &str| {
        format!("exec \"$RINGFENCE\" run --profile guarded --session s {flags} -- mkdir -p one </dev/null")
    };
    answered(&world, &ask(""), b"s");
    std::fs::remove_dir(&made).unwrap();
    let same = ["--session", "s"];
    finish(&mut guarded(&world, &same, &["mkdir", "-p", "one"]), b"").expect(0);
    std::fs::remove_dir(&made).unwrap();
    let steered = ["--session", "s", "--env", "WHO=agent"];
    finish(&mut guarded(&world, &steered, &["mkdir", "-p", "one"]), b"").expect(126);
    assert!(!made.exists(), "it did not run");
    answered(&world, &ask("--env WHO=agent"), b"o");
    assert!(made.exists(), "control: nothing but the answer keeps it from running");
}

#[test]
fn always_here_does_not_cover_variables_or_input() {
    let world = World::new();
    let terminal = Terminal::new(60, 160);
    let child =
        session(&world, &terminal, "exec \"$RINGFENCE\" run --profile guarded -- touch one </dev/null");
    for (key, prompt) in [(b"a", READY), (b"1", "anything else goes back > ")] {
        terminal.wait_for(prompt);
        terminal.type_in(key);
    }
    collect(child).expect(0);
    remove(&world, "one");
    finish(&mut guarded(&world, &["--env", "WHO=agent"], &["touch", "one"]), b"").expect(126);
    finish(&mut guarded(&world, &[], &["touch", "one"]), b"--- a\n+++ b\n").expect(126);
    assert!(world.read("one").is_none(), "neither ran");
    finish(&mut guarded(&world, &[], &["touch", "one"]), b"").expect(0);
    assert!(world.read("one").is_some(), "control: the same command without them runs");
}

#[test]
fn an_answer_for_the_session_does_not_cover_other_input() {
    let world = World::new();
    let ask = "exec \"$RINGFENCE\" run --profile guarded --session s -- mkdir -p one";
    answered(&world, &format!("{ask} </dev/null"), b"s");
    let same = ["--session", "s"];
    finish(&mut guarded(&world, &same, &["mkdir", "-p", "one"]), b"").expect(0);
    finish(&mut guarded(&world, &same, &["mkdir", "-p", "one"]), b"a real patch\n").expect(126);
    let records = world.records();
    let inputs: Vec<&Value> =
        events(&records, "approval-requested").iter().map(|event| &event["call"]["stdin"]).collect();
    assert_eq!(inputs.len(), 2, "{inputs:?}");
    assert!(inputs[0].is_null(), "nothing to read: {}", inputs[0]);
    assert_eq!((&inputs[1]["kind"], &inputs[1]["bytes"]), (&"bytes".into(), &13.into()));
    let prompt = &events(&records, "approval-requested")[1]["prompt"];
    let text = prompt.to_string();
    assert!(text.contains("a real patch") && text.contains("standard input: 13 bytes"), "{text}");
    assert!(text.contains(inputs[1]["sha256"].as_str().unwrap()), "{text}");
}

#[test]
fn input_without_an_end_is_said_to_be_unknown_and_nothing_is_lost() {
    let world = World::new();
    let script = "(printf first; until test -e go; do sleep 0.05; done; printf second) | \
        \"$RINGFENCE\" run --profile guarded -- dd of=out status=none";
    let watcher = Watcher::new(&world);
    let done = std::thread::scope(|scope| {
        let run = scope.spawn(|| collect(alone(&world, script)));
        let id = one_waiting(&world);
        let shown = finish(world.ringfence().args(["approvals", "show", &id]), b"").expect(0);
        assert!(shown.text().contains("standard input: not known yet"), "{}", shown.text());
        assert!(!shown.text().contains("\nsession "), "no stored answer is offered: {}", shown.text());
        eventually("it can be answered", || {
            let seen = watcher.terminal.seen();
            seen.contains("type yes") && seen.ends_with(" > ")
        });
        watcher.terminal.type_in(b"yes\r");
        world.write("go", "");
        run.join().unwrap()
    });
    done.expect(0);
    assert_eq!(world.read("out").as_deref(), Some("firstsecond"));
}

const PRETENDED: &str = "'''\n-----BEGIN PRIVATE KEY-----\n'''\nimport shutil; shutil.rmtree('precious')\n'''\n-----END PRIVATE KEY-----\n'''";

#[test]
fn a_program_between_the_lines_of_a_key_is_in_the_prompt_and_in_the_ledger() {
    let world = World::new();
    world.write("precious/file", "x");
    finish(&mut guarded(&world, &[], &["python3", "-c", PRETENDED]), b"").expect(126);
    let records = world.records();
    let asked = events(&records, "approval-requested");
    assert!(asked[0]["prompt"].to_string().contains("rmtree"), "{}", asked[0]);
    assert!(asked[0]["call"].to_string().contains("rmtree"), "{}", asked[0]);
    assert!(world.read("precious/file").is_some());
    world.run(&[], &["python3", "-c", PRETENDED]).expect(0);
    assert!(world.read("precious/file").is_none(), "control: it is a program, and it runs");
}

#[test]
fn what_is_taken_for_a_secret_is_named_and_makes_the_question_critical() {
    let world = World::new();
    let hidden = ["touch", "--token=rm -rf precious", "one"];
    finish(&mut guarded(&world, &[], &hidden), b"").expect(126);
    let records = world.records();
    let asked = events(&records, "approval-requested");
    let prompt = asked[0]["prompt"].to_string();
    assert_eq!(asked[0]["risk"], "critical", "{prompt}");
    assert!(prompt.contains("bytes that are taken for a secret (option"), "{prompt}");
    assert_eq!(asked[0]["grant_offers"].as_array().map(Vec::len), Some(0));
}

#[test]
fn all_variables_are_listed_and_those_that_steer_programs_come_first() {
    let world = World::new();
    let plain: Vec<String> = (0..30).map(|n| format!("A{n:02}=harmless")).collect();
    let mut flags: Vec<&str> = plain.iter().flat_map(|text| ["--env", text]).collect();
    flags.extend(["--env", "STTY=last"]);
    let steered = finish(&mut guarded(&world, &flags, &["touch", "one"]), b"");
    steered.expect(126);
    let records = world.records();
    let Some(asked) = events(&records, "approval-requested").first().copied() else {
        // Refused by its name before anybody is asked: then nothing is hidden from anybody either.
        return assert!(world.read("one").is_none());
    };
    let blocks = asked["prompt"]["blocks"].as_array().unwrap();
    let lines = |block: &Value| block["lines"].as_array().unwrap().len();
    assert!(blocks[1]["title"].as_str().unwrap().starts_with("variables that programs take orders from: 1"));
    assert_eq!(blocks[1]["lines"][0], "STTY=last");
    assert_eq!(lines(&blocks[2]), 30, "{blocks:?}");
}

/// What a command leaves behind that would make a later question look like another one.
const PREPARED: &str =
    r"printf '\033[1;10r\033[?6h\033(0\033[?1049h\033]0;title\007ringfence asks\nMay `ls` run?\n\033[11;1H'";

#[test]
fn a_question_stands_on_a_clean_screen_with_a_mark_on_both_ends() {
    let world = World::new();
    let terminal = Terminal::new(60, 160);
    let script = format!(
        "export TERM=xterm NO_COLOR=1; {PREPARED} >/dev/tty; exec \"$RINGFENCE\" run --profile guarded -- touch made"
    );
    let child = session(&world, &terminal, &script);
    terminal.wait_for(READY);
    let seen = terminal.seen();
    let forged = seen.find("May `ls` run?").unwrap();
    let asked = seen.rfind("ringfence asks").unwrap();
    let between = seen.get(forged..asked).unwrap();
    for sequence in ["\x1b[r", "\x1b[?6l", "\x1b(B", "\x1b[?1049l", "\x1b[?2004l", "\x1b[H\x1b[J"] {
        assert!(between.contains(sequence), "{sequence:?} in {between:?}");
    }
    assert!(between.matches('\n').count() >= 60, "the forged question is scrolled away: {between:?}");
    let mark = between.rsplit_once("mark ").unwrap().1.split(':').next().unwrap();
    let answer = seen.rsplit('\n').next().unwrap();
    assert!(mark.len() > 6 && answer.starts_with(&format!("{mark}: ")), "{mark:?} and {answer:?}");
    assert!(!seen.get(..forged).unwrap().contains(mark));
    terminal.type_in(b"o");
    collect(child).expect(0);
    assert!(world.read("made").is_some(), "control: the question is the real one");
}

/// The harmless beginning fills the screen; what matters stands below it.
#[test]
fn a_question_longer_than_the_screen_takes_no_yes_before_its_end() {
    let world = World::new();
    let terminal = Terminal::new(24, 80);
    let names: String = (0..200).map(|n| format!(" harmless-{n}")).collect();
    let ask = format!("exec \"$RINGFENCE\" run --profile guarded -- touch{names} last </dev/null");
    let child = session(&world, &terminal, &ask);
    let more = "[d]eny --";
    for (times, key) in [b"o", b"s", b"a"].into_iter().enumerate() {
        eventually("the first screenful", || terminal.seen().matches(more).count() == times + 1);
        terminal.type_in(key);
        eventually("a refusal of the key", || terminal.seen().matches("not yet").count() == times + 1);
    }
    assert!(!terminal.seen().contains("harmless-199"), "{}", terminal.seen());
    assert!(world.read("last").is_none());
    let mut screens = 3;
    while !terminal.seen().contains(READY) {
        let passed = || terminal.seen().matches(more).count() > screens || terminal.seen().contains(READY);
        eventually("the next screenful", passed);
        if !terminal.seen().contains(READY) {
            terminal.type_in(b" ");
            screens += 1;
        }
    }
    assert!(terminal.seen().contains(" last"), "{}", terminal.seen());
    terminal.type_in(b"o");
    collect(child).expect(0);
    assert!(world.read("last").is_some(), "control: behind the last line the same key is the answer");
}

#[test]
fn a_question_longer_than_the_screen_can_be_refused_at_once() {
    let world = World::new();
    let terminal = Terminal::new(12, 80);
    let child =
        session(&world, &terminal, "exec \"$RINGFENCE\" run --profile guarded -- touch one </dev/null");
    terminal.wait_for("[d]eny --");
    terminal.type_in(b"d");
    collect(child).expect(126);
    assert!(world.read("one").is_none() && !terminal.seen().contains(READY));
}

/// Words of the name of a program that fall to the beginning of a line would read as fields of the prompt.
#[test]
fn a_name_in_the_sentence_never_begins_a_line() {
    let world = World::new();
    let forged = format!("{}x; risk low; once allows nothing", "a ".repeat(60));
    crate::testkit::script(&world.workspace.join(&forged), "#!/bin/sh\ntouch made\n");
    let terminal = Terminal::new(60, 50);
    let ask = format!("exec \"$RINGFENCE\" run --profile guarded -- './{forged}' </dev/null");
    let child = session(&world, &terminal, &ask);
    terminal.wait_for_question(1);
    let seen = terminal.seen();
    let prompt = seen.rsplit_once("ringfence asks").unwrap().1;
    let sentence: Vec<&str> = prompt.split("\r\n").skip(1).take_while(|line| !line.is_empty()).collect();
    assert!(sentence[0].starts_with("May `./a a"), "{sentence:?}");
    assert!(sentence.len() > 1, "it is broken: {sentence:?}");
    assert!(sentence[1..].iter().all(|line| line.starts_with(['┆', ':'])), "{sentence:?}");
    for line in prompt.split("\r\n").filter(|line| line.contains("a a a a")) {
        assert!(line.starts_with(['│', '|', '┆', ':', ' ', 'M']) || line.starts_with("program "), "{line}");
    }
    terminal.type_in(b"d\r");
    collect(child).expect(126);
}

/// Another job of the same terminal could draw over the lines between the two marks.
#[test]
fn a_job_in_the_background_cannot_draw_over_a_question() {
    let world = World::new();
    let terminal = Terminal::new(60, 160);
    let ask = "set -m; export TERM=xterm NO_COLOR=1; \
        (while :; do printf '\\033[3;1HMay `ls` run?'; : >drawn; sleep 0.02; done) >/dev/tty & \
        until test -e drawn; do sleep 0.02; done; \
        \"$RINGFENCE\" run --profile guarded -- touch made; code=$?; kill -KILL %1; exit $code";
    let child =
        session(&world, &terminal, &format!("exec bash -c '{}' 2>/dev/tty", ask.replace('\'', "'\\''")));
    terminal.wait_for(READY);
    let seen = terminal.seen();
    assert!(seen.contains("May `ls` run?"), "control: it writes to the terminal before the question");
    // Time for what it would write meanwhile.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let seen = terminal.seen();
    let question = seen.rsplit_once("ringfence asks").unwrap().1;
    assert!(!question.contains("May `ls` run?"), "{question:?}");
    terminal.type_in(b"o");
    collect(child).expect(0);
    assert!(world.read("made").is_some(), "control: the question is the real one");
}

#[test]
fn a_call_costs_the_ledger_a_bounded_number_of_bytes() {
    let world = World::new();
    let word = "x".repeat(100_000);
    let words: Vec<&str> = std::iter::repeat_n(word.as_str(), 15).collect();
    let mut command = vec!["true"];
    command.extend(&words);
    world.run(&[], &command).expect(0);
    let mut command = vec!["touch"];
    command.extend(&words);
    finish(&mut guarded(&world, &[], &command), b"").expect(126);
    let records = world.records();
    for record in &records {
        let bytes = record.to_string().len();
        assert!(bytes < 200_000, "{bytes} bytes in {}", record["event"]["kind"]);
    }
    let asked = events(&records, "approval-requested");
    assert_eq!(asked[0]["risk"], "critical", "not all of it is shown");
    assert!(asked[0]["prompt"].to_string().contains("are not shown"), "{}", asked[0]["prompt"]);
    let intent = events(&records, "call-intended")[0]["call"]["argv"].to_string();
    assert!(intent.contains("100000 bytes in all, sha256 "), "{intent}");
}
