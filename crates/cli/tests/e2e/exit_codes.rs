//! What a command's end becomes: exit codes, messages and the JSON object.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::testkit::{World, script};

#[test]
fn exit_codes_are_the_commands_own() {
    let world = World::new();
    for code in [0, 1, 42, 123, 255] {
        let done = world.sh(&format!("exit {code}")).expect(code);
        assert_eq!((done.text().as_str(), done.err.as_str()), ("", ""));
        let object = world.json(&[], &["sh", "-c", &format!("exit {code}")]);
        assert_eq!(object["ended"], "executed");
        assert_eq!(object["outcome"]["exit"]["kind"], "code");
        assert_eq!(object["outcome"]["exit"]["code"], code);
        assert_eq!(object["outcome"]["limit_hit"], serde_json::Value::Null);
        assert!(object["transaction"].as_str().unwrap().starts_with("tx_"));
    }
}

#[test]
fn death_by_signal_is_128_and_the_signal() {
    let world = World::new();
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("HUP", 1), ("PIPE", 13)] {
        world.sh(&format!("kill -{name} $$; sleep 60")).expect(128 + number);
    }
    let object = world.json(&[], &["sh", "-c", "kill -USR1 $$"]);
    assert_eq!(object["outcome"]["exit"]["kind"], "signal");
    assert_eq!(object["outcome"]["exit"]["signal"], 10);
    assert_eq!(object["exit_code"], 138);
}

#[test]
fn what_cannot_be_executed_is_126_or_127_and_says_why() {
    let world = World::new();
    world.write("no-exec-bit", "#!/bin/sh\necho ran\n");
    fs::create_dir(world.workspace.join("directory")).unwrap();
    script(&world.workspace.join("no-interpreter"), "#!/nonexistent/interpreter\n");
    script(&world.workspace.join("not-a-program"), "\u{1}\u{2}\u{3}");
    fs::set_permissions(world.workspace.join("no-exec-bit"), fs::Permissions::from_mode(0o644)).unwrap();
    let cases: [(&str, i32, i32, &str); 6] = [
        ("no-such-program-anywhere", 127, 2, "No such file"),
        ("./absent", 127, 2, "No such file"),
        ("./no-interpreter", 127, 2, "No such file"),
        ("./no-exec-bit", 126, 13, "Permission denied"),
        ("./directory", 126, 13, "Permission denied"),
        ("./not-a-program", 126, 8, "Exec format error"),
    ];
    for (program, code, errno, why) in cases {
        let done = world.run(&[], &[program]).expect(code).says("inside the fence").says(why);
        assert!(!done.text().contains("ran"));
        let object = world.json(&[], &[program]);
        assert_eq!(object["outcome"]["exit"]["kind"], "not-executed", "{program}: {object}");
        assert_eq!(object["outcome"]["exit"]["errno"], errno, "{program}");
    }
}

#[test]
fn a_timeout_is_124() {
    let world = World::new();
    world.sh_with(&["--timeout", "300ms"], "sleep 60").expect(124).says("wall-clock limit").says("--timeout");
    let object = world.json(&["--timeout", "300ms"], &["sleep", "60"]);
    assert_eq!(object["outcome"]["exit"]["kind"], "timed-out");
    assert_eq!(object["outcome"]["limit_hit"], "wall-clock");
    world.sh_with(&["--timeout", "60s"], "exit 3").expect(3);
}

#[test]
fn our_own_failures_are_125_and_refusals_126() {
    let world = World::new();
    world.run(&["--no-such-flag"], &["true"]).expect(125).says("--no-such-flag");
    world.run(&["--read", "/nonexistent/directory"], &["true"]).expect(125).says("/nonexistent/directory");
    let object = world.json(&["--profile", "review"], &["touch", "made"]);
    assert_eq!(object["ended"], "refused");
    assert_eq!(object["exit_code"], 126);
    assert_eq!(object["refusal"]["code"], "profile");
    assert_eq!(object["outcome"], serde_json::Value::Null);
    assert!(!world.workspace.join("made").exists());
    let object = world.json(&["--workspace", "/etc"], &["true"]);
    assert_eq!(object["refusal"]["code"], "workspace", "{object}");
    let object = world.json(&["--env", "LD_PRELOAD=/x"], &["true"]);
    assert_eq!(object["refusal"]["code"], "environment", "{object}");
}

#[test]
fn the_json_object_has_output_digests_and_posture() {
    use sha2::{Digest as _, Sha256};
    let world = World::new();
    let object = world.json(&[], &["sh", "-c", "printf out; printf err >&2; exit 5"]);
    assert_eq!((&object["stdout"], &object["stderr"]), (&"out".into(), &"err".into()));
    let digest: String = Sha256::digest(b"out").iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(object["outcome"]["stdout"]["sha256"], digest.as_str());
    assert_eq!(object["outcome"]["stdout"]["bytes"], 3);
    assert_eq!(object["outcome"]["stdout"]["dropped"], 0);
    assert_eq!(object["record_error"], serde_json::Value::Null);
    let object = world.json(&[], &["printf", "\\377\\000x"]);
    assert_eq!(object["stdout"]["base64"], "/wB4");
}

/// S002-18, S004-13: the result says how it was made and what was enforced, by name.
#[test]
fn backend_is_named_in_the_posture() {
    let world = World::new();
    let object = world.json(&[], &["true"]);
    assert_eq!(object["posture"]["backend"], "native");
    for control in ["fs-read", "fs-write", "net", "pid", "ipc", "syscalls", "limits", "env"] {
        let level = &object["posture"]["controls"][control];
        assert!(crate::testkit::is_held(level), "{control}: {object}");
        assert_ne!(level["by"], "", "{control}");
    }
}

/// The most memory that `ringfence` had while it ran, in KiB.
fn most_memory(mut command: std::process::Command) -> u64 {
    let out = std::process::Stdio::null();
    let mut child = command.stdin(std::process::Stdio::null()).stdout(out).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(peak.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    most
}

/// A byte of zero is six characters of JSON: the worst that output can be.
#[test]
fn memory_does_not_grow_with_the_output_of_json() {
    let world = World::new();
    let run = |bytes: &str| {
        let mut command = world.ringfence();
        command.args(["run", "--json", "--max-output", "1g", "--", "head", "-c", bytes, "/dev/zero"]);
        most_memory(command)
    };
    let (little, much) = (run("1K"), run("96M"));
    assert!(much < little + 32 * 1024, "{little} KiB for a little, {much} KiB for much");
}

#[test]
fn output_in_json_is_whole_whatever_it_is() {
    let world = World::new();
    let object = world.json(&[], &["sh", "-c", "head -c 300000 /dev/zero; printf 'a\\303\\251' >&2"]);
    assert_eq!(object["stdout"].as_str().unwrap(), "\0".repeat(300_000));
    assert_eq!(object["stderr"], "aé");
    let object = world.json(&[], &["sh", "-c", "head -c 100000 /dev/zero; printf '\\303'"]);
    let encoded = object["stdout"]["base64"].as_str().unwrap();
    assert!(
        encoded.starts_with("AAAA") && encoded.len() == 100_001_usize.div_ceil(3) * 4,
        "{}",
        encoded.len()
    );
    assert_eq!(object["stderr"], "");
}

/// What a backend never does is answered with a no, not with a failure, and recorded as one.
#[test]
fn what_a_backend_does_not_do_is_refused() {
    let world = World::new();
    let landlock = |more: &[&str]| {
        let done = world.run(&[crate::testkit::LANDLOCK, more].concat(), &["touch", "made"]).expect(126);
        assert!(!world.workspace.join("made").exists());
        done
    };
    landlock(&["--net", "filtered"]).says("rule: network.backend").says("--backend native");
    landlock(&["--workspace-access", "none"]).says("rule: root.closed");
    world.run(crate::testkit::LANDLOCK, &["touch", "made"]).expect(0);
    assert!(world.workspace.join("made").exists(), "the control");
    fs::create_dir(world.workspace.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", world.workspace.join(".vscode")).unwrap();
    world.run(&["--backend", "bubblewrap"], &["true"]).expect(126).says("rule: path.held-link");
    let refused = world.records().into_iter().filter(|record| record["event"]["kind"] == "call-refused");
    assert_eq!(refused.count(), 3);
    fs::remove_file(world.workspace.join(".vscode")).unwrap();
    world.run(&[], &["true"]).expect(0);
}
