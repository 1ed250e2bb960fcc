//! A launcher that goes into a running sandbox to mount again what the host has replaced.
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
    match repair(fds, length) {
        Ok(()) => {
            // A parent that does not listen treats the end of the socket as a failure.
            let _ = sys::send(CONTROL, &Message::Repaired.encode(), None);
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
    let bytes = sys::map(memory, length).map_err(Failure::at(Step::Receive))?;
    let malformed = |_| Failure { step: Step::Receive, operation: 1, errno: libc::EBADMSG };
    let plan = Plan::parse(bytes).map_err(malformed)?;
    enter(user, mount).map_err(Failure::at(Step::Namespaces))?;
    steps::build_root(&plan)
}

fn enter(user: i32, mount: i32) -> Result<(), Errno> {
    sys::enter_namespace(user, libc::CLONE_NEWUSER)?;
    sys::enter_namespace(mount, libc::CLONE_NEWNS)?;
    sys::change_directory(c"/")
}
