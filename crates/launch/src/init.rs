//! PID 1 of the sandbox: applies the plan, reports, then serves the control socket until it closes.
//!
//! INVARIANT: when this process ends, everything inside ends: by the kernel where there is a PID namespace, by
//! `descendants::kill_all` where there is none. It ends when the control socket does, so nothing inside outlives
//! the supervisor, whatever kills the supervisor.
//!
//! What is inside can signal this process only with what the kernel lets through to PID 1 (nothing without a
//! handler, and there are none), cannot trace it (not dumpable, seccomp) and never holds its control socket.

use core::ffi::CStr;

use ringfence_launch::plan::Plan;
use ringfence_launch::step::Step;
use ringfence_launch::wire::Message;

use crate::leader::{self, Request};
use crate::sys::{self, ALL_SIGNALS, Attribute, Errno, Forked, MAX_FDS, signal_bit};
use crate::{CONTROL, Failure, Prepared, descendants, is_init, receive, seal, steps};

/// Calls that can be under way at once, background jobs included.
const MAX_CALLS: usize = 128;

pub(crate) fn run(prepared: &Prepared) -> Result<(), Failure> {
    let own_namespace = is_init();
    let plan = receive_plan()?;
    harden().map_err(Failure::at(Step::Init))?;
    if own_namespace {
        offer_namespaces().map_err(Failure::at(Step::Init))?;
    }
    steps::build_root(&plan)?;
    sys::set_umask(0o022);
    seal::seal(&plan)?;
    let achieved = seal::achieved(&plan, prepared)?;
    let signals = sys::signal_descriptor(signal_bit(libc::SIGCHLD)).map_err(Failure::at(Step::Init))?;
    sys::send(CONTROL, &Message::Ready(achieved).encode(), None).map_err(Failure::at(Step::Report))?;
    let mut server = Server { plan, own_namespace, signals, calls: [Call::FREE; MAX_CALLS] };
    server.serve();
    if !own_namespace {
        descendants::kill_all();
    }
    Ok(())
}

/// For repairs; asked for before the root is switched, while the host's /proc is there.
fn offer_namespaces() -> Result<(), Errno> {
    for (path, message) in
        [(c"/proc/self/ns/user", Message::UserNamespace), (c"/proc/self/ns/mnt", Message::MountNamespace)]
    {
        hand_over(path, &message)?;
    }
    Ok(())
}

/// Sends a message with the descriptor of what is at `path`.
pub(crate) fn hand_over(path: &CStr, message: &Message) -> Result<(), Errno> {
    let fd = sys::open(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
    let sent = sys::send(CONTROL, &message.encode(), Some(fd));
    sys::close(fd);
    sent
}

fn receive_plan() -> Result<Plan<'static>, Failure> {
    let mut fds = [-1; MAX_FDS];
    let (message, count) = receive(&mut fds)?;
    let (Message::Plan { length }, [fd, ..], 1) = (message, fds, count) else {
        return Err(Failure { step: Step::Receive, operation: 0, errno: libc::EPROTO });
    };
    let bytes = sys::map(fd, length as usize).map_err(Failure::at(Step::Receive))?;
    sys::close(fd);
    Plan::parse(bytes).map_err(|_malformed| Failure {
        step: Step::Receive,
        operation: 1,
        errno: libc::EBADMSG,
    })
}

fn harden() -> Result<(), Errno> {
    sys::block_signals(ALL_SIGNALS)?;
    sys::prctl(Attribute::SetDumpable, 0)?;
    sys::prctl(Attribute::SetSubreaper, 1).map(drop)
}

#[derive(Clone, Copy)]
struct Call {
    id: u64,
    leader: i32,
}

impl Call {
    const FREE: Self = Self { id: 0, leader: 0 };
}

struct Server {
    plan: Plan<'static>,
    own_namespace: bool,
    signals: i32,
    calls: [Call; MAX_CALLS],
}

enum Next {
    Continue,
    End,
}

impl Server {
    fn serve(&mut self) {
        loop {
            let (message, child) = match sys::wait_readable(CONTROL, self.signals) {
                Ok(ready) => ready,
                Err(Errno(libc::EINTR)) => continue,
                Err(_) => return,
            };
            if child && matches!(self.reap(), Next::End) {
                return;
            }
            if message && matches!(self.answer(), Next::End) {
                return;
            }
        }
    }

    /// Anything but a well-formed request, the end of the socket included, ends the sandbox.
    fn answer(&mut self) -> Next {
        let mut fds = [-1; MAX_FDS];
        let Ok((message, count)) = receive(&mut fds) else { return Next::End };
        let fds = fds.get(..count).unwrap_or_default();
        match message {
            Message::Run { id, length } => self.run(id, length as usize, fds),
            Message::Signal { id, signal } => self.signal(id, signal as i32),
            Message::Kill { id } => self.signal(id, leader::KILL),
            _ => return Next::End,
        }
        Next::Continue
    }

    fn run(&mut self, id: u64, length: usize, fds: &[i32]) {
        let request = Request { id, length, fds, plan: &self.plan, own_namespace: self.own_namespace };
        let started = match self.calls.iter_mut().find(|call| call.leader == 0) {
            None => Err(Errno(libc::EAGAIN)),
            Some(slot) => match sys::fork() {
                Ok(Forked::Child) => leader::lead(&request),
                Ok(Forked::Parent(pid)) => {
                    *slot = Call { id, leader: pid };
                    Ok(())
                }
                Err(errno) => Err(errno),
            },
        };
        if let Err(Errno(errno)) = started {
            leader::say(&Message::NotExecuted { id, errno: errno as u64 });
            leader::say(&Message::Exited {
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
            // A leader that is gone has said so or will be noticed by `reap`.
            let _gone_already = sys::kill(call.leader, signal);
        }
    }

    fn reap(&mut self) -> Next {
        let mut drain = [0_u8; 512];
        // Only drained: what matters is which children have ended.
        let _drained = sys::read(self.signals, &mut drain);
        while let Ok(Some(ended)) = sys::reap() {
            let Some(call) = self.calls.iter_mut().find(|call| call.leader == ended.pid) else { continue };
            let id = call.id;
            *call = Call::FREE;
            if ended.status != 0 {
                leader::say(&Message::LeaderLost { id });
                return Next::End;
            }
        }
        Next::Continue
    }
}
