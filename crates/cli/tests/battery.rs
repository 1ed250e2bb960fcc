//! The escape battery through the real binary, for every backend: as root and as an ordinary user alike.
//!
//! A whole backend holds every attempt. A weaker one is judged by its own word: what its posture calls enforced must
//! hold, and what it does not call enforced must be something that an attempt really gets past.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "the helpers of a test fail like the test")]

mod attempts;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn native_holds_every_attempt() {
    assert_whole("native");
}

#[test]
fn bubblewrap_holds_every_attempt() {
    assert_whole("bubblewrap");
}

#[test]
fn landlock_reports_what_its_battery_shows() {
    assert_exact("landlock");
}

#[test]
fn external_reports_what_its_battery_shows() {
    assert_exact("external");
}

#[test]
fn none_reports_what_its_battery_shows() {
    assert_exact("none");
}

#[test]
fn the_result_is_in_the_ledger() {
    let home = tempfile::tempdir().unwrap();
    ringfence(&home, &["doctor", "--attack", "--only", "F1-"]);
    let tail = ringfence(&home, &["ledger", "tail", "--json"]);
    let last: Value = serde_json::from_str(tail.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"]["kind"], "battery-finished", "{tail}");
    assert!(last["event"]["passed"].as_u64().unwrap() >= 3, "{tail}");
}

#[test]
fn doctor_says_how_a_filtered_network_is_held() {
    let home = tempfile::tempdir().unwrap();
    let report: Value = serde_json::from_str(&ringfence(&home, &["doctor", "--json"])).unwrap();
    let levels = report["backends"].as_array().unwrap().iter();
    let levels: Vec<(&str, &str)> = levels
        .map(|tried| (tried["backend"].as_str().unwrap(), tried["filtered"]["level"].as_str().unwrap()))
        .collect();
    assert_eq!(levels, [("native", "enforced"), ("bubblewrap", "enforced"), ("landlock", "absent")]);
}

/// What watches the time stands still when the time is up, as on a machine that does too much. Without the stalls, which is
/// how the battery tries again, the attempt is held.
#[test]
fn a_machine_that_stalls_is_no_escape() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command.args(["doctor", "--attack", "--json", "--only", "S12"]).env_clear();
    command.env("HOME", home.path()).env("PATH", "/usr/bin:/bin").current_dir(home.path());
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let process = Pid::from_child(&child);
    for _ in 0..6 {
        // One that has ended by now was held before.
        let _stopped = kill_process(process, Signal::STOP);
        std::thread::sleep(Duration::from_millis(800));
        let _goes_on = kill_process(process, Signal::CONT);
        std::thread::sleep(Duration::from_millis(300));
    }
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdicts: Vec<&str> = results(&report).map(verdict).collect();
    assert!(!verdicts.contains(&"escaped"), "{report}");
    assert_eq!(verdicts, ["held"], "alone it is tried again: {report}");
    assert!(output.status.success());
}

fn assert_whole(backend: &str) {
    let report = attack(backend);
    attempts::all_held(&report, "");
    assert_eq!(report["whole"], true);
}

fn assert_exact(backend: &str) {
    let report = attack(backend);
    let enforced = claimed_controls(backend);
    let mut past = BTreeSet::new();
    for result in results(&report) {
        assert!(!matches!(verdict(result), "control-failed" | "not-run"), "{result}");
        if verdict(result) == "escaped" {
            let controls: BTreeSet<String> = controls_of(result).collect();
            assert!(!controls.is_subset(&enforced), "{backend} claims {enforced:?}, but: {result}");
            past.extend(controls);
        }
    }
    for control in ringfence_types::Control::WORDS.iter().filter(|word| !enforced.contains(**word)) {
        assert!(past.contains(*control), "{backend} does not claim {control}, but nothing got past it");
    }
}

fn attack(backend: &str) -> Value {
    let home = tempfile::tempdir().unwrap();
    serde_json::from_str(&ringfence(&home, &["doctor", "--attack", "--json", "--backend", backend])).unwrap()
}

/// What no command gets past by itself, as the posture has it.
fn claimed_controls(backend: &str) -> BTreeSet<String> {
    let home = tempfile::tempdir().unwrap();
    let examined: Value =
        serde_json::from_str(&ringfence(&home, &["doctor", "--json", "--backend", backend])).unwrap();
    let controls = examined["backends"][0]["posture"]["controls"].as_object().unwrap();
    let claimed = |level: &Value| level["level"] == "enforced" || level["gap"] == "bounded";
    controls.iter().filter(|(_, level)| claimed(level)).map(|(name, _)| name.clone()).collect()
}

fn results(report: &Value) -> impl Iterator<Item = &Value> {
    report["results"].as_array().unwrap().iter()
}

fn verdict(result: &Value) -> &str {
    result["verdict"].as_str().unwrap()
}

fn controls_of(result: &Value) -> impl Iterator<Item = String> {
    result["controls"].as_array().unwrap().iter().map(|control| control.as_str().unwrap().to_owned())
}

/// Runs the binary with a throwaway home and nothing else in its environment, and returns its standard output.
fn ringfence(home: &tempfile::TempDir, arguments: &[&str]) -> String {
    // Longer than all of it takes on a busy machine.
    let output = Command::new("timeout")
        .args(["--kill-after=5", "280"])
        .arg(binary())
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", "/usr/bin:/bin")
        .current_dir(home.path())
        .output()
        .unwrap();
    assert!(!output.stdout.is_empty(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test runner names the program for the ordinary user's pass"
)]
fn binary() -> PathBuf {
    std::env::var_os("RINGFENCE_TEST_BIN")
        .map_or_else(|| env!("CARGO_BIN_EXE_ringfence").into(), PathBuf::from)
}
