//! Attempts on the rest of the machine: devices, kernel files, homes, runtime directories, Ringfence's own
//! state.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ringfence_types::Control::{FsRead, FsWrite};

use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, BASE, ControlRequirement};
use crate::evidence::{AttemptLog, TrialEvidence};
use crate::host::HostFeatures;
use crate::judge::{self, ObservedEffect};

const ANY: Attempt = Attempt { controls: &[FsRead, FsWrite], proof: ControlRequirement::Some, ..BASE };

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "F3-devices",
        title: "open devices of the machine",
        from: "F3, B-C13",
        body: AttemptBody::Code(devices),
        excuse: ordinary_user,
        ..ANY
    },
    Attempt {
        id: "F3-device-list",
        title: "see devices beyond the harmless ones",
        from: "F3, B-C13",
        body: AttemptBody::Code(device_list),
        ..ANY
    },
    Attempt {
        id: "F21-kernel-settings",
        title: "open kernel settings for writing",
        from: "F21, 2.6",
        controls: &[FsWrite],
        unfit: judge::needs_root,
        body: AttemptBody::Code(|_, log| open_for_writing(log, KERNEL_SETTINGS)),
        ..ANY
    },
    Attempt {
        id: "F21-kernel-memory",
        title: "open the kernel's memory, log and secrets",
        from: "F21, 2.6",
        controls: &[FsRead],
        unfit: judge::needs_root,
        body: AttemptBody::Code(|_, log| {
            for path in
                ["/proc/kcore", "/proc/kmsg", "/sys/kernel/debug", "/sys/kernel/security", "/sys/firmware"]
            {
                log.step(path, opened(Path::new(path)));
            }
        }),
        ..ANY
    },
    Attempt {
        id: "F21-cgroups",
        title: "open the machine's control groups for writing",
        from: "F21",
        controls: &[FsWrite],
        unfit: judge::needs_root,
        body: AttemptBody::Code(cgroups),
        excuse: |_, _| (!Path::new("/sys/fs/cgroup").exists()).then(|| "no control groups here".to_owned()),
        ..ANY
    },
    Attempt {
        id: "F1-home",
        title: "list the real home and other users' homes",
        from: "F1, 5.3 nono",
        controls: &[FsRead],
        body: AttemptBody::Code(|arena, log| homes(arena).iter().for_each(|home| identify(log, home))),
        judge: |world, evidence| {
            homes(&world.arena).iter().map(|home| is_the_host_s(home, evidence)).collect()
        },
        excuse: |_, _| Some("no home on this machine has anything that this user could list".to_owned()),
        ..ANY
    },
    Attempt {
        id: "F1-password-hashes",
        title: "open the machine's password hashes and host keys",
        from: "F1, 5.3 bubblewrap",
        controls: &[FsRead],
        unfit: judge::needs_root,
        body: AttemptBody::Code(|_, log| {
            for path in HOST_SECRETS {
                log.step(path, opened(Path::new(path)));
            }
        }),
        ..ANY
    },
    Attempt {
        id: "N16-runtime-directories",
        title: "list /run and /var/run, where the machine's sockets live",
        from: "N16, B-N1, B-N2",
        controls: &[FsRead],
        body: AttemptBody::Code(|_, log| RUNTIME.iter().for_each(|path| identify(log, Path::new(path)))),
        judge: |_, evidence| RUNTIME.iter().map(|path| is_the_host_s(Path::new(path), evidence)).collect(),
        ..ANY
    },
    Attempt {
        id: "D10-state-read",
        title: "read Ringfence's own state",
        from: "D10, B-C10",
        controls: &[FsRead],
        body: AttemptBody::Code(|arena, log| {
            log.step("list", peopled(arena.state.as_path()));
            log.step("open", first_file(arena.state.as_path()).and_then(|path| opened(&path)));
        }),
        ..ANY
    },
    Attempt {
        id: "D10-state-write",
        title: "open the ledger for writing",
        from: "D10, B-C10",
        controls: &[FsWrite],
        body: AttemptBody::Code(|arena, log| {
            let file = first_file(arena.state.as_path());
            log.step("open", file.and_then(|path| OpenOptions::new().append(true).open(path)));
        }),
        ..ANY
    },
];

const KERNEL_SETTINGS: &[&str] = &[
    "/proc/sysrq-trigger",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/fs/binfmt_misc/register",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];

const HOST_SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_rsa_key",
    "/var/lib/systemd/random-seed",
];

fn ordinary_user(host: &HostFeatures, _: &TrialEvidence) -> Option<String> {
    (!host.root).then(|| "this user may open none of these devices anyway".to_owned())
}

// Only nodes without a side effect on open: no watchdog, tape or terminal.
fn devices(_: &Arena, log: &mut AttemptLog<'_>) {
    const NODES: &[&str] = &[
        "kmsg",
        "mem",
        "port",
        "fuse",
        "kvm",
        "loop-control",
        "loop0",
        "vda",
        "sda",
        "nvme0n1",
        "net/tun",
        "userfaultfd",
        "mapper/control",
        "vhost-net",
        "vhost-vsock",
        "vsock",
        "uinput",
        "hwrng",
        "btrfs-control",
    ];
    for node in NODES {
        log.step(node, opened(&Path::new("/dev").join(node)));
    }
}

fn device_list(_: &Arena, log: &mut AttemptLog<'_>) {
    const HARMLESS: &[&str] = &[
        "null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "shm", "fd", "stdin", "stdout",
        "stderr", "mqueue", "console", "core",
    ];
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    for name in names.filter(|name| !HARMLESS.contains(&name.as_str())).take(8) {
        log.step(&name, Ok::<(), io::Error>(()));
    }
}

// Opened, never written.
fn open_for_writing(log: &mut AttemptLog<'_>, paths: &[&str]) {
    for path in paths {
        log.step(path, OpenOptions::new().write(true).open(path));
    }
}

fn cgroups(_: &Arena, log: &mut AttemptLog<'_>) {
    let root = Path::new("/sys/fs/cgroup");
    let mut directories = vec![root.to_path_buf()];
    directories.extend(fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()));
    for directory in directories {
        for name in ["cgroup.procs", "release_agent", "tasks"] {
            let path = directory.join(name);
            let shown = path.display().to_string();
            log.step(&shown, OpenOptions::new().write(true).open(path));
        }
    }
}

const RUNTIME: [&str; 2] = ["/run", "/var/run"];

fn homes(arena: &Arena) -> Vec<PathBuf> {
    let real = arena.home.as_ref().map(|home| home.as_path().to_path_buf());
    real.into_iter().chain([PathBuf::from("/root"), PathBuf::from("/home")]).collect()
}

/// Prints the identity of the directory at a path, if it can be listed and is not empty.
fn identify(log: &mut AttemptLog<'_>, path: &Path) {
    if peopled(path).is_ok() {
        log.read("list", identity(path));
    }
}

/// A stand-in is another directory: a bind mount keeps device and inode.
fn is_the_host_s(path: &Path, evidence: &TrialEvidence) -> ObservedEffect {
    let seen = identity(path).is_ok_and(|identity| evidence.shows(&identity));
    ObservedEffect { what: format!("{} is the host's", path.display()), happened: seen }
}

fn identity(path: &Path) -> io::Result<String> {
    let found = fs::metadata(path)?;
    Ok(format!("{} is {}:{}.", path.display(), found.dev(), found.ino()))
}

fn opened(path: &Path) -> io::Result<fs::File> {
    const NONBLOCK_NOCTTY: i32 = 0o4000 | 0o400;
    OpenOptions::new().read(true).custom_flags(NONBLOCK_NOCTTY).open(path)
}

/// Whether a directory can be listed and is not empty: an empty stand-in hides as well as absence.
fn peopled(path: &Path) -> io::Result<()> {
    fs::read_dir(path)?.next().map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn first_file(directory: &Path) -> io::Result<PathBuf> {
    let mut files =
        fs::read_dir(directory)?.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    files.next().ok_or_else(|| io::ErrorKind::NotFound.into())
}
