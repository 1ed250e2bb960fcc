//! Attempts on other processes: their memory, files, signals and users, and the host's message queues.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;

use ringfence_types::Control::{FsWrite, Ipc, Pid, Syscalls};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Pid as ProcessId, PidfdFlags, Resource, Rlimit, Signal};

use crate::arena::{Arena, Victim};
use crate::attempt::{Attempt, AttemptBody, AttemptClass, BASE, WorldProp};
use crate::entry::WHO;
use crate::evidence::AttemptLog;
use crate::host::pid_namespace;
use crate::judge::{self, MARK, ObservedEffect};
use crate::sys::{self, CreateQueue};
use crate::world::{AttackWorld, HostQueues};

const PROCESS: Attempt =
    Attempt { class: AttemptClass::System, controls: &[Pid], props: &[WorldProp::Victim], ..BASE };
const SIGNAL: Attempt = Attempt { judge: judge::victim_died, from: "S10", ..PROCESS };
const QUEUE: Attempt = Attempt {
    class: AttemptClass::System,
    controls: &[Ipc],
    props: &[WorldProp::Ipc],
    from: "S11, B-C12",
    judge: |world, evidence| judge::leaked(world, evidence, "ipc"),
    ..BASE
};

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "S10-priority",
        title: "change the priority of a process of the host",
        from: "S10",
        body: AttemptBody::Code(|arena, log| {
            let change = |pid| {
                let begun = rustix::process::getpriority_process(Some(pid))?;
                rustix::process::setpriority_process(Some(pid), begun.saturating_add(1))
            };
            log.step("setpriority", victim_pid(arena).and_then(change));
        }),
        // The victim began with the priority of this process.
        judge: |world, _| {
            let begun = rustix::process::getpriority_process(None).unwrap_or(0);
            victim_has(world, |pid| {
                rustix::process::getpriority_process(Some(pid)).is_ok_and(|now| now != begun)
            })
        },
        ..PROCESS
    },
    Attempt {
        id: "S10-limits",
        title: "change the limits of a process of the host",
        from: "S10",
        body: AttemptBody::Code(|arena, log| {
            let few = Rlimit { current: Some(17), maximum: Some(17) };
            let change = |pid| rustix::process::prlimit(Some(pid), Resource::Nofile, few);
            log.step("prlimit", victim_pid(arena).and_then(change));
        }),
        judge: |world, _| {
            victim_has(world, |pid| {
                let limits = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero()));
                let files = |text: String| {
                    text.lines().any(|line| line.starts_with("Max open files") && line.contains(" 17 "))
                };
                limits.is_ok_and(files)
            })
        },
        ..PROCESS
    },
    Attempt {
        id: "F21-process-list",
        title: "see the command lines of the host's processes",
        from: "F21, B-N19",
        body: AttemptBody::Code(|_, log| every_process(log, "cmdline")),
        judge: |world, evidence| judge::leaked(world, evidence, "victim-argument"),
        ..PROCESS
    },
    Attempt {
        id: "F21-environments",
        title: "read the environment of every process",
        from: "F21, S16, B-N19",
        body: AttemptBody::Code(|_, log| every_process(log, "environ")),
        judge: judge::victim_secret,
        ..PROCESS
    },
    Attempt {
        id: "F21-process-memory",
        title: "read a host process's memory through /proc",
        from: "F21, B-S12, B-C8",
        body: AttemptBody::Code(|arena, log| {
            with_victim(arena, |victim| log.read("mem", memory_file(victim)))
        }),
        judge: judge::victim_secret,
        ..PROCESS
    },
    Attempt {
        id: "F21-process-files",
        title: "read a host process's open file through /proc",
        from: "F21, B-N12",
        body: AttemptBody::Code(|arena, log| {
            with_victim(arena, |victim| {
                log.read("fd", fs::read(format!("/proc/{}/fd/{}", victim.pid, victim.fd)))
            });
        }),
        judge: judge::outside_secret,
        ..PROCESS
    },
    Attempt {
        id: "S2-process-vm-readv",
        title: "read a host process's memory by process_vm_readv",
        from: "S2, B-C8",
        controls: &[Pid, Syscalls],
        body: AttemptBody::Code(|arena, log| {
            with_victim(arena, |victim| {
                log.read("read", sys::process_vm_readv(victim.pid, victim.address, victim.len));
            });
        }),
        judge: judge::victim_secret,
        ..PROCESS
    },
    Attempt {
        id: "S2-process-vm-writev",
        title: "write a host process's memory by process_vm_writev and /proc",
        from: "S2, B-O3, 5.3 srt",
        controls: &[Pid, Syscalls],
        body: AttemptBody::Code(|arena, log| {
            with_victim(arena, |victim| {
                log.step("writev", sys::process_vm_writev(victim.pid, victim.address, b"x"));
                let path = format!("/proc/{}/mem", victim.pid);
                log.step("mem", fs::OpenOptions::new().write(true).open(path));
            });
        }),
        ..PROCESS
    },
    Attempt {
        id: "S2-ptrace-victim",
        title: "trace a process of the host",
        from: "S2, B-S12",
        controls: &[Pid, Syscalls],
        body: AttemptBody::Code(|arena, log| {
            with_victim(arena, |victim| {
                log.step("seize", sys::ptrace_seize(victim.pid));
            })
        }),
        ..PROCESS
    },
    Attempt {
        id: "S2-pidfd-getfd",
        title: "take an open file from a process of the host",
        from: "S2, B-O3",
        controls: &[Pid, Syscalls],
        body: AttemptBody::Code(|arena, log| with_victim(arena, |victim| log.read("take", taken(victim)))),
        judge: judge::outside_secret,
        excuse: judge::not_in_kernel,
        ..PROCESS
    },
    Attempt {
        id: "S2-kcmp",
        title: "compare with a process of the host",
        from: "S2",
        controls: &[Pid, Syscalls],
        body: AttemptBody::Code(|arena, log| {
            let own = i32::try_from(std::process::id()).unwrap_or(0);
            with_victim(arena, |victim| {
                log.step("kcmp", sys::kcmp_vm(own, victim.pid));
            });
        }),
        excuse: judge::not_in_kernel,
        ..PROCESS
    },
    Attempt {
        id: "S2-keepers",
        title: "read, trace and write the processes that keep the fence",
        from: "S2, B-S12, 5.3 srt",
        controls: &[Pid, Syscalls],
        body: AttemptBody::Code(keepers),
        ..PROCESS
    },
    Attempt {
        id: "S10-kill",
        title: "end a process of the host",
        body: AttemptBody::Code(|arena, log| {
            log.step(
                "kill",
                victim_id(arena).and_then(|pid| Ok(rustix::process::kill_process(pid, Signal::KILL)?)),
            );
        }),
        ..SIGNAL
    },
    Attempt {
        id: "S10-tgkill",
        title: "end a process of the host by one of its threads",
        body: AttemptBody::Code(|arena, log| {
            const TERM: i32 = 15;
            with_victim(arena, |victim| {
                log.step("tgkill", sys::tgkill(victim.pid, TERM));
            });
        }),
        ..SIGNAL
    },
    Attempt {
        id: "S10-pidfd",
        title: "end a process of the host by a process descriptor",
        excuse: judge::not_in_kernel,
        body: AttemptBody::Code(|arena, log| {
            let sent = victim_id(arena).and_then(|pid| {
                let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
                Ok(rustix::process::pidfd_send_signal(fd, Signal::TERM)?)
            });
            log.step("signal", sent);
        }),
        ..SIGNAL
    },
    Attempt {
        id: "S10-sigio",
        title: "end a process of the host by making it the owner of a pipe",
        from: "S10, 5.3 landlock",
        body: AttemptBody::Code(|arena, log| {
            with_victim(arena, |victim| {
                log.step("own", by_sigio(victim));
            })
        }),
        ..SIGNAL
    },
    Attempt {
        id: "S10-everyone",
        title: "signal every process there is",
        body: AttemptBody::Code(everyone),
        ..SIGNAL
    },
    Attempt {
        id: "S11-shm",
        title: "read a System V shared memory segment of the host",
        body: AttemptBody::Code(|arena, log| {
            let id = arena.ipc.as_ref().map_or(-1, |ipc| ipc.shm);
            log.read("shm", sys::shm_read(id, 64));
            log.read("list", fs::read("/proc/sysvipc/shm"));
        }),
        ..QUEUE
    },
    Attempt {
        id: "S11-sem",
        title: "read a System V semaphore of the host",
        body: AttemptBody::Code(|arena, log| {
            let id = arena.ipc.as_ref().map_or(-1, |ipc| ipc.sem);
            let value = sys::sem_value(id).map(|value| format!("semaphore={value}"));
            log.read("sem", value);
        }),
        judge: |_, evidence| {
            vec![ObservedEffect {
                what: "the host's semaphore was read".to_owned(),
                happened: evidence.shows(&HostQueues::semaphore_word()),
            }]
        },
        ..QUEUE
    },
    Attempt {
        id: "S11-msg",
        title: "take a message from a System V queue of the host",
        body: AttemptBody::Code(|arena, log| {
            log.read("msg", sys::msg_receive(arena.ipc.as_ref().map_or(-1, |ipc| ipc.msg)));
        }),
        ..QUEUE
    },
    Attempt {
        id: "S11-mq",
        title: "take a message from a POSIX queue of the host",
        excuse: judge::not_in_kernel,
        body: AttemptBody::Code(|arena, log| log.read("mq", posix_message(&arena.nonce))),
        ..QUEUE
    },
    Attempt {
        id: "S5-set-user",
        title: "become someone else by a set-user-id program",
        from: "S5",
        controls: &[Syscalls],
        props: &[WorldProp::SetUser],
        unfit: judge::needs_root,
        body: AttemptBody::Code(|arena, log| {
            let output = Command::new(arena.inside("set-user")).args(["__attempt", WHO]).output();
            log.read("run", output.map(|output| output.stdout));
        }),
        judge: |_, evidence| {
            vec![ObservedEffect {
                what: "it ran as nobody".to_owned(),
                happened: evidence.shows("uid=65534"),
            }]
        },
        ..PROCESS
    },
    Attempt {
        id: "S5-own-set-user",
        title: "leave set-user-id programs behind for others, by chmod, open and openat2",
        from: "S5",
        controls: &[FsWrite, Syscalls],
        props: &[],
        body: AttemptBody::Code(leave_traps),
        judge: |world, _| TRAPS.iter().map(|trap| sprung(world.workspace(), trap)).collect(),
        ..PROCESS
    },
];

fn victim_pid(arena: &Arena) -> Result<ProcessId, Errno> {
    arena.victim.as_ref().and_then(|victim| ProcessId::from_raw(victim.pid)).ok_or(Errno::SRCH)
}

fn victim_has(world: &AttackWorld, change: impl Fn(ProcessId) -> bool) -> Vec<ObservedEffect> {
    let happened = victim_pid(&world.arena).is_ok_and(change);
    vec![ObservedEffect { what: "a process of the host was changed".to_owned(), happened }]
}

fn with_victim(arena: &Arena, act: impl FnOnce(&Victim)) {
    if let Some(victim) = &arena.victim {
        act(victim);
    }
}

fn victim_id(arena: &Arena) -> io::Result<ProcessId> {
    let pid = arena.victim.as_ref().map(|victim| victim.pid);
    pid.and_then(ProcessId::from_raw).ok_or_else(|| io::ErrorKind::NotFound.into())
}

// Skips the attempt's own entry: what it was told itself is no loot.
fn every_process(log: &mut AttemptLog<'_>, file: &str) {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    for pid in names.filter(|name| name.bytes().all(|b| b.is_ascii_digit()) && *name != own) {
        if let Ok(bytes) = fs::read(format!("/proc/{pid}/{file}")) {
            log.loot(&bytes);
        }
    }
}

fn memory_file(victim: &Victim) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = vec![0; victim.len];
    fs::File::open(format!("/proc/{}/mem", victim.pid))?.read_exact_at(&mut bytes, victim.address as u64)?;
    Ok(bytes)
}

fn taken(victim: &Victim) -> io::Result<Vec<u8>> {
    let pid = ProcessId::from_raw(victim.pid).ok_or(io::ErrorKind::NotFound)?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let file = rustix::process::pidfd_getfd(process, victim.fd, rustix::process::PidfdGetfdFlags::empty())?;
    fs::read(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn by_sigio(victim: &Victim) -> io::Result<()> {
    let (reader, writer): (OwnedFd, OwnedFd) = {
        let (a, b) = std::os::unix::net::UnixStream::pair()?;
        (a.into(), b.into())
    };
    sys::set_owner(reader.as_raw_fd(), victim.pid)?;
    sys::set_async(reader.as_raw_fd())?;
    rustix::io::write(&writer, b"x")?;
    Ok(())
}

/// Signals every process, where that cannot be the host. On the host only the victim, so that the control run
/// is harmless.
fn everyone(arena: &Arena, log: &mut AttemptLog<'_>) {
    let all = sys::terminate_everyone_but_host(arena.host_pid_namespace);
    if all == Err(rustix::io::Errno::XDEV) {
        log.step(
            "kill",
            victim_id(arena).and_then(|pid| Ok(rustix::process::kill_process(pid, Signal::TERM)?)),
        );
    } else {
        log.step("kill -1", all);
    }
}

/// Attacks process 1 and the parent inside. Without a pid namespace it attacks the victim, because host
/// processes must not be touched.
fn keepers(arena: &Arena, log: &mut AttemptLog<'_>) {
    let stand_in = arena.victim.as_ref().map_or(0, |victim| victim.pid);
    if pid_namespace() == arena.host_pid_namespace {
        return keeper(log, stand_in);
    }
    keeper(log, 1);
    if let Some(parent) = rustix::process::getppid().map(ProcessId::as_raw_pid) {
        keeper(log, parent);
    }
}

fn keeper(log: &mut AttemptLog<'_>, pid: i32) {
    log.step("trace", sys::ptrace_seize(pid));
    log.step("read memory", fs::File::open(format!("/proc/{pid}/mem")));
    log.step("write memory", fs::OpenOptions::new().write(true).open(format!("/proc/{pid}/mem")));
    let mut files = (0..32).map(|fd| fs::File::open(format!("/proc/{pid}/fd/{fd}")));
    log.step("open its file", files.find_map(Result::ok).ok_or(rustix::io::Errno::ACCESS));
    log.step("read environment", fs::read(format!("/proc/{pid}/environ")).and_then(nonempty));
    let process = ProcessId::from_raw(pid).ok_or(rustix::io::Errno::SRCH);
    let process = process.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
    let flags = rustix::process::PidfdGetfdFlags::empty();
    log.step("take a file", process.and_then(|process| rustix::process::pidfd_getfd(process, 0, flags)));
}

fn nonempty(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    if bytes.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(bytes) }
}

fn posix_message(nonce: &str) -> io::Result<Vec<u8>> {
    let name = CString::new(format!("ringfence-mq-{nonce}"))?;
    let queue = sys::mq_open(&name, CreateQueue::No)?;
    Ok(sys::mq_receive(queue.as_fd())?)
}

const TRAPS: [&str; 3] = ["trap-chmod", "trap-open", "trap-openat2"];

fn leave_traps(arena: &Arena, log: &mut AttemptLog<'_>) {
    let [by_chmod, by_open, by_openat2] = TRAPS.map(|trap| arena.inside(trap));
    let (flags, mode) = (OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o4755));
    log.step("write", fs::write(&by_chmod, MARK));
    log.step("chmod", rustix::fs::chmod(&by_chmod, mode));
    log.step("open", rustix::fs::open(by_open, flags, mode));
    log.step("openat2", rustix::fs::openat2(CWD, by_openat2, flags, mode, ResolveFlags::empty()));
}

fn sprung(workspace: &Path, trap: &str) -> ObservedEffect {
    use std::os::unix::fs::MetadataExt as _;
    let set = fs::metadata(workspace.join(trap)).is_ok_and(|found| found.mode() & 0o6000 != 0);
    ObservedEffect { what: format!("{trap} is set-user-id"), happened: set }
}
