//! The program of Ringfence, and what names it, in a place that commands inside can write.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use crate::testkit::{Done, LANDLOCK, World, binary, finish};

/// Every way to put something else at a name: in place, by renaming, by moving what is above it.
const REPLACE: &str = "p=target/release/ringfence; printf x >n; chmod 755 n; (printf x >$p); mv -f n $p; rm -f $p; \
                       ln -f readme $p; mv target/release target/r; mv target t; mkdir -p target/release; cp readme $p; true";

struct Checkout {
    world: World,
    program: PathBuf,
}

impl Checkout {
    /// A repository in which Ringfence was built, as cargo leaves it: with two names.
    fn new() -> Self {
        let world = World::new();
        world.repository();
        world.write("target/release/deps/x", "");
        let program = world.workspace.join("target/release/ringfence");
        // Another process writes it: a neighbouring test that forks would inherit a descriptor, and the program be busy.
        assert!(Command::new("cp").arg(binary()).arg(&program).status().unwrap().success());
        fs::hard_link(&program, world.workspace.join("target/release/deps/ringfence-0123")).unwrap();
        Self { world, program }
    }

    fn command(&self, program: &PathBuf) -> Command {
        let mut command = Command::new(program);
        self.world.dress(&mut command);
        command
    }

    fn run(&self, flags: &[&str], script: &str) -> Done {
        finish(self.command(&self.program).arg("run").args(flags).args(["--", "sh", "-c", script]), b"")
    }

    fn is_whole(&self) -> bool {
        fs::metadata(&self.program).is_ok_and(|now| now.len() == fs::metadata(binary()).unwrap().len())
    }
}

#[test]
fn what_the_host_runs_next_cannot_be_replaced_from_inside() {
    for flags in [&["--backend", "native"][..], &["--backend", "bubblewrap"]] {
        let checkout = Checkout::new();
        // What the README begins with.
        finish(checkout.command(&checkout.program).args(["run", "--", "git", "status"]), b"").expect(0);
        checkout.run(flags, REPLACE).expect(0);
        assert!(checkout.is_whole(), "{flags:?}");
        checkout.run(flags, "printf x >target/release/deps/ringfence-0123; true").expect(0);
        assert!(checkout.is_whole(), "by its other name, {flags:?}");
        checkout.run(flags, "touch target/release/new target/release/deps/new").expect(0);
        let written = finish(
            checkout.command(&checkout.program).args(["file", "write", "target/release/ringfence"]),
            b"x",
        );
        assert_eq!(written.code, Some(126), "the file tools: {}", written.err);
        assert!(checkout.is_whole());
        // The control: another program of the host is a file like any other.
        finish(checkout.world.ringfence().arg("run").args(flags).args(["--", "sh", "-c", REPLACE]), b"")
            .expect(0);
        assert!(!checkout.is_whole(), "{flags:?}");
    }
}

#[test]
fn a_link_to_the_program_cannot_be_replaced_either() {
    let world = World::new();
    let link = world.workspace.join("bin/rf");
    fs::create_dir(world.workspace.join("bin")).unwrap();
    symlink(binary(), &link).unwrap();
    let replace = "rm -f bin/rf; mv bin b; mkdir -p bin; cp /bin/true bin/rf; true";
    let mut command = Command::new(&link);
    world.dress(&mut command);
    finish(command.args(["run", "--", "sh", "-c", replace]), b"").expect(0);
    assert_eq!(fs::read_link(&link).unwrap(), binary());
    finish(world.ringfence().args(["run", "--", "sh", "-c", replace]), b"").expect(0);
    assert!(fs::read_link(&link).is_err(), "the control");
}

/// Where the directory of an agent's settings lies in the workspace.
#[test]
fn files_that_name_the_program_cannot_be_replaced() {
    for (variable, name) in [("CODEX_HOME", "environments.toml"), ("CLAUDE_CONFIG_DIR", "settings.json")] {
        let world = World::new();
        let file = world.write(&format!("conf/{name}"), "kept\n");
        let replace = format!(
            "echo x >conf/{name}; rm -f conf/{name}; mv conf c; mkdir -p conf; echo x >conf/{name}; true"
        );
        let run = |command: &mut Command| {
            finish(command.args(["run", "--", "sh", "-c", &replace]), b"").expect(0);
        };
        run(world.ringfence().env(variable, file.parent().unwrap()));
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept\n", "{name}");
        run(&mut world.ringfence());
        assert_eq!(fs::read_to_string(&file).unwrap(), "x\n", "the control: {name}");
    }
}

/// What is not there yet is obeyed as soon as it is.
#[test]
fn files_that_would_name_the_program_cannot_be_made() {
    for (variable, name) in [
        ("CODEX_HOME", "environments.toml"),
        ("CODEX_HOME", "hooks.json"),
        ("CLAUDE_CONFIG_DIR", "settings.json"),
        ("CLAUDE_CONFIG_DIR", "settings.local.json"),
    ] {
        for there in ["conf/other", "else/where"] {
            let world = World::new();
            world.write(there, "");
            let conf = world.workspace.join("conf");
            let plant = format!(
                "mkdir -p conf; echo x >conf/{name}; mv conf c; mkdir conf; echo x >conf/{name}; true"
            );
            for flags in [&["--backend", "native"][..], &["--backend", "bubblewrap"]] {
                let mut command = world.ringfence();
                command.env(variable, &conf).arg("run").args(flags).args(["--", "sh", "-c", &plant]);
                finish(&mut command, b"").expect(0);
                assert!(!conf.join(name).exists(), "{name} beside {there}, {flags:?}");
            }
            let mut tool = world.ringfence();
            tool.env(variable, &conf).args(["file", "write", &format!("conf/{name}")]);
            assert_eq!(finish(&mut tool, b"x").code, Some(126), "the file tools: {name}");
            let mut weak = world.ringfence();
            weak.env(variable, &conf).arg("run").args(LANDLOCK).args(["--", "sh", "-c", &plant]);
            finish(&mut weak, b"").expect(126).says("workspace.own-program");
            assert!(!conf.join(name).exists(), "{name}");
            finish(world.ringfence().args(["run", "--", "sh", "-c", &plant]), b"").expect(0);
            assert!(conf.join(name).is_file(), "the control: {name}");
        }
    }
}

/// The hook of an agent may name another program of Ringfence than the one that runs.
#[test]
fn the_program_that_a_hook_names_cannot_be_replaced() {
    let checkout = Checkout::new();
    let settings = checkout.world.home.join(".claude/settings.json");
    fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let run = || {
        let mut command = checkout.world.ringfence();
        finish(command.args(["run", "--", "sh", "-c", REPLACE]), b"").expect(0);
    };
    let hook = format!("HOME='/h' '{}' hook claude-code || exit 2", checkout.program.display());
    fs::write(&settings, serde_json::json!({ "hooks": { "command": hook } }).to_string()).unwrap();
    run();
    assert!(checkout.is_whole());
    fs::write(&settings, "{}").unwrap();
    run();
    assert!(!checkout.is_whole(), "the control: no hook names it");
}

/// A hook names its program in quotes, so that a directory on the way can have a blank in its name.
#[test]
fn a_program_that_a_hook_names_with_blanks_cannot_be_replaced() {
    let world = World::new();
    world.repository();
    world.write("my tools/ringfence", "program");
    let settings = world.home.join(".claude/settings.json");
    fs::create_dir(world.home.join(".claude")).unwrap();
    let replace = || {
        world.sh("printf x >'my tools/ringfence'; rm -f 'my tools/ringfence'; true").expect(0);
        world.read("my tools/ringfence")
    };
    let program = world.workspace.join("my tools/ringfence");
    let hook = format!("HOME='/h' '{}' hook claude-code || exit 2", program.display());
    fs::write(&settings, serde_json::json!({ "hooks": [{ "command": hook }] }).to_string()).unwrap();
    assert_eq!(replace().as_deref(), Some("program"));
    fs::remove_file(&settings).unwrap();
    assert_eq!(replace(), None, "control: a program that nothing names");
}

#[test]
fn where_it_cannot_be_held_there_is_no_session() {
    let checkout = Checkout::new();
    checkout.run(LANDLOCK, REPLACE).expect(126).says("workspace.own-program");
    assert!(checkout.is_whole());
    finish(checkout.world.ringfence().arg("run").args(LANDLOCK).args(["--", "true"]), b"").expect(0);
}

#[test]
fn doctor_and_init_say_where_it_lies() {
    let checkout = Checkout::new();
    let says = "is in the repository";
    let tell = |arguments: &[&str]| finish(checkout.command(&checkout.program).args(arguments), b"");
    tell(&["doctor", "--backend", "native"]).says(says);
    tell(&["init", "claude-code", "--dry-run"]).says(says);
    let elsewhere = finish(checkout.world.ringfence().args(["init", "claude-code", "--dry-run"]), b"");
    assert!(!elsewhere.err.contains(says) || in_a_repository(), "{}", elsewhere.err);
}

/// The program of the tests is in one where cargo built it.
fn in_a_repository() -> bool {
    binary().ancestors().any(|directory| directory.join(".git").exists())
}
