//! Answers that stand: for a session, and always here.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::approval::session;
use crate::approvals::{READY, alone, approvals, approve, configure, events, grants, one_waiting};
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
    terminal.wait_for("it would have answered 1 of the last 1 requests");
    world.run(GUARDED, &["touch", "one"]).expect(0);
    world.run(GUARDED, &["touch", "two"]).expect(126);
    world.run(GUARDED, &["touch", "one", "two"]).expect(126);
    let elsewhere = world.beside("elsewhere");
    let mut other = world.ringfence();
    other.args(["run", "--profile", "guarded", "--", "touch", "one"]).current_dir(&elsewhere);
    finish(&mut other, b"").expect(126);
    let records = world.records();
    let made = events(&records, "grant-created");
    let grant = made[0]["grant"].as_str().unwrap();
    assert_eq!(made.len(), 1);
    assert!(made[0]["expires_at"].is_string(), "it ends some day: {}", made[0]);
    let used: Vec<_> =
        events(&records, "call-intended").iter().filter(|intent| intent["grant"] == grant).cloned().collect();
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
    let listed = grants(&world, &["list"]).expect(0).text();
    for text in [grant, "exactly `touch one`", "used 2 times", "would have answered 1 of the last"] {
        assert!(listed.contains(text), "`{text}` is not in {listed}");
    }
    let json = grants(&world, &["list", "--json"]).expect(0).json();
    assert_eq!(
        (&json["grants"][0]["uses"], &json["grants"][0]["would_have_matched"]),
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
    terminal.wait_for("it would have answered 3 of the last 3 requests");
    world.run(GUARDED, &["touch", "d"]).expect(0);
}

#[test]
fn a_grant_that_was_taken_back_is_none() {
    let world = World::new();
    granted(&world, "", "touch one", &[b"a", b"1"]);
    let id = events(&world.records(), "grant-created")[0]["grant"].as_str().unwrap().to_owned();
    world.run(GUARDED, &["touch", "one"]).expect(0);
    grants(&world, &["revoke", "gr_nothing"]).expect(125).says("no grant with id");
    let gone = grants(&world, &["revoke", id.get(..8).unwrap(), "--reason", "enough"]).expect(0);
    assert!(gone.text().contains(&id), "{}", gone.text());
    world.run(GUARDED, &["touch", "one"]).expect(126);
    grants(&world, &["revoke", &id]).expect(125);
    assert!(grants(&world, &["list"]).expect(0).text().contains("no active grants"));
    granted(&world, "", "touch one", &[b"a", b"1"]);
    granted(&world, "", "touch two", &[b"a", b"1"]);
    grants(&world, &["revoke", "--all"]).expect(0);
    world.run(GUARDED, &["touch", "two"]).expect(126);
    assert_eq!(events(&world.records(), "grant-revoked").len(), 3);
}

/// The record of a grant stays as long as its named session goes on. That of its revocation does not, and the grant does not come back.
#[test]
fn a_revocation_holds_after_it_was_pruned() {
    let world = World::new();
    granted(&world, "--session long", "touch one", &[b"a", b"1"]);
    world.run(GUARDED, &["touch", "one"]).expect(0);
    let live = grants(&world, &["list"]).expect(0).text();
    assert!(live.contains("exactly `touch one`"), "control: {live}");
    grants(&world, &["revoke", "--all"]).expect(0);
    thread::sleep(Duration::from_millis(1100));
    world.ledger_tool(&["prune", "--older-than", "1s", "--class", "consent"]).expect(0);
    let records = world.all_records();
    assert_eq!(events(&records, "grant-created").len(), 1, "control: the grant is still there to be read");
    assert_eq!(events(&records, "grant-revoked").len(), 0, "control: its revocation is not");
    let live = grants(&world, &["list"]).expect(0).text();
    assert!(live.contains("no active grants"), "{live}");
    world.run(GUARDED, &["touch", "one"]).expect(126);
}

#[test]
fn c7_a_grant_that_is_used_up_or_expired_is_none() {
    let world = World::new();
    granted_elsewhere(&world, "touch one", "--always --uses 3");
    world.run(GUARDED, &["touch", "one"]).expect(0);
    world.run(GUARDED, &["touch", "one"]).expect(0);
    world.run(GUARDED, &["touch", "one"]).expect(126);
    // A busy machine may need longer for one run than the shortest of these holds.
    let held = [3, 10, 30].into_iter().find(|seconds| {
        let command = format!("touch for{seconds}");
        granted_elsewhere(&world, &command, &format!("--always=1 --expires {seconds}s"));
        world.run(GUARDED, &command.split(' ').collect::<Vec<_>>()).code == Some(0)
    });
    let file = format!("for{}", held.expect("control: it holds before it expires"));
    eventually("it expires", || world.run(GUARDED, &["touch", &file]).code == Some(126));
    configure(&world, "[approvals]\ngrant_lifetime = \"4s\"\n");
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
    assert!(finish(&mut end, b"").expect(0).text().contains("has ended"));
    assert_eq!(run(&["--session", "a"], "."), Some(126), "another session of the same name");
}

#[test]
fn a_grant_that_was_edited_in_the_ledger_lets_nothing_happen() {
    let world = World::new();
    drop(granted(&world, "", "touch alpha", &[b"a", b"1"]));
    world.run(GUARDED, &["touch", "alpha"]).expect(0);
    let edit = "UPDATE record SET body = replace(body, 'alpha', 'gamma') WHERE kind = 'grant-created'";
    finish(world.host("sqlite3").arg(world.ledger_path()).arg(edit), b"").expect(0);
    let done = world.run(GUARDED, &["touch", "gamma"]);
    assert_ne!(done.code, Some(0), "{}", done.err);
    assert!(!world.workspace.join("gamma").exists());
}

/// Runs of `scripts` that start without a request, although no stored answer covers them.
fn unasked<'s>(world: &World, scripts: &[&'s str], shows: &dyn Fn(&str) -> bool) -> Vec<&'s str> {
    let passes = |script: &&&str| {
        let done = world.run(GUARDED, &["sh", "-c", script]);
        let seen = done.text() + &world.read("ran").unwrap_or_default();
        drop(fs::remove_file(world.workspace.join("ran")));
        done.code != Some(126) || shows(&seen)
    };
    scripts.iter().filter(passes).copied().collect()
}

#[test]
fn a_stored_answer_covers_no_other_variables_at_any_depth() {
    let world = World::new();
    // The variable alone is no question here: what remains is the stored answer.
    configure(&world, "[[env]]\nallow = [\"TAPE\"]\n");
    // One rule is offered, so there is nothing to choose.
    granted(&world, "", "printenv", &[b"a"]);
    let attacks = [
        "TAPE=evil printenv",
        "export TAPE=evil; printenv",
        "export TAPE; TAPE=evil; printenv",
        "env TAPE=evil printenv",
        "nice env TAPE=evil printenv",
        "for f in 1 2; do printenv; export TAPE=evil; done",
        "sh -c 'TAPE=evil printenv'",
    ];
    let evil = |seen: &str| seen.contains("TAPE=evil");
    assert!(unasked(&world, &attacks, &evil).is_empty());
    assert!(unasked(&world, &["env -i printenv", "env -u LANG printenv"], &|_| false).is_empty());
    for script in attacks {
        let done = world.run(&["--profile", "workspace"], &["sh", "-c", script]).expect(0);
        assert!(evil(&done.text()), "the control: {script}");
    }
    for script in ["printenv", "ls | wc -l && printenv", "nice printenv | cat"] {
        let done = world.run(GUARDED, &["sh", "-c", script]).expect(0);
        assert!(done.text().contains("PATH="), "{script}");
    }
}

#[test]
fn a_stored_answer_covers_no_other_input_at_any_depth() {
    let world = World::new();
    world.write("evil", "evil");
    let terminal = Terminal::new(60, 160);
    let child = session(&world, &terminal, "exec \"$RINGFENCE\" run --profile guarded -- tee ran");
    // One rule is offered, so there is nothing to choose.
    terminal.wait_for(READY);
    terminal.type_in(b"a");
    eventually("it reads", || world.read("ran").is_some());
    terminal.type_in(b"\x04");
    collect(child).expect(0);
    drop(fs::remove_file(world.workspace.join("ran")));
    let attacks = [
        "tee ran <evil",
        "cat evil | tee ran",
        "cat evil | (tee ran)",
        "cat evil | sh -c '(tee ran)'",
        "{ tee ran; } <evil",
        "tee ran 3<evil 0>&3",
        "exec <evil; tee ran",
        "sh -c 'tee ran' <evil",
    ];
    let evil = |seen: &str| seen.contains("evil");
    assert!(unasked(&world, &attacks, &evil).is_empty());
    for script in attacks {
        world.run(&["--profile", "workspace"], &["sh", "-c", script]).expect(0);
        assert_eq!(world.read("ran").as_deref(), Some("evil"), "the control: {script}");
    }
    for script in ["tee ran", "ls >/dev/null && tee ran | cat"] {
        world.run(GUARDED, &["sh", "-c", script]).expect(0);
        assert_eq!(world.read("ran").as_deref(), Some(""), "{script}");
    }
}

/// What a script gives to one command cannot be stored, so it is not offered either.
#[test]
fn nothing_is_offered_to_be_stored_where_a_script_gives_something_else() {
    let world = World::new();
    let wanted = |script: &str| {
        let terminal = Terminal::new(60, 160);
        let child = session(
            &world,
            &terminal,
            &format!("exec \"$RINGFENCE\" run --profile guarded -- sh -c '{script}'"),
        );
        terminal.wait_for(READY);
        let seen = terminal.seen();
        terminal.type_in(b"d");
        collect(child).expect(126);
        seen.contains("[a]lways here")
    };
    assert!(wanted("touch one"), "the control");
    assert!(!wanted("touch one </dev/null"));
    assert!(!wanted("LANG=C touch one"));
}

/// What a session can have besides the workspace, and a file on the host that shows that a command had it.
fn wider(other: &str) -> [(Vec<&str>, &str); 4] {
    [
        (vec!["--secret", "tok"], "secret"),
        (vec!["--net", "full"], "net"),
        (vec!["--write", other], "root"),
        (vec!["--agent", "other"], "ran"),
    ]
}

#[test]
fn no_stored_answer_covers_more_secrets_network_roots_or_another_agent() {
    let world = World::new();
    let other = world.beside("other");
    let (left, path) = (other.join("root"), other.display().to_string());
    let value = b"a-value-of-some-letters-28x";
    finish(world.ringfence().args(["secret", "set", "tok"]), value).expect(0);
    let recipe = format!(
        "all:\n\t@touch ran; test -z \"$$TOK_FILE\" || touch secret; touch {} 2>/dev/null; \
         readlink /proc/self/ns/net > net; true\n",
        left.display()
    );
    world.write("Makefile", recipe);
    let own_net = fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    let had = |name: &str| match name {
        "root" => left.exists(),
        "net" => world.read("net").is_some_and(|net| net.trim() == own_net),
        name => world.read(name).is_some(),
    };
    let clear = || {
        for name in ["ran", "secret", "net"] {
            let _absent = fs::remove_file(world.workspace.join(name));
        }
        let _absent = fs::remove_file(&left);
    };
    granted(&world, "--session s", "make all", &[b"s"]);
    granted(&world, "", "make all", &[b"a"]);
    for session in [&["--session", "s"][..], &[]] {
        for (flags, shows) in wider(&path) {
            clear();
            let flags = [GUARDED, session, &flags].concat();
            let done = world.run(&flags, &["make", "all"]);
            assert!(!had("ran"), "{flags:?} ran: {done:?}");
            assert_eq!((done.code, had(shows)), (Some(126), false), "{flags:?}");
        }
        clear();
        world.run(&[GUARDED, session].concat(), &["make", "all"]).expect(0);
        assert!(had("ran"), "control: what was answered runs");
    }
    for (flags, shows) in wider(&path) {
        clear();
        world.run(&[&["--profile", "workspace"], &flags[..]].concat(), &["make", "all"]).expect(0);
        assert!(had(shows), "control: without a question {flags:?} gives it");
    }
}
