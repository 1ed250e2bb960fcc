//! Bad input: nothing runs, the answer says why and what would change it.

use std::fs;
use std::os::unix::fs::chown;

use crate::testkit::{LANDLOCK, World, finish, is_root, names};

fn refused(world: &World, workspace: &str, part: &str) {
    let done = world.run(&["--workspace", workspace], &["touch", "made"]).expect(126);
    for said in ["refused", part, "rule:", "hint:"] {
        assert!(done.err.contains(said), "`{workspace}`: `{said}` is not in {}", done.err);
    }
}

#[test]
fn what_cannot_be_a_workspace_is_refused() {
    let world = World::new();
    let file = world.write("file", "");
    let home = world.home.to_str().unwrap().to_owned();
    fs::create_dir_all(world.home.join(".ssh")).unwrap();
    let inside_state = world.state.join("ringfence/homes");
    fs::create_dir_all(&inside_state).unwrap();
    refused(&world, "/nonexistent/place", "workspace.");
    refused(&world, "/", "workspace.root-dir");
    refused(&world, "/etc", "workspace.system-dir");
    refused(&world, "/usr/lib", "workspace.system-dir");
    refused(&world, "/proc/self", "workspace.");
    refused(&world, file.to_str().unwrap(), "workspace.");
    refused(&world, &home, "workspace.home");
    refused(&world, world.home.parent().unwrap().to_str().unwrap(), "workspace.");
    refused(&world, &format!("{home}/.ssh"), "workspace.");
    refused(&world, inside_state.to_str().unwrap(), "workspace.own-state");
    assert_eq!(names(&world.workspace), ["file"]);
}

#[test]
fn somebody_elses_directory_is_refused() {
    let world = World::new();
    let foreign = if is_root() {
        let foreign = world.beside("foreign");
        chown(&foreign, Some(12_345), Some(12_345)).unwrap();
        foreign.to_str().unwrap().to_owned()
    } else {
        "/srv".to_owned()
    };
    let done = world.run(&["--workspace", &foreign], &["touch", "made"]).expect(126);
    assert!(done.err.contains("rule: workspace."), "{}", done.err);
}

/// S001-24: a refused call executes nothing, and says by which rule.
#[test]
fn refused_call_executes_nothing() {
    let world = World::new();
    let cases: [(&[&str], &[&str], &str); 6] = [
        (&["--profile", "review"], &["touch", "made"], "review"),
        (&["--profile", "danger"], &["touch", "made"], "--danger"),
        (&["--backend", "none"], &["touch", "made"], "--danger"),
        (&["--backend", "landlock"], &["touch", "made"], "floor"),
        (&["--env", "GIT_SSH_COMMAND=x"], &["touch", "made"], "GIT_SSH_COMMAND"),
        (&[], &["", "touch", "made"], "command"),
    ];
    for (flags, command, said) in cases {
        let done = world.run(flags, command).expect(126);
        assert!(done.err.contains(said), "{flags:?}: {}", done.err);
        assert!(done.err.contains("rule:"), "{flags:?}: {}", done.err);
    }
    assert_eq!(names(&world.workspace), Vec::<std::ffi::OsString>::new());
    let refusals = world.records().iter().filter(|record| record["event"]["kind"] == "call-refused").count();
    assert_eq!(refusals, cases.len());
}

/// S002-22, S004-14, D12: less than the floor is not silently less. The lowered floor has to be typed.
#[test]
fn below_the_floor_is_refused_with_the_fix() {
    let world = World::new();
    let done = world.run(&["--backend", "landlock"], &["touch", "made"]).expect(126);
    for said in ["fs-read is partial", "pid is partial", "ipc is absent", "ringfence doctor"] {
        assert!(done.err.contains(said), "{said}: {}", done.err);
    }
    assert!(!world.workspace.join("made").exists());
    world.run(LANDLOCK, &["touch", "made"]).expect(0);
    assert!(world.workspace.join("made").exists());
}

/// S004-12, S004-13, D12: a weaker backend says which controls it does not hold, and what of them.
#[test]
fn weaker_backend_reports_what_is_missing() {
    let world = World::new();
    let object = world.json(LANDLOCK, &["true"]);
    assert_eq!(object["posture"]["backend"], "landlock");
    let controls = &object["posture"]["controls"];
    for partial in ["fs-read", "fs-write", "pid"] {
        assert_eq!(controls[partial]["level"], "partial", "{object}");
        assert!(!controls[partial]["missing"].as_str().unwrap().is_empty(), "{partial}");
    }
    assert_eq!(controls["ipc"]["level"], "absent", "{object}");
    let none =
        ["--backend", "none", "--danger", "--allow-sensitive-roots", "--danger-required-controls", "env"];
    let object = world.json(&none, &["true"]);
    for absent in ["fs-read", "fs-write", "net", "pid", "ipc", "syscalls"] {
        assert_eq!(object["posture"]["controls"][absent]["level"], "absent", "{object}");
    }
    let records = world.records();
    let launched = records.iter().rev().find(|record| record["event"]["kind"] == "sandbox-started").unwrap();
    assert_eq!(launched["event"]["posture"]["backend"], "none", "and the ledger has it");
}

/// An operator's declaration that something outside is the boundary is not for whoever types a command.
#[test]
fn a_declared_boundary_is_not_taken_from_the_command_line_without_the_danger_flag() {
    let world = World::new();
    let outside = world.beside("outside");
    let target = outside.join("made");
    let done = world.run(&["--backend", "external"], &["touch", target.to_str().unwrap()]).expect(126);
    assert!(done.err.contains("--danger"), "{}", done.err);
    assert!(!target.exists());
}

/// B-A3: under every backend, also the weaker ones.
#[test]
fn arguments_reach_the_command_as_they_are() {
    let world = World::new();
    let odd = [
        "",
        " ",
        "a b",
        "$HOME",
        "`id`",
        "$(id)",
        "; touch made",
        "'",
        "\"",
        "*",
        "\n",
        "-n",
        "--",
        "\u{fffd}é",
    ];
    let mut arguments = vec!["-c", "import sys, json; print(json.dumps(sys.argv[1:]))"];
    arguments.extend(odd);
    let mut command = vec!["python3"];
    command.extend(arguments);
    for backend in [&[][..], &["--backend", "bubblewrap"], LANDLOCK] {
        let done = world.run(backend, &command).expect(0);
        let seen: Vec<String> = serde_json::from_slice(&done.out).unwrap();
        assert_eq!(seen, odd, "{backend:?}");
        assert!(!world.workspace.join("made").exists(), "{backend:?}");
    }
}

/// S000-43, S001-19: there is no string that a shell takes apart.
#[test]
fn arguments_are_never_a_shell_string() {
    let world = World::new();
    for program in ["touch made", "touch made; true", "$(touch made)", "true && touch made"] {
        world.run(&[], &[program]).expect(127);
    }
    assert_eq!(names(&world.workspace), Vec::<std::ffi::OsString>::new());
}

#[test]
fn without_any_home_it_says_what_is_missing() {
    let world = World::new();
    let mut command = world.ringfence();
    command.env_remove("HOME").env_remove("XDG_STATE_HOME").args(["run", "--", "touch", "made"]);
    finish(&mut command, b"").expect(125).says("XDG_STATE_HOME");
    assert!(!world.workspace.join("made").exists());
}
