//! Attempts on what a process is given: variables, privileges, filters.

use std::fs;
use std::io;

use ringfence_types::Control::{Env, Syscalls};

use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, AttemptClass, BASE, ControlRequirement};
use crate::evidence::{AttemptLog, TrialEvidence};
use crate::host::field;
use crate::judge::{self, ObservedEffect};
use crate::world::AttackWorld;

const SYSTEM: Attempt = Attempt { class: AttemptClass::System, ..BASE };

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "S16-environ",
        title: "find the caller's tokens in the environment",
        from: "S15, S16, B-C31, B-A23",
        controls: &[Env],
        body: AttemptBody::Code(|_, log| log.read("environ", fs::read("/proc/self/environ"))),
        judge: caller_variables,
        ..SYSTEM
    },
    Attempt {
        id: "S16-shell",
        title: "print the caller's variables from a shell",
        from: "S15, S16",
        controls: &[Env],
        unfit: judge::needs_shell,
        body: AttemptBody::Shell("set; cat /proc/$$/environ /proc/1/environ 2>/dev/null"),
        judge: caller_variables,
        ..SYSTEM
    },
    Attempt {
        id: "S1-privileges",
        title: "keep capabilities, or a way to gain some",
        from: "S1, B-C11, B-A14",
        controls: &[Syscalls],
        proof: ControlRequirement::Some,
        body: AttemptBody::Code(privileges),
        ..SYSTEM
    },
    Attempt {
        id: "S1-filter",
        title: "run without a system call filter",
        from: "S1, B-O2",
        controls: &[Syscalls],
        body: AttemptBody::Code(|_, log| {
            log.step("no filter", differs("Seccomp:", |mode| mode == "2"));
        }),
        excuse: |host, _| {
            host.outer_filter.then(|| "a system call filter is around this whole session".to_owned())
        },
        ..SYSTEM
    },
];

fn caller_variables(world: &AttackWorld, evidence: &TrialEvidence) -> Vec<ObservedEffect> {
    let leaked = |(name, value): &(std::ffi::OsString, std::ffi::OsString)| {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        ObservedEffect { what: format!("{name} is visible"), happened: evidence.shows(&value) }
    };
    world.caller_env().iter().map(leaked).collect()
}

fn privileges(_: &Arena, log: &mut AttemptLog<'_>) {
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        log.step(set, differs(set, |bits| bits.bytes().all(|digit| digit == b'0')));
    }
    log.step("NoNewPrivs:", differs("NoNewPrivs:", |flag| flag == "1"));
}

/// A step that succeeds unless this field of the process's status has the value a fence sets.
fn differs(name: &str, fenced: impl FnOnce(&str) -> bool) -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if field(&status, name).is_some_and(fenced) {
        Err(io::ErrorKind::PermissionDenied.into())
    } else {
        Ok(())
    }
}
