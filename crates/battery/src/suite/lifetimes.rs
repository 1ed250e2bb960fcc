//! Attempts to outlive the call.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant};

use ringfence_types::Control::Pid;
use ringfence_types::{ExitReason, Limits};

use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, AttemptClass, BASE};
use crate::evidence::{AttemptLog, TrialEvidence};
use crate::judge::ObservedEffect;
use crate::sys;
use crate::world::AttackWorld;

const OUTLIVE: Attempt =
    Attempt { class: AttemptClass::System, controls: &[Pid], from: "S7", judge: still_beating, ..BASE };

/// Runs for at most one and a half seconds, so that a broken fence leaves no process for long.
macro_rules! heartbeat {
    () => {
        "i=0; while [ $i -lt 75 ]; do echo . >> beat; i=$((i+1)); sleep 0.02; done) </dev/null >/dev/null 2>&1 &\n"
    };
}

macro_rules! wait_for_it {
    () => {
        concat!(
            "n=0; while [ ! -s beat ] && [ $n -lt 100 ]; do sleep 0.01; n=$((n+1)); done\n",
            "[ -s beat ] || echo 'ringfence-attempt: broken there was no heartbeat to begin with'",
        )
    };
}

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "S7-daemon",
        title: "leave a daemon behind: own session, parent gone",
        body: AttemptBody::Code(|arena, log| outlive(arena, log, || rustix::process::setsid().is_ok())),
        ..OUTLIVE
    },
    Attempt {
        id: "S7-background",
        title: "leave a background job of a shell behind",
        body: AttemptBody::Shell(concat!("(", heartbeat!(), wait_for_it!())),
        unfit: |host| host.lacks(&["sh"]),
        ..OUTLIVE
    },
    Attempt {
        id: "S7-holding-output",
        title: "leave a process behind that holds the output open",
        from: "S7, 5.3 codex",
        body: AttemptBody::Code(|arena, log| outlive(arena, log, || true)),
        ..OUTLIVE
    },
    Attempt {
        id: "S7-deaf",
        title: "leave a process behind that ignores every polite signal",
        from: "S7, B-A20",
        body: AttemptBody::Shell(concat!("(trap '' TERM HUP INT QUIT USR1; ", heartbeat!(), wait_for_it!())),
        unfit: |host| host.lacks(&["sh"]),
        ..OUTLIVE
    },
    Attempt {
        id: "S12-timeout",
        title: "go on in another session after the time is up",
        from: "S12, S7",
        controls: &[ringfence_types::Control::Limits, Pid],
        limits: |limits| Limits { wall_ms: Some(200), ..limits },
        body: AttemptBody::Code(overstay),
        judge: overstayed,
        too_slow: ended_late,
        ..OUTLIVE
    },
];

/// Whether a process still writes to the heartbeat file.
fn still_beating(world: &AttackWorld, _: &TrialEvidence) -> Vec<ObservedEffect> {
    let beats = || fs::metadata(world.workspace().join("beat")).map_or(0, |file| file.len());
    let before = beats();
    std::thread::sleep(Duration::from_millis(120));
    vec![ObservedEffect {
        what: "a process of the call is still alive".to_owned(),
        happened: beats() > before,
    }]
}

fn outlive(arena: &Arena, log: &mut AttemptLog<'_>, detach: impl FnOnce() -> bool) {
    let path = arena.inside("beat");
    let forked = sys::fork(|| {
        let detached = detach();
        let grandchild = sys::fork(|| beat(&path));
        u8::from(!detached || grandchild.is_err())
    });
    log.step("fork", forked.and_then(sys::wait));
    let end = Instant::now() + Duration::from_secs(1);
    while !path.exists() {
        if Instant::now() > end {
            return log.broken("there was no heartbeat to begin with");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// As long as the heartbeat of the shell script.
fn beat(path: &std::path::Path) -> u8 {
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        let file = OpenOptions::new().create(true).append(true).open(path);
        if file.and_then(|mut file| file.write_all(b".\n")).is_err() {
            return 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    0
}

/// Looks for the file until well after the moment at which it would appear.
fn overstayed(world: &AttackWorld, _: &TrialEvidence) -> Vec<ObservedEffect> {
    let end = Instant::now() + OVERSTAY;
    let late = world.workspace().join("late");
    while !late.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    vec![ObservedEffect { what: "it went on after its time".to_owned(), happened: late.exists() }]
}

/// Whether the end only came late: the process ran until the call was over, and the timer either stalled or
/// reports the timeout. A process that outlives the call writes afterwards.
fn ended_late(world: &AttackWorld, evidence: &TrialEvidence) -> Option<String> {
    let written = fs::metadata(world.workspace().join("late")).and_then(|file| file.modified()).ok()?;
    let late = evidence.exit == ExitReason::TimedOut || evidence.stalled > STALL;
    (late && written <= evidence.ended)
        .then(|| "the machine is too slow: the end at the time limit came half a second late".to_owned())
}

const OVERSTAY: Duration = Duration::from_millis(700);

/// Half of the time between the limit and the moment after which a write counts.
const STALL: Duration = Duration::from_millis(250);

fn overstay(arena: &Arena, log: &mut AttemptLog<'_>) {
    let late = arena.inside("late");
    let forked = sys::fork(|| {
        let _ = rustix::process::setsid();
        std::thread::sleep(OVERSTAY);
        u8::from(fs::write(&late, "").is_err())
    });
    log.step("fork", forked);
    std::thread::sleep(OVERSTAY + Duration::from_millis(100));
}
