//! Secrets of the operator: how they are kept, who gets them, and where they never are.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::approvals::configure;
use crate::daemon_early_disconnect::HOLD;
use crate::terminal::Terminal;
use crate::test_timeouts::{Patient, ended};
use crate::testkit::{
    Done, LANDLOCK, World, binary, collect, contains, eventually, finish, marker, quoted, send,
};
use crate::watch::Watch;

/// No scanner knows the shape of it, so only who knows the value can take it out.
const VALUE: &str = "correct horse battery staple";

const EXTERNAL: &[&str] = &["--backend", "external", "--danger", "--danger-required-controls", "limits,env"];
const CONSTRUCTED: [&[&str]; 2] = [&["--backend", "native"], &["--backend", "bubblewrap"]];

fn secret(world: &World, arguments: &[&str], input: &[u8]) -> Done {
    finish(world.ringfence().arg("secret").args(arguments), input)
}

/// Here it is seen who has a value, so that what is on its way out may pass; `leaks.rs` is about that it may not.
fn let_pass(world: &World) {
    configure(world, "[leaks.stored_secrets]\noutput = \"flag\"\narguments = \"flag\"\n");
}

fn set(world: &World, arguments: &[&str]) {
    let_pass(world);
    secret(world, &[&["set"], arguments].concat(), VALUE.as_bytes()).expect(0);
}

fn metas(world: &World) -> Vec<Value> {
    let listed = secret(world, &["list", "--json"], b"").expect(0).json();
    assert_eq!(listed["schema"], 1);
    listed["secrets"].as_array().unwrap().clone()
}

fn names(world: &World) -> Vec<String> {
    metas(world).iter().map(|meta| meta["name"].as_str().unwrap().to_owned()).collect()
}

fn state(world: &World, path: &str) -> PathBuf {
    world.state.join("ringfence").join(path)
}

/// Every file below `directory` that has `text` in it.
fn files_with(directory: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(files_with(&path, text));
        } else if kind.is_file() && contains(&fs::read(&path).unwrap(), text.as_bytes()) {
            found.push(path);
        }
    }
    found
}

fn kinds(world: &World) -> Vec<String> {
    world.records().iter().map(|record| record["event"]["kind"].as_str().unwrap().to_owned()).collect()
}

/// S004-16, S004-17: a file in memory, for the user inside alone, and nowhere else.
#[test]
fn s004_16_a_tool_secret_is_a_file_that_only_the_user_inside_reads() {
    let world = World::new();
    set(&world, &["gh-token"]);
    let script = "stat -c '%a %u' \"$GH_TOKEN_FILE\" /.ringfence/secrets; id -u; cat \"$GH_TOKEN_FILE\"; echo; \
                  stat -f -c %T /.ringfence/secrets; env; cat /proc/self/environ /proc/*/cmdline";
    for flags in CONSTRUCTED {
        let done = world.sh_with(&[flags, &["--secret", "gh-token"]].concat(), script).expect(0);
        let text = done.text();
        let lines: Vec<&str> = text.lines().take(5).collect();
        let uid = rustix::process::geteuid().as_raw();
        let expected = [
            format!("400 {uid}"),
            format!("700 {uid}"),
            uid.to_string(),
            VALUE.to_owned(),
            "tmpfs".to_owned(),
        ];
        assert_eq!(lines, expected, "{flags:?}");
        assert_eq!(text.matches(VALUE).count(), 1, "neither in the environment nor among arguments: {text}");
        assert!(text.contains("GH_TOKEN_FILE=/.ringfence/secrets/gh-token"), "{text}");
    }
    let nothing = world.sh("test -e /.ringfence/secrets || echo absent; env").expect(0).text();
    assert!(
        nothing.starts_with("absent") && !nothing.contains("GH_TOKEN"),
        "not asked for, not there: {nothing}"
    );
    assert_eq!(files_with(world.root.path(), VALUE), Vec::<PathBuf>::new(), "nowhere in the clear");
    // The control: the same search finds what is there.
    world.write("planted", VALUE);
    assert_eq!(files_with(world.root.path(), VALUE).len(), 1);
}

#[test]
fn a_secret_file_can_not_be_changed_from_inside() {
    let world = World::new();
    set(&world, &["KEY"]);
    let script = "for do_ in 'echo x >' 'rm -f' 'mv -t /tmp' 'truncate -s0'; do sh -c \"$do_ $KEY_FILE\" && echo done; \
                  done; echo x > /.ringfence/secrets/new && echo done; cat $KEY_FILE";
    for flags in CONSTRUCTED {
        let done = world.sh_with(&[flags, &["--secret", "KEY"]].concat(), script).expect(0);
        assert_eq!(done.text(), VALUE, "{flags:?} {}", done.err);
    }
    // The control: the same on a file that is the command's own.
    let own = format!("echo x > /tmp/k; KEY_FILE=/tmp/k; {}", script.replace("$KEY_FILE", "/tmp/k"));
    assert!(world.sh(&own).text().contains("done"));
}

#[test]
fn only_a_secret_that_was_opened_to_it_is_in_the_environment() {
    let world = World::new();
    set(&world, &["SOME", "--deliver", "env", "--env-name", "NPM_TOKEN"]);
    for flags in [CONSTRUCTED[0], CONSTRUCTED[1], LANDLOCK] {
        let done = world.sh_with(&[flags, &["--secret", "SOME"]].concat(), "echo \"$NPM_TOKEN\"").expect(0);
        assert_eq!(done.text().trim(), VALUE, "{flags:?}");
    }
    let done = world.sh_with(&["--secret", "SOME", "--env", "NPM_TOKEN=x"], "env").expect(126);
    assert!(!done.err.contains(VALUE), "{}", done.err);
    set(&world, &["OTHER", "--deliver", "env"]);
    let done = world.sh_with(&["--secret", "OTHER", "--env", "OTHER=x"], "echo $OTHER").expect(0);
    assert_eq!(done.text().trim(), VALUE, "what the operator releases is not replaced");
    assert_eq!(files_with(&world.state, VALUE), Vec::<PathBuf>::new());
}

/// Each release is a record of its own, on disk before the launch.
#[test]
fn a_release_is_written_down_before_it_happens_and_without_the_value() {
    let world = World::new();
    set(&world, &["KEY"]);
    world.run(&["--secret", "KEY"], &["true"]).expect(0);
    let kinds = kinds(&world);
    let position =
        |kind: &str| kinds.iter().position(|known| known == kind).unwrap_or_else(|| panic!("{kinds:?}"));
    assert!(position("call-intended") < position("secret-released"));
    assert!(position("secret-released") < position("sandbox-started"));
    let records = world.records();
    let event = &records[position("secret-released")]["event"];
    assert_eq!(
        (&event["name"], &event["class"], &event["delivery"]),
        (&"KEY".into(), &"tool".into(), &"file".into())
    );
    assert_eq!(event["fingerprint"], metas(&world)[0]["fingerprint"]);
    assert_eq!(event["transaction"], records[position("call-intended")]["event"]["transaction"]);
    assert!(world.ledger_tool(&["tail"]).expect(0).text().contains("KEY (tool) as file"));
    world.ledger_tool(&["verify"]).expect(0);
}

#[test]
fn without_a_ledger_nothing_is_released() {
    let world = World::new();
    set(&world, &["KEY"]);
    fs::set_permissions(state(&world, "ledger.db"), fs::Permissions::from_mode(0o666)).unwrap();
    world.run(&["--secret", "KEY"], &["touch", "made"]).expect(125);
    assert!(!world.workspace.join("made").exists());
    fs::set_permissions(state(&world, "ledger.db"), fs::Permissions::from_mode(0o600)).unwrap();
    world.run(&["--secret", "KEY"], &["touch", "made"]).expect(0);
    assert!(world.workspace.join("made").exists());
}

/// Nothing that a session may use changes before it is in the ledger.
#[test]
fn a_change_that_cannot_be_recorded_is_not_made() {
    let world = World::new();
    set(&world, &["KEPT"]);
    let image = format!("[[image]]\nname = \"dev\"\nid = \"{}\"\n", "a".repeat(64));
    let list = world.home.join(".config/ringfence/images.toml");
    fs::create_dir_all(list.parent().unwrap()).unwrap();
    fs::write(&list, &image).unwrap();
    let kept = || [state(&world, "secrets/store"), list.clone()].map(|file| fs::read(file).unwrap());
    let (before, records) = (kept(), kinds(&world).len());
    let commands: [&[&str]; 4] = [
        &["secret", "set", "NEW"],
        &["secret", "rotate", "KEPT"],
        &["secret", "rm", "KEPT"],
        &["image", "rm", "dev"],
    ];
    let change = |command: &[&str]| finish(world.ringfence().args(command), b"another-value");
    let mut python = world.host("python3");
    python.args(["-c", HOLD]).arg(world.ledger_path());
    let mut holder = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    Patient(holder.stdout.as_mut().unwrap()).read_exact(&mut [0; 5]).unwrap();
    for command in commands {
        change(command).expect(125).says("nothing was changed");
        assert_eq!(kept(), before, "{command:?}");
    }
    drop(holder.stdin.take());
    assert!(ended("who holds the ledger", &mut holder).success());
    assert_eq!(kinds(&world).len(), records);
    for command in commands {
        change(command).expect(0);
    }
    assert_eq!(names(&world), ["NEW"], "control");
    assert!(!fs::read_to_string(&list).unwrap().contains("dev"));
    let changed = kinds(&world).iter().filter(|kind| *kind == "policy-changed").count();
    assert_eq!(changed, 1 + commands.len());
}

#[test]
fn what_may_not_be_released_is_refused_by_rule_and_nothing_runs() {
    let world = World::new();
    let other = world.beside("other");
    set(&world, &["PROVIDER", "--class", "provider", "--host", "api.example.com"]);
    set(&world, &["PROXY", "--deliver", "proxy-only"]);
    set(&world, &["ELSEWHERE", "--workspace", other.to_str().unwrap()]);
    set(&world, &["CLAUDE", "--agent", "claude"]);
    set(&world, &["HERE", "--workspace", "."]);
    set(&world, &["FILE"]);
    for (name, flags, rule) in [
        ("PROVIDER", &[][..], "secret.provider"),
        ("PROXY", &[], "secret.proxy-only"),
        ("ELSEWHERE", &[], "secret.scope"),
        ("CLAUDE", &[], "secret.scope"),
        ("CLAUDE", &["--agent", "codex"], "secret.scope"),
        ("FILES", &[], "secret.unknown"),
        (VALUE, &[], "secret.unknown"),
        ("FILE", LANDLOCK, "secret.backend"),
        ("FILE", EXTERNAL, "secret.backend"),
        ("FILE", &["--profile", "danger", "--danger"], "secret.backend"),
    ] {
        let done = world.run(&[flags, &["--secret", name]].concat(), &["touch", "made"]).expect(126);
        assert!(done.err.contains(&format!("rule: {rule}\n")), "{name}: {}", done.err);
        assert!(!done.err.contains(VALUE), "a value in place of a name is not repeated: {}", done.err);
        let last = world.records().pop().unwrap();
        assert_eq!(last["event"]["refusal"]["rule"], rule, "and it is written down");
    }
    let config = world.home.join(".config/ringfence/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, "[[env]]\ndeny = \"*_FILE\"\n").unwrap();
    let done = world.run(&["--secret", "FILE"], &["touch", "made"]).expect(126);
    assert!(done.err.contains("FILE_FILE"), "a variable that policy denies carries no secret: {}", done.err);
    fs::remove_file(&config).unwrap();
    let done = world.run(&["--secret", "FILES"], &["true"]).expect(126);
    assert!(done.err.contains("did you mean `FILE`"), "{}", done.err);
    assert_eq!(world.json(&["--secret", "PROVIDER"], &["true"])["refusal"]["code"], "secret");
    assert!(!world.workspace.join("made").exists());
    world.run(&["--secret", "HERE", "--secret", "FILE"], &["touch", "made"]).expect(0);
    assert!(world.workspace.join("made").exists());
}

#[test]
fn a_value_in_place_of_a_name_reaches_neither_the_terminal_nor_the_ledger() {
    let world = World::new();
    set(&world, &["KEY"]);
    let letters = |count| "Zq7".chars().cycle().take(count).collect::<String>();
    for value in [letters(32), format!("{}/=", letters(30))] {
        let done = world.run(&["--secret", &value], &["true"]).expect(126).says("secret.unknown");
        assert!(done.err.contains("32 bytes"), "{}", done.err);
        let kept = format!("{:?}", world.records());
        for shown in [&done.err, &done.text(), &kept] {
            assert!(!shown.contains(&letters(8)), "{shown}");
        }
    }
}

/// S000-44, S000-48: a workspace names no secret, whatever it writes into its policy.
/// An answer that is refused is recorded with what was to be answered, which is a word that an operator typed.
#[test]
fn a_value_in_place_of_an_approval_does_not_reach_the_ledger() {
    const WORD: &str = "zQ8vK3mT7pL2xW9rB5nYh4";
    let world = World::new();
    let approve = || finish(world.ringfence().args(["approvals", "approve", WORD]), b"");
    world.sh("true").expect(0);
    approve();
    let known = || files_with(&world.state, WORD).len();
    assert_ne!(known(), 0, "control: a word that is no secret is recorded");
    let world = World::new();
    secret(&world, &["set", "KEY"], WORD.as_bytes()).expect(0);
    world.sh("true").expect(0);
    finish(world.ringfence().args(["approvals", "approve", WORD]), b"");
    assert_eq!(files_with(&world.state, WORD), Vec::<PathBuf>::new());
    assert!(kinds(&world).contains(&"authentication-attempted".to_owned()));
}

#[test]
fn a_workspace_can_not_ask_for_secrets() {
    let world = World::new();
    set(&world, &["KEY"]);
    world.write(".ringfence/policy.toml", "secrets = [\"KEY\"]\n");
    let done = world.sh("cat /.ringfence/secrets/KEY; env").expect(125).says("secrets");
    assert!(!done.text().contains(VALUE));
    fs::remove_dir_all(world.workspace.join(".ringfence")).unwrap();
    // Ringfence itself, started inside with the right place of the store, finds none there.
    let script = format!(
        "XDG_STATE_HOME={} \"{}\" run --secret KEY -- sh -c 'cat $KEY_FILE'",
        quoted(&world.state),
        binary().display()
    );
    let control = finish(world.host("sh").args(["-c", &script]), b"").expect(0);
    assert_eq!(control.text(), VALUE);
    let programs = binary().parent().unwrap().to_str().unwrap().to_owned();
    let done = world.sh_with(&["--read", &programs], &script);
    assert!(!done.text().contains(VALUE) && done.code != Some(0), "{} {}", done.text(), done.err);
    assert!(done.err.contains("ringfence: "), "it did start: {}", done.err);
}

/// S000-34, S000-48: neither the store nor its key is there inside, in any backend that contains.
#[test]
fn s000_48_store_and_key_are_out_of_reach() {
    let world = World::new();
    set(&world, &["KEY"]);
    let files = ["secrets/store", "secrets-key/key"].map(|path| state(&world, path));
    let script = format!(
        "cat '{}' '{}' /proc/1/root'{}' | wc -c; ls -A '{}' | wc -l",
        files[0].display(),
        files[1].display(),
        files[1].display(),
        state(&world, "secrets").display()
    );
    let control = finish(world.host("sh").args(["-c", &script]), b"").expect(0);
    assert!(!control.text().starts_with("0\n") && control.text().ends_with("1\n"), "{}", control.text());
    for flags in [CONSTRUCTED[0], CONSTRUCTED[1], LANDLOCK, &["--profile", "danger", "--danger"]] {
        let done = world.sh_with(flags, &script).expect(0);
        assert_eq!(done.text(), "0\n0\n", "{flags:?}");
    }
    for directory in ["", "secrets", "secrets-key"] {
        let directory = state(&world, directory);
        for flag in ["--read", "--write", "--workspace"] {
            let done = world.run(&[flag, directory.to_str().unwrap()], &["true"]).expect(126);
            assert!(done.err.contains("own-state") || done.err.contains("workspace."), "{}", done.err);
        }
    }
}

/// A store that is made while a command sees the whole machine is covered from the start.
#[test]
fn a_store_that_is_made_later_is_out_of_reach_as_well() {
    let world = World::new();
    let script = format!(
        "touch ready; while [ ! -e go ]; do sleep 0.05; done; cat '{}' '{}' | wc -c",
        state(&world, "secrets/store").display(),
        state(&world, "secrets-key/key").display()
    );
    for (flags, expected) in [
        (&["--profile", "danger", "--danger"][..], "0\n"),
        // The control: given away as well, they are read.
        (&["--profile", "danger", "--danger", "--allow-sensitive-roots"], ""),
    ] {
        let mut command = world.ringfence();
        command.arg("run").args(flags).args(["--", "sh", "-c", &script]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the command runs", || world.workspace.join("ready").exists());
        if names(&world).is_empty() {
            set(&world, &["KEY"]);
        }
        world.write("go", "");
        let text = collect(child).expect(0).text();
        assert!(text == expected || expected.is_empty() && text != "0\n", "{flags:?}: {text}");
        for file in ["ready", "go"] {
            fs::remove_file(world.workspace.join(file)).unwrap();
        }
    }
}

/// The files of one session are not there for another, nor for what runs in it.
#[test]
fn another_session_does_not_see_the_files() {
    let world = World::new();
    set(&world, &["KEY"]);
    let mut command = world.ringfence();
    command.args([
        "run",
        "--secret",
        "KEY",
        "--",
        "sh",
        "-c",
        "touch ready; while [ ! -e go ]; do sleep 0.05; done",
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the first session runs", || world.workspace.join("ready").exists());
    let script =
        "cat /.ringfence/secrets/KEY /proc/[0-9]*/root/.ringfence/secrets/KEY 2>/dev/null; echo over";
    // The control: whoever is the same user outside can look into it.
    let control = finish(world.host("sh").args(["-c", script]), b"").expect(0);
    assert!(control.text().contains(VALUE), "{}", control.text());
    for flags in [CONSTRUCTED[0], CONSTRUCTED[1], LANDLOCK] {
        assert_eq!(world.sh_with(flags, script).expect(0).text(), "over\n", "{flags:?}");
    }
    world.write("go", "");
    collect(child).expect(0);
    let after = finish(world.host("sh").args(["-c", script]), b"").expect(0);
    assert!(!after.text().contains(VALUE), "gone with the sandbox");
}

/// S000-36, S003-25, D7: whatever command the value is in, the ledger has only the name of its secret.
#[test]
fn s000_36_the_values_of_known_secrets_are_not_in_the_ledger() {
    let world = World::new();
    let control = world.run(&[], &["echo", VALUE]).expect(0);
    assert_eq!(control.text().trim(), VALUE);
    assert!(!files_with(&world.state, VALUE).is_empty(), "unknown, it is written down as it is");
    let world = World::new();
    set(&world, &["KEY"]);
    world.run(&["--env", &format!("NOTE={VALUE}")], &["echo", &format!("x{VALUE}y")]).expect(0);
    world.run(&["--profile", "guarded"], &["rm", VALUE]).expect(126);
    world.file(&["read", VALUE], b"").expect(125);
    world.run(&[], &[VALUE]).expect(127);
    assert_eq!(files_with(&world.state, VALUE), Vec::<PathBuf>::new());
    let text = world.ledger_tool(&["tail", "--json"]).expect(0).text();
    assert!(text.contains("x[redacted:secret/KEY]y"), "{text}");
    assert!(text.contains("\"rule\":\"secret/KEY\""), "the finding is there: {text}");
}

/// S004-17: while a value is being kept or used, no process has it among its arguments or in its environment.
#[test]
fn s004_17_no_value_is_ever_among_arguments_or_variables() {
    let world = World::new();
    let_pass(&world);
    let value = format!("value of {}", marker(&world));
    let watch = Watch::begin(&value);
    secret(&world, &["set", "KEY"], value.as_bytes()).expect(0);
    for flags in CONSTRUCTED {
        let done =
            world.sh_with(&[flags, &["--secret", "KEY"]].concat(), "cat $KEY_FILE; sleep 0.2").expect(0);
        assert_eq!(done.text(), value);
    }
    secret(&world, &["rotate", "KEY"], format!("{value}\n").as_bytes()).expect(0);
    assert_eq!(watch.end().shown, Vec::<String>::new());
    // The controls: who has it there is seen.
    let watch = Watch::begin(&value);
    finish(world.host("sleep").args(["0.2"]).env("NOTE", &value), b"").expect(0);
    assert!(!watch.end().shown.is_empty());
    let watch = Watch::begin(&value);
    finish(world.host("sh").args(["-c", "sleep 0.2", &value]), b"").expect(0);
    assert!(!watch.end().shown.is_empty());
}

#[test]
fn a_value_on_the_command_line_is_refused_and_not_repeated() {
    let world = World::new();
    for verb in ["set", "rotate"] {
        let done =
            secret(&world, &[verb, "KEY", VALUE], b"").expect(125).says("never taken from the command line");
        assert!(!done.err.contains(VALUE), "{}", done.err);
    }
    assert_eq!(names(&world), Vec::<String>::new());
}

#[test]
fn bad_values_and_names_are_refused_and_keep_nothing() {
    let world = World::new();
    let long = vec![b'x'; 1 << 20];
    for (value, says) in
        [(&b""[..], "empty"), (b"\n", "empty"), (b"a\0b", "NUL"), (&long, "longer than 65536")]
    {
        secret(&world, &["set", "KEY"], value).expect(125).says(says);
    }
    for name in ["", "1a", "a/b", "../x", "a b", "é", ".hidden", &"x".repeat(65)] {
        secret(&world, &["set", "--", name], b"value-value").expect(125).says("not a name for a secret");
    }
    for (flags, says) in [
        (&["--class", "provider", "--deliver", "env"][..], "never enters a sandbox"),
        (&["--class", "other"], "known: provider, tool"),
        (&["--deliver", "argv"], "known: file, env, proxy-only"),
        (&["--env-name", "LD_PRELOAD"], "LD_PRELOAD"),
        (&["--env-name", "RINGFENCE_X"], "reserved"),
        (&["--host", "http://x/y"], "host"),
        (&["--agent", ""], "agent"),
        (&["--workspace", "no-such-directory"], "no-such-directory"),
    ] {
        secret(&world, &[&["set", "KEY"], flags].concat(), b"value-value").expect(125).says(says);
    }
    assert_eq!(names(&world), Vec::<String>::new());
    secret(&world, &["set", "KEY"], b"value-value").expect(0);
    secret(&world, &["set", "KEY"], b"value-value").expect(125).says("already").says("rotate");
    secret(&world, &["rm", "KEI"], b"").expect(125).says("did you mean `KEY`");
}

#[test]
fn exactly_one_newline_is_left_out_and_that_is_said() {
    let world = World::new();
    secret(&world, &["set", "ONE"], b"value\n\n").expect(0).says("removed one trailing newline");
    let plain = secret(&world, &["set", "TWO"], b"value").expect(0);
    assert!(plain.err.is_empty() || plain.err.contains("too short"), "{}", plain.err);
    let lengths: Vec<_> = metas(&world).iter().map(|meta| meta["bytes"].clone()).collect();
    assert_eq!(lengths, [6, 5]);
    let read = world.sh_with(&["--secret", "ONE"], "od -An -c $ONE_FILE").expect(0).text();
    assert_eq!(read.split_whitespace().collect::<String>(), "value\\n");
}

#[test]
fn a_secret_lives_from_set_over_rotate_to_rm() {
    let world = World::new();
    set(&world, &["KEY", "--host", "api.example.com:8443"]);
    let before = secret(&world, &["show", "KEY", "--json"], b"").expect(0).json()["secrets"][0].clone();
    secret(&world, &["rotate", "KEY"], b"another value of it").expect(0);
    let after = secret(&world, &["show", "KEY", "--json"], b"").expect(0).json()["secrets"][0].clone();
    assert_ne!(before["fingerprint"], after["fingerprint"]);
    assert_eq!((&before["created"], &before["hosts"]), (&after["created"], &after["hosts"]));
    assert_eq!(world.sh_with(&["--secret", "KEY"], "cat $KEY_FILE").expect(0).text(), "another value of it");
    let shown = secret(&world, &["show", "KEY"], b"").expect(0).text();
    assert!(shown.contains("api.example.com:8443") && !shown.contains("another value"), "{shown}");
    secret(&world, &["rm", "KEY"], b"").expect(0);
    world.run(&["--secret", "KEY"], &["true"]).expect(126).says("secret.unknown");
    let changes = kinds(&world).iter().filter(|kind| *kind == "policy-changed").count();
    assert_eq!(changes, 3, "each change is in the ledger");
}

#[test]
fn variables_are_imported_all_or_none() {
    let world = World::new();
    let_pass(&world);
    let import = |names: &[&str]| {
        let mut command = world.ringfence();
        command.env("NPM_TOKEN", VALUE).env("OTHER_TOKEN", "another-value").env("EMPTY", "");
        finish(command.args(["secret", "import-env", "--deliver", "env"]).args(names), b"")
    };
    import(&["NPM_TOKEN", "NO_SUCH"]).expect(125).says("`NO_SUCH`");
    import(&["NPM_TOKEN", "EMPTY"]).expect(125).says("empty");
    assert_eq!(names(&world), Vec::<String>::new());
    import(&["NPM_TOKEN", "OTHER_TOKEN"]).expect(0).says("still in the environment");
    assert_eq!(names(&world), ["NPM_TOKEN", "OTHER_TOKEN"]);
    assert_eq!(world.sh_with(&["--secret", "NPM_TOKEN"], "echo $NPM_TOKEN").expect(0).text().trim(), VALUE);
    import(&["OTHER_TOKEN"]).expect(125).says("already");
}

fn prompted(world: &World, terminal: &Terminal, keys: &[u8]) -> Done {
    let mut command = world.host("setsid");
    command
        .args(["--ctty", "--wait", "sh", "-c", "exec \"$RINGFENCE\" secret set KEY"])
        .stdin(terminal.end())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    terminal.wait_for("it is not shown");
    terminal.type_in(keys);
    collect(child)
}

#[test]
fn a_prompt_shows_nothing_and_puts_the_terminal_back() {
    let world = World::new();
    let_pass(&world);
    let terminal = Terminal::new(60, 80);
    let before = terminal.mode();
    prompted(&world, &terminal, b"typo\x15wrong-tail\x7f\x7f\x7f\x7fvalue\r").expect(0);
    let after = terminal.mode();
    assert_eq!((before.local_modes, before.input_modes), (after.local_modes, after.input_modes));
    for part in ["typo", "wrong", "value\r"] {
        assert!(!terminal.seen().contains(part), "{}", terminal.seen());
    }
    assert_eq!(world.sh_with(&["--secret", "KEY"], "cat $KEY_FILE").expect(0).text(), "wrong-value");
}

#[test]
fn a_prompt_that_is_left_keeps_nothing() {
    for keys in [&b"half\x03"[..], b"\x04", b"\r"] {
        let world = World::new();
        let terminal = Terminal::new(60, 80);
        let before = terminal.mode();
        prompted(&world, &terminal, keys).expect(125);
        assert_eq!(before.local_modes, terminal.mode().local_modes);
        assert_eq!(names(&world), Vec::<String>::new());
    }
}

/// S003-26: checked at every start; without the answer nothing runs, because nothing could be kept out of the ledger.
#[test]
fn s003_26_a_store_that_others_could_reach_stops_everything_until_it_is_fixed() {
    let world = World::new();
    set(&world, &["KEY"]);
    for (path, open, right) in [
        ("secrets", 0o755, 0o700),
        ("secrets/store", 0o644, 0o600),
        ("secrets-key", 0o710, 0o700),
        ("secrets-key/key", 0o604, 0o600),
    ] {
        let path = state(&world, path);
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
        for done in
            [world.run(&[], &["touch", "made"]), secret(&world, &["list"], b""), world.file(&["list"], b"")]
        {
            done.expect(125).says("open to others").says(&format!("chmod {right:o} "));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(right)).unwrap();
    }
    assert!(!world.workspace.join("made").exists());
    world.run(&["--secret", "KEY"], &["touch", "made"]).expect(0);
    fs::remove_dir_all(state(&world, "secrets-key")).unwrap();
    world.run(&[], &["true"]).expect(125).says("but not its key");
}

#[test]
fn several_processes_keep_secrets_at_once() {
    let world = World::new();
    let children: Vec<Child> = (0..12)
        .map(|number| {
            let mut command = world.host("sh");
            let script = format!("printf 'value-{number}' | \"$RINGFENCE\" secret set S{number}");
            command.args(["-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        collect(child).expect(0);
    }
    assert_eq!(names(&world).len(), 12);
}

/// Killed at any point, the store has everything that was said to be kept.
#[test]
fn a_killed_writer_loses_nothing() {
    let world = World::new();
    let mut kept = Vec::new();
    for number in 0..40_u64 {
        let name = format!("S{number}");
        let mut command = world.host("sh");
        let script = format!("exec \"$RINGFENCE\" secret set {name} <value");
        world.write("value", VALUE);
        let child =
            command.args(["-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(Duration::from_micros(number * 700));
        send(&child, rustix::process::Signal::KILL);
        if collect(child).out.starts_with(b"set ") {
            kept.push(name);
        }
        let there = names(&world);
        assert!(kept.iter().all(|name| there.contains(name)), "{kept:?} but {there:?}");
    }
    assert!(names(&world).len() < 40, "the test is worth nothing if none was killed in time");
    set(&world, &["LAST"]);
    let left = crate::testkit::names(&state(&world, "secrets"));
    assert_eq!(left, ["store"], "what the killed left is swept");
}
