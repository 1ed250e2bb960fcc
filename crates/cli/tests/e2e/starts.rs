//! Many starts at once, of supervisors that know nothing of each other: each of them succeeds, with the backend that
//! the machine has, and nothing of any of them stays.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::testkit::{Done, World, binary, collect, eventually, finish, finish_within, is_root, names};

const LOOPS: usize = 3;
const STARTS: usize = 12;
const LONG: Duration = Duration::from_secs(300);

/// Starts one command after the other and prints what each of them came to.
const LOOP: &str = r#"
for start in $(seq "$1"); do
    "$RINGFENCE" run --json -- sh -c '
        test -e .vscode || { echo "no placeholder"; exit 8; }
        if echo x > .vscode/tasks.json; then echo "written"; exit 9; fi'
done
true"#;

/// Where a loop runs.
struct Place {
    state: PathBuf,
    workspace: PathBuf,
    own_pids: OwnPids,
}

fn looped(world: &World, Place { state, workspace, own_pids }: &Place) -> Done {
    let mut command = match own_pids {
        OwnPids::No => world.host("sh"),
        OwnPids::Yes => {
            let mut command = world.host("unshare");
            let flags: &[&str] =
                if is_root() { &["-pf", "--mount-proc"] } else { &["-Ucpf", "--mount-proc"] };
            command.args(flags).arg("sh");
            command
        }
    };
    command.args(["-c", LOOP, "sh", &STARTS.to_string()]);
    command.env("RINGFENCE", binary()).env("XDG_STATE_HOME", state).current_dir(workspace);
    finish_within(LONG, &mut command, b"")
}

#[derive(Clone, Copy)]
enum OwnPids {
    Yes,
    No,
}

/// What came of every start of every loop.
fn at_once(world: &World, place: impl Fn(usize) -> Place) -> Vec<Value> {
    let places: Vec<Place> = (0..LOOPS).map(place).collect();
    let done: Vec<Done> = thread::scope(|scope| {
        let loops: Vec<_> = places.iter().map(|place| scope.spawn(|| looped(world, place))).collect();
        loops.into_iter().map(|running| running.join().unwrap()).collect()
    });
    for place in &places {
        assert!(names(&place.workspace).is_empty(), "{:?}", names(&place.workspace));
    }
    let text: String = done.into_iter().map(|done| done.expect(0).text()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn assert_all_started(results: &[Value]) {
    let failed: Vec<&Value> = results.iter().filter(|result| result["exit_code"] != 0).collect();
    assert_eq!((failed.len(), results.len()), (0, LOOPS * STARTS), "{failed:#?}");
    let others: Vec<&Value> =
        results.iter().filter(|result| result["posture"]["backend"] != "native").collect();
    assert!(others.is_empty(), "{others:#?}");
}

/// Process ids say nothing across PID namespaces: a sweep that went by them removed the control groups of others.
#[test]
fn starts_in_several_pid_namespaces_all_succeed() {
    let world = World::new();
    let results = at_once(&world, |number| Place {
        state: world.beside(&format!("state-{number}")),
        workspace: world.beside(&format!("workspace-{number}")),
        own_pids: OwnPids::Yes,
    });
    assert_all_started(&results);
}

/// Each state directory has a registry of placeholders of its own, and the workspace is the same.
#[test]
fn starts_with_several_state_directories_in_one_workspace_all_succeed() {
    let world = World::new();
    for own_pids in [OwnPids::No, OwnPids::Yes] {
        let results = at_once(&world, |number| Place {
            state: world.beside(&format!("state-{number}")),
            workspace: world.workspace.clone(),
            own_pids,
        });
        assert_all_started(&results);
    }
}

#[test]
fn starts_with_one_state_directory_all_succeed() {
    let world = World::new();
    let place =
        |_| Place { state: world.state.clone(), workspace: world.workspace.clone(), own_pids: OwnPids::No };
    assert_all_started(&at_once(&world, place));
}

/// Where no user namespace can be made, `landlock` is left, which does not meet the default floor.
#[test]
fn a_weaker_backend_is_told_and_recorded() {
    const RUN: &str = r#""$RINGFENCE" run --json --danger --danger-required-controls env -- true"#;
    let world = World::new();
    let run =
        |script: &str| finish(world.host("unshare").args(["-Ur", "sh", "-c", script]), b"").expect(0).json();
    let weaker = run(&format!("echo 0 > /proc/sys/user/max_user_namespaces && {RUN}"));
    assert_eq!(weaker["posture"]["backend"], "landlock", "{weaker}");
    let note = weaker["notice"].as_str().unwrap();
    for part in ["`landlock` is used", "`native` cannot create namespaces", "`bubblewrap` is not available"] {
        assert!(note.contains(part), "{note}");
    }
    let launched = |world: &World| {
        let records = world.records().into_iter().rev();
        records
            .map(|record| record["event"].clone())
            .find(|event| event["kind"] == "sandbox-started")
            .unwrap()
    };
    let skipped_backends = launched(&world)["skipped_backends"].clone();
    assert_eq!(skipped_backends.as_array().unwrap().len(), 2, "{skipped_backends}");
    assert!(
        skipped_backends[0].as_str().unwrap().contains("`native` cannot create namespaces"),
        "{skipped_backends}"
    );
    let control = run(RUN);
    assert_eq!((&control["posture"]["backend"], &control["notice"]), (&json!("native"), &Value::Null));
    assert_eq!(launched(&world)["skipped_backends"], Value::Null);
}

/// The process that `supervisor` has started to clean up after it.
fn sweeper_of(supervisor: u32) -> Option<Pid> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.map(|process| process.path()).find_map(|process| {
        let arguments = fs::read(process.join("cmdline")).ok()?;
        let status = fs::read_to_string(process.join("status")).ok()?;
        let parent =
            status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse::<u32>().ok()?;
        let found = arguments.ends_with(b"__sweep\0") && parent == supervisor;
        found.then(|| Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?)).flatten()
    })
}

/// A run whose command tries all the time to get at a protected name, also while everything around it ends.
fn planter(world: &World, flags: &[&str]) -> Child {
    const PLANT: &str =
        "echo began > began; while :; do mkdir -p .vscode; echo x > .vscode/tasks.json; done 2>/dev/null";
    let mut command = world.ringfence();
    command.arg("run").args(flags).args(["--", "sh", "-c", PLANT]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the command runs", || world.read("began").is_some());
    assert!(world.workspace.join(".vscode").is_dir(), "a placeholder is there");
    child
}

#[test]
fn placeholders_of_a_killed_run_are_removed_without_another_run() {
    let world = World::new();
    for backend in ["native", "bubblewrap"] {
        let mut child = planter(&world, &["--backend", backend]);
        child.kill().unwrap();
        child.wait().unwrap();
        eventually("they are gone", || !world.workspace.join(".vscode").exists());
        // What had become free a moment too early would be there now.
        thread::sleep(Duration::from_millis(300));
        fs::remove_file(world.workspace.join("began")).unwrap();
        assert!(names(&world.workspace).is_empty(), "{backend}: {:?}", names(&world.workspace));
    }
    let mut child = planter(&world, &[]);
    let sweeper = sweeper_of(child.id()).expect("control: there is one to kill");
    kill_process(sweeper, Signal::KILL).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    thread::sleep(Duration::from_secs(1));
    assert!(world.workspace.join(".vscode").is_dir(), "control: without it they stay");
    assert_eq!(names(&world.workspace.join(".vscode")).len(), 0);
    world.run(&[], &["rm", "began"]).expect(0);
    assert!(names(&world.workspace).is_empty(), "the next run removes them");
}

/// A killed run does not take what another one in the same workspace needs.
#[test]
fn placeholders_that_others_need_stay_when_a_run_is_killed() {
    let world = World::new();
    let mut other = world.ringfence();
    other.env("XDG_STATE_HOME", world.beside("another-state"));
    let waits = "echo began > other; while [ -e other ]; do sleep 0.05; done; ls -d .vscode";
    let other = other
        .args(["run", "--", "sh", "-c", waits])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the other one runs", || world.read("other").is_some());
    let mut child = planter(&world, &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    thread::sleep(Duration::from_millis(500));
    assert!(world.workspace.join(".vscode").is_dir());
    fs::remove_file(world.workspace.join("other")).unwrap();
    assert_eq!(collect(other).expect(0).text(), ".vscode\n");
    fs::remove_file(world.workspace.join("began")).unwrap();
    assert!(names(&world.workspace).is_empty(), "{:?}", names(&world.workspace));
}
