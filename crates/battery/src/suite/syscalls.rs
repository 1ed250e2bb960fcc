//! Attempts on kernel interfaces that no program inside needs: the way to most kernel bugs and around most
//! fences.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ringfence_types::Control::{self, Syscalls};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, AttemptClass, BASE, ControlRequirement};
use crate::evidence::{AttemptLog, TrialEvidence};
use crate::host::HostFeatures;
use crate::judge;
use crate::sys::{self, RegisterUpperHalf};

const CALL: Attempt = Attempt {
    class: AttemptClass::System,
    controls: &[Syscalls],
    judge: judge::reached,
    excuse: judge::not_in_kernel,
    ..BASE
};

/// Refused without a capability; judged by whether the kernel got as far as checking the arguments.
const PRIVILEGED: Attempt = Attempt { unfit: judge::needs_root, ..CALL };

const NEW_USER: u64 = 0x1000_0000;
const NEW_MOUNT: u64 = 0x0002_0000;
const HIGH_BIT: u64 = 1 << 32;
const HIGHEST_PRIORITY: i32 = -20;

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "S2-io-uring",
        title: "do I/O through io_uring, which filters do not see",
        from: "S2, B-C7, B-S12",
        body: AttemptBody::Code(|_, log| {
            log.step("io_uring_setup", sys::io_uring_setup());
            log.step("io_uring_enter", sys::io_uring_enter());
            log.step("io_uring_register", sys::io_uring_register());
        }),
        excuse: judge::not_for_users,
        ..CALL
    },
    Attempt {
        id: "S2-userfaultfd",
        title: "stop the kernel in the middle of a copy",
        from: "S2",
        body: AttemptBody::Code(|_, log| {
            log.step("userfaultfd", sys::userfaultfd());
        }),
        excuse: judge::not_for_users,
        ..CALL
    },
    Attempt {
        id: "S2-keyrings",
        title: "use the kernel's keyrings, which namespaces do not divide",
        from: "S2",
        body: AttemptBody::Code(|_, log| {
            log.step("add_key", sys::add_key());
            log.step("request_key", sys::request_key());
            log.step("keyctl", sys::keyctl_session_keyring());
        }),
        ..CALL
    },
    Attempt {
        id: "S2-bpf",
        title: "load something into the kernel's bpf machine",
        from: "S2",
        body: AttemptBody::Code(|_, log| {
            log.step("bpf", sys::bpf_map_create());
        }),
        excuse: judge::not_for_users,
        ..CALL
    },
    Attempt {
        id: "S2-perf",
        title: "open a performance counter",
        from: "S2",
        body: AttemptBody::Code(|_, log| {
            log.step("perf_event_open", sys::perf_event_open());
        }),
        excuse: judge::not_for_users,
        ..CALL
    },
    Attempt {
        id: "S2-unshare-user",
        title: "make a user namespace by unshare",
        from: "S2, F23, B-C35",
        body: AttemptBody::Code(|_, log| {
            in_child(log, "unshare user", || sys::unshare(NEW_USER));
            in_child(log, "unshare user and mount", || sys::unshare(NEW_USER | NEW_MOUNT));
        }),
        judge: judge::succeeded,
        excuse: judge::not_for_users,
        ..CALL
    },
    Attempt {
        id: "S2-clone-user",
        title: "make a user namespace by clone",
        from: "S2, 5.3 srt",
        body: AttemptBody::Code(|_, log| {
            log.step("clone", sys::clone_and_wait(NEW_USER));
        }),
        judge: judge::succeeded,
        excuse: judge::not_for_users,
        ..CALL
    },
    Attempt {
        id: "S4-clone-high-bits",
        title: "the same with the upper half of the register set",
        from: "S4, 5.3 srt",
        body: AttemptBody::Code(|_, log| {
            log.step("clone", sys::clone_and_wait(HIGH_BIT | NEW_USER));
        }),
        judge: judge::succeeded,
        excuse: judge::not_for_users,
        ..CALL
    },
    Attempt {
        id: "S2-clone3",
        title: "make a user namespace by clone3, whose arguments filters cannot read",
        from: "S2, B-O3",
        body: AttemptBody::Code(|_, log| {
            log.step("clone3 user", sys::clone3_and_wait(NEW_USER));
        }),
        judge: judge::succeeded,
        excuse: judge::not_for_users,
        ..CALL
    },
    Attempt {
        id: "S2-other-namespaces",
        title: "make mount, network, pid, ipc, uts and cgroup namespaces",
        from: "S2",
        unfit: judge::needs_root,
        body: AttemptBody::Code(|_, log| {
            const KINDS: [(&str, u64); 6] = [
                ("mount", NEW_MOUNT),
                ("cgroup", 0x0200_0000),
                ("uts", 0x0400_0000),
                ("ipc", 0x0800_0000),
                ("pid", 0x2000_0000),
                ("net", 0x4000_0000),
            ];
            for (name, kind) in KINDS {
                log.step(name, sys::clone_and_wait(kind));
            }
        }),
        judge: judge::succeeded,
        ..CALL
    },
    Attempt {
        id: "S2-setns",
        title: "enter another process's namespaces",
        from: "S2, 5.3 srt",
        body: AttemptBody::Code(|_, log| {
            // Not a namespace at all: the kernel says so once it checks the descriptor.
            let file = File::open("/dev/null");
            log.step("setns", file.and_then(|file| Ok(sys::setns(file.as_raw_fd(), 0)?)));
        }),
        ..CALL
    },
    Attempt {
        id: "F22-mount",
        title: "mount and unmount",
        from: "F22, S2",
        body: AttemptBody::Code(|_, log| {
            const NOWHERE: &std::ffi::CStr = c"/ringfence-absent/mount";
            log.step("mount", sys::mount(c"none", NOWHERE, Some(c"tmpfs"), 0));
            log.step("bind", sys::mount(c"/", NOWHERE, None, 4096));
            log.step("umount2", sys::umount_detach(NOWHERE));
        }),
        ..CALL
    },
    Attempt {
        id: "F22-new-mount-api",
        title: "use the newer mount calls",
        from: "F22, B-O3",
        proof: ControlRequirement::Some,
        body: AttemptBody::Code(|_, log| {
            log.step("open_tree", sys::open_tree_root());
            log.step("mount_setattr", sys::mount_setattr_invalid());
            log.step("fsopen", sys::fsopen_tmpfs());
            log.step("fsmount", sys::fsmount_invalid());
            log.step("move_mount", sys::move_mount_invalid());
        }),
        ..CALL
    },
    Attempt {
        id: "F22-own-mounts",
        title: "mount in an own user and mount namespace",
        from: "F22, F23",
        body: AttemptBody::Code(|_, log| {
            in_child(log, "mount", mount_in_own_namespaces);
        }),
        judge: judge::succeeded,
        excuse: judge::not_for_users,
        ..CALL
    },
    Attempt {
        id: "F22-pivot-root",
        title: "change the root of the mount namespace",
        from: "F22",
        body: AttemptBody::Code(|_, log| {
            let nowhere = c"/ringfence-absent/root";
            log.step("pivot_root", sys::pivot_root(nowhere, nowhere));
        }),
        ..PRIVILEGED
    },
    Attempt {
        id: "F22-chroot",
        title: "change the root of the process",
        from: "F22",
        body: AttemptBody::Code(|arena, log| {
            log.step("chroot", rustix::process::chroot(arena.workspace.as_path()));
        }),
        judge: judge::succeeded,
        ..PRIVILEGED
    },
    Attempt {
        id: "S2-personality",
        title: "turn address randomisation off",
        from: "S2, 2.6",
        body: AttemptBody::Code(|_, log| {
            const NO_RANDOMISE: u64 = 0x0004_0000;
            log.step("personality", sys::personality(NO_RANDOMISE));
            log.step("with a high bit", sys::personality(HIGH_BIT | NO_RANDOMISE));
        }),
        judge: judge::succeeded,
        ..CALL
    },
    Attempt {
        id: "S2-ptrace",
        title: "be traced by a child's parent",
        from: "S2, 5.3 srt",
        body: AttemptBody::Code(|_, log| {
            in_child(log, "ptrace", sys::ptrace_traceme);
        }),
        ..CALL
    },
    Attempt {
        id: "S2-kernel-log",
        title: "read the kernel's log",
        from: "S2",
        body: AttemptBody::Code(|_, log| {
            log.step("syslog", sys::syslog_size());
        }),
        judge: judge::succeeded,
        excuse: judge::not_for_users,
        ..CALL
    },
    Attempt {
        id: "S2-modules",
        title: "load and unload kernel modules",
        from: "S2",
        proof: ControlRequirement::Some,
        body: AttemptBody::Code(|_, log| {
            log.step("init_module", sys::init_module_invalid());
            log.step("finit_module", sys::finit_module_invalid());
            log.step("delete_module", sys::delete_module_absent());
        }),
        ..PRIVILEGED
    },
    Attempt {
        id: "S2-kexec",
        title: "load another kernel",
        from: "S2",
        body: AttemptBody::Code(|_, log| {
            log.step("kexec_load", sys::kexec_load_invalid());
        }),
        ..PRIVILEGED
    },
    Attempt {
        id: "S2-reboot",
        title: "reboot the machine",
        from: "S2",
        body: AttemptBody::Code(|_, log| {
            log.step("reboot", sys::reboot_invalid());
        }),
        ..PRIVILEGED
    },
    Attempt {
        id: "S2-swap-acct-quota",
        title: "change swap, accounting and quotas",
        from: "S2",
        proof: ControlRequirement::Some,
        body: AttemptBody::Code(|_, log| {
            log.step("swapon", sys::swapon_absent());
            log.step("acct", sys::acct_absent());
            log.step("quotactl", sys::quotactl_absent());
        }),
        ..PRIVILEGED
    },
    Attempt {
        id: "S2-names",
        title: "change the host and domain name",
        from: "S2",
        body: AttemptBody::Code(|_, log| {
            log.step("sethostname", sys::sethostname_invalid());
            log.step("setdomainname", sys::setdomainname_invalid());
        }),
        ..PRIVILEGED
    },
    Attempt {
        id: "S2-clock",
        title: "change the clock",
        from: "S2",
        body: AttemptBody::Code(|_, log| {
            log.step("adjtimex", sys::adjtimex_invalid());
        }),
        ..PRIVILEGED
    },
    Attempt {
        id: "S2-ports",
        title: "get access to the machine's I/O ports",
        from: "S2",
        unfit: |host| not_x86(host).or_else(|| judge::needs_root(host)),
        body: AttemptBody::Code(ports),
        judge: judge::succeeded,
        ..CALL
    },
    Attempt {
        id: "S2-fanotify",
        title: "watch and hold every file access of the machine",
        from: "S2",
        body: AttemptBody::Code(|_, log| {
            log.step("fanotify_init", sys::fanotify_init_content());
        }),
        judge: judge::succeeded,
        ..PRIVILEGED
    },
    Attempt {
        id: "S2-priority",
        title: "take more of the processor than other programs",
        from: "S2",
        controls: &[Control::Limits],
        body: AttemptBody::Code(|_, log| {
            // More than it began with: that may be negative already.
            let begun = rustix::process::getpriority_process(None).unwrap_or(0);
            if begun <= HIGHEST_PRIORITY {
                return log.broken("this program runs with the highest priority already");
            }
            let more = begun.saturating_sub(5).max(HIGHEST_PRIORITY);
            log.step("setpriority", rustix::process::setpriority_process(None, more));
        }),
        judge: judge::succeeded,
        ..PRIVILEGED
    },
    Attempt {
        id: "S3-i386",
        title: "call the kernel by its 32-bit entry",
        from: "S3, B-N7, B-S13",
        unfit: not_x86,
        excuse: no_i386,
        body: AttemptBody::Code(i386),
        ..CALL
    },
    Attempt {
        id: "S3-x32",
        title: "call the kernel by x32 numbers",
        from: "S3, B-C38, B-A2",
        unfit: not_x86,
        body: AttemptBody::Code(|_, log| {
            log.step("getpid", sys::x32_getpid());
        }),
        ..CALL
    },
    Attempt {
        id: "S6-tiocsti",
        title: "type into a terminal",
        from: "S6, B-S22, CVE-2017-5226",
        body: AttemptBody::Code(|_, log| terminal(log, RegisterUpperHalf::Clear)),
        ..CALL
    },
    Attempt {
        id: "S6-high-bits",
        title: "type into a terminal with the upper half of the register set",
        from: "S6, S4, B-S22",
        body: AttemptBody::Code(|_, log| terminal(log, RegisterUpperHalf::Set)),
        ..CALL
    },
];

fn not_x86(_: &HostFeatures) -> Option<String> {
    (!cfg!(target_arch = "x86_64")).then(|| "only x86-64 has it".to_owned())
}

// KERNEL: without IA32 emulation the trap is a fault, and the process dies of SIGSEGV.
fn no_i386(_: &HostFeatures, control: &TrialEvidence) -> Option<String> {
    let faulted = control.exit == ringfence_types::ExitReason::Signal { signal: 11 };
    faulted.then(|| "this kernel has no 32-bit entry".to_owned())
}

#[cfg(target_arch = "x86_64")]
fn i386(_: &Arena, log: &mut AttemptLog<'_>) {
    log.step("getpid", sys::i386_getpid());
    log.step("socket", sys::i386_socket(16, 3, 15));
}

#[cfg(target_arch = "x86_64")]
fn ports(_: &Arena, log: &mut AttemptLog<'_>) {
    log.step("iopl", sys::iopl(3));
}

// Never run: `not_x86` excludes it.
#[cfg(not(target_arch = "x86_64"))]
fn i386(_: &Arena, log: &mut AttemptLog<'_>) {
    log.broken("only x86-64 has it");
}

#[cfg(not(target_arch = "x86_64"))]
fn ports(_: &Arena, log: &mut AttemptLog<'_>) {
    log.broken("only x86-64 has it");
}

/// Runs one step in its own child, so that its changes end with that child.
fn in_child<T>(log: &mut AttemptLog<'_>, what: &str, call: impl FnOnce() -> rustix::io::Result<T>) {
    let child = sys::fork(|| match call() {
        Ok(_) => 0,
        Err(errno) => u8::try_from(errno.raw_os_error()).unwrap_or(u8::MAX),
    });
    match child.and_then(sys::wait) {
        Ok(Some(code)) => {
            let done = if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.into())) };
            log.step(what, done);
        }
        // Ended by a signal: the filter kills.
        Ok(None) => {}
        Err(errno) => log.broken(&format!("cannot fork: {errno}")),
    }
}

// PRIVILEGE: only this child sees the tmpfs, in a mount namespace that ends with it.
fn mount_in_own_namespaces() -> rustix::io::Result<()> {
    const PRIVATE_RECURSIVE: u64 = (1 << 18) | (1 << 14);
    sys::unshare(NEW_USER | NEW_MOUNT)?;
    sys::mount(c"none", c"/", None, PRIVATE_RECURSIVE)?;
    sys::mount(c"none", c"/tmp", Some(c"tmpfs"), 0)?;
    Ok(())
}

fn terminal(log: &mut AttemptLog<'_>, half: RegisterUpperHalf) {
    let _ = rustix::process::setsid();
    // Without a terminal, any descriptor shows whether the request reaches the kernel.
    let place = own_terminal().or_else(|_| File::open("/dev/null").map(OwnedFd::from));
    let Ok(place) = place else { return log.broken("there is nothing to type into") };
    log.step("TIOCSTI", sys::type_into(place.as_fd(), half));
    log.step("TIOCLINUX", sys::ask_console(place.as_fd(), half));
}

fn own_terminal() -> io::Result<OwnedFd> {
    let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&main)?;
    unlockpt(&main)?;
    let name = ptsname(&main, Vec::new())?;
    let terminal = rustix::fs::open(name.as_c_str(), OFlags::RDWR, Mode::empty())?;
    // The main end must stay open while the terminal is used: until this process ends.
    std::mem::forget(main);
    Ok(terminal)
}
