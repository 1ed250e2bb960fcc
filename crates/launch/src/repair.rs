//! A launcher that goes into a sandbox that is there already: to mount again what the host has replaced, or to set up
//! the network of one whose namespaces another program has made.
//!
//! KERNEL: a mount sits on a file, not on its name. When a program on the host renames another file over it, the kernel
//! takes the mount away in every namespace, and the new file is as open inside as its directory.

use ringfence_launch::plan::Plan;
use ringfence_launch::step::Step;
use ringfence_launch::wire::Message;

use crate::sys::{self, Errno};
use crate::{CONTROL, Failure, report, steps};

// PRIVILEGE: the rights of the caller, then all rights over the namespaces of the sandbox and none over the host's.
pub(crate) fn run(fds: &[i32], length: usize) -> ! {
    end(repair(fds, length), &Message::Repaired)
}

// PRIVILEGE: as `run`, over the network namespace.
pub(crate) fn outfit(fds: &[i32], length: usize) -> ! {
    end(set_up_network(fds, length), &Message::Outfitted)
}

fn end(answer: Result<(), Failure>, done: &Message) -> ! {
    match answer {
        Ok(()) => {
            // A parent that does not listen treats the end of the socket as a failure.
            let _unheard = sys::send(CONTROL, &done.encode(), None);
            sys::exit(0)
        }
        Err(failure) => {
            report(failure);
            sys::exit(125)
        }
    }
}

fn repair(fds: &[i32], length: usize) -> Result<(), Failure> {
    let &[user, mount, memory] = fds else {
        return Err(Failure { step: Step::Receive, operation: 0, errno: libc::EPROTO });
    };
    let plan = read_plan(memory, length)?;
    enter(user, (mount, libc::CLONE_NEWNS))
        .and_then(|()| sys::change_directory(c"/"))
        .map_err(Failure::at(Step::Namespaces))?;
    steps::build_root(&plan)
}

fn set_up_network(fds: &[i32], length: usize) -> Result<(), Failure> {
    let &[net, memory] = fds else {
        return Err(Failure { step: Step::Receive, operation: 0, errno: libc::EPROTO });
    };
    let plan = read_plan(memory, length)?;
    sys::owner_of(net)
        .and_then(|user| enter(user, (net, libc::CLONE_NEWNET)))
        .map_err(Failure::at(Step::Namespaces))?;
    steps::build_root(&plan)
}

fn read_plan(memory: i32, length: usize) -> Result<Plan<'static>, Failure> {
    let bytes = sys::map(memory, length).map_err(Failure::at(Step::Receive))?;
    Plan::parse(bytes).map_err(|_malformed| Failure {
        step: Step::Receive,
        operation: 1,
        errno: libc::EBADMSG,
    })
}

fn enter(user: i32, (namespace, kind): (i32, i32)) -> Result<(), Errno> {
    sys::enter_namespace(user, libc::CLONE_NEWUSER)?;
    sys::enter_namespace(namespace, kind)
}
