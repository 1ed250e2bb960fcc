//! Into the settings of agents and out again, in a home that the test made.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::hooks::guarded;
use crate::terminal::Terminal;
use crate::testkit::{Done, World, collect, finish, script};

fn tool(world: &World, arguments: &[&str]) -> Done {
    finish(world.ringfence().args(arguments), b"")
}

/// Every file below a directory with its bytes, and every directory.
fn tree(directory: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            all.extend(tree(&path));
            all.insert(path, None);
        } else {
            all.insert(path.clone(), Some(fs::read(&path).unwrap()));
        }
    }
    all
}

const SETTINGS: &str =
    "{\n    \"model\": \"opus\",\n    \"hooks\": {\"PreToolUse\": [ {\"matcher\": \"Bash\"} ]}\n}";

/// A home in which every agent is.
fn home() -> World {
    let world = World::new();
    for (path, text) in [
        (".claude/settings.json", SETTINGS),
        (".codex/config.toml", "model = \"m\"\n"),
        (".gemini/settings.json", "{\n  // mine\n  \"theme\": \"x\",\n}\n"),
        (".cursor/mcp.json", "{}"),
        (".config/goose/config.yaml", ""),
        (".config/opencode/opencode.json", "{}"),
    ] {
        let path = world.home.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    world
}

#[test]
fn what_init_writes_uninstall_takes_back_byte_for_byte() {
    let world = home();
    let settings = world.home.join(".claude/settings.json");
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o640)).unwrap();
    let before = tree(&world.home);

    let shown = tool(&world, &["init", "--dry-run"]).expect(0).text();
    assert!(shown.contains("+++ ") && shown.contains("hook claude-code"), "{shown}");
    assert_eq!(tree(&world.home), before, "a dry run changes nothing");
    tool(&world, &["init"]).expect(125).says("--yes");
    assert_eq!(tree(&world.home), before, "nobody was asked");

    tool(&world, &["init", "--yes"]).expect(0);
    let during = tree(&world.home);
    let text = String::from_utf8(fs::read(&settings).unwrap()).unwrap();
    assert!(text.contains("\"model\": \"opus\",") && text.contains("{\"matcher\": \"Bash\"}"), "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["hooks"]["PreToolUse"][0]["hooks"][0]["onFailure"], "block");
    assert_eq!(fs::metadata(&settings).unwrap().permissions().mode() & 0o777, 0o640);
    let gemini = fs::read_to_string(world.home.join(".gemini/settings.json")).unwrap();
    assert!(gemini.contains("// mine") && gemini.contains("BeforeTool"), "{gemini}");

    let again = tool(&world, &["init", "--yes"]).expect(0).text();
    assert!(again.contains("nothing to do"), "{again}");
    assert_eq!(tree(&world.home), during, "twice is once");

    let status = tool(&world, &["status", "--json"]).expect(0).json();
    let agents = status["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 6, "{status}");
    for agent in agents {
        // Codex runs what its user has looked at, and nobody has.
        assert_eq!(agent["state"], if agent["agent"] == "codex" { "off" } else { "protected" }, "{status}");
    }

    tool(&world, &["uninstall", "--yes"]).expect(0);
    assert_eq!(tree(&world.home), before);
    assert!(!world.state.join("ringfence").exists(), "nothing is kept");
    assert!(tool(&world, &["uninstall", "--yes"]).expect(0).text().contains("nothing to do"));
}

#[test]
fn settings_that_were_edited_meanwhile_keep_the_edit() {
    let world = home();
    tool(&world, &["init", "claude-code", "--yes"]).expect(0);
    let settings = world.home.join(".claude/settings.json");
    let edited = fs::read_to_string(&settings).unwrap().replace("opus", "sonnet");
    fs::write(&settings, &edited).unwrap();
    tool(&world, &["uninstall", "--yes"]).expect(0);
    let after = fs::read_to_string(&settings).unwrap();
    let value: Value = serde_json::from_str(&after).unwrap();
    let expected: Value = serde_json::from_str(&SETTINGS.replace("opus", "sonnet")).unwrap();
    assert_eq!(value, expected, "{after}");

    // A hook of another installation is replaced, and what was there before both comes back.
    fs::write(&settings, SETTINGS).unwrap();
    tool(&world, &["init", "claude-code", "--yes"]).expect(0);
    let moved = world.beside("moved").join("ringfence");
    crate::testkit::copy_binary(&moved);
    let mut command = world.host(moved.to_str().unwrap());
    finish(command.args(["init", "claude-code", "--yes"]), b"").expect(0);
    let text = fs::read_to_string(&settings).unwrap();
    assert!(text.contains("moved/ringfence") && text.matches("hook claude-code").count() == 1, "{text}");
    tool(&world, &["uninstall", "--yes"]).expect(0);
    assert_eq!(fs::read_to_string(&settings).unwrap(), SETTINGS);
}

/// Whoever edits between two runs of `init` gets out all the same.
#[test]
fn an_edit_between_two_runs_of_init_leaves_nothing_behind() {
    let world = home();
    let settings = world.home.join(".claude/settings.json");
    tool(&world, &["init", "--yes"]).expect(0);
    let edited = fs::read_to_string(&settings).unwrap().replace("opus", "sonnet");
    fs::write(&settings, edited.replace("onFailure", "onOther")).unwrap();
    let made = world.home.join(".agents/plugins/ringfence/hooks/hooks.json");
    fs::write(&made, fs::read_to_string(&made).unwrap().replace("PreToolUse", "Stop")).unwrap();
    tool(&world, &["init", "--yes"]).expect(0);
    tool(&world, &["uninstall", "--yes"]).expect(0);
    let after = fs::read_to_string(&settings).unwrap();
    let expected: Value = serde_json::from_str(&SETTINGS.replace("opus", "sonnet")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&after).unwrap(), expected, "{after}");
    assert!(!world.home.join(".agents").exists(), "what was made for the plugin is gone");
}

/// A file that only has the name of one of ours.
#[test]
fn what_ringfence_never_wrote_it_does_not_remove() {
    let world = home();
    let names = [".config/opencode/plugin/ringfence.js", ".agents/plugins/ringfence/plugin.json"];
    for name in names {
        let path = world.home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "mine").unwrap();
    }
    let before = tree(&world.home);
    tool(&world, &["uninstall", "--yes"]).expect(0);
    assert_eq!(tree(&world.home), before);
    // Also what was replaced, and then edited, comes back.
    tool(&world, &["init", "--yes"]).expect(0);
    for name in names {
        let path = world.home.join(name);
        assert_ne!(fs::read(&path).unwrap(), b"mine");
        fs::write(&path, "edited").unwrap();
    }
    tool(&world, &["init", "--yes"]).expect(0);
    tool(&world, &["uninstall", "--yes"]).expect(0);
    assert_eq!(tree(&world.home), before);
}

#[test]
fn what_cannot_be_edited_is_left_alone() {
    let world = home();
    let settings = world.home.join(".claude/settings.json");
    for text in ["{\"hooks\": 7}", "not json", "{\"hooks\":{},\"hooks\":{}}"] {
        fs::write(&settings, text).unwrap();
        tool(&world, &["init", "--yes"]).expect(125).says(".claude/settings.json");
        assert_eq!(fs::read_to_string(&settings).unwrap(), text);
        let codex = world.home.join(".codex/hooks.json");
        assert!(codex.exists(), "one agent does not stand in the way of another");
        tool(&world, &["uninstall", "--yes"]).expect(0);
        assert!(!codex.exists());
        assert_eq!(fs::read_to_string(&settings).unwrap(), text);
    }
    // What has our hook and cannot be read any more is named, and does not stand in the way either.
    fs::write(&settings, SETTINGS).unwrap();
    tool(&world, &["init", "--yes"]).expect(0);
    let spoiled = format!("{},", fs::read_to_string(&settings).unwrap());
    fs::write(&settings, &spoiled).unwrap();
    tool(&world, &["uninstall", "--yes"]).expect(125).says(".claude/settings.json");
    assert!(!world.home.join(".codex/hooks.json").exists());
    assert_eq!(fs::read_to_string(&settings).unwrap(), spoiled);
    // Some editors begin a file with a mark of byte order.
    let marked = format!("\u{feff}{SETTINGS}");
    fs::write(&settings, &marked).unwrap();
    tool(&world, &["init", "--yes"]).expect(0);
    assert!(fs::read_to_string(&settings).unwrap().contains("hook claude-code"));
    tool(&world, &["uninstall", "--yes"]).expect(0);
    assert_eq!(fs::read_to_string(&settings).unwrap(), marked);
    fs::remove_file(&settings).unwrap();
    symlink(world.home.join("nowhere"), &settings).unwrap();
    tool(&world, &["init", "claude-code", "--yes"]).expect(125).says("is not a file");
    assert!(settings.is_symlink());
    // A link of somebody who keeps settings elsewhere stays a link.
    let elsewhere = world.beside("dotfiles").join("settings.json");
    fs::write(&elsewhere, "{}").unwrap();
    fs::remove_file(&settings).unwrap();
    symlink(&elsewhere, &settings).unwrap();
    tool(&world, &["init", "claude-code", "--yes"]).expect(0);
    assert!(settings.symlink_metadata().unwrap().is_symlink());
    assert!(fs::read_to_string(&elsewhere).unwrap().contains("PreToolUse"));
    tool(&world, &["uninstall", "--yes"]).expect(0);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "{}");
    // The ledger is no settings.
    world.sh("true").expect(0);
    tool(&world, &["init", "claude-code", "--yes"]).expect(0);
    tool(&world, &["uninstall", "--yes"]).expect(0);
    assert!(!world.state.join("ringfence/init").exists() && !world.records().is_empty());
    // What an agent runs in a session changes no settings.
    let done = world.sh(&format!("{} init --yes", crate::testkit::quoted(crate::testkit::binary())));
    assert_ne!(done.code, Some(0));
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "{}");
}

#[test]
fn a_person_is_shown_the_change_and_asked() {
    let world = home();
    for (key, written) in [(&b"n\n"[..], false), (b"\n", false), (b"y\n", true)] {
        let terminal = Terminal::new(60, 120);
        let mut command = world.ringfence();
        command
            .args(["init", "claude-code"])
            .stdin(terminal.end())
            .stdout(terminal.end())
            .stderr(terminal.end());
        let child = command.spawn().unwrap();
        terminal.wait_for("[y/N]");
        terminal.type_in(key);
        collect(child);
        let text = fs::read_to_string(world.home.join(".claude/settings.json")).unwrap();
        assert_eq!(text.contains("hook claude-code"), written, "{text}");
    }
}

#[test]
fn status_says_what_is_not_protected() {
    let world = World::new();
    let text = tool(&world, &["status"]).expect(0).text();
    assert!(text.contains("none found") && text.contains("nothing is recorded yet"), "{text}");
    let programs = world.beside("programs");
    script(&programs.join("claude"), "#!/bin/sh\n");
    let status = |world: &World| {
        let mut command = world.ringfence();
        command.args(["status", "--json"]).env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        finish(&mut command, b"").expect(0).json()
    };
    assert_eq!(status(&world)["agents"][0]["protected"], false);
    tool(&world, &["init", "claude-code", "--yes"]).expect(0);
    assert_eq!(status(&world)["agents"][0]["protected"], true);
    let repository = world.write(".claude/settings.json", "{\"disableAllHooks\": true}");
    let off = status(&world);
    assert_eq!((&off["agents"][0]["state"], &off["agents"][0]["protected"]), (&json!("off"), &json!(false)));
    let notes = off["agents"][0]["notes"].to_string();
    assert!(
        notes.contains("switches every hook off") && notes.contains("remove `disableAllHooks`"),
        "{notes}"
    );
    fs::remove_file(&repository).unwrap();
    assert_eq!(status(&world)["agents"][0]["state"], "protected");
    let settings = world.home.join(".claude/settings.json");
    let text = fs::read_to_string(&settings)
        .unwrap()
        .replace("\"onFailure\": \"block\"", "\"onFailure\": \"continue\"");
    fs::write(&settings, text).unwrap();
    let changed = status(&world);
    assert_eq!(changed["agents"][0]["protected"], false, "{changed}");

    guarded(&world);
    world.sh("true").expect(0);
    world.run(&[], &["ls"]).expect(0);
    world.run(&[], &["rm", "x"]).expect(126);
    world.run(&[], &["mkdir", "x"]).expect(126);
    let status = status(&world);
    assert_eq!(status["today"]["allowed"], 2, "{status}");
    assert_eq!(status["today"]["asked"], 1, "{status}");
    assert_eq!(status["today"]["denied"], 2, "{status}");
    assert!(status["ledger"]["records"].as_u64().unwrap() > 5);
    let doctor = tool(&world, &["doctor", "--json"]).json();
    assert_eq!(doctor["agents"][0]["agent"], "claude-code", "{doctor}");
}

/// Settings elsewhere are looked at where they are, and those of the machine count.
#[test]
fn status_knows_settings_that_are_elsewhere() {
    let world = World::new();
    let elsewhere = world.beside("elsewhere");
    let state = |etc: Option<&Path>| {
        let mut command = match etc {
            None => world.ringfence(),
            Some(etc) => {
                let script = "mount --bind \"$0\" /etc && exec \"$RINGFENCE\" status --json";
                let mut command = world.host("unshare");
                command.args(["-Urm", "sh", "-c", script]).arg(etc);
                command
            }
        };
        if etc.is_none() {
            command.args(["status", "--json"]);
        }
        let report = finish(command.env("CLAUDE_CONFIG_DIR", &elsewhere), b"").expect(0).json();
        let agent = report["agents"].as_array().unwrap().iter().find(|one| one["agent"] == "claude-code");
        agent.map(|agent| (agent["state"].clone(), agent["notes"].to_string())).unwrap()
    };
    tool(&world, &["init", "claude-code", "--yes"]).expect(0);
    assert_eq!(state(None).0, "off", "it reads other settings, in which there is no hook");
    let mut init = world.ringfence();
    init.args(["init", "claude-code", "--yes"]).env("CLAUDE_CONFIG_DIR", &elsewhere);
    finish(&mut init, b"").expect(0);
    assert_eq!(state(None).0, "protected");

    let etc = world.beside("etc");
    fs::create_dir(etc.join("claude-code")).unwrap();
    let managed = etc.join("claude-code/managed-settings.json");
    fs::write(&managed, "{}").unwrap();
    assert_eq!(state(Some(&etc)).0, "protected", "the control: settings of the machine that say nothing");
    for switch in ["allowManagedHooksOnly", "disableAllHooks"] {
        fs::write(&managed, format!("{{\"{switch}\": true}}")).unwrap();
        let (state, notes) = state(Some(&etc));
        assert_eq!(state, "off", "{notes}");
        assert!(notes.contains("managed-settings.json"), "{notes}");
    }
    let ours: Value = serde_json::from_slice(&fs::read(elsewhere.join("settings.json")).unwrap()).unwrap();
    let both = json!({ "allowManagedHooksOnly": true, "hooks": ours["hooks"] });
    fs::write(&managed, both.to_string()).unwrap();
    assert_eq!(state(Some(&etc)).0, "protected", "the hook is among the machine's own");
}

/// Doctor runs every hook as its agent would, and looks into the ledger.
#[test]
fn doctor_tries_every_hook_and_says_what_mends_one_that_is_broken() {
    let world = home();
    let codex = world.home.join(".codex/hooks.json");
    tool(&world, &["init", "--yes"]).expect(0);
    let report = || tool(&world, &["doctor", "--json", "--backend", "native"]).json()["agents"].clone();
    let of = |report: &Value, agent: &str| {
        let found = report.as_array().unwrap().iter().find(|one| one["agent"] == agent);
        found.unwrap_or_else(|| panic!("{report}")).clone()
    };
    let doctor = |agent: &str| of(&report(), agent);
    let all = report();
    for agent in ["claude-code", "codex", "gemini", "cursor", "goose", "opencode"] {
        assert_eq!(of(&all, agent)["fires"], true, "{all}");
    }
    let probes = world.records();
    let probes = crate::approvals::events(&probes, "call-refused");
    assert!(
        probes.len() == 6 && probes.iter().all(|event| event["call"]["path"].to_string().contains("probe-"))
    );
    let notes = of(&all, "codex")["notes"].to_string();
    assert!(notes.contains("does not trust the hook yet"), "that is another matter: {notes}");

    let settings = world.home.join(".claude/settings.json");
    let whole = fs::read_to_string(&settings).unwrap();
    let program = crate::testkit::binary();
    let program = program.to_str().unwrap();
    let answer = r#"echo '{\"hookSpecificOutput\":{\"permissionDecision\":\"deny\"}}'; : "#;
    for (what, broken) in [
        ("its program is gone", whole.replace(program, "/nonexistent/ringfence")),
        (
            "it lets everything pass",
            whole.replace(" hook claude-code", " hook claude-code >/dev/null; exit 0; :"),
        ),
        ("it crashes", whole.replace(" hook claude-code", " hook claude-code | kill -SEGV $$")),
        ("it says no by itself", whole.replace(&format!("'{program}'"), answer)),
        (
            "it writes elsewhere",
            whole.replace("XDG_STATE_HOME='", &format!("XDG_STATE_HOME='{}", world.beside("else").display())),
        ),
    ] {
        assert_ne!(broken, whole, "{what}");
        fs::write(&settings, &broken).unwrap();
        let told = doctor("claude-code");
        assert_eq!((&told["fires"], &told["state"]), (&json!(false), &json!("off")), "{what}: {told}");
        assert!(told["notes"].to_string().contains("`ringfence init claude-code`"), "{what}: {told}");
        tool(&world, &["init", "claude-code", "--yes"]).expect(0);
        assert_eq!(doctor("claude-code")["fires"], true, "{what}: what it says mends it");
    }
    fs::remove_file(&codex).unwrap();
    let told = doctor("codex");
    assert_eq!((&told["state"], told.get("fires")), (&json!("off"), None), "{told}");
    assert!(told["notes"].to_string().contains("no hook: `ringfence init codex` sets it up"), "{told}");
    let text = tool(&world, &["doctor", "--backend", "native"]).text();
    assert!(text.contains("its hook fires: a probe was refused and written down"), "{text}");
}

/// Somebody who takes the hook out with an editor leaves nothing for us to remember.
#[test]
fn what_was_removed_by_hand_leaves_no_trace() {
    let world = World::new();
    let before = tree(&world.home);
    fs::create_dir_all(&world.state).unwrap();
    for agent in ["claude-code", "goose"] {
        tool(&world, &["init", agent, "--yes"]).expect(0);
    }
    fs::remove_file(world.home.join(".claude/settings.json")).unwrap();
    fs::remove_dir_all(world.home.join(".agents")).unwrap();
    assert!(world.state.join("ringfence/init/files.json").exists());
    tool(&world, &["uninstall", "--dry-run"]).expect(0);
    assert!(world.state.join("ringfence/init/files.json").exists());
    tool(&world, &["uninstall", "--yes"]).expect(0);
    assert_eq!(tree(&world.home), before);
    assert!(tree(&world.state).is_empty());
}

/// Every line of a quickstart is typed as it stands there.
#[test]
fn the_quickstarts_do_what_they_say() {
    let source = crate::testkit::variable("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let mut typed = 0;
    for entry in fs::read_dir(source.join("../../docs/agents")).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap();
        let world = home();
        let before = tree(&world.home);
        let programs = world.beside("programs");
        symlink(crate::testkit::binary(), programs.join("ringfence")).unwrap();
        for block in text.split("```sh\n").skip(1) {
            for line in block.split("```").next().unwrap().lines() {
                let mut shell = world.host("sh");
                shell.args(["-ec", line]).env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
                finish(&mut shell, b"").expect(0);
                typed += 1;
            }
        }
        assert_eq!(tree(&world.home), before, "{}: it ends as it began", entry.path().display());
    }
    assert!(typed > 8, "{typed}");
}

/// The hook as an agent would call it: also without the program that it names, the answer is no.
#[test]
fn a_hook_whose_program_is_gone_blocks() {
    let world = World::new();
    let moved = world.beside("moved").join("ringfence");
    crate::testkit::copy_binary(&moved);
    finish(world.host(moved.to_str().unwrap()).args(["init", "claude-code", "--yes"]), b"").expect(0);
    let settings = fs::read(world.home.join(".claude/settings.json")).unwrap();
    let settings: Value = serde_json::from_slice(&settings).unwrap();
    let command = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"].as_str().unwrap();
    let fired = |input: &[u8]| finish(world.host("sh").args(["-c", command]), input);
    fired(b"{}").expect(2).says("ringfence: blocked");
    fs::remove_file(&moved).unwrap();
    fired(b"{}").expect(2).says("Ringfence gave no answer");
    script(&moved, "#!/bin/sh\nkill -SEGV $$\n");
    fired(b"{}").expect(2).says("Ringfence gave no answer");
}
