//! A launcher that enters an existing sandbox: to mount again what the host has replaced, or to set up the network of namespaces
//! that another program created.
//!
//! KERNEL: a mount sits on a file, not on its name. When a host program renames another file over it, the kernel removes the mount
//! in every namespace, and the new file is as accessible inside as its directory.

use ringfence_launch::plan::Plan;
use ringfence_launch::step::LaunchStep;
use ringfence_launch::wire::ControlMessage;

use crate::sys::{self, Errno};
use crate::{CONTROL, LaunchFailure, report, steps};

// PRIVILEGE: the rights of the caller, then all rights over the namespaces of the sandbox and none over the host's.
pub(crate) fn run(fds: &[i32], length: usize) -> ! {
    end(repair(fds, length), &ControlMessage::Repaired)
}

// PRIVILEGE: as `run`, over the network namespace.
pub(crate) fn outfit(fds: &[i32], length: usize) -> ! {
    end(set_up_network(fds, length), &ControlMessage::Outfitted)
}

fn end(answer: Result<(), LaunchFailure>, done: &ControlMessage) -> ! {
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

fn repair(fds: &[i32], length: usize) -> Result<(), LaunchFailure> {
    let &[user, mount, memory] = fds else {
        return Err(LaunchFailure { step: LaunchStep::Receive, operation: 0, errno: libc::EPROTO });
    };
    let plan = read_plan(memory, length)?;
    enter(user, mount, libc::CLONE_NEWNS)
        .and_then(|()| sys::change_directory(c"/"))
        .map_err(LaunchFailure::at(LaunchStep::Namespaces))?;
    steps::build_root(&plan)
}

fn set_up_network(fds: &[i32], length: usize) -> Result<(), LaunchFailure> {
    let &[net, memory] = fds else {
        return Err(LaunchFailure { step: LaunchStep::Receive, operation: 0, errno: libc::EPROTO });
    };
    let plan = read_plan(memory, length)?;
    sys::owner_of(net)
        .and_then(|user| enter(user, net, libc::CLONE_NEWNET))
        .map_err(LaunchFailure::at(LaunchStep::Namespaces))?;
    steps::build_root(&plan)
}

fn read_plan(memory: i32, length: usize) -> Result<Plan<'static>, LaunchFailure> {
    let bytes = sys::map(memory, length).map_err(LaunchFailure::at(LaunchStep::Receive))?;
    Plan::parse(bytes).map_err(|_malformed| LaunchFailure {
        step: LaunchStep::Receive,
        operation: 1,
        errno: libc::EBADMSG,
    })
}

fn enter(user: i32, namespace: i32, kind: i32) -> Result<(), Errno> {
    sys::enter_namespace(user, libc::CLONE_NEWUSER)?;
    sys::enter_namespace(namespace, kind)
}
