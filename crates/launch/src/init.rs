//! PID 1 of the sandbox: applies the plan, reports, then serves the control socket until it closes.
//!
//! INVARIANT: when this process ends, everything inside ends: by the kernel with a PID namespace, by `descendants::kill_all`
//! without one. It ends when the control socket closes, so nothing inside outlives the supervisor, however the supervisor dies.
//!
//! Processes inside cannot signal it (the kernel delivers to PID 1 only signals with a handler, and there are none), cannot trace
//! it (not dumpable, seccomp) and never hold its control socket.

use core::ffi::CStr;

use ringfence_launch::plan::Plan;
use ringfence_launch::step::LaunchStep;
use ringfence_launch::wire::ControlMessage;

use crate::leader::{self, LeaderRequest};
use crate::seal::SignalScope;
use crate::sys::{self, ALL_SIGNALS, Errno, ForkResult, MAX_FDS, PrctlOption, signal_bit};
use crate::{CONTROL, InitState, LaunchFailure, descendants, is_init, receive, seal, steps};

/// Maximum of concurrent calls, background jobs included.
const MAX_CALLS: usize = 128;

pub(crate) fn run(prepared: &InitState) -> Result<(), LaunchFailure> {
    let own_namespace = is_init();
    let plan = receive_plan()?;
    harden(&plan).map_err(LaunchFailure::at(LaunchStep::Init))?;
    if own_namespace {
        offer_namespaces().map_err(LaunchFailure::at(LaunchStep::Init))?;
    }
    steps::build_root(&plan)?;
    sys::set_umask(0o022);
    let scope = seal::seal(&plan)?;
    let achieved = seal::achieved(&plan, prepared)?;
    let signals =
        sys::signal_descriptor(signal_bit(libc::SIGCHLD)).map_err(LaunchFailure::at(LaunchStep::Init))?;
    sys::send(CONTROL, &ControlMessage::Ready(achieved).encode(), None)
        .map_err(LaunchFailure::at(LaunchStep::Report))?;
    let mut server = InitServer { own_namespace, scope, signals, calls: [RunningCall::FREE; MAX_CALLS] };
    server.serve();
    if !own_namespace {
        descendants::kill_all();
    }
    Ok(())
}

/// Sends the namespaces for later repairs. Done before the root is switched, while the host's /proc is visible.
fn offer_namespaces() -> Result<(), Errno> {
    for (path, message) in [
        (c"/proc/self/ns/user", ControlMessage::UserNamespace),
        (c"/proc/self/ns/mnt", ControlMessage::MountNamespace),
    ] {
        hand_over(path, &message)?;
    }
    Ok(())
}

/// Sends a message with a descriptor of the object at `path`.
pub(crate) fn hand_over(path: &CStr, message: &ControlMessage) -> Result<(), Errno> {
    let fd = sys::open(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
    let sent = sys::send(CONTROL, &message.encode(), Some(fd));
    sys::close(fd);
    sent
}

fn receive_plan() -> Result<Plan<'static>, LaunchFailure> {
    let mut fds = [-1; MAX_FDS];
    let (message, count) = receive(&mut fds)?;
    let (ControlMessage::Plan { length }, [fd, ..], 1) = (message, fds, count) else {
        return Err(LaunchFailure { step: LaunchStep::Receive, operation: 0, errno: libc::EPROTO });
    };
    let bytes = sys::map(fd, length as usize).map_err(LaunchFailure::at(LaunchStep::Receive))?;
    sys::close(fd);
    Plan::parse(bytes).map_err(|_malformed| LaunchFailure {
        step: LaunchStep::Receive,
        operation: 1,
        errno: libc::EBADMSG,
    })
}

fn harden(plan: &Plan<'_>) -> Result<(), Errno> {
    sys::block_signals(ALL_SIGNALS)?;
    forbid_tracing(plan)?;
    sys::prctl(PrctlOption::SetSubreaper, 1).map(drop)
}

/// An outer sandbox may refuse a process that is not dumpable, because it measures memory by inspecting every process. The kernel
/// itself never returns EPERM. A plan with neither a PID namespace nor Landlock (backend `none`) makes no promise that tracing
/// could break, so such a launch continues; every other launch fails.
fn forbid_tracing(plan: &Plan<'_>) -> Result<(), Errno> {
    match sys::prctl(PrctlOption::SetDumpable, 0) {
        Err(Errno(libc::EPERM)) if !is_init() && !seal::has_landlock(plan) => Ok(()),
        result => result.map(drop),
    }
}

#[derive(Clone, Copy)]
struct RunningCall {
    id: u64,
    leader: i32,
}

impl RunningCall {
    const FREE: Self = Self { id: 0, leader: 0 };
}

struct InitServer {
    own_namespace: bool,
    scope: Option<SignalScope>,
    signals: i32,
    calls: [RunningCall; MAX_CALLS],
}

enum LoopControl {
    Continue,
    End,
}

impl InitServer {
    fn serve(&mut self) {
        loop {
            let (message, child) = match sys::wait_readable(CONTROL, self.signals) {
                Ok(ready) => ready,
                Err(Errno(libc::EINTR)) => continue,
                Err(_) => return,
            };
            if child && matches!(self.reap(), LoopControl::End) {
                return;
            }
            if message && matches!(self.answer(), LoopControl::End) {
                return;
            }
        }
    }

    /// Handles one request. A malformed request or the end of the socket ends the sandbox.
    fn answer(&mut self) -> LoopControl {
        let mut fds = [-1; MAX_FDS];
        let Ok((message, count)) = receive(&mut fds) else { return LoopControl::End };
        let fds = fds.get(..count).unwrap_or_default();
        match message {
            ControlMessage::Run { id, length } => self.run(id, length as usize, fds),
            ControlMessage::Signal { id, signal } => self.signal(id, signal as i32),
            ControlMessage::Kill { id } => self.signal(id, leader::KILL),
            _ => return LoopControl::End,
        }
        LoopControl::Continue
    }

    fn run(&mut self, id: u64, length: usize, fds: &[i32]) {
        let (own_namespace, scope) = (self.own_namespace, self.scope);
        let request = LeaderRequest { id, length, fds, own_namespace, scope, init: sys::own_pid() };
        let started = match self.calls.iter_mut().find(|call| call.leader == 0) {
            None => Err(Errno(libc::EAGAIN)),
            Some(slot) => match sys::fork() {
                Ok(ForkResult::Child) => leader::lead(&request),
                Ok(ForkResult::Parent(pid)) => {
                    *slot = RunningCall { id, leader: pid };
                    Ok(())
                }
                Err(errno) => Err(errno),
            },
        };
        if let Err(Errno(errno)) = started {
            leader::say(&ControlMessage::NotExecuted { id, errno: errno as u64 });
            leader::say(&ControlMessage::Exited {
                id,
                status: 127 << 8,
                user_us: 0,
                system_us: 0,
                max_rss_kib: 0,
                tmp_full: 0,
            });
        }
        for fd in fds {
            sys::close(*fd);
        }
    }

    fn signal(&self, id: u64, signal: i32) {
        if let Some(call) = self.calls.iter().find(|call| call.leader != 0 && call.id == id) {
            // A leader that exited has reported it, or `reap` notices.
            let _gone_already = sys::kill(call.leader, signal);
        }
    }

    /// A command can stop its leader, which then never says how the command ended: as bad as killing it, and ended as that is.
    fn end_stopped(&self) {
        for call in self.calls.iter().filter(|call| call.leader != 0) {
            if sys::was_stopped(call.leader) {
                // One that is gone is reaped.
                let _gone_already = sys::kill(call.leader, libc::SIGKILL);
            }
        }
    }

    fn reap(&mut self) -> LoopControl {
        let mut drain = [0_u8; 512];
        // Only drains the descriptor; `reap` finds the children that ended.
        let _drained = sys::read(self.signals, &mut drain);
        self.end_stopped();
        while let Ok(Some(ended)) = sys::reap() {
            let Some(call) = self.calls.iter_mut().find(|call| call.leader == ended.pid) else { continue };
            let id = call.id;
            *call = RunningCall::FREE;
            if ended.status != 0 {
                leader::say(&ControlMessage::LeaderLost { id });
                return LoopControl::End;
            }
        }
        LoopControl::Continue
    }
}
