//! Secrets on their way out: in what a command prints, in what a call is made of, in what is written down.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::approval_notifications::{Server, hooked, secret as webhook_secret};
use crate::approvals::{alone, approvals, configure, events, one_waiting};
use crate::terminal::Terminal;
use crate::test_timeouts::Patient;
use crate::testkit::{Done, World, collect, contains, eventually, finish, marker, processes_with};

/// No rule knows the shape of it.
const VALUE: &str = "Zq8-hunter2/staple\"X91";

/// Everything passes, and is written down: the control of each attempt.
const OPEN: &str = "[leaks.stored_secrets]\narguments = \"flag\"\noutput = \"flag\"\nfiles = \"flag\"\n\
                    [leaks.patterns]\narguments = \"flag\"\noutput = \"flag\"\nfiles = \"flag\"\n";

/// Prints one form after the other, each on a line with its name.
const FORMS: &str = r#"
import base64, gzip, json, os, sys, time, urllib.parse
value = open(os.environ["KEY_FILE"], "rb").read()
out = sys.stdout.buffer if sys.argv[1] == "1" else sys.stderr.buffer
text = value.decode()
forms = {
    "plain": value,
    "base64-0": base64.b64encode(value),
    "base64-1": base64.b64encode(b"x" + value),
    "base64-2": base64.b64encode(b"xy" + value),
    "base64url": base64.urlsafe_b64encode(b"?>" + value),
    "hex": value.hex().encode(),
    "HEX": value.hex().upper().encode(),
    "hex-blanks": value.hex(" ").encode(),
    "hex-colons": value.hex(":").encode(),
    "hex-array": ", ".join("0x%02x" % byte for byte in value).encode(),
    "hex-escapes": "".join("\\x%02x" % byte for byte in value).encode(),
    "url": urllib.parse.quote(text, safe="").encode(),
    "all-url": "".join("%%%02x" % byte for byte in value).encode(),
    "json": json.dumps(text).encode(),
    "unicode": "".join("\\u%04x" % ord(c) for c in text).encode(),
    "reversed": value[::-1],
    "gzip": base64.b64encode(gzip.compress(value, mtime=0)),
    "ansi": value[:7] + b"\x1b[1;31m" + value[7:12] + b"\x1b[0m" + value[12:],
    "utf16le": text.encode("utf-16-le"),
    "utf16be": text.encode("utf-16-be"),
}
for name, form in forms.items():
    out.write(name.encode() + b"=" + form + b"\n")
out.write(b"split=")
for at in range(0, len(value), 3):
    out.write(value[at:at + 3])
    out.flush()
    time.sleep(0.004)
out.write(b"\nlast=")
out.flush()
out.write(value)
"#;

/// A made-up token of a shape that is known.
fn token() -> String {
    format!("{}{}", concat!("gh", "p_"), "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
}

/// A world with the secret `KEY` and the program above.
fn world() -> World {
    let world = World::new();
    finish(world.ringfence().args(["secret", "set", "KEY"]), VALUE.as_bytes()).expect(0);
    world.write("forms.py", FORMS);
    world
}

/// The same where everything passes.
fn open_world() -> World {
    let world = world();
    configure(&world, OPEN);
    world
}

/// What the program prints where nobody looks, by name.
fn forms() -> Vec<(String, Vec<u8>)> {
    let world = open_world();
    let done = world.run(&["--secret", "KEY"], &["python3", "forms.py", "1"]).expect(0);
    let mut forms = Vec::new();
    // UTF-16 may have a line break in it: none of these does.
    for line in done.out.split(|byte| *byte == b'\n') {
        let at = line.iter().position(|byte| *byte == b'=').unwrap();
        forms.push((String::from_utf8(line[..at].to_vec()).unwrap(), line[at + 1..].to_vec()));
    }
    assert_eq!(forms.len(), 22, "{}", done.text());
    assert!(forms.iter().any(|(name, form)| name == "plain" && form == VALUE.as_bytes()));
    assert!(forms.iter().any(|(name, form)| name == "split" && form == VALUE.as_bytes()));
    forms
}

#[track_caller]
fn assert_clean(what: &str, bytes: &[u8], forms: &[(String, Vec<u8>)]) {
    for (name, form) in forms {
        assert!(!contains(bytes, form), "{name} in {what}: {}", String::from_utf8_lossy(bytes));
    }
}

/// Everything that is kept, and everything that is told of it.
#[track_caller]
fn assert_nothing_kept(world: &World, forms: &[(String, Vec<u8>)]) {
    let exported = world.ledger_tool(&["export", "--format", "jsonl"]).expect(0);
    assert_clean("the export", &exported.out, forms);
    let mut places = vec![world.state.clone()];
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(place).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                places.push(entry.path());
            } else if let Ok(content) = fs::read(entry.path()) {
                assert_clean(&entry.path().display().to_string(), &content, forms);
            }
        }
    }
}

/// S002-11, S002-13, C-15: on both streams, into pipes and through `--json`.
#[test]
fn c_15_no_form_of_a_stored_secret_is_printed() {
    let forms = forms();
    let world = world();
    for stream in ["1", "2"] {
        let done = world.run(&["--secret", "KEY"], &["python3", "forms.py", stream]).expect(0);
        let printed = if stream == "1" { done.out.clone() } else { done.err.clone().into_bytes() };
        assert_clean(stream, &printed, &forms);
        let text = String::from_utf8_lossy(&printed).into_owned();
        for (name, _) in &forms {
            assert!(text.contains(&format!("{name}=")), "what stands before it stays: {text}");
        }
        assert!(text.matches("[redacted:secret/KEY]").count() >= forms.len(), "{text}");
        assert!(done.err.contains("secrets were taken out of the output: 22 secret/KEY"), "{}", done.err);
        let object = world.json(&["--secret", "KEY"], &["python3", "forms.py", stream]);
        assert_clean("the object", object.to_string().as_bytes(), &forms);
        let leaks = object["leaks"].as_array().unwrap();
        assert_eq!(
            (&leaks[0]["action"], leaks[0]["findings"].as_array().unwrap().len()),
            (&"redact".into(), 22)
        );
        let place = leaks[0]["findings"][0]["location"].as_str().unwrap();
        assert_eq!(place, if stream == "1" { "stdout:6" } else { "stderr:6" });
    }
    let records = world.records();
    let found = events(&records, "secrets-found");
    assert_eq!(found.len(), 4);
    assert_eq!(found[0]["findings"][1]["encoding"], "base64", "{}", found[0]);
    assert!(!found[0]["findings"][0]["fingerprint"].as_str().unwrap().is_empty());
    assert_nothing_kept(&world, &forms);
}

#[test]
fn a_terminal_shows_no_stored_secret() {
    let script = "cat \"$KEY_FILE\"; echo; base64 \"$KEY_FILE\"; printf 'a\\033[1m'; cut -c1-8 \"$KEY_FILE\" | tr -d '\\n'; \
                  printf '\\033[0m'; cut -c9- \"$KEY_FILE\"; cat \"$KEY_FILE\" >&2; echo over";
    let shown = |world: &World| {
        let terminal = Terminal::new(60, 200);
        let mut command = world.ringfence();
        command.args(["run", "--secret", "KEY", "--", "sh", "-c", script]);
        command.stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
        collect(command.spawn().unwrap()).expect(0);
        terminal.wait_for("over");
        terminal.seen()
    };
    let encoded = STANDARD.encode(VALUE);
    let control = shown(&open_world());
    assert!(control.contains(VALUE) && control.contains(&encoded), "{control}");
    let seen = shown(&world());
    assert!(!seen.contains(VALUE) && !seen.contains(&encoded) && !seen.contains("Zq8-hunt"), "{seen}");
    assert!(seen.matches("[redacted:secret/KEY]").count() >= 4, "{seen}");
}

/// The bytes are the command's own where nothing was found; the digest is of what was delivered.
#[test]
fn binary_output_is_exact_and_a_long_line_is_no_obstacle() {
    let world = world();
    let random: Vec<u8> = {
        let mut bytes = vec![0; 10 << 20];
        fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
        bytes
    };
    let digest =
        |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    world.write("random", &random);
    let done = world.run(&[], &["cat", "random"]).expect(0);
    assert!(done.out == random, "{} of {} bytes, or others", done.out.len(), random.len());
    let settled = world.records();
    let outcome = &events(&settled, "call-settled")[0]["outcome"]["stdout"];
    assert_eq!(outcome["sha256"].as_str(), Some(digest(&random).as_str()));
    let line =
        "head -c 50000000 /dev/zero | tr '\\0' a; cat \"$KEY_FILE\"; head -c 50000000 /dev/zero | tr '\\0' a";
    let done = world.sh_with(&["--secret", "KEY"], line).expect(0);
    assert_eq!(done.out.len(), 100_000_000 + "[redacted:secret/KEY]".len());
    let records = world.records();
    let outcome = &events(&records, "call-settled")[1]["outcome"]["stdout"];
    assert_eq!(outcome["sha256"].as_str(), Some(digest(&done.out).as_str()), "of what was delivered");
}

/// Somebody who waits for a question has to see it: nothing is typed before it is there.
#[test]
fn a_prompt_without_a_line_break_appears() {
    let world = world();
    // The last two begin as what is stored does, and as a private key.
    let begin = concat!("-----BEGIN PRIV", "ATE KEY-----");
    for prompt in ["Continue? ", "Password:", "api_key=", "ghp_", "ready 42%", "Zq8-hun", begin] {
        let script = format!("printf %s '{prompt}'; read line; echo \"got $line\"");
        let mut child = piped(&world, &["run", "--", "sh", "-c", &script]);
        let mut stdout = Patient(child.stdout.take().unwrap());
        let mut seen = vec![0; prompt.len()];
        stdout.read_exact(&mut seen).unwrap();
        assert_eq!(String::from_utf8(seen).unwrap(), prompt);
        child.stdin.take().unwrap().write_all(b"it\n").unwrap();
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "got it\n", "{prompt}");
        collect(child).expect(0);
    }
}

fn piped(world: &World, arguments: &[&str]) -> Child {
    let mut command = world.ringfence();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// A command that waits for input after half of a stored secret does not show that half, and whoever waits for it does not
/// wait for the other half: the mark is read before anything is typed.
#[test]
fn half_a_stored_secret_is_a_mark_that_nobody_waits_for() {
    let script = "head -c 12 \"$KEY_FILE\"; read line; tail -c +13 \"$KEY_FILE\"; echo; echo end";
    let attempt = |world: &World, first: &str| {
        let mut child = piped(world, &["run", "--secret", "KEY", "--", "sh", "-c", script]);
        let mut stdout = Patient(child.stdout.take().unwrap());
        let mut seen = vec![0; first.len()];
        stdout.read_exact(&mut seen).unwrap();
        assert_eq!(String::from_utf8(seen).unwrap(), first);
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        collect(child).expect(0);
        rest
    };
    let (half, other) = VALUE.split_at(12);
    assert_eq!(attempt(&open_world(), half), format!("{other}\nend\n"), "the control");
    assert_eq!(attempt(&world(), "[redacted:secret/KEY]"), "\nend\n");
}

/// Somebody prints a stored secret so slowly that each letter is waited for.
#[test]
fn a_stored_secret_in_slow_drops_is_not_shown() {
    let program = "import os, sys, time\n\
                   for letter in open(os.environ['KEY_FILE']).read():\n    \
                       sys.stdout.write(letter); sys.stdout.flush(); time.sleep(0.06)\n\
                   print(' done')\n";
    let attempt = |world: &World| {
        world.write("drops.py", program);
        world.run(&["--secret", "KEY"], &["python3", "drops.py"]).expect(0).text()
    };
    assert_eq!(attempt(&open_world()), format!("{VALUE} done\n"), "the control");
    let shown = attempt(&world());
    let (seen, rest) = shown.split_once("[redacted:secret/KEY]").unwrap_or_else(|| panic!("{shown}"));
    assert!(VALUE.starts_with(seen) && seen.len() < 8, "{shown}");
    assert_eq!(rest, " done\n", "{shown}");
}

#[test]
fn s002_13_terminate_kills_the_command_and_what_it_started() {
    let world = world();
    configure(&world, "[leaks.stored_secrets]\noutput = \"terminate\"\n");
    let marker = marker(&world);
    let script = format!(
        "sh -c 'sleep 600; : {marker}' & echo before; cat \"$KEY_FILE\"; echo after; sleep 600; echo x >survived"
    );
    let done = world.sh_with(&["--secret", "KEY"], &script).expect(137);
    assert_eq!(done.text(), "before\n[redacted:secret/KEY]\n[ringfence: stdout ends here]\n");
    assert!(done.err.contains("what had them was ended"), "{}", done.err);
    eventually("nothing of it is left", || processes_with(&marker).is_empty());
    assert_eq!(world.read("survived"), None);
    let records = world.records();
    assert_eq!(events(&records, "secrets-found")[0]["action"], "terminate");
    // The control: nothing is killed where nothing is found.
    assert_eq!(world.sh("echo before; echo after").expect(0).text(), "before\nafter\n");
}

#[test]
fn block_ends_the_stream_and_flag_only_notes() {
    let script = "echo before; cat \"$KEY_FILE\"; echo after; echo told >&2; echo x >finished";
    let blocked = world();
    configure(&blocked, "[leaks.stored_secrets]\noutput = \"block\"\n");
    let done = blocked.sh_with(&["--secret", "KEY"], script).expect(0);
    assert_eq!(done.text(), "before\n[redacted:secret/KEY]\n[ringfence: stdout ends here]\n");
    assert!(done.err.starts_with("told\n"), "the other stream goes on: {}", done.err);
    assert_eq!(blocked.read("finished").as_deref(), Some("x\n"), "and so does the command");
    assert_eq!(blocked.file(&["read", "finished"], b"").expect(0).text(), "x\n");
    blocked.write("copy", VALUE);
    let read = blocked.file(&["read", "copy"], b"").expect(126).says("leaks.output");
    assert!(read.out.is_empty());
    let flagged = open_world();
    let done = flagged.sh_with(&["--secret", "KEY"], script).expect(0);
    assert_eq!(done.text(), format!("before\n{VALUE}after\n"));
    let records = flagged.records();
    let found = events(&records, "secrets-found");
    assert_eq!(
        (&found[0]["action"], &found[0]["findings"][0]["location"]),
        (&"flag".into(), &"stdout:7".into())
    );
    flagged.write("copy", VALUE);
    assert_eq!(flagged.file(&["read", "copy"], b"").expect(0).text(), VALUE);
}

#[test]
fn what_a_daemon_prints_is_looked_at_as_well() {
    let script =
        "(setsid sh -c 'cat \"$KEY_FILE\" >&2; echo x >done' &) ; while [ ! -e done ]; do sleep 0.02; done";
    let done = world().sh_with(&["--secret", "KEY"], script).expect(0);
    assert!(done.err.starts_with("[redacted:secret/KEY]"), "{}", done.err);
    let control = open_world().sh_with(&["--secret", "KEY"], script).expect(0);
    assert!(control.err.starts_with(VALUE), "{}", control.err);
}

/// What only looks like a secret is taken out of what is printed, and stays where it is meant to be.
#[test]
fn s002_10_shapes_are_taken_out_of_output_and_not_out_of_work() {
    let world = world();
    let token = token();
    world.write("token", &token);
    let done = world.sh("cat token; cp token copy; cksum < copy; cksum < token").expect(0);
    assert!(done.text().starts_with("[redacted:github-token]"), "{}", done.text());
    assert_eq!(world.read("copy"), Some(token.clone()), "what a command writes itself is not looked at");
    let written =
        world.file(&["write", "made"], token.as_bytes()).expect(0).says("left where policy lets them pass");
    assert!(!written.err.contains(&token));
    assert_eq!(world.read("made"), Some(token.clone()));
    assert_eq!(world.file(&["read", "made"], b"").expect(0).text(), "[redacted:github-token]");
    let records = world.records();
    assert_eq!(events(&records, "secrets-found")[1]["findings"][0]["location"], "made:1");
    configure(&world, "[leaks.patterns]\nfiles = \"block\"\narguments = \"block\"\n");
    world.file(&["write", "other"], token.as_bytes()).expect(126).says("leaks.files");
    assert_eq!(world.read("other"), None);
    world.run(&[], &["touch", &token]).expect(126).says("leaks.arguments");
    assert!(!world.workspace.join(&token).exists());
    assert_nothing_kept(&world, &[("plain".to_owned(), token.into_bytes())]);
}

/// S002-12: in an argument, a variable, a directory, the name of a file or its content, in whatever encoding: not done.
#[test]
fn s002_12_a_call_that_holds_a_stored_secret_is_not_made() {
    let forms = forms();
    let world = world();
    let text = |form: &[u8]| String::from_utf8(form.to_vec()).ok().filter(|text| !text.contains('\0'));
    for (name, form) in &forms {
        let Some(form) = text(form) else { continue };
        let done =
            world.run(&[], &["sh", "-c", "echo x >ran", &form]).expect(126).says("rule: leaks.arguments");
        assert!(done.err.contains("--secret KEY") && done.err.contains("argv[3]"), "{name}: {}", done.err);
        assert_clean("the answer", done.err.as_bytes(), &forms);
        let variable = format!("NOTE={form}");
        world.sh_with(&["--env", &variable], "echo x >ran").expect(126).says("env NOTE");
        let written = world.file(&["write", "written"], form.as_bytes()).expect(126).says("leaks.files");
        assert_clean("the answer", written.err.as_bytes(), &forms);
        assert_eq!((world.read("ran"), world.read("written")), (None, None), "{name}");
    }
    let object = finish(world.ringfence().args(["run", "--json", "--", "echo", VALUE]), b"").expect(126);
    assert_clean("the object", &object.out, &forms);
    assert_eq!(object.json()["leaks"][0]["findings"][0]["location"], "argv[1]");
    world.file(&["write", &format!("a-{}", STANDARD.encode(VALUE).replace('/', "_"))], b"x").expect(126);
    world.file(&["read", &VALUE.replace('/', "")], b"").expect(125);
    assert_nothing_kept(&world, &forms);
    // The control: the same calls where everything passes.
    let open = open_world();
    open.run(&[], &["sh", "-c", "echo x >ran", VALUE]).expect(0);
    open.file(&["write", "written"], VALUE.as_bytes()).expect(0);
    assert_eq!((open.read("ran").as_deref(), open.read("written").as_deref()), (Some("x\n"), Some(VALUE)));
    assert_nothing_kept(&open, &forms);
}

#[test]
fn a_session_ends_with_a_call_that_terminates_it() {
    let world = world();
    configure(&world, "[leaks.stored_secrets]\narguments = \"terminate\"\n");
    let named: &[&str] = &["--session", "one"];
    world.run(named, &["true"]).expect(0);
    world.run(named, &["echo", VALUE]).expect(126).says("the session has ended");
    world.run(named, &["true"]).expect(0);
    let started =
        world.all_records().iter().filter(|record| record["event"]["kind"] == "session-started").count();
    assert_eq!(started, 2, "what follows is another session");
}

/// A patch is a file that is written later.
#[test]
fn a_proposal_brings_no_stored_secret_in() {
    let diff = |text: &str| format!("--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+{text}\n");
    let propose = |world: &World, text: &str| -> Done {
        finish(world.ringfence().args(["proposal", "create", "--profile", "review"]), diff(text).as_bytes())
    };
    let world = world();
    let encoded = STANDARD.encode(format!("see {VALUE}"));
    for text in [VALUE, &encoded] {
        let done = propose(&world, text).expect(126).says("leaks.files");
        assert!(!done.err.contains(text), "{}", done.err);
    }
    propose(&world, "words").expect(0);
    let open = open_world();
    propose(&open, VALUE).expect(0);
    let forms = [("plain".to_owned(), VALUE.into()), ("base64".to_owned(), encoded.into_bytes())];
    assert_nothing_kept(&world, &forms);
    assert_nothing_kept(&open, &forms);
}

/// Where a call with a secret in it may be made, whoever is asked about it is not shown the secret, nor is anybody told.
#[test]
fn a_question_has_no_secret_in_it_wherever_it_goes() {
    let forms = forms();
    let world = world();
    let server = Server::new("200 OK");
    webhook_secret(&world, 0o600);
    hooked(&world, server.port);
    let config = fs::read_to_string(world.home.join(".config/ringfence/config.toml")).unwrap();
    configure(&world, &format!("{config}{OPEN}"));
    let encoded = STANDARD.encode(VALUE);
    let reason = format!("because of {encoded} and {VALUE}").replace('"', "\\\"");
    let script = format!(
        "exec \"$RINGFENCE\" run --profile guarded --reason \"{reason}\" -- mkdir {encoded} \"$(cat value)\""
    );
    world.write("value", VALUE.replace('/', "-") + VALUE.split('/').next().unwrap());
    let child = alone(&world, &script);
    let request = server.next();
    assert_clean("the webhook", request.body.as_bytes(), &forms);
    assert!(request.body.contains("[redacted"), "{}", request.body);
    let id = one_waiting(&world);
    for arguments in [vec!["show", &id], vec!["show", &id, "--json"], vec!["list"], vec!["list", "--json"]] {
        assert_clean("the inbox", &approvals(&world, &arguments).expect(0).out, &forms);
    }
    let denied = format!("not with {VALUE}, nor {encoded}");
    approvals(&world, &["deny", &id, "--reason", &denied]);
    let done = collect(child).expect(126);
    assert_clean("the answer", done.err.as_bytes(), &forms);
    assert_nothing_kept(&world, &forms);
    // The control: the same reason without a secret is kept as it is.
    assert!(done.err.contains("not with"), "{}", done.err);
}

/// Layers only narrow: a workspace may be stricter than its operator, and not milder.
#[test]
fn a_workspace_makes_it_stricter_and_not_milder() {
    let world = world();
    let script = "cat \"$KEY_FILE\"; echo after";
    world.write(".ringfence/policy.toml", "[leaks.stored_secrets]\noutput = \"flag\"\n");
    let done = world.sh_with(&["--secret", "KEY"], script).expect(0).says("requests more than it has");
    assert_eq!(done.text(), "[redacted:secret/KEY]after\n");
    world.write(".ringfence/policy.toml", "[leaks.stored_secrets]\noutput = \"block\"\n");
    let done = world.sh_with(&["--secret", "KEY"], script).expect(0);
    assert!(!done.text().contains("after"), "{}", done.text());
    world.write(".ringfence/policy.toml", "[leaks.stored_secrets]\narguments = \"redact\"\n");
    world.sh("true").expect(125).says("it is done as it was judged, or not");
}

/// An operator's allowlist lets shapes pass, and nothing that is stored.
#[test]
fn an_allowlist_is_for_what_only_looks_like_a_secret() {
    let world = world();
    let token = token();
    world.write("token", format!("{token}\n"));
    let list = "version = 1\nsalt = \"a salt of this test\"\n[[allow]]\npath = \"**\"\nreason = \"made up\"\nexpires = \"9999-12-31\"\n";
    let place = world.home.join(".config/ringfence");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("allowlist.toml"), list).unwrap();
    let done = world.sh_with(&["--secret", "KEY"], "cat token; cat \"$KEY_FILE\"").expect(0);
    assert_eq!(done.text(), format!("{token}\n[redacted:secret/KEY]"));
    fs::write(place.join("allowlist.toml"), "version = 1\n").unwrap();
    world.sh("true").expect(125).says("allowlist");
    fs::remove_file(place.join("allowlist.toml")).unwrap();
    assert_eq!(world.sh("cat token").expect(0).text(), "[redacted:github-token]\n", "the control");
}

/// An agent that reads, edits and writes back has never seen the secret, and must not replace it by the mark that it has seen.
#[test]
fn a_file_that_is_written_back_keeps_its_secrets() {
    let before = format!("user = me\ntoken = {}\n", token());
    let edited = |world: &World| {
        world.write("conf", &before);
        let read = world.file(&["read", "conf"], b"").expect(0).text();
        world.file(&["write", "conf"], read.replace("user = me", "user = you").as_bytes())
    };
    let world = World::new();
    edited(&world).expect(126).says("leaks.marks").says("sed -i");
    assert_eq!(world.read("conf").unwrap(), before);
    world.sh("sed -i s/me/you/ conf").expect(0);
    assert_eq!(world.read("conf").unwrap(), before.replace("user = me", "user = you"));
    // Nothing is lost by a mark where there was no secret, and one more of those that are there already hides none.
    let log = b"token = [redacted:github-pat]\n";
    world.file(&["write", "log"], log).expect(0);
    world.file(&["write", "log"], &log.repeat(2)).expect(0);

    let open = open_world();
    edited(&open).expect(0);
    assert_eq!(
        open.read("conf").unwrap(),
        before.replace("user = me", "user = you"),
        "where reading hides nothing"
    );
}

/// The name of a session is in the records of everything it does.
#[test]
fn the_name_of_a_session_is_no_secret() {
    const NAME: &str = "Zq8hunter2stapleX91";
    let run = |world: &World| {
        finish(world.ringfence().args(["run", "--session", NAME, "--", "touch", "made"]), b"")
    };
    let world = World::new();
    run(&world).expect(0);
    assert!(format!("{:?}", world.all_records()).contains(NAME), "control: nothing is stored yet");
    let world = World::new();
    finish(world.ringfence().args(["secret", "set", "KEY"]), NAME.as_bytes()).expect(0);
    let done = run(&world).expect(126);
    assert!(done.err.contains("session.secret"), "{}", done.err);
    assert!(!world.workspace.join("made").exists());
    assert!(!format!("{:?}", world.all_records()).contains(NAME));
}
