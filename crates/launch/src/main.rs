//! The launcher: receives a plan, applies it step by step, becomes PID 1 of the sandbox.
//!
//! It runs with the most rights and trusts the least: no C library, no allocator, one thread, one function per
//! step in the order of `LaunchStep`. Each step succeeds or the launch fails; nothing is skipped and nothing degrades.
//!
//! ```text
//!  ringfence ── spawn ──► outer launcher      close fds, cgroup, namespaces, id maps
//!      │                       │
//!      │                       └─ clone(CLONE_PARENT) ──► PID 1   root, masks, caps, Landlock, seccomp; then:
//!      │                                                   ├─ leader (one per call, a child subreaper)
//!      └──────────── control socket ───────────────────────┤    └─ command … its children
//!                                                          └─ leader …
//! ```
#![no_std]
#![no_main]

mod approval;
mod descendants;
mod init;
mod leader;
mod network;
mod repair;
mod seal;
mod steps;
mod sys;

use ringfence_launch::step::LaunchStep;
use ringfence_launch::wire::{self, ControlMessage, MESSAGE_SIZE};
use sys::{Errno, ForkResult};

/// The control socket: the spawning process passes it as standard input.
pub(crate) const CONTROL: i32 = 0;

/// A failure, with enough detail for the parent to name the step and the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchFailure {
    pub(crate) step: LaunchStep,
    pub(crate) operation: u64,
    pub(crate) errno: i32,
}

impl LaunchFailure {
    pub(crate) fn at(step: LaunchStep) -> impl Fn(Errno) -> Self {
        move |errno| Self { step, operation: 0, errno: errno.0 }
    }
}

/// Returns the exit code of this process.
pub(crate) fn launch() -> i32 {
    match prepare().and_then(|prepared| init::run(&prepared)) {
        Ok(()) => 0,
        Err(failure) => {
            report(failure);
            125
        }
    }
}

fn report(failure: LaunchFailure) {
    let message = ControlMessage::Failed {
        step: u64::from(failure.step as u32),
        operation: failure.operation,
        errno: failure.errno as u64,
    };
    // The parent treats the end of the socket as a failure too, so an unsent report is not lost.
    let _unheard = sys::send(CONTROL, &message.encode(), None);
}

/// State that PID 1 starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitState {
    pub(crate) cgroups: u64,
}

// PRIVILEGE: the rights of the caller. Until the namespaces exist, nothing of the host is hidden.
fn prepare() -> Result<InitState, LaunchFailure> {
    if is_init() {
        sys::connect(wire::CONTROL_INSIDE, CONTROL).map_err(LaunchFailure::at(LaunchStep::Receive))?;
    }
    let mut fds = [-1; sys::MAX_FDS];
    let (message, count) = receive(&mut fds)?;
    let (namespaces, uid, gid, cgroups) = match message {
        ControlMessage::Start { namespaces, uid, gid, cgroups } => (namespaces, uid, gid, cgroups),
        ControlMessage::Repair { length } => {
            repair::run(fds.get(..count).unwrap_or_default(), length as usize)
        }
        ControlMessage::Outfit { length } => {
            repair::outfit(fds.get(..count).unwrap_or_default(), length as usize)
        }
        _ => return Err(LaunchFailure { step: LaunchStep::Receive, operation: 0, errno: libc::EPROTO }),
    };
    let groups = fds.get(..count).unwrap_or_default();
    if groups.len() as u64 != cgroups {
        return Err(LaunchFailure { step: LaunchStep::Receive, operation: 0, errno: libc::EPROTO });
    }
    steps::close_inherited(groups)?;
    steps::enter_cgroups(groups)?;
    steps::enter_namespaces(namespaces, uid, gid)?;
    if namespaces & libc::CLONE_NEWPID as u64 == 0 {
        go_on()?;
    } else {
        become_init()?;
    }
    Ok(InitState { cgroups })
}

/// Whether this process is PID 1 of a namespace: our own, or a container's.
pub(crate) fn is_init() -> bool {
    sys::own_pid() == 1
}

/// Without an own PID namespace this process continues: as PID 1 of a container, or as a stand-in.
fn go_on() -> Result<(), LaunchFailure> {
    let failed = LaunchFailure::at(LaunchStep::Init);
    let pid = sys::own_pid();
    let pidfd = sys::open_pidfd(pid).map_err(&failed)?;
    sys::send(CONTROL, &ControlMessage::Started { pid: pid as u64 }.encode(), Some(pidfd))
        .map_err(&failed)?;
    sys::close(pidfd);
    Ok(())
}

/// The child continues as PID 1. This process exits, so that the supervisor is the only parent of PID 1.
fn become_init() -> Result<(), LaunchFailure> {
    let (forked, pidfd) = sys::fork_sibling().map_err(LaunchFailure::at(LaunchStep::Init))?;
    match forked {
        ForkResult::Child => Ok(()),
        ForkResult::Parent(pid) => {
            let started = ControlMessage::Started { pid: pid as u64 };
            match sys::send(CONTROL, &started.encode(), Some(pidfd)) {
                Ok(()) => sys::exit(0),
                Err(errno) => {
                    // No other process knows the child, so none could end it.
                    let _gone_already = sys::kill(pid, libc::SIGKILL);
                    Err(LaunchFailure::at(LaunchStep::Init)(errno))
                }
            }
        }
    }
}

/// Receives one message. The end of the socket is a failure.
pub(crate) fn receive(fds: &mut [i32; sys::MAX_FDS]) -> Result<(ControlMessage, usize), LaunchFailure> {
    let mut bytes = [0_u8; MESSAGE_SIZE];
    let (length, count) =
        sys::receive(CONTROL, &mut bytes, fds).map_err(LaunchFailure::at(LaunchStep::Receive))?;
    let message = bytes.get(..length).and_then(ControlMessage::decode);
    match message {
        Some(message) => Ok((message, count)),
        None => Err(LaunchFailure { step: LaunchStep::Receive, operation: 0, errno: libc::EPROTO }),
    }
}
