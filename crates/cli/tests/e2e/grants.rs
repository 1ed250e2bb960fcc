//! Answers that stand: for a session, and always here.

use std::fs;

use crate::approval::session;
use crate::approvals::{READY, alone, approvals, approve, configure, events, one_waiting};
use crate::terminal::Terminal;
use crate::testkit::{World, collect, eventually, finish};

const GUARDED: &[&str] = &["--profile", "guarded"];

/// Grants `command` at a prompt, with these keys.
fn granted(world: &World, flags: &str, command: &str, keys: &[&[u8]]) -> Terminal {
    let terminal = Terminal::new(60, 160);
    let script = format!("exec \"$RINGFENCE\" run --profile guarded {flags} -- {command}");
    let child = session(world, &terminal, &script);
    // What is typed before its prompt is there is dropped.
    for (key, prompt) in keys.iter().zip([READY, "anything else goes back > "]) {
        terminal.wait_for(prompt);
        terminal.type_in(key);
    }
    collect(child).expect(0);
    terminal
}

/// Grants by `approvals approve` with these options; the command runs.
fn granted_elsewhere(world: &World, command: &str, options: &str) {
    let terminal = Terminal::new(60, 160);
    let script = format!("exec \"$RINGFENCE\" run --profile guarded -- {command}");
    let child = session(world, &terminal, &script);
    let id = one_waiting(world);
    let (_terminal, done) = approve(world, &id, options, b"y");
    let done = done.expect(0);
    assert!(done.text().contains("stored as gr_"), "{}", done.text());
    collect(child).expect(0);
}

#[test]
fn c10_always_here_holds_without_a_terminal_for_what_was_asked_alone() {
    let world = World::new();
    let terminal = granted(&world, "", "touch one", &[b"a", b"1"]);
    terminal.wait_for("it would have matched 1 of your last 1 asks");
    world.run(GUARDED, &["touch", "one"]).expect(0);
    world.run(GUARDED, &["touch", "two"]).expect(126);
    world.run(GUARDED, &["touch", "one", "two"]).expect(126);
    let elsewhere = world.beside("elsewhere");
    let mut other = world.ringfence();
    other.args(["run", "--profile", "guarded", "--", "touch", "one"]).current_dir(&elsewhere);
    finish(&mut other, b"").expect(126);
    let records = world.records();
    let made = events(&records, "grant-made");
    let grant = made[0]["grant"].as_str().unwrap();
    assert_eq!(made.len(), 1);
    assert!(made[0]["expires"].is_string(), "it ends some day: {}", made[0]);
    let used: Vec<_> =
        events(&records, "intent").iter().filter(|intent| intent["grant"] == grant).cloned().collect();
    assert_eq!(used.len(), 2, "the call that was asked about, and the one after it");
    let explained = finish(
        world.ringfence().args(["policy", "explain", "--profile", "guarded", "--", "touch", "one"]),
        b"",
    );
    assert!(explained.text().contains(&format!("grant {grant}")), "{}", explained.text());
    let checked = finish(
        world.ringfence().args(["check", "--json", "--profile", "guarded", "--", "touch", "one"]),
        b"",
    );
    assert_eq!(checked.expect(0).json()["decision"], "allow");
    let listed = approvals(&world, &["grants"]).expect(0).text();
    for text in [grant, "exactly `touch one`", "used 2 times", "would have matched 1 of your last"] {
        assert!(listed.contains(text), "`{text}` is not in {listed}");
    }
    let json = approvals(&world, &["grants", "--json"]).expect(0).json();
    assert_eq!(
        (&json["grants"][0]["used"], &json["grants"][0]["would_have_matched"]),
        (&2.into(), &1.into())
    );
    assert!(!world.home.join(".config/ringfence/config.toml").exists(), "no file of the operator is touched");
}

#[test]
fn a_wider_rule_would_have_matched_more() {
    let world = World::new();
    for name in ["a", "b"] {
        granted(&world, "", &format!("touch {name}"), &[b"o"]);
    }
    let terminal = granted(&world, "", "touch c", &[b"a", b"2"]);
    terminal.wait_for("it would have matched 3 of your last 3 asks");
    world.run(GUARDED, &["touch", "d"]).expect(0);
}

#[test]
fn a_grant_that_was_taken_back_is_none() {
    let world = World::new();
    granted(&world, "", "touch one", &[b"a", b"1"]);
    let id = events(&world.records(), "grant-made")[0]["grant"].as_str().unwrap().to_owned();
    world.run(GUARDED, &["touch", "one"]).expect(0);
    approvals(&world, &["revoke", "gr_nothing"]).expect(125).says("nothing that was granted");
    let gone = approvals(&world, &["revoke", id.get(..8).unwrap(), "--reason", "enough"]).expect(0);
    assert!(gone.text().contains(&id), "{}", gone.text());
    world.run(GUARDED, &["touch", "one"]).expect(126);
    approvals(&world, &["revoke", &id]).expect(125);
    assert!(approvals(&world, &["grants"]).expect(0).text().contains("no stored answer holds"));
    granted(&world, "", "touch one", &[b"a", b"1"]);
    granted(&world, "", "touch two", &[b"a", b"1"]);
    approvals(&world, &["revoke", "--all"]).expect(0);
    world.run(GUARDED, &["touch", "two"]).expect(126);
    assert_eq!(events(&world.records(), "grant-revoked").len(), 3);
}

#[test]
fn c7_a_grant_that_is_used_up_or_expired_is_none() {
    let world = World::new();
    granted_elsewhere(&world, "touch one", "--always --uses 3");
    world.run(GUARDED, &["touch", "one"]).expect(0);
    world.run(GUARDED, &["touch", "one"]).expect(0);
    world.run(GUARDED, &["touch", "one"]).expect(126);
    granted_elsewhere(&world, "touch two", "--always=1 --expires 3s");
    world.run(GUARDED, &["touch", "two"]).expect(0);
    eventually("it expires", || world.run(GUARDED, &["touch", "two"]).code == Some(126));
    configure(&world, "[approvals]\ngrant_expiry = \"4s\"\n");
    granted_elsewhere(&world, "touch three", "--always");
    eventually("what the operator says holds", || world.run(GUARDED, &["touch", "three"]).code == Some(126));
}

#[test]
fn the_last_use_of_a_grant_is_used_once_by_many_at_once() {
    let world = World::new();
    granted_elsewhere(&world, "touch one", "--always --uses 3");
    let children: Vec<_> =
        (0..8).map(|_| alone(&world, "exec \"$RINGFENCE\" run --profile guarded -- touch one")).collect();
    let codes: Vec<i32> = children.into_iter().map(|child| collect(child).code.unwrap()).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 2, "{codes:?}");
    assert!(codes.iter().all(|code| [0, 126].contains(code)), "{codes:?}");
}

#[test]
fn c10_nothing_standing_is_offered_for_interpreters_and_what_is_risky() {
    let world = World::new();
    world.write("job.py", "print(1)\n");
    let terminal = Terminal::new(60, 160);
    let child = session(&world, &terminal, "exec \"$RINGFENCE\" run --profile guarded -- python3 job.py");
    terminal.wait_for("always here  not offered");
    let id = one_waiting(&world);
    for (option, text) in [
        ("--always", "`always here` is not offered"),
        ("--session", "an answer for the session is not offered"),
    ] {
        let (_terminal, done) = approve(&world, &id, option, b"yes\r");
        done.expect(1).says(text);
    }
    approvals(&world, &["deny", &id]).expect(0);
    collect(child).expect(126);
}

#[test]
fn c7_a_session_answer_is_not_usable_with_another_directory_variable_policy_or_session() {
    let world = World::new();
    fs::create_dir(world.workspace.join("sub")).unwrap();
    granted(&world, "--session a", "touch one </dev/null", &[b"s"]);
    let run = |flags: &[&str], directory: &str| {
        let mut command = world.ringfence();
        command.args(["run", "--profile", "guarded"]).args(flags).args(["--workspace"]).arg(&world.workspace);
        command.args(["--", "touch", "one"]).current_dir(world.workspace.join(directory));
        finish(&mut command, b"").code
    };
    assert_eq!(run(&["--session", "a"], "."), Some(0), "control");
    assert_eq!(run(&["--session", "b"], "."), Some(126));
    assert_eq!(run(&[], "."), Some(126));
    assert_eq!(run(&["--session", "a"], "sub"), Some(126));
    assert_eq!(run(&["--session", "a", "--env", "A=b"], "."), Some(126));
    configure(&world, "[[command]]\nask = \"make\"\n");
    assert_eq!(run(&["--session", "a"], "."), Some(126));
    fs::remove_file(world.home.join(".config/ringfence/config.toml")).unwrap();
    assert_eq!(run(&["--session", "a"], "."), Some(0), "control: as it was");
    let mut end = world.ringfence();
    end.args(["session", "end", "a"]);
    assert!(finish(&mut end, b"").expect(0).text().contains("is over"));
    assert_eq!(run(&["--session", "a"], "."), Some(126), "another session of the same name");
}

#[test]
fn a_grant_that_was_edited_in_the_ledger_lets_nothing_happen() {
    let world = World::new();
    drop(granted(&world, "", "touch alpha", &[b"a", b"1"]));
    world.run(GUARDED, &["touch", "alpha"]).expect(0);
    let edit = "UPDATE record SET body = replace(body, 'alpha', 'gamma') WHERE kind = 'grant-made'";
    finish(world.host("sqlite3").arg(world.ledger_path()).arg(edit), b"").expect(0);
    let done = world.run(GUARDED, &["touch", "gamma"]);
    assert_ne!(done.code, Some(0), "{}", done.err);
    assert!(!world.workspace.join("gamma").exists());
}
