//! The real binary, killed at each of its real system calls while changes land or are taken back: each file is old or new,
//! the next start ends it, and nothing lands without its intent.

use std::process::Stdio;

use crate::approvals::events;
use crate::layer::{SCRIPT, Tree, prepare, tree};
use crate::testkit::{Done, World, collect};

/// What changes anything on disk, by us or by SQLite.
const CALLS: &[&str] = &[
    "mkdirat",
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "syncfs",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "fchmod",
    "fchmodat",
    "utimensat",
    "ftruncate",
    "symlinkat",
    "linkat",
];

/// `ringfence ARGUMENTS`, killed when it is about to make its `nth` call of that name.
fn killed_at(world: &World, call: &str, nth: usize, arguments: &[&str]) -> Done {
    let mut command = world.host("strace");
    let inject = format!("inject={call}:signal=KILL:when={nth}");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    command.arg(crate::testkit::binary()).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    collect(command.spawn().unwrap())
}

fn was_killed(done: &Done) -> bool {
    done.signal == Some(9) || done.code == Some(137)
}

/// The trees before and after, and how often each was found.
#[derive(Default)]
struct Points {
    all: usize,
    old: usize,
    new: usize,
}

/// Each path is as before or as after.
#[track_caller]
fn is_between(found: &Tree, old: &Tree, new: &Tree, context: &str) {
    for (path, state) in found {
        let known = old.get(path) == Some(state) || new.get(path) == Some(state);
        // The permissions and content of directories come last.
        let is_directory = state.0 & 0o170_000 == 0o040_000;
        assert!(known || is_directory, "{context}: {} is {state:?}", path.display());
    }
}

fn at_each_point(arguments: &[&str], stage: impl Fn(&World)) -> Points {
    let mut points = Points::default();
    for call in CALLS {
        for nth in 1.. {
            let world = World::new();
            prepare(&world);
            let id = world.tried(SCRIPT);
            stage(&world);
            let old = tree(&world.workspace);
            let done = killed_at(&world, call, nth, arguments);
            if !was_killed(&done) {
                done.expect(0);
                assert_ne!(tree(&world.workspace), old, "the control: without a kill it lands");
                break;
            }
            points.all += 1;
            let context = format!("{arguments:?} {call} {nth}");
            let cut = tree(&world.workspace);
            let next = world.layers(&["changes", "--all"]).expect(0);
            let context = format!("{context}\n{}", next.err);
            let found = tree(&world.workspace);
            let intended = events(&world.records(), "call-intended")
                .iter()
                .filter(|event| event["call"]["kind"] == "land")
                .count();
            if found == old {
                points.old += 1;
            } else {
                points.new += 1;
                assert!(intended > 0, "nothing lands without its intent: {context}");
            }
            assert!(cut == old || intended > 0, "{context}");
            assert_eq!(world.layers(&["changes", "--all"]).expect(0).err, "", "told once: {context}");
            // What was not done can be done.
            if found == old {
                world.layers(&[arguments[0], &id]).expect(0);
            }
            let new = tree(&world.workspace);
            is_between(&cut, &old, &new, &context);
            assert!(found == old || found == new, "whole or not at all: {context}");
            if points.all % 5 == 0 {
                world.ledger_tool(&["verify"]).expect(0);
            }
        }
    }
    points
}

#[test]
fn killed_at_any_step_changes_land_whole_or_not_at_all() {
    let points = at_each_point(&["commit"], |_world| {});
    assert!(
        points.all > 60 && points.old > 15 && points.new > 5,
        "{} {} {}",
        points.all,
        points.old,
        points.new
    );
}

#[test]
fn killed_at_any_step_an_undo_is_whole_or_not_at_all() {
    let points = at_each_point(&["undo"], |world| {
        world.layers(&["commit"]).expect(0);
    });
    assert!(
        points.all > 60 && points.old > 15 && points.new > 5,
        "{} {} {}",
        points.all,
        points.old,
        points.new
    );
}

/// A killed command leaves its changes: they wait like any others.
#[test]
fn what_a_killed_try_left_can_be_committed() {
    let world = World::new();
    prepare(&world);
    let mut command = world.ringfence();
    command.args(["try", "--", "sh", "-c", "echo half >a; touch up; echo up; exec sleep 600"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    crate::testkit::eventually("the layer has a change", || {
        world.layers(&["changes", "--all", "--json"]).expect(0).json()["layers"][0]["in_use"] == true
            && changed(&world)
    });
    let busy = world.layers(&["commit"]).expect(125);
    assert!(busy.err.contains("still runs"), "{}", busy.err);
    child.kill().unwrap();
    child.wait().unwrap();
    crate::testkit::eventually("nothing holds the layer", || world.layers(&["changes"]).code == Some(0));
    world.layers(&["commit"]).expect(0);
    assert_eq!(world.read("a").as_deref(), Some("half\n"));
}

/// The upper directory of the only layer has the marker.
fn changed(world: &World) -> bool {
    let find =
        world.host("find").arg(world.state.join("ringfence/layers")).args(["-name", "up"]).output().unwrap();
    !find.stdout.is_empty()
}
