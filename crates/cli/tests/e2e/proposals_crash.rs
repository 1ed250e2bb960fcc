//! The real binary, killed at each of its real system calls: the next start finds all of a proposal applied, or nothing.

use std::fs;
use std::process::Stdio;

use crate::proposals::{DIFF, is_applied, world};
use crate::testkit::{Done, World, collect};

/// What changes anything on disk, by us or by SQLite.
const CALLS: &[&str] = &[
    "mkdir",
    "mkdirat",
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "rename",
    "renameat2",
    "unlink",
    "unlinkat",
    "ftruncate",
];

/// `ringfence proposal ARGUMENTS`, killed when it is about to make its `nth` call of that name.
fn killed_at(world: &World, call: &str, nth: usize, arguments: &[&str], input: &str) -> Done {
    let mut command = world.host("strace");
    let inject = format!("inject={call}:signal=KILL:when={nth}");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    command.arg(crate::testkit::binary()).arg("proposal").args(arguments);
    let file = world.beside("input").join("diff");
    fs::write(&file, input).unwrap();
    command.stdin(fs::File::open(file).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
    collect(command.spawn().unwrap())
}

/// Whether the kill came before the end.
fn was_killed(done: &Done) -> bool {
    done.signal == Some(9) || done.code == Some(137)
}

#[test]
fn killed_at_any_step_a_proposal_is_applied_whole_or_not_at_all() {
    let (mut points, mut finished, mut undone) = (0, 0, 0);
    for call in CALLS {
        for nth in 1.. {
            let world = world();
            let id = world.proposed(DIFF);
            let before = world.snapshot();
            let done = killed_at(&world, call, nth, &["apply", &id], "");
            if !was_killed(&done) {
                done.expect(0);
                is_applied(&world);
                break;
            }
            points += 1;
            let next = world.proposal(&["list", "--all"], b"").expect(0);
            let state = world.state_of(&id);
            let context = format!("{call} {nth}: {state}\n{}", next.err);
            if state == "applied" {
                finished += 1;
                is_applied(&world);
                assert!(!world.state.join("ringfence/proposals/contents").join(&id).exists(), "{context}");
            } else {
                undone += 1;
                assert!(["proposed", "interrupted"].contains(&state.as_str()), "{context}");
                assert_eq!(world.snapshot(), before, "{context}");
            }
            let journals = world.state.join("ringfence/proposals/journals");
            let left = fs::read_dir(journals).map_or(0, Iterator::count);
            assert_eq!(left, 0, "{context}");
            // Every third, for the time it takes.
            if points % 3 == 0 {
                world.ledger_tool(&["verify"]).expect(0);
                assert_eq!(world.proposal(&["list", "--all"], b"").expect(0).err, "", "told once: {context}");
                again(&world, &id, &state);
            }
        }
    }
    assert!(
        points > 30 && finished > 3 && undone > 10,
        "{points} points, {finished} finished, {undone} undone"
    );
}

/// What was not applied can be: as it is, or proposed once more from what is kept.
fn again(world: &World, id: &str, state: &str) {
    match state {
        "applied" => return,
        "proposed" => world.proposal(&["apply", id], b"").expect(0),
        _ => {
            let diff = world.proposal(&["diff", id, "--raw"], b"").expect(0).out;
            assert_eq!(diff, DIFF);
            let again = world.proposed(&diff);
            world.proposal(&["apply", &again], b"").expect(0)
        }
    };
    is_applied(world);
}

#[test]
fn killed_while_it_is_proposed_it_is_there_whole_or_not_at_all() {
    let mut points = 0;
    for call in ["mkdir", "write", "pwrite64", "fsync", "fdatasync", "link", "unlink"] {
        for nth in 1.. {
            let world = world();
            let before = world.snapshot();
            let diff = String::from_utf8(DIFF.to_vec()).unwrap();
            let done = killed_at(&world, call, nth, &["create"], &diff);
            assert_eq!(world.snapshot(), before, "{call} {nth}");
            if !was_killed(&done) {
                done.expect(0);
                break;
            }
            points += 1;
            let listed = world.proposal(&["list", "--json"], b"").expect(0).json();
            let id = match listed["proposals"].as_array().unwrap().as_slice() {
                [] => world.proposed(DIFF),
                [one] => one["id"].as_str().unwrap().to_owned(),
                more => panic!("{more:?}"),
            };
            world.proposal(&["apply", &id], b"").expect(0);
            is_applied(&world);
        }
    }
    assert!(points > 15, "{points} points");
}
