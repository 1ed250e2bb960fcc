//! The launcher: receives a plan, applies it step by step, becomes PID 1 of the sandbox.
//!
//! It runs with the most rights and trusts the least: no C library, no allocator, one thread, one function per
//! step in the order of `Step`. Each step succeeds or the launch fails; nothing is skipped and nothing degrades.
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

mod descendants;
mod init;
mod leader;
mod network;
mod repair;
mod seal;
mod steps;
mod sys;

use ringfence_launch::step::Step;
use ringfence_launch::wire::{self, MESSAGE_SIZE, Message};
use sys::{Errno, Forked};

/// The control socket: the spawning process passes it as standard input.
pub(crate) const CONTROL: i32 = 0;

/// What went wrong: enough for the parent to name the step and the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) operation: u64,
    pub(crate) errno: i32,
}

impl Failure {
    pub(crate) fn at(step: Step) -> impl Fn(Errno) -> Self {
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

fn report(failure: Failure) {
    let message = Message::Failed {
        step: u64::from(failure.step as u32),
        operation: failure.operation,
        errno: failure.errno as u64,
    };
    // The parent reads the end of the socket as a failure too, so a report that cannot be sent is not lost.
    let _unheard = sys::send(CONTROL, &message.encode(), None);
}

/// What PID 1 knows when it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    pub(crate) cgroups: u64,
}

// PRIVILEGE: the rights of the caller. Up to and including the namespaces nothing of the host is hidden yet.
fn prepare() -> Result<Prepared, Failure> {
    if is_init() {
        sys::connect(wire::CONTROL_INSIDE, CONTROL).map_err(Failure::at(Step::Receive))?;
    }
    let mut fds = [-1; sys::MAX_FDS];
    let (message, count) = receive(&mut fds)?;
    let (namespaces, uid, gid, cgroups) = match message {
        Message::Start { namespaces, uid, gid, cgroups } => (namespaces, uid, gid, cgroups),
        Message::Repair { length } => repair::run(fds.get(..count).unwrap_or_default(), length as usize),
        Message::Outfit { length } => repair::outfit(fds.get(..count).unwrap_or_default(), length as usize),
        _ => return Err(Failure { step: Step::Receive, operation: 0, errno: libc::EPROTO }),
    };
    let groups = fds.get(..count).unwrap_or_default();
    if groups.len() as u64 != cgroups {
        return Err(Failure { step: Step::Receive, operation: 0, errno: libc::EPROTO });
    }
    steps::close_inherited(groups)?;
    steps::enter_cgroups(groups)?;
    steps::enter_namespaces(namespaces, uid, gid)?;
    if namespaces & libc::CLONE_NEWPID as u64 == 0 {
        go_on()?;
    } else {
        become_init()?;
    }
    Ok(Prepared { cgroups })
}

/// PID 1 of a namespace that ends with it: one of our own, or a container's.
pub(crate) fn is_init() -> bool {
    sys::own_pid() == 1
}

/// Without a PID namespace of our own making this process itself goes on: as PID 1 of a container, or as a stand-in.
fn go_on() -> Result<(), Failure> {
    let failed = Failure::at(Step::Init);
    let pid = sys::own_pid();
    let pidfd = sys::open_pidfd(pid).map_err(&failed)?;
    sys::send(CONTROL, &Message::Started { pid: pid as u64 }.encode(), Some(pidfd)).map_err(&failed)?;
    sys::close(pidfd);
    Ok(())
}

/// The child goes on as PID 1; this process ends here, so that the supervisor is PID 1's only parent.
fn become_init() -> Result<(), Failure> {
    let (forked, pidfd) = sys::fork_sibling().map_err(Failure::at(Step::Init))?;
    match forked {
        Forked::Child => Ok(()),
        Forked::Parent(pid) => {
            let started = Message::Started { pid: pid as u64 };
            match sys::send(CONTROL, &started.encode(), Some(pidfd)) {
                Ok(()) => sys::exit(0),
                Err(errno) => {
                    // Nobody knows of the child, so nobody else can end it.
                    let _gone_already = sys::kill(pid, libc::SIGKILL);
                    Err(Failure::at(Step::Init)(errno))
                }
            }
        }
    }
}

/// Receives one message; the end of the socket is a failure here.
pub(crate) fn receive(fds: &mut [i32; sys::MAX_FDS]) -> Result<(Message, usize), Failure> {
    let mut bytes = [0_u8; MESSAGE_SIZE];
    let (length, count) = sys::receive(CONTROL, &mut bytes, fds).map_err(Failure::at(Step::Receive))?;
    let message = bytes.get(..length).and_then(Message::decode);
    match message {
        Some(message) => Ok((message, count)),
        None => Err(Failure { step: Step::Receive, operation: 0, errno: libc::EPROTO }),
    }
}
